/* Any sequence of calls on a few states, under any config. Each state has a twin, which only sees
   dense operands, scalar code, no cuts, no threads and the environment of IEEE 754; the state
   itself lies anywhere, and is called from any instruction set and under any floating-point
   environment of the host. After each call both have the same bits, inputs are what they were,
   nothing beside the outputs was written, and the environment is the host's, sticky flags among it;
   what the manual promises to be finite is. In between come calls that are refused, which write
   nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- The world ------------------------------------------------------------------------------ */

enum { STATES = 3 };

typedef struct world {
    linattn_config config;
    rng *r;
    size_t bytes, most; /* of a state; tokens of a call */
    bool under_rule;
    rule_form form;
    void *state[STATES], *twin[STATES];
    bool tame[STATES]; /* the inputs so far were such that outputs are finite */
    bool placed;       /* all operands lie thus, rather than anywhere: */
    guard side;
    size_t offset; /* floats past an alignment of 64 bytes */
    int step;
} world;

static const char *message(const world *w, const char *what)
{
    static char text[600];
    snprintf(text, sizeof text, "step %d, %s, seed %" PRIu64 ", %s", w->step, what, fuzz_seed(),
             config_name(&w->config));
    return text;
}

static void draw_rule(rng *r, world *w)
{
    static const linattn_normaliser normalisers[] = {LINATTN_NORM_NONE, LINATTN_NORM_SUM,
                                                     LINATTN_NORM_LENGTH};
    linattn_config *c = &w->config;
    w->form = (rule_form)rng_below(r, FORM_COUNT);
    c->map = rule_maps[rng_below(r, COUNT_OF(rule_maps))];
    c->normaliser = LINATTN_NORM_DEFAULT;
    if (rng_below(r, 2)) c->dim_value += 64; /* from there on rows owe their decays */
    if (w->form <= FORM_GATED_FEATURES)
        c->normaliser = normalisers[rng_below(r, COUNT_OF(normalisers))];
    if (rng_below(r, 3) == 0) { /* keys by values */
        c->key_heads = c->kv_heads;
        c->heads = c->kv_heads *= 1 + rng_below(r, 3);
    }
    c->rule = recurrence_empty(*c, w->form, 0, r).config.rule;
}

/* With as many unused floats between an even number of tokens, operands that end at a page begin at
   every offset in turn. */
static layout draw_layout(const world *w)
{
    layout where = {.outer_gap = w->offset, .offset = w->offset, .side = w->side};
    return w->placed ? where : layout_random(w->r);
}

static size_t draw_tokens(const world *w)
{
    size_t n = rng_below(w->r, w->most + 1);
    return w->placed ? n / 2 * 2 : n;
}

static plan draw_place(const world *w)
{
    plan drawn = {.state_side = (guard)rng_below(w->r, 3), .state_offset = 4 * rng_below(w->r, 16)};
    plan where = {.state_side = w->side, .state_offset = 4 * w->offset};
    return w->placed ? where : drawn;
}

static size_t work_of(const linattn_config *c)
{
    return (c->heads + c->kv_heads) * config_features(c) * c->dim_value;
}

/* Small, so that much is tried. */
static world draw_world(rng *r)
{
    enum { LARGEST_STATE = 1 << 16, MOST_WORK = 10000, MOST_TOKENS = 70 };
    world w = {.r = r, .under_rule = rng_below(r, 3) == 0};
    linattn_config *c = &w.config;
    *c = config_draw(r, (int)rng_below(r, LINATTN_MAP_COUNT), (int)rng_below(r, LINATTN_NORM_COUNT),
                     dim_draw(r), 200);
    c->dim_value = dim_draw(r);
    c->landmarks = 1 + rng_below(r, 20);
    c->iterations = 1 + rng_below(r, 6);
    if (w.under_rule) draw_rule(r, &w);
    if (!w.under_rule && rng_below(r, 3) == 0) c->window = window_draw(r, 40);
    bool compensated = c->rule <= LINATTN_RULE_GATED || c->rule == LINATTN_RULE_MLSTM;
    if (!c->window && rng_below(r, 3) == 0 && compensated)
        c->precision = LINATTN_PRECISION_COMPENSATED;
    c->state_type = state_type_draw(r, c);
    *c = problem_new(*c, 0, 0, r, 1).config;
    while ((w.bytes = linattn_state_size(c)) > LARGEST_STATE) {
        c->window /= 2;
        if (c->dim_value == 1) {
            c->dim_key = (c->dim_key + 1) / 2;
            c->features = (c->features + 1) / 2;
        }
        c->dim_value = (c->dim_value + 1) / 2;
    }
    check(w.bytes > 0, "%s", config_name(c));
    w.most = 1 + MOST_WORK / work_of(c);
    if (w.most > MOST_TOKENS) w.most = MOST_TOKENS;
    return w;
}

/* ---- A call --------------------------------------------------------------------------------- */

