/* Linked to a test with the linker's --wrap for each function below: every call of it then comes
   from another environment of a hostile host, in turn, which has to be there again afterwards. Nor
   are the upper halves of vector registers to be in use then, or what x86 does next with the lower
   ones waits for them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common.h"

/* What parts of the registers are in use, where the CPU says. */
#if defined(__x86_64__) && !defined(__AVX__)
#include <cpuid.h>

static bool upper_halves(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
    if (!__get_cpuid_count(13, 1, &a, &b, &c, &d) || !(a & 4)) return false;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
    return a & 4;
}
#else
static bool upper_halves(void) { return false; }
#endif

typedef struct host {
    uint64_t outer, before;
    bool used; /* by the host */
    const char *name;
} host;

static host begin(void)
{
    static size_t calls;
    host h = {.outer = fp_control()};
    fp_set_control(fp_hostile(calls++ % fp_hostile_count(), &h.name));
    h.before = fp_control();
    h.used = upper_halves();
    return h;
}

static void end(host h, const char *function)
{
    uint64_t after = fp_control();
    bool used = !h.used && upper_halves();
    fp_set_control(h.outer);
    if (used) {
        fprintf(stderr, "linattn_%s leaves upper halves of registers in use\n", function);
        abort();
    }
    if (after == h.before) return;
    fprintf(stderr, "linattn_%s under %s leaves %" PRIx64 " of %" PRIx64 "\n", function, h.name,
            after, h.before);
    abort();
}

#define WRAP(name, parameters, arguments)                                                          \
    linattn_status __real_linattn_##name parameters;                                               \
    linattn_status __wrap_linattn_##name parameters;                                               \
    linattn_status __wrap_linattn_##name parameters                                                \
    {                                                                                              \
        host outside = begin();                                                                    \
        linattn_status status = __real_linattn_##name arguments;                                   \
        end(outside, #name);                                                                       \
        return status;                                                                             \
    }

typedef const linattn_config *config_in;
typedef const linattn_context *context_in;
typedef void *const *states_in;

WRAP(config_check, (config_in c), (c))
WRAP(state_init, (config_in c, void *s, size_t b), (c, s, b))
WRAP(state_reset, (void *s), (s))
WRAP(state_check, (config_in c, const void *s, size_t b), (c, s, b))
WRAP(update, (void *s, linattn_view k, linattn_view v, size_t n, context_in x), (s, k, v, n, x))
WRAP(query, (const void *s, linattn_view q, linattn_output o, size_t n, context_in x),
     (s, q, o, n, x))
WRAP(causal,
     (void *s, linattn_view q, linattn_view k, linattn_view v, linattn_output o, size_t n,
      context_in x),
     (s, q, k, v, o, n, x))
WRAP(recurrent,
     (void *s, linattn_view q, linattn_view k, linattn_view v, const linattn_gates *g,
      linattn_output o, size_t n, context_in x),
     (s, q, k, v, g, o, n, x))
WRAP(update_many, (states_in s, size_t m, linattn_view k, linattn_view v, size_t n, context_in x),
     (s, m, k, v, n, x))
WRAP(query_many,
     (const void *const *s, size_t m, linattn_view q, linattn_output o, size_t n, context_in x),
     (s, m, q, o, n, x))
WRAP(causal_many,
     (states_in s, size_t m, linattn_view q, linattn_view k, linattn_view v, linattn_output o,
      size_t n, context_in x),
     (s, m, q, k, v, o, n, x))
WRAP(recurrent_many,
     (states_in s, size_t m, linattn_view q, linattn_view k, linattn_view v, const linattn_gates *g,
      linattn_output o, size_t n, context_in x),
     (s, m, q, k, v, g, o, n, x))
WRAP(state_export, (const void *s, size_t h, int t, float *sums, float *z), (s, h, t, sums, z))
WRAP(state_import, (void *s, size_t h, int t, const float *sums, const float *z),
     (s, h, t, sums, z))
WRAP(merge, (void *d, const void *s), (d, s))
WRAP(bidirectional,
     (config_in c, linattn_view q, size_t n, linattn_view k, linattn_view v, size_t m,
      linattn_output o, void *w, size_t b, context_in x),
     (c, q, n, k, v, m, o, w, b, x))
WRAP(softmax,
     (config_in c, linattn_view q, size_t n, linattn_view k, linattn_view v, size_t m,
      linattn_output o, int u, void *w, size_t b, context_in x),
     (c, q, n, k, v, m, o, u, w, b, x))
WRAP(nystrom,
     (config_in c, linattn_view q, size_t n, linattn_view k, linattn_view v, size_t m,
      linattn_output o, int u, void *w, size_t b, context_in x),
     (c, q, n, k, v, m, o, u, w, b, x))
WRAP(map, (config_in c, int k, const float *x, float *y, size_t n), (c, k, x, y, n))
WRAP(exp, (const float *x, float *y, size_t n), (x, y, n))
WRAP(elu1, (const float *x, float *y, size_t n), (x, y, n))
WRAP(relu, (const float *x, float *y, size_t n), (x, y, n))
WRAP(random_features, (uint64_t s, linattn_random_kind k, size_t f, size_t d, float *w),
     (s, k, f, d, w))
