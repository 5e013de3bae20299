#include "selection.h"

#include <string.h>

static const shape all_shapes[] = {{16, 16}, {32, 32}, {33, 33},   {40, 40},   {64, 64}, {65, 65},
                                   {72, 72}, {96, 96}, {100, 100}, {128, 128}, {256, 64}};
static const size_t all_lengths[] = {1,   2,   3,    5,    8,     16,    64,
                                     128, 256, 1024, 4096, 16384, 65536, 1048576};

void selection_fill(selection *s)
{
    if (s->given) {
        if (!s->shape_count) s->shapes[s->shape_count++] = (shape){64, 64};
        if (!s->n_count) s->n[s->n_count++] = usual_length;
        if (!s->maps && !s->rules) s->maps = 1u << LINATTN_MAP_ELU1;
        return;
    }
    s->maps = s->rules = ~0u;
    s->shape_count = sizeof all_shapes / sizeof all_shapes[0];
    s->n_count = sizeof all_lengths / sizeof all_lengths[0];
    memcpy(s->shapes, all_shapes, sizeof all_shapes);
    memcpy(s->n, all_lengths, sizeof all_lengths);
}

linattn_isa selection_best(const selection *s)
{
    linattn_isa best = LINATTN_ISA_SCALAR;
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++)
        if (s->isas >> isa & 1u) best = (linattn_isa)isa;
    return best;
}

static bool in_sets(const selection *s, linattn_isa isa, linattn_feature_map map)
{
    return (s->isas >> isa & 1u) && (s->maps >> map & 1u);
}

/* Maps with a parameter, and the shapes that a sample has of each. */
static const method methods[] = {
    {LINATTN_MAP_FAVOR, 256, {64, 64}},
    {LINATTN_MAP_FAVOR, 128, {32, 32}},
    {LINATTN_MAP_FAVOR, 512, {128, 128}},
    {LINATTN_MAP_FAVOR_SIMPLIFIED, 256, {64, 64}},
    {LINATTN_MAP_FAVOR_HYPERBOLIC, 128, {64, 64}},
    {LINATTN_MAP_TAYLOR, 2, {16, 64}},
    {LINATTN_MAP_TAYLOR, 2, {32, 64}},
    {LINATTN_MAP_TAYLOR, 4, {8, 64}},
    {LINATTN_MAP_EXPDEF, 2, {16, 64}},
};

bool selection_case(const selection *s, size_t i, bench *b)
{
    const size_t maps = s->given ? LINATTN_MAP_COUNT : LINATTN_MAP_FAVOR;
    const size_t plain = maps * s->shape_count;
    shape x = {0, 0};
    if (i < plain) {
        b->map = (linattn_feature_map)(i / s->shape_count);
        b->parameter = 0;
        x = s->shapes[i % s->shape_count];
    } else if (!s->given && i - plain < sizeof methods / sizeof methods[0]) {
        b->map = methods[i - plain].map;
        b->parameter = methods[i - plain].parameter;
        x = methods[i - plain].shape;
    }
    b->d = x.d;
    b->dv = x.dv;
    return x.d != 0;
}

/* What a full run has of lengths on other shapes than the usual one. */
static bool sampled_length(size_t n) { return n == 1 || n == 16 || n == 256 || n == 65536; }

bool selection_wants(const selection *s, const bench *b)
{
    const bool usual_map = b->map == LINATTN_MAP_ELU1, usual_shape = b->d == 64 && b->dv == 64;
    const bool scalar = b->isa == LINATTN_ISA_SCALAR;
    const bool usual_n = b->n == (size_t)(scalar ? scalar_length : usual_length);
    if (!in_sets(s, b->isa, b->map)) return false;
    if (s->given) return true;
    if (b->parameter) return usual_n && !scalar;
    if (s->full) return usual_n || (usual_map && !scalar && (usual_shape || sampled_length(b->n)));
    return (usual_n && (usual_shape || (usual_map && !scalar))) ||
           (usual_map && usual_shape && b->isa == selection_best(s));
}

bool selection_samples(const selection *s, const bench *b)
{
    return s->full || s->given || b->d >= 256 || (b->d == b->dv && (b->d & (b->d - 1)) == 0);
}

bool selection_wants_array(const selection *s, linattn_isa isa, linattn_feature_map map, size_t n)
{
    if (!in_sets(s, isa, map)) return false;
    if (s->given) return true;
    return n == usual_length || (n >= 64 && (s->full || map == LINATTN_MAP_EXP));
}