typedef enum verb {
    UPDATE,
    QUERY,
    CAUSAL,
    RECURRENT,
    BIDIRECTIONAL,
    SOFTMAX,
    SOFTMAX_CAUSAL,
    NYSTROM,
    MERGE,
    RESET,
    EXPORT,
    IMPORT,
    VERBS
} verb;

static const char *const verb_names[VERBS] = {
    "update",         "query",   "causal", "recurrent", "bidirectional", "softmax",
    "softmax causal", "nystrom", "merge",  "reset",     "export",        "import"};

typedef struct call {
    verb which;
    const linattn_config *config;
    void *state;
    void *const *states; /* of a call for many; NULL: for one */
    const void *source;  /* merged */
    linattn_view in[OPERANDS];
    linattn_gates gates;
    linattn_output out;
    size_t n, n_k, count;
    void *workspace;
    size_t workspace_bytes;
    float *sums, *z;
    size_t head;
    int transposed;
    const linattn_context *context;
} call;

static linattn_status perform_many(const call *c)
{
    const linattn_view *in = c->in;
    switch (c->which) {
    case UPDATE:
        return linattn_update_many(c->states, c->count, in[IN_K], in[IN_V], c->n, c->context);
    case QUERY:
        return linattn_query_many((const void *const *)c->states, c->count, in[IN_Q], c->out, c->n,
                                  c->context);
    case CAUSAL:
        return linattn_causal_many(c->states, c->count, in[IN_Q], in[IN_K], in[IN_V], c->out, c->n,
                                   c->context);
    default:
        return linattn_recurrent_many(c->states, c->count, in[IN_Q], in[IN_K], in[IN_V], &c->gates,
                                      c->out, c->n, c->context);
    }
}

static linattn_status perform(const call *c)
{
    const linattn_view *in = c->in;
    if (c->states) return perform_many(c);
    switch (c->which) {
    case UPDATE: return linattn_update(c->state, in[IN_K], in[IN_V], c->n, c->context);
    case QUERY: return linattn_query(c->state, in[IN_Q], c->out, c->n, c->context);
    case CAUSAL:
        return linattn_causal(c->state, in[IN_Q], in[IN_K], in[IN_V], c->out, c->n, c->context);
    case RECURRENT:
        return linattn_recurrent(c->state, in[IN_Q], in[IN_K], in[IN_V], &c->gates, c->out, c->n,
                                 c->context);
    case BIDIRECTIONAL:
        return linattn_bidirectional(c->config, in[IN_Q], c->n, in[IN_K], in[IN_V], c->n_k, c->out,
                                     c->workspace, c->workspace_bytes, c->context);
    case SOFTMAX:
    case SOFTMAX_CAUSAL:
        return linattn_softmax(c->config, in[IN_Q], c->n, in[IN_K], in[IN_V], c->n_k, c->out,
                               c->which == SOFTMAX_CAUSAL, c->workspace, c->workspace_bytes,
                               c->context);
    case NYSTROM:
        return linattn_nystrom(c->config, in[IN_Q], c->n, in[IN_K], in[IN_V], c->n_k, c->out, 0,
                               c->workspace, c->workspace_bytes, c->context);
    case MERGE: return linattn_merge(c->state, c->source);
    case RESET: return linattn_state_reset(c->state);
    case EXPORT: return linattn_state_export(c->state, c->head, c->transposed, c->sums, c->z);
    default: return linattn_state_import(c->state, c->head, c->transposed, c->sums, c->z);
    }
}

static linattn_isa base_isa(void) { return test_inexact() ? test_isa() : LINATTN_ISA_SCALAR; }

static linattn_isa draw_isa(rng *r)
{
    linattn_isa isa = (linattn_isa)(1 + rng_below(r, LINATTN_ISA_COUNT - 1));
    return test_has(isa) && !test_inexact() && rng_below(r, 3) == 0 ? isa : test_isa();
}

/* To select asks the processor what it is, which traps in a virtual machine. */
static void select_isa(linattn_isa isa)
{
    if (linattn_isa_active() != isa)
        check_status(linattn_isa_select(isa), LINATTN_OK, "%s", linattn_isa_name(isa));
}

static linattn_status perform_on(const call *c, linattn_isa isa)
{
    select_isa(isa);
    return perform(c);
}

/* From whatever the host has set, which is there again afterwards. */
static linattn_status perform_hostile(const world *w, const call *c)
{
    const char *name = "the usual environment";
    size_t which = rng_below(w->r, 2 * fp_hostile_count());
    uint64_t control = fp_ieee;
    if (which < fp_hostile_count()) control = fp_hostile(which, &name);
    select_isa(draw_isa(w->r));
    fp_set_control(control);
    uint64_t before = fp_control();
    linattn_status status = perform(c);
    uint64_t after = fp_control();
    fp_set_control(fp_ieee);
    check(after == before, "%s of %s: %" PRIx64 " after %" PRIx64, message(w, verb_names[c->which]),
          name, after, before);
    return status;
}

