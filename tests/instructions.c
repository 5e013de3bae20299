/* How many instructions calls take, counted by callgrind: what tells of a kernel that has lost its
   speed, on any machine and beside any load. Waiting is not counted. Each case is called twice, and
   the second call is counted, under the case's name. The stage `instructions` of tools/test runs
   it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

#include "linattn.h"

typedef enum verb {
    CAUSAL,
    UPDATE,
    QUERY,
    MANY, /* a token of each of n sequences */
    BIDIRECTIONAL,
    RECURRENT,
    SOFTMAX, /* the last n queries of `keys` */
    NYSTROM,
} verb;

enum { DECAY = 1, DECAYS = 2, BETA = 4, READ = 8, INPUT = 16, BONUS = 32 };

typedef struct subject {
    const char *name;
    verb call;
    linattn_config config; /* dim_value is dim_key, if 0 */
    size_t n, keys;
    int gates;
    linattn_element element; /* of keys and values */
} subject;

static const subject subjects[] = {
    {"causal-16-token", CAUSAL, {.heads = 2, .dim_key = 16}, .n = 1},
    {"causal-64-token", CAUSAL, {.heads = 8, .dim_key = 64}, .n = 1},
    {"identity-16-token", CAUSAL, {.dim_key = 16, .map = LINATTN_MAP_IDENTITY}, .n = 1},
    {"exp-64-token", CAUSAL, {.dim_key = 64, .map = LINATTN_MAP_EXP}, .n = 1},
    {"update-16-token", UPDATE, {.heads = 2, .dim_key = 16}, .n = 1},
    {"query-16-token", QUERY, {.heads = 2, .dim_key = 16}, .n = 1},
    {"causal-many-16", MANY, {.heads = 2, .dim_key = 16}, .n = 64},
    {"causal-64-halves-token", CAUSAL, {.dim_key = 64, .state_type = LINATTN_F16}, .n = 1},
    {"causal-16", CAUSAL, {.dim_key = 16}, .n = 512},
    {"causal-33", CAUSAL, {.dim_key = 33}, .n = 512},
    {"causal-64", CAUSAL, {.dim_key = 64}, .n = 512},
    {"causal-128", CAUSAL, {.dim_key = 128}, .n = 512},
    {"causal-64-grouped", CAUSAL, {.heads = 4, .kv_heads = 1, .dim_key = 64}, .n = 256},
    {"causal-64-compensated",
     CAUSAL,
     {.dim_key = 64, .precision = LINATTN_PRECISION_COMPENSATED},
     .n = 256},
    {"relu-64", CAUSAL, {.dim_key = 64, .map = LINATTN_MAP_RELU}, .n = 512},
    {"exp-64", CAUSAL, {.dim_key = 64, .map = LINATTN_MAP_EXP}, .n = 512},
    {"update-64", UPDATE, {.dim_key = 64}, .n = 512},
    {"query-64", QUERY, {.dim_key = 64}, .n = 512},
    {"bidirectional-64", BIDIRECTIONAL, {.dim_key = 64}, .n = 512},
    {"window-64", CAUSAL, {.dim_key = 64, .window = 64}, .n = 512},
    {"window-256", CAUSAL, {.dim_key = 64, .window = 256}, .n = 1024},
    {"window-256-token", CAUSAL, {.dim_key = 64, .window = 256}, .n = 1},
    {"taylor-2", CAUSAL, {.dim_key = 16, .map = LINATTN_MAP_TAYLOR}, .n = 256},
    {"taylor-4", CAUSAL, {.dim_key = 8, .map = LINATTN_MAP_TAYLOR, .degree = 4}, .n = 128},
    {"gated-64-token",
     RECURRENT,
     {.dim_key = 64, .rule = LINATTN_RULE_GATED},
     .n = 1,
     .gates = DECAY},
    {"gated-64", RECURRENT, {.dim_key = 64, .rule = LINATTN_RULE_GATED}, .n = 256, .gates = DECAY},
    {"gated-channel-64",
     RECURRENT,
     {.dim_key = 64, .rule = LINATTN_RULE_GATED},
     .n = 256,
     .gates = DECAYS},
    {"rwkv6-64",
     RECURRENT,
     {.dim_key = 64, .rule = LINATTN_RULE_GATED},
     .n = 256,
     .gates = DECAYS | BONUS},
    {"delta-64", RECURRENT, {.dim_key = 64, .rule = LINATTN_RULE_DELTA}, .n = 256, .gates = BETA},
    {"gated-delta-64",
     RECURRENT,
     {.dim_key = 64, .rule = LINATTN_RULE_GATED_DELTA},
     .n = 256,
     .gates = DECAY | BETA},
    {"gated-delta-64-token",
     RECURRENT,
     {.dim_key = 64, .rule = LINATTN_RULE_GATED_DELTA},
     .n = 1,
     .gates = DECAY | BETA},
    {"kda-64",
     RECURRENT,
     {.dim_key = 64, .rule = LINATTN_RULE_GATED_DELTA},
     .n = 256,
     .gates = DECAYS | BETA},
    {"general-64",
     RECURRENT,
     {.dim_key = 64, .rule = LINATTN_RULE_GENERAL},
     .n = 256,
     .gates = DECAYS | READ},
    {"mlstm-64",
     RECURRENT,
     {.dim_key = 64, .rule = LINATTN_RULE_MLSTM},
     .n = 256,
     .gates = DECAY | INPUT},
    {"exact-64", SOFTMAX, {.dim_key = 64}, .n = 256, .keys = 256},
    {"exact-64-query", SOFTMAX, {.dim_key = 64}, .n = 1, .keys = 256},
    {"exact-64-query-f16", SOFTMAX, {.dim_key = 64}, .n = 1, .keys = 256, .element = LINATTN_F16},
    {"exact-64-query-bf16", SOFTMAX, {.dim_key = 64}, .n = 1, .keys = 256, .element = LINATTN_BF16},
    {"exact-16-query-short", SOFTMAX, {.heads = 2, .dim_key = 16}, .n = 1, .keys = 16},
    {"exact-64-group", SOFTMAX, {.heads = 4, .kv_heads = 1, .dim_key = 64}, .n = 1, .keys = 256},
    {"nystrom-32", NYSTROM, {.dim_key = 32, .landmarks = 32}, .n = 256},
};

