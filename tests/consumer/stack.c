/* Prints how many bytes of stack calls take, for each instruction set of this machine and for calls
   of a kind: a line each of the instruction set, the kind, and the bytes; "shared" is scalar code
   whose text AVX2 and AVX-512 have, too. The stack below is filled with a pattern before a call. */
#include "linattn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAINT UINT64_C(0xa5a5a5a5a5a5a5a5)

enum { WORDS = 1 << 14, HEADS = 2, MOST_DIM = 130, TOKENS = 36, FEATURES = 64 };

static float q[TOKENS * HEADS * MOST_DIM], k[TOKENS * HEADS * MOST_DIM];
static float v[TOKENS * HEADS * MOST_DIM], out[TOKENS * HEADS * MOST_DIM];
static float projection[FEATURES * MOST_DIM];
static void *state, *workspace;
static size_t bytes;

static linattn_config config;
static size_t tokens;

/* ---- Calls ---------------------------------------------------------------------------------- */

static linattn_element element; /* of what the verbs on states read */
static linattn_element kept;    /* and of what they keep */

static linattn_view rows(const float *data) { return linattn_rows_as(data, element); }

static void call_causal(void)
{
    linattn_causal(state, rows(q), rows(k), rows(v), linattn_output_rows(out), tokens, NULL);
}

static void call_init(void) { linattn_state_init(&config, state, bytes); }
static void call_update(void) { linattn_update(state, rows(k), rows(v), tokens, NULL); }
static void call_query(void)
{
    linattn_query(state, rows(q), linattn_output_rows(out), tokens, NULL);
}

static void call_bidirectional(void)
{
    linattn_bidirectional(&config, rows(q), tokens, rows(k), rows(v), tokens,
                          linattn_output_rows(out), workspace, bytes, NULL);
}

#ifndef LINATTN_NO_EXACT
static void call_softmax(void)
{
    linattn_softmax(&config, linattn_rows(q), tokens, linattn_rows(k), linattn_rows(v), tokens,
                    linattn_output_rows(out), 1, workspace, bytes, NULL);
}
#endif

#ifndef LINATTN_NO_NYSTROM
static void call_nystrom(void)
{
    linattn_nystrom(&config, linattn_rows(q), tokens, linattn_rows(k), linattn_rows(v), tokens,
                    linattn_output_rows(out), 0, workspace, bytes, NULL);
}
#endif

#ifndef LINATTN_NO_MAPS
static void call_map(void) { linattn_map(&config, 0, q, workspace, tokens); }
#endif

#ifndef LINATTN_NO_RANDOM
static void call_random(void)
{
    linattn_random_features(1, LINATTN_RANDOM_ORTHOGONAL, FEATURES, config.dim_key, workspace);
}
#endif

/* ---- Stack ---------------------------------------------------------------------------------- */

/* Below what a signal or a leaf function may use of this frame. The volatile pointer is opaque to
   the compiler, which else would see that it leaves the frame. */
static size_t __attribute__((noinline)) stack_of(void (*call)(void))
{
    uint64_t *volatile frame = (uint64_t *)((uintptr_t)__builtin_frame_address(0) / 16 * 16 - 512);
    volatile uint64_t *at;
    for (at = frame - WORDS; at < frame; at++) *at = PAINT;
    call();
    for (at = frame - WORDS; at < frame && *at == PAINT; at++) continue;
    return at < frame ? 512 + (size_t)((uintptr_t)frame - (uintptr_t)at) : 512;
}

static void most(size_t *worst, void (*call)(void))
{
    const size_t used = stack_of(call);
    if (used > *worst) *worst = used;
}

/* ---- Kinds of calls ------------------------------------------------------------------------- */

static const size_t shapes[][3] = {/* query heads per key/value head, dim_key, dim_value */
                                   {1, 16, 16}, {2, 32, 32}, {1, 64, 64},
                                   {1, 5, 100}, {2, 72, 40}, {1, 130, 8}};