/* ---- Calls that are refused ----------------------------------------------------------------- */

static bool reads(verb which, rule_input input)
{
    if (which > NYSTROM || (which == UPDATE && input == IN_Q)) return false;
    return which != QUERY || input == IN_Q;
}

static bool writes_rows(verb which) { return which != UPDATE && which <= NYSTROM; }

/* Makes the call a bad one; false if it has nothing of the kind. */
static bool spoil_call(rng *r, call *c, float *elsewhere)
{
    enum { NO_STATE, CROOKED, NO_OPERAND, OVERLAP, TWICE, HUGE, NO_THREADS, SHORT, FAULTS };
    rule_input input = (rule_input)rng_below(r, IN_V + 1);
    bool whole = c->which >= BIDIRECTIONAL && c->which <= NYSTROM, rows = c->which <= NYSTROM;
    size_t tokens = whole && input != IN_Q ? c->n_k : c->n;
    static const linattn_context threadless = {NULL, NULL, 3};
    switch (rng_below(r, FAULTS)) {
    case NO_STATE: c->state = NULL; return !whole && !c->states;
    case CROOKED:
        if (whole || c->states) return false;
        c->state = (unsigned char *)c->state + 1 + rng_below(r, 3);
        return true;
    case NO_OPERAND: c->in[input].data = NULL; return reads(c->which, input) && tokens > 0;
    case OVERLAP:
        c->in[input].data = elsewhere;
        c->out.data = elsewhere;
        return writes_rows(c->which) && reads(c->which, input) && tokens > 0 && c->n > 0 &&
               c->out.data;
    case TWICE:
        c->out.stride_token = c->out.stride_head = 1;
        return writes_rows(c->which) && c->n > 1 && c->config->dim_value > 1;
    case HUGE:
        c->in[input].stride_token = SIZE_MAX / (1 + rng_below(r, 8));
        return reads(c->which, input) && tokens > 9;
    case NO_THREADS: c->context = &threadless; return rows;
    default: c->workspace_bytes -= 1; return whole;
    }
}

/* Nothing is written: neither the states nor the output, of so many floats somewhere in it. */
static void check_refused(const world *w, const call *good, float *elsewhere)
{
    enum { FLOATS = 64 };
    call c = *good;
    bool silent = good->which == RECURRENT && !good->out.data;
    memset(elsewhere, 0, FLOATS * sizeof *elsewhere);
    if (silent || !spoil_call(w->r, &c, elsewhere)) return;
    size_t mark = pool_mark();
    void *before[STATES];
    for (int i = 0; i < STATES; i++) before[i] = pool_copy(w->state[i], w->bytes);
    linattn_status status = perform_hostile(w, &c);
    check(status != LINATTN_OK, "refused: %s", message(w, verb_names[c.which]));
    for (int i = 0; i < STATES; i++)
        check_same_bytes(w->state[i], before[i], w->bytes, "refused: %s",
                         message(w, verb_names[c.which]));
    for (size_t i = 0; i < FLOATS; i++)
        check(float_bits(elsewhere[i]) == 0, "refused: %s", message(w, verb_names[c.which]));
    pool_release(mark);
}

/* ---- What must hold after a call ------------------------------------------------------------ */

static void check_twins(const world *w, const char *what)
{
    for (int i = 0; i < STATES; i++)
        check_same_state(&w->config, w->state[i], w->twin[i], message(w, what));
}

/* Sums in f16 are finite only below its limit, which nothing here keeps. */
static void check_finite(const world *w, const float *x, size_t count, const char *what)
{
    for (size_t i = 0; i < count && w->config.state_type != LINATTN_F16; i++)
        check(float_is_finite(x[i]), "element %zu is %g, %s", i, (double)x[i], message(w, what));
}

static void check_row(linattn_view view, size_t at, const float *dense, size_t dim,
                      const char *what)
{
    const float *row = element_at(view, at);
    if (view.element == LINATTN_F32) {
        check_same_bytes(row, dense, dim * sizeof *row, "an input: %s", what);
        return;
    }
    for (size_t i = 0; i < dim; i++) {
        uint16_t bits, expected = element_bits(view.element, dense[i]);
        memcpy(&bits, (const char *)row + i * sizeof bits, sizeof bits);
        check(bits == expected, "an input: %s", what);
    }
}

static void check_untouched(const world *w, linattn_view view, const float *dense, axes e,
                            const char *what)
{
    size_t head = view.stride_head ? view.stride_head : e.dim;
    size_t token = view.stride_token ? view.stride_token : e.heads * head;
    for (size_t t = 0; dense && t < e.tokens; t++)
        for (size_t h = 0; h < e.heads; h++)
            check_row(view, t * token + h * head, dense + (t * e.heads + h) * e.dim, e.dim,
                      message(w, what));
}

/* What comes out of placed rows is what was expected, or the pattern if the call was refused. gaps:
   some of the rows are of no token. */