static void stop(const char *name, const char *what)
{
    fprintf(stderr, "instructions: %s: %s\n", name, what);
    exit(1);
}

/* On a line of the cache, as counts may differ elsewhere. */
static void *bytes_of(const char *name, size_t bytes)
{
    void *at = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!at) stop(name, "no memory");
    memset(at, 0, bytes);
    return at;
}

/* Numbers from `low` on, below low + width: the same in every run. */
static float *floats_of(const char *name, size_t count, float low, float width)
{
    static uint32_t state = 1;
    float *x = bytes_of(name, count * sizeof *x);
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = low + width * (float)(state >> 8) / 16777216.0f;
    }
    return x;
}

typedef struct operands {
    linattn_view q, k, v;
    float *out;
    linattn_gates gates;
    void *states[64];
} operands;

static _Alignas(64) char workspace[(size_t)4 << 20];

/* As 16 bits: small positive numbers in either type. */
static linattn_view keys_of(const subject *s, size_t count)
{
    if (s->element == LINATTN_F32) return linattn_rows(floats_of(s->name, count, -0.2f, 0.4f));
    uint16_t *half = bytes_of(s->name, count * sizeof *half);
    for (size_t i = 0; i < count; i++) half[i] = (uint16_t)(0x3000 + i % 511);
    return linattn_rows_as(half, s->element);
}