static void begin(const size_t *shape, int map)
{
    memset(&config, 0, sizeof config);
    config.heads = HEADS;
    config.kv_heads = HEADS / shape[0];
    config.dim_key = shape[1];
    config.dim_value = shape[2];
    config.map = (linattn_feature_map)map;
    config.state_type = kept;
}

static void verbs(size_t *worst)
{
    if (linattn_state_size(&config) == 0) return;
    most(worst, call_init);
    for (tokens = 1; tokens <= TOKENS; tokens += TOKENS - 1) {
        most(worst, call_causal);
        if (!config.window) {
            most(worst, call_update);
            most(worst, call_query);
        }
        most(worst, call_bidirectional);
    }
}

/* One token of heads of up to 16, with every normaliser but feature, and with an epsilon: the way
   of larger heads needs more stack. Of the identity `owing` are the outputs of several heads, whose
   factors are made at once. */
static void small(size_t *worst, size_t *owing)
{
    static const size_t heads[][3] = {{1, 8, 8}, {2, 16, 16}};
    static const linattn_normaliser norms[] = {LINATTN_NORM_SUM, LINATTN_NORM_LENGTH,
                                               LINATTN_NORM_NONE};
    tokens = 1;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int map = LINATTN_MAP_ELU1; map <= LINATTN_MAP_RELU; map++)
            for (int form = 0; form < 4; form++) {
                begin(heads[i], map);
                config.normaliser = norms[form % 3];
                if (form == 3) config.epsilon = 1.0f;
                if (linattn_state_size(&config) == 0) continue;
                size_t *to = map == LINATTN_MAP_IDENTITY && form % 3 == 0 ? owing : worst;
                call_init();
                most(to, call_causal);
                most(worst, call_update);
                most(to, call_query);
            }
}

/* The normaliser in turn: what a call takes hardly depends on it. */
static void maps(size_t *worst, int first, int last, size_t window)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int map = first; map <= last; map++) {
            begin(shapes[i], map);
            config.normaliser =
                (linattn_normaliser)(1 + (i + (size_t)map) % (LINATTN_NORM_COUNT - 1));
            config.features = FEATURES;
            config.projection = projection;
            config.degree = 2;
            config.window = window;
            if (linattn_features(&config) > 200) continue;
            verbs(worst);
            config.precision = LINATTN_PRECISION_COMPENSATED;
            if (!window) verbs(worst);
        }
}

static void exact(size_t *worst)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        begin(shapes[i], 0);
        for (tokens = 1; tokens <= TOKENS; tokens += TOKENS - 1) {
#ifndef LINATTN_NO_EXACT
            most(worst, call_softmax);
#endif
#ifndef LINATTN_NO_NYSTROM
            most(worst, call_nystrom);
#endif
#ifndef LINATTN_NO_MAPS
            most(worst, call_map);
#endif
#ifndef LINATTN_NO_RANDOM
            most(worst, call_random);
#endif
        }
    }
}

#ifndef LINATTN_NO_RECURRENT
static linattn_gates gates;

static void call_recurrent(void)
{
    linattn_recurrent(state, rows(q), rows(k), rows(v), &gates, linattn_output_rows(out), tokens,
                      NULL);
}

/* All gates that a rule takes, of each feature where they may be. */
static void begin_rule(const size_t *shape, int rule, int map, int per_feature)
{
    begin(shape, map);
    config.rule = (linattn_rule)rule;
    memset(&gates, 0, sizeof gates);
    gates.decay_log = 1;
    gates.decay_per_feature = per_feature && rule != LINATTN_RULE_MLSTM;
    if (rule != LINATTN_RULE_DELTA) gates.decay.data = q;
    if (rule == LINATTN_RULE_DELTA || rule == LINATTN_RULE_GATED_DELTA) gates.beta.data = v;
    if (rule == LINATTN_RULE_GATED) gates.bonus.data = v;
    if (rule == LINATTN_RULE_GENERAL) gates.read.data = gates.write.data = k;
    if (rule == LINATTN_RULE_MLSTM) gates.input.data = v;
}