static void check_output(const world *w, linattn_output out, axes e, layout where,
                         const float *expected, bool refused, bool gaps, const char *what)
{
    size_t count = e.tokens * e.heads * e.dim;
    float *actual = pool_floats(count), *nothing = pool_floats(count);
    collect_output(out, e.tokens, e.heads, e.dim, where, actual, message(w, what));
    if (refused || gaps) pool_known(actual, count * sizeof *actual);
    pool_known(nothing, count * sizeof *nothing);
    check_same_floats(actual, refused ? nothing : expected, count, e.dim, "%s", message(w, what));
}

/* ---- Steps ---------------------------------------------------------------------------------- */

/* Values up to 1e30, and the others such that the sums of a few hundred tokens stay finite. */
static void fill_tame(world *w, float *const in[], const size_t count[])
{
    rng *r = w->r;
    bool polynomial = !map_is_exponential(w->config.map);
    float spread = map_is_monomial(w->config.map) ? 1 : (float)(1 << rng_below(r, 8));
    bool wild = !polynomial && rng_below(r, 2);
    for (int i = IN_Q; i <= IN_K; i++) {
        rng_fill(r, in[i], count[i], spread);
        if (wild) wild_fill(r, in[i], count[i]);
    }
    rng_fill(r, in[IN_V], count[IN_V], !polynomial && rng_below(r, 4) == 0 ? 1e30f : 1);
}

static bool fill_sums(world *w, float *const in[], const size_t count[])
{
    const size_t widths[] = {w->config.dim_key, w->config.dim_key, w->config.dim_value};
    bool tame = rng_below(w->r, 3) != 0;
    fill_tame(w, in, count);
    for (int i = 0; i <= IN_V && !tame; i++)
        if (rng_below(w->r, 2)) spoil_floats(w->r, in[i], count[i], widths[i]);
    return tame;
}

/* The inputs of so many tokens, and are they tame? */
static recurrence draw_sequence(world *w, size_t n, bool *tame)
{
    rng *r = w->r;
    if (!w->under_rule) {
        recurrence x = {.config = w->config, .n = n};
        size_t count[IN_V + 1];
        for (int i = 0; i <= IN_V; i++) {
            axes e = operand_axes(&x, (rule_input)i);
            count[i] = e.tokens * e.heads * e.dim;
            x.in[i] = pool_floats(count[i]);
        }
        *tame = fill_sums(w, x.in, count);
        return x;
    }
    rule_form form = w->form;
    if (form <= FORM_BONUS && w->config.normaliser != LINATTN_NORM_SUM)
        form = (rule_form)rng_below(r, FORM_BONUS + 1);
    recurrence x = recurrence_new(w->config, form, n, r);
    *tame = rng_below(r, 3) != 0;
    for (int i = 0; i < OPERANDS && !*tame; i++)
        if (x.in[i] && rng_below(r, 2))
            spoil_floats(r, x.in[i], operand_floats(&x, (rule_input)i),
                         operand_axes(&x, (rule_input)i).dim);
    return x;
}

/* One call for each state, by the simplest means. */
static linattn_status run_twins(world *w, verb which, const recurrence *x, size_t first,
                                size_t sequences, float *out)
{
    linattn_status status = LINATTN_OK;
    size_t n = x->n / sequences;
    for (size_t s = 0; s < sequences; s++) {
        linattn_view all[OPERANDS];
        call c = {.which = which, .config = &w->config, .state = w->twin[first + s], .n = n};
        for (int i = 0; i < OPERANDS; i++) all[i] = recurrence_view(x, (rule_input)i, 0);
        recurrence_views_from(x, all, s * n, c.in);
        c.gates = recurrence_gates_of(x, c.in);
        c.out = linattn_output_rows(out ? out + s * n * recurrence_width(x) : NULL);
        if (!out) c.in[IN_Q] = linattn_rows(NULL);
        status = perform_on(&c, base_isa());
    }
    return status;
}

/* The same of the states themselves: one call for all, or for one state in pieces. */
static linattn_status run_states(world *w, call *c, const recurrence *x,
                                 const linattn_view all[OPERANDS], linattn_output out, bool cut)
{
    linattn_status status = LINATTN_OK;
    for (size_t t = 0, step; t < c->n || t == 0; t += step) {
        step = cut ? next_cut(w->r, c->n - t) : c->n;
        call piece = *c;
        piece.n = step;
        recurrence_views_from(x, all, t, piece.in);
        piece.gates = recurrence_gates_of(x, piece.in);
        if (out.data)
            piece.out = output_from(out, t, w->config.heads, w->config.dim_value);
        else
            piece.in[IN_Q] = linattn_rows(NULL);
        if (rng_below(w->r, 4) == 0) check_refused(w, &piece, pool_floats(64));
        status = perform_hostile(w, &piece);
        if (step == 0) break;
    }
    return status;
}

