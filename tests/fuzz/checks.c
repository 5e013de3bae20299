/* What the tests' checks need of cmocka, in a program of libFuzzer's, which takes an abort for a
   finding. cmocka itself is not compiled with sanitizers. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "../common.h"

void print_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

void _fail(const char *file, int line)
{
    fprintf(stderr, "%s:%d\n", file, line);
    abort();
}

int _cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                            CMFixtureFunction setup, CMFixtureFunction teardown)
{
    (void)name;
    (void)tests;
    (void)count;
    (void)setup;
    (void)teardown;
    abort();
}