static operands operands_of(const subject *s)
{
    const linattn_config *c = &s->config;
    const size_t n = s->keys > s->n ? s->keys : s->n, d = c->dim_key,
                 heads = c->heads ? c->heads : 1;
    const size_t kv_heads = c->kv_heads ? c->kv_heads : heads;
    const size_t states = s->call == MANY ? s->n : 1, bytes = linattn_state_size(c);
    operands x = {.q = linattn_rows(floats_of(s->name, n * heads * d, -0.2f, 0.4f)),
                  .k = keys_of(s, n * kv_heads * d),
                  .v = keys_of(s, n * kv_heads * d),
                  .out = bytes_of(s->name, n * heads * d * sizeof(float))};
    if (s->gates & (DECAY | DECAYS))
        x.gates.decay = linattn_rows(floats_of(s->name, n * heads * d, 0.9f, 0.1f));
    x.gates.decay_per_feature = (s->gates & DECAYS) != 0;
    if (s->gates & BETA) x.gates.beta = linattn_rows(floats_of(s->name, n * heads, 0.2f, 0.6f));
    if (s->gates & INPUT) x.gates.input = linattn_rows(floats_of(s->name, n * heads, -1.0f, 2.0f));
    if (s->gates & BONUS) x.gates.bonus = linattn_rows(floats_of(s->name, heads * d, 0.0f, 1.0f));
    if (s->gates & READ) {
        x.gates.read = linattn_rows(floats_of(s->name, n * heads * d, -0.2f, 0.4f));
        x.gates.write = linattn_rows(floats_of(s->name, n * heads * d, -0.2f, 0.4f));
    }
    for (size_t i = 0; i < states && s->call < SOFTMAX && s->call != BIDIRECTIONAL; i++) {
        x.states[i] = bytes_of(s->name, bytes);
        if (linattn_state_init(c, x.states[i], bytes) != LINATTN_OK)
            stop(s->name, linattn_config_error(c));
    }
    return x;
}

static linattn_status call(const subject *s, operands *x)
{
    const linattn_output out = linattn_output_rows(x->out);
    switch (s->call) {
    case CAUSAL: return linattn_causal(x->states[0], x->q, x->k, x->v, out, s->n, NULL);
    case UPDATE: return linattn_update(x->states[0], x->k, x->v, s->n, NULL);
    case QUERY: return linattn_query(x->states[0], x->q, out, s->n, NULL);
    case MANY: return linattn_causal_many(x->states, s->n, x->q, x->k, x->v, out, 1, NULL);
    case BIDIRECTIONAL:
        return linattn_bidirectional(&s->config, x->q, s->n, x->k, x->v, s->n, out, workspace,
                                     sizeof workspace, NULL);
    case RECURRENT:
        return linattn_recurrent(x->states[0], x->q, x->k, x->v, &x->gates, out, s->n, NULL);
    case SOFTMAX:
        return linattn_softmax(&s->config, x->q, s->n, x->k, x->v, s->keys, out, 1, workspace,
                               sizeof workspace, NULL);
    case NYSTROM:
        return linattn_nystrom(&s->config, x->q, s->n, x->k, x->v, s->n, out, 0, workspace,
                               sizeof workspace, NULL);
    }
    return LINATTN_ERROR_UNSUPPORTED;
}

int main(void)
{
    if (linattn_isa_select(LINATTN_ISA_AVX2) != LINATTN_OK) {
        puts("this processor, or valgrind, lacks AVX2");
        return 77;
    }
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        const subject *s = &subjects[i];
        operands x = operands_of(s);
        linattn_status status = call(s, &x);
        if (status != LINATTN_OK) stop(s->name, linattn_status_string(status));
        CALLGRIND_ZERO_STATS;
        status = call(s, &x);
        CALLGRIND_DUMP_STATS_AT(s->name);
        if (status != LINATTN_OK) stop(s->name, linattn_status_string(status));
    }
    return 0;
}