/* Rows of sequences one after the other, and the same with rows of no token behind each. */
static float *spread_rows(const float *dense, size_t sequences, size_t n, size_t gap, size_t width)
{
    size_t bytes = n * width * sizeof *dense;
    float *to = pool_floats(sequences * (n + gap) * width);
    pool_known(to, sequences * (n + gap) * width * sizeof *to);
    for (size_t s = 0; s < sequences; s++)
        memcpy(to + s * (n + gap) * width, dense + s * n * width, bytes);
    return to;
}

static recurrence spread_sequences(const recurrence *x, size_t sequences, size_t gap)
{
    recurrence far = *x;
    size_t n = x->n / sequences;
    far.n = sequences * (n + gap);
    for (int i = 0; i < OPERANDS; i++) {
        axes e = operand_axes(&far, (rule_input)i);
        if (x->in[i] && operand_is_of_tokens(x, (rule_input)i))
            far.in[i] = spread_rows(x->in[i], sequences, n, gap, e.heads * e.dim);
    }
    return far;
}

/* From one sequence to the next; 0 where that is what 0 means. */
static size_t sequence_stride(size_t tokens, size_t gap, size_t stride_token, axes e)
{
    return gap ? (tokens + gap) * (stride_token ? stride_token : e.heads * e.dim) : 0;
}

/* x: as spread_sequences has it. */
static void place_sequences(const world *w, const recurrence *x, const linattn_element of[OPERANDS],
                            size_t n, size_t gap, linattn_view all[OPERANDS])
{
    for (int i = 0; i < OPERANDS; i++) {
        axes e = operand_axes(x, (rule_input)i);
        all[i] = linattn_rows(NULL);
        if (!x->in[i]) continue;
        all[i] = place_elements(x->in[i], of[i], e.tokens, e.heads, e.dim, draw_layout(w));
        if (operand_is_of_tokens(x, (rule_input)i))
            all[i].stride_sequence = sequence_stride(n, gap, all[i].stride_token, e);
    }
}

/* Queries and keys of tokens in a row, for one state or all of them at once. */
static void step_tokens(world *w, verb which)
{
    static const layout dense;
    rng *r = w->r;
    bool many = rng_below(r, 4) == 0;
    bool silent = which == UPDATE || (which == RECURRENT && rng_below(r, 8) == 0), tame;
    size_t sequences = many ? STATES : 1, first = many ? 0 : rng_below(r, STATES);
    size_t n = draw_tokens(w);
    recurrence x = draw_sequence(w, sequences * n, &tame);
    linattn_element of[OPERANDS] = {LINATTN_F32};
    if (rng_below(r, 2)) recurrence_elements(r, &x, of);
    const char *name = verb_names[which];
    float *expected = silent ? NULL : pool_floats(x.n * recurrence_width(&x));
    linattn_status wanted = run_twins(w, which, &x, first, sequences, expected), status;

    linattn_context context = context_draw(r);
    call c = {.which = which, .config = &w->config, .state = w->state[first], .n = n};
    c.context = rng_below(r, 2) ? &context : NULL;
    c.states = many ? w->state : NULL;
    c.count = STATES;
    linattn_view all[OPERANDS];
    size_t gap = many && rng_below(r, 2) ? rng_below(r, 4) : 0;
    recurrence far = spread_sequences(&x, sequences, gap);
    place_sequences(w, &far, of, n, gap, all);
    layout of_out = w->placed || rng_below(r, 4) ? draw_layout(w) : dense;
    axes rows = {far.n, w->config.heads, w->config.dim_value};
    linattn_output out = linattn_output_rows(NULL);
    if (!silent) out = place_output(rows.tokens, rows.heads, rows.dim, of_out);
    out.stride_sequence = sequence_stride(n, gap, out.stride_token, rows);
    status = run_states(w, &c, &x, all, out, !many && rng_below(r, 2));

    check_status(status, wanted, "%s", message(w, name));
    for (int i = 0; i < OPERANDS; i++)
        check_untouched(w, all[i], far.in[i], operand_axes(&far, (rule_input)i), name);
    if (!silent) {
        float *spread = spread_rows(expected, sequences, n, gap, recurrence_width(&x));
        check_output(w, out, rows, of_out, spread, wanted != LINATTN_OK, gap > 0, name);
    }
    for (size_t s = first; s < first + sequences; s++) {
        w->tame[s] = w->tame[s] && (tame || n == 0 || which == QUERY);
        if (expected && wanted == LINATTN_OK && w->tame[s] && tame)
            check_finite(w, expected + (s - first) * n * recurrence_width(&x),
                         n * recurrence_width(&x), name);
    }
}