/* One token of small states, which blocks of tokens must not take: these need more stack. Values
   are not zero, as what delta rules read would then be all there is. */
static void steps(size_t *worst)
{
    static const size_t small[][3] = {{1, 16, 16}, {1, 5, 40}, {1, 64, 64}, {1, 128, 128}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) v[i] = 1.0f;
    tokens = 1;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        for (int rule = LINATTN_RULE_GATED; rule < LINATTN_RULE_COUNT; rule++)
            for (int form = 0; form < 6; form++) {
                const int maps[] = {LINATTN_MAP_IDENTITY, LINATTN_MAP_ELU1, LINATTN_MAP_UNIT};
                begin_rule(small[i], rule, maps[form / 2], form % 2);
                if (linattn_state_size(&config) == 0) continue;
                if (form % 2) memset(&gates.bonus, 0, sizeof gates.bonus);
                call_init();
                most(worst, call_recurrent);
            }
    memset(v, 0, sizeof v);
}

static void rules(size_t *worst)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int rule = LINATTN_RULE_GATED; rule < LINATTN_RULE_COUNT; rule++)
            for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
                begin_rule(shapes[i], rule, map, 1);
                if (linattn_state_size(&config) == 0) continue;
                most(worst, call_init);
                for (tokens = 1; tokens <= TOKENS; tokens += TOKENS - 1) {
                    most(worst, call_recurrent);
                    most(worst, call_query);
                }
            }
}
#endif

int main(void)
{
    bytes = (size_t)1 << 26;
    state = malloc(bytes);
    workspace = malloc(bytes);
    if (!state || !workspace) return 1;
    const unsigned both = 1u << LINATTN_ISA_AVX2 | 1u << LINATTN_ISA_AVX512;
    for (int isa = LINATTN_ISA_SCALAR; isa < LINATTN_ISA_COUNT; isa++) {
        size_t worst[6] = {0, 0, 0, 0, 0, 0}, few = 0, owing = 0, halves = 0, states = 0;
        const char *name = linattn_isa_name((linattn_isa)isa);
        if (isa == LINATTN_ISA_SCALAR && (linattn_isa_compiled() & both) == both) name = "shared";
        if (linattn_isa_select((linattn_isa)isa) != LINATTN_OK) continue;
        maps(&worst[0], LINATTN_MAP_ELU1, LINATTN_MAP_SOFTMAX, 0);
        maps(&worst[1], LINATTN_MAP_FAVOR, LINATTN_MAP_EXPDEF, 0);
        maps(&worst[2], LINATTN_MAP_ELU1, LINATTN_MAP_EXPDEF, 20);
        small(&few, &owing);
        exact(&worst[3]);
#ifndef LINATTN_NO_RECURRENT
        rules(&worst[4]);
        steps(&worst[5]);
#endif
#ifndef LINATTN_NO_HALF
        element = LINATTN_BF16;
        maps(&halves, LINATTN_MAP_ELU1, LINATTN_MAP_EXPDEF, 0);
        maps(&halves, LINATTN_MAP_ELU1, LINATTN_MAP_EXPDEF, 20);
#ifndef LINATTN_NO_RECURRENT
        rules(&halves);
#endif
        element = LINATTN_F32;
        kept = LINATTN_F16;
        maps(&states, LINATTN_MAP_ELU1, LINATTN_MAP_SOFTMAX, 0);
#ifndef LINATTN_NO_RECURRENT
        rules(&states);
#endif
        kept = LINATTN_F32;
#endif
        printf("%s maps %zu\n%s features %zu\n%s window %zu\n%s others %zu\n%s rules %zu\n"
               "%s steps %zu\n%s small %zu\n%s owing %zu\n%s halves %zu\n%s states %zu\n",
               name, worst[0], name, worst[1], name, worst[2], name, worst[3], name, worst[4], name,
               worst[5], name, few, name, owing, name, halves, name, states);
    }
    return 0;
}
