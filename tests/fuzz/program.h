/* An example program within a libFuzzer target, which includes this and then the program's file. It
   ends by a jump rather than the process; what it took is given back then; there is little memory,
   no second thread, and a clock on which everything takes a second. */
#ifndef FUZZ_PROGRAM_H
#define FUZZ_PROGRAM_H

#define _DEFAULT_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct {
    jmp_buf end;
    void *memory[512];
    FILE *streams[8];
    size_t blocks, files;
    void (*at_exit)(void);
    time_t now;
} host;

__attribute__((noreturn)) static void program_exit(int status)
{
    if (status != 0 && status != 2) abort();
    longjmp(host.end, 1);
}

static int program_memalign(void **memory, size_t alignment, size_t bytes)
{
    enum { MOST = 1 << 25 };
    if (host.blocks == sizeof host.memory / sizeof *host.memory) abort();
    if (bytes > MOST || posix_memalign(memory, alignment, bytes) != 0) return ENOMEM;
    host.memory[host.blocks++] = *memory;
    return 0;
}

static void program_forget(const void *memory)
{
    for (size_t i = 0; i < host.blocks; i++)
        if (host.memory[i] == memory) host.memory[i] = host.memory[--host.blocks];
}

static void program_free(void *memory)
{
    program_forget(memory);
    free(memory);
}

static void *program_realloc(void *memory, size_t bytes)
{
    void *larger = realloc(memory, bytes);
    if (!larger) return NULL;
    program_forget(memory);
    host.memory[host.blocks++] = larger;
    return larger;
}

static FILE *program_keep(FILE *stream)
{
    if (host.files == sizeof host.streams / sizeof *host.streams) abort();
    if (stream) host.streams[host.files++] = stream;
    return stream;
}

static int program_fclose(FILE *stream)
{
    for (size_t i = 0; i < host.files; i++)
        if (host.streams[i] == stream) host.streams[i] = host.streams[--host.files];
    return fclose(stream);
}

static int program_atexit(void (*function)(void))
{
    host.at_exit = function;
    return 0;
}

static int program_clock(struct timespec *now)
{
    now->tv_sec = ++host.now;
    now->tv_nsec = 0;
    return 0;
}

/* Calls `program`, until it returns or ends. */
static void run_program(void (*program)(void))
{
    if (setjmp(host.end) == 0) program();
    if (host.at_exit) host.at_exit();
    host.at_exit = NULL;
    while (host.files) fclose(host.streams[--host.files]);
    while (host.blocks) free(host.memory[--host.blocks]);
}

/* In the working folder, which should be empty at first. */
static void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(name, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) abort();
}

#define exit program_exit
#define atexit program_atexit
#define posix_memalign program_memalign
#define realloc program_realloc
#define free program_free
#define fopen(path, mode) program_keep(fopen(path, mode))
#define fdopen(descriptor, mode) program_keep(fdopen(descriptor, mode))
#define fclose program_fclose
#define clock_gettime(clock, now) program_clock(now)
#define pthread_create(thread, attributes, function, argument)                                     \
    ((void)(thread), (void)(function), (void)(argument), EAGAIN)

#endif