/* A sequence of its own. */
static void step_whole(world *w, verb which)
{
    rng *r = w->r;
    size_t n_q = draw_tokens(w), n_k = rng_below(r, 2) ? n_q : draw_tokens(w);
    const char *name = verb_names[which];
    problem p = problem_new(w->config, n_q, n_k, r, 1);
    float *const in[] = {p.q, p.k, p.v};
    const size_t count[] = {n_q * query_width(&p), n_k * key_width(&p), n_k * value_width(&p)};
    const axes of[] = {{n_q, p.config.heads, p.config.dim_key},
                       {n_k, p.config.kv_heads, p.config.dim_key},
                       {n_k, p.config.kv_heads, p.config.dim_value}};
    const axes rows = {n_q, p.config.heads, p.config.dim_value};
    bool tame = fill_sums(w, in, count);
    elements drawn = {LINATTN_F32, LINATTN_F32, LINATTN_F32};
    if (rng_below(r, 2)) drawn = elements_draw(r, &p);
    const linattn_element element[] = {drawn.q, drawn.k, drawn.v};
    linattn_context context = context_draw(r);
    layout where[] = {draw_layout(w), draw_layout(w), draw_layout(w)};
    layout of_out = draw_layout(w);
    linattn_workspace kind = which == BIDIRECTIONAL ? LINATTN_WORKSPACE_BIDIRECTIONAL
                             : which == NYSTROM     ? LINATTN_WORKSPACE_NYSTROM
                                                    : LINATTN_WORKSPACE_SOFTMAX;
    float *expected = pool_floats(n_q * output_width(&p));
    linattn_config config = w->config;
    if (kind == LINATTN_WORKSPACE_SOFTMAX && rng_below(r, 2)) exact_draw(r, &config, n_k);
    call c = {.which = which, .config = &config, .n = n_q, .n_k = n_k};
    c.workspace_bytes = linattn_workspace_size(&config, kind, NULL);
    c.workspace = pool_take(c.workspace_bytes);
    for (int i = 0; i <= IN_V; i++) c.in[i] = linattn_rows(in[i]);
    c.out = linattn_output_rows(expected);
    linattn_status wanted = perform_on(&c, base_isa());

    guard side = w->placed ? w->side : (guard)rng_below(r, 3);
    size_t offset = w->placed ? 4 * w->offset + rng_below(r, 4) : rng_below(r, 64);
    c.context = rng_below(r, 2) ? &context : NULL;
    c.workspace_bytes = linattn_workspace_size(&config, kind, c.context);
    c.workspace = (unsigned char *)pool_take_guarded(c.workspace_bytes + offset, side) + offset;
    for (int i = 0; i <= IN_V; i++)
        c.in[i] = place_elements(in[i], element[i], of[i].tokens, of[i].heads, of[i].dim, where[i]);
    c.out = place_output(rows.tokens, rows.heads, rows.dim, of_out);
    if (wanted == LINATTN_OK && rng_below(r, 3) == 0) check_refused(w, &c, pool_floats(64));
    check_status(perform_hostile(w, &c), wanted, "%s", message(w, name));
    for (int i = 0; i <= IN_V; i++) check_untouched(w, c.in[i], in[i], of[i], name);
    check_output(w, c.out, rows, of_out, expected, wanted != LINATTN_OK, false, name);
    /* Exact attention is finite where the products are: wild keys are not for it. */
    if (tame && wanted == LINATTN_OK && which == BIDIRECTIONAL)
        check_finite(w, expected, n_q * output_width(&p), name);
}

/* Verbs of states alone. */
static void step_state(world *w, verb which)
{
    rng *r = w->r;
    size_t at = rng_below(r, STATES), from = rng_below(r, STATES);
    const char *name = verb_names[which];
    call c = {.which = which, .config = &w->config, .source = w->twin[from], .state = w->twin[at]};
    linattn_status wanted = perform_on(&c, base_isa());
    c.state = w->state[at];
    c.source = w->state[from];
    if (rng_below(r, 4) == 0) check_refused(w, &c, pool_floats(64));
    check_status(perform_hostile(w, &c), wanted, "%s", message(w, name));
    if (which == RESET) w->tame[at] = true;
    if (which == MERGE) w->tame[at] = w->tame[at] && w->tame[from];
}

/* The sums of a state, and back into another. */
static void step_sums(world *w)
{
    rng *r = w->r;
    const linattn_config *c = &w->config;
    size_t from = rng_below(r, STATES), to = rng_below(r, STATES), m = config_features(c);
    size_t count = m * c->dim_value;
    guard side = w->placed ? w->side : (guard)rng_below(r, 3);
    float *sums = pool_floats(count), *z = pool_floats(m);
    call plain = {.which = EXPORT, .config = c, .state = w->twin[from], .sums = sums, .z = z};
    plain.head = rng_below(r, c->kv_heads + (rng_below(r, 8) == 0));
    plain.transposed = (int)rng_below(r, 2);
    if (rng_below(r, 3) == 0) plain.z = NULL;
    call placed = plain;
    placed.state = w->state[from];
    placed.sums = (float *)pool_take_guarded(count * sizeof *sums, side);
    if (plain.z) placed.z = (float *)pool_take_guarded(m * sizeof *sums, side);
    linattn_status wanted = perform_on(&plain, base_isa());
    check_status(perform_hostile(w, &placed), wanted, "%s", message(w, "export"));
    if (wanted != LINATTN_OK) {
        pool_known(sums, count * sizeof *sums);
        pool_known(z, m * sizeof *z);
        pool_known(placed.sums, count * sizeof *sums);
        if (placed.z) pool_known(placed.z, m * sizeof *z);
    }
    check_same_floats(placed.sums, sums, count, c->dim_value, "%s", message(w, "export"));
    if (plain.z) check_same_floats(placed.z, z, m, m, "%s", message(w, "export"));
    if (wanted == LINATTN_OK && w->tame[from]) check_finite(w, sums, count, "export");
    if (wanted != LINATTN_OK || rng_below(r, 2)) return;
    if (rng_below(r, 3) == 0) {
        spoil_floats(r, sums, count, c->dim_value);
        memcpy(placed.sums, sums, count * sizeof *sums);
        w->tame[to] = false;
    }
    plain.which = placed.which = IMPORT;
    plain.state = w->twin[to];
    placed.state = w->state[to];
    wanted = perform_on(&plain, base_isa());
    if (rng_below(r, 4) == 0) check_refused(w, &placed, pool_floats(64));
    check_status(perform_hostile(w, &placed), wanted, "%s", message(w, "import"));
    /* Numbers may have saturated; without z there is nothing to divide by. */
    w->tame[to] = w->tame[to] && w->tame[from] && plain.z && !map_is_exponential(c->map);
}

/* A state moves: its bytes are all there is of it. */
static void step_move(world *w)
{
    rng *r = w->r;
    size_t at = rng_below(r, STATES), from = rng_below(r, STATES);
    plan how = draw_place(w);
    void *moved = place_state(&w->config, &how);
    memcpy(moved, w->state[from], w->bytes);
    if (from != at) memcpy(w->twin[at], w->twin[from], w->bytes);
    w->state[at] = moved;
    w->tame[at] = w->tame[from];
    linattn_status status = linattn_state_check(&w->config, moved, w->bytes);
    check_status(status, LINATTN_OK, "%s", message(w, "a copy"));
}

static void step(world *w, verb which)
{
    if (which <= RECURRENT)
        step_tokens(w, which);
    else if (which <= NYSTROM)
        step_whole(w, which);
    else if (which <= RESET)
        step_state(w, which);
    else
        step_sums(w);
    check_twins(w, verb_names[which]);
    w->step++;
}

static void begin_states(world *w)
{
    for (int i = 0; i < STATES; i++) {
        plan how = draw_place(w);
        w->state[i] = place_state(&w->config, &how);
        w->twin[i] = run_init(&w->config);
        w->tame[i] = true;
    }
}

static void fuzz_calls(rng *r)
{
    enum { MOST_STEPS = 12 };
    world w = draw_world(r);
    begin_states(&w);
    for (int steps = 1 + (int)rng_below(r, MOST_STEPS); w.step < steps;) {
        verb which = (verb)rng_below(r, VERBS);
        if (w.under_rule && (which == UPDATE || which == CAUSAL) && rng_below(r, 8))
            which = RECURRENT; /* which takes these states; the others refuse them */
        if (rng_below(r, 16) == 0) step_move(&w);
        step(&w, which);
    }
    select_isa(test_isa());
}

/* ---- Damaged states ------------------------------------------------------------------------- */

/* All that a state is for, within its memory. What comes out may be anything. */
static void use_state(world *w, void *state)
{
    rng *r = w->r;
    bool tame;
    recurrence x = draw_sequence(w, 1 + rng_below(r, w->most), &tame);
    call c = {.config = &w->config, .state = state, .source = w->state[0], .n = x.n};
    float *rows = pool_floats(x.n * recurrence_width(&x));
    size_t m = config_features(&w->config);
    for (int i = 0; i < OPERANDS; i++) c.in[i] = recurrence_view(&x, (rule_input)i, 0);
    c.gates = recurrence_gates_of(&x, c.in);
    c.out = linattn_output_rows(rows);
    c.sums = pool_floats(m * w->config.dim_value);
    c.z = pool_floats(m);
    rng_fill(r, c.sums, m * w->config.dim_value, 1);
    rng_fill(r, c.z, m, 1);
    select_isa(draw_isa(r));
    for (int i = 0; i < 6; i++) {
        c.which = (verb)rng_below(r, VERBS);
        if (c.which < BIDIRECTIONAL || c.which > NYSTROM) perform(&c);
    }
    c.state = w->state[0];
    c.source = state;
    c.which = MERGE;
    perform(&c);
}

/* Bytes of a state are changed, cut off, or come from a fuzzer altogether: it is refused, or no
   verb leaves its memory and the environment. */
static void fuzz_damaged(rng *r)
{
    world w = draw_world(r);
    for (int i = 0; i < STATES; i++) w.state[i] = run_init(&w.config);
    use_state(&w, w.state[1]);
    unsigned char *bytes = (unsigned char *)w.state[1];
    size_t given = w.bytes, changes = 1 + rng_below(r, 4);
    for (size_t i = 0; i < changes; i++) {
        size_t near = rng_below(r, 2) ? 128 : w.bytes,
               at = rng_below(r, near < w.bytes ? near : w.bytes);
        uint32_t word = float_bits(bits_draw(r));
        bytes[at] = (unsigned char)rng_below(r, 256);
        if (rng_below(r, 2)) memcpy(bytes + at / 4 * 4, &word, sizeof word);
    }
    if (rng_below(r, 8) == 0) given = rng_below(r, w.bytes);
    plan how = {.state_side = GUARD_AFTER};
    unsigned char *placed = (unsigned char *)place_state(&w.config, &how) + (w.bytes - given);
    placed -= (uintptr_t)placed % sizeof(float);
    memcpy(placed, bytes, given);
    uint64_t control = fp_hostile(rng_below(r, fp_hostile_count()), &(const char *){NULL});
    fp_set_control(control);
    uint64_t before = fp_control();
    linattn_status status = linattn_state_check(&w.config, placed, given);
    uint64_t after = fp_control();
    fp_set_control(fp_ieee);
    check(before == after, "%s", message(&w, "state_check"));
    check(given == w.bytes || status != LINATTN_OK, "%s", message(&w, "a part of a state"));
    check(status == LINATTN_OK || status == LINATTN_ERROR_STATE || given < w.bytes, "status %d, %s",
          (int)status, message(&w, "state_check"));
    if (status == LINATTN_OK) use_state(&w, placed);
    select_isa(test_isa());
}

#ifdef TEST_BYTES

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    static fuzz_function *const all[] = {fuzz_calls, fuzz_calls, fuzz_calls, fuzz_damaged};
    fuzz_bytes(all, COUNT_OF(all), bytes, size);
    return 0;
}

#else

static void calls(void **state)
{
    (void)state;
    fuzz(fuzz_calls, 20000, 3);
}

static void damaged_states(void **state)
{
    (void)state;
    fuzz(fuzz_damaged, 20000, 1);
}

/* A few times, for tools under which programs take long. */
static void every_verb(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        size_t mark = pool_mark();
        rng r = {seed};
        world w = draw_world(&r);
        begin_states(&w);
        for (int which = 0; which < 2 * VERBS; which++) step(&w, (verb)(which % VERBS));
        pool_release(mark);
    }
}

/* Operands against inaccessible pages, behind them and before, at every offset to an alignment of
   64 bytes; and where there is no page, states and workspaces at every offset. */
static void every_alignment(void **state)
{
    (void)state;
    const uint64_t seeds = test_quick() ? 1 : 4;
    for (size_t offset = 0; offset < 16; offset++)
        for (int side = GUARD_NONE; side <= GUARD_BEFORE; side++)
            for (uint64_t seed = 0; seed < seeds; seed++) {
                if (test_quick() && (offset + (size_t)side) % 3) continue;
                size_t mark = pool_mark();
                rng r = {seed * 16 + offset};
                world w = draw_world(&r);
                w.placed = true;
                w.side = (guard)side;
                w.offset = offset;
                begin_states(&w);
                for (int which = 0; which < VERBS; which++) step(&w, (verb)which);
                pool_release(mark);
            }
}

/* Numbers of tokens that are no floats, by merging: 1, 1, 2, 3, 5 and so on. */
static void counts_in_any_environment(void **state)
{
    (void)state;
    enum { MERGES = 45 };
    const linattn_config config = {.dim_key = 3, .normaliser = LINATTN_NORM_LENGTH};
    const float row[] = {0.5f, 0.25f, -0.75f};
    const linattn_view rows = linattn_rows(row);
    void *states[2];
    for (int i = 0; i < 2; i++) {
        states[i] = run_init(&config);
        check_status(linattn_update(states[i], rows, rows, 1, NULL), LINATTN_OK, "update");
    }
    for (int i = 0; i < MERGES; i++) {
        check_status(linattn_merge(states[i % 2], states[1 - i % 2]), LINATTN_OK, "merge");
        for (size_t which = 0; which < fp_hostile_count(); which++) {
            float out[3], expected[3];
            linattn_output to = linattn_output_rows(expected);
            const char *name;
            check_status(linattn_query(states[i % 2], rows, to, 1, NULL), LINATTN_OK, "query");
            fp_set_control(fp_hostile(which, &name));
            to.data = out;
            linattn_status status = linattn_query(states[i % 2], rows, to, 1, NULL);
            fp_set_control(fp_ieee);
            check_status(status, LINATTN_OK, "query under %s", name);
            check_same_bytes(out, expected, sizeof out, "%s", name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(every_verb), TEST(every_alignment),
                                       TEST(counts_in_any_environment), TEST(calls),
                                       TEST(damaged_states)};
    test_begin();
    return RUN_TESTS("calls", tests);
}

#endif
