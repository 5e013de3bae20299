/* rwkv_model.h: model files of RWKV-5.1, 5.2, 6 and 7 in the format of rwkv.cpp, f32 and f16.
   SPDX: MIT

   A file is taken to be hostile: every size is checked against what is left of the file before
   anything is allocated or read for it. What the numbers of the weights are does not matter. */
#ifndef RWKV_MODEL_H
#define RWKV_MODEL_H

#include "npy.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

/* Sets of versions of the architecture. */
enum {
    RWKV_5_1 = 1,
    RWKV_5_2 = 2,
    RWKV_6 = 4,
    RWKV_7 = 8,
    RWKV_5 = RWKV_5_1 | RWKV_5_2,
    RWKV_5_6 = RWKV_5 | RWKV_6,
    RWKV_GATED = RWKV_5_2 | RWKV_6, /* with a gate of its own matrix */
    RWKV_ALL = RWKV_5_6 | RWKV_7
};

/* ---- What a model consists of ---------------------------------------------------------------- */

/* The tensors, by what they are for: versions name them differently. */
typedef enum rwkv_slot {
    EMBEDDING,
    LN0_WEIGHT,
    LN0_BIAS,
    LN_OUT_WEIGHT,
    LN_OUT_BIAS,
    HEAD,
    RWKV_GLOBAL_SLOTS,

    LN1_WEIGHT = 0, /* those of each layer */
    LN1_BIAS,
    LN2_WEIGHT,
    LN2_BIAS,
    LN_X_WEIGHT,
    LN_X_BIAS,
    RECEPTANCE,
    KEY,
    VALUE,
    GATE,
    OUTPUT,
    MIX_X, /* weights of the token before. Five that follow one another as in MAA_W2, in RWKV-6 */
    MIX_W,
    MIX_K,
    MIX_V,
    MIX_R,
    MIX_G,
    MIX_ALL, /* RWKV-7: r, w, k, v, a, g in one tensor */
    MAA_W1,
    MAA_W2,
    DECAY,
    DECAY_W1,
    DECAY_W2,
    BONUS,
    A0,
    A1,
    A2,
    V0,
    V1,
    V2,
    G1,
    G2,
    K_K,
    K_A,
    R_K,
    FFN_MIX_K,
    FFN_MIX_R,
    FFN_KEY,
    FFN_VALUE,
    FFN_RECEPTANCE,
    RWKV_SLOTS
} rwkv_slot;

/* shape: a letter for each axis, innermost first. D, V, H, S: the width, the vocabulary, heads and
   their size. F and small letters: any size, the same wherever the letter stands in one layer; M is
   5 times m. Matrices may be f16. */
typedef struct rwkv_part {
    rwkv_slot slot;
    unsigned versions;
    int is_matrix;
    const char *shape, *name;
} rwkv_part;

static const rwkv_part rwkv_global_parts[] = {
    {EMBEDDING, RWKV_ALL, 1, "DV", "emb.weight"},
    {LN0_WEIGHT, RWKV_ALL, 0, "D", "blocks.0.ln0.weight"},
    {LN0_BIAS, RWKV_ALL, 0, "D", "blocks.0.ln0.bias"},
    {LN_OUT_WEIGHT, RWKV_ALL, 0, "D", "ln_out.weight"},
    {LN_OUT_BIAS, RWKV_ALL, 0, "D", "ln_out.bias"},
    {HEAD, RWKV_ALL, 1, "DV", "head.weight"},
};

static const rwkv_part rwkv_layer_parts[] = {
    {LN1_WEIGHT, RWKV_ALL, 0, "D", "ln1.weight"},
    {LN1_BIAS, RWKV_ALL, 0, "D", "ln1.bias"},
    {LN2_WEIGHT, RWKV_ALL, 0, "D", "ln2.weight"},
    {LN2_BIAS, RWKV_ALL, 0, "D", "ln2.bias"},
    {LN_X_WEIGHT, RWKV_ALL, 0, "D", "att.ln_x.weight"},
    {LN_X_BIAS, RWKV_ALL, 0, "D", "att.ln_x.bias"},
    {RECEPTANCE, RWKV_ALL, 1, "DD", "att.receptance.weight"},
    {KEY, RWKV_ALL, 1, "DD", "att.key.weight"},
    {VALUE, RWKV_ALL, 1, "DD", "att.value.weight"},
    {GATE, RWKV_GATED, 1, "DD", "att.gate.weight"},
    {OUTPUT, RWKV_ALL, 1, "DD", "att.output.weight"},
    {MIX_K, RWKV_5, 0, "D", "att.time_mix_k"},
    {MIX_V, RWKV_5, 0, "D", "att.time_mix_v"},
    {MIX_R, RWKV_5, 0, "D", "att.time_mix_r"},
    {MIX_G, RWKV_5_2, 0, "D", "att.time_mix_g"},
    {MIX_X, RWKV_6, 0, "D", "att.time_maa_x"},
    {MIX_W, RWKV_6, 0, "D", "att.time_maa_w"},
    {MIX_K, RWKV_6, 0, "D", "att.time_maa_k"},
    {MIX_V, RWKV_6, 0, "D", "att.time_maa_v"},
    {MIX_R, RWKV_6, 0, "D", "att.time_maa_r"},
    {MIX_G, RWKV_6, 0, "D", "att.time_maa_g"},
    {MIX_ALL, RWKV_7, 0, "D6", "att.x_rwkvag"},
    {MAA_W1, RWKV_6, 1, "DM", "att.time_maa_w1"},
    {MAA_W2, RWKV_6, 1, "mD5", "att.time_maa_w2"},
    {DECAY, RWKV_5_1, 0, "H", "att.time_decay"},
    {DECAY, RWKV_5_2 | RWKV_6, 0, "SH", "att.time_decay"},
    {DECAY_W1, RWKV_6, 1, "Dw", "att.time_decay_w1"},
    {DECAY_W2, RWKV_6, 1, "wD", "att.time_decay_w2"},
    {DECAY, RWKV_7, 0, "D", "att.w0"},
    {DECAY_W1, RWKV_7, 1, "Dw", "att.w1"},
    {DECAY_W2, RWKV_7, 1, "wD", "att.w2"},
    {BONUS, RWKV_5_1, 0, "H", "att.time_first"},
    {BONUS, RWKV_5_2 | RWKV_6, 0, "SH", "att.time_faaaa"},
    {A0, RWKV_7, 0, "D", "att.a0"},
    {A1, RWKV_7, 1, "Da", "att.a1"},
    {A2, RWKV_7, 1, "aD", "att.a2"},
    {V0, RWKV_7, 0, "D", "att.v0"},
    {V1, RWKV_7, 1, "Dv", "att.v1"},
    {V2, RWKV_7, 1, "vD", "att.v2"},
    {G1, RWKV_7, 1, "Dg", "att.g1"},
    {G2, RWKV_7, 1, "gD", "att.g2"},
    {K_K, RWKV_7, 0, "D", "att.k_k"},
    {K_A, RWKV_7, 0, "D", "att.k_a"},
    {R_K, RWKV_7, 0, "SH", "att.r_k"},
    {FFN_MIX_K, RWKV_5, 0, "D", "ffn.time_mix_k"},
    {FFN_MIX_R, RWKV_5, 0, "D", "ffn.time_mix_r"},
    {FFN_MIX_K, RWKV_6, 0, "D", "ffn.time_maa_k"},
    {FFN_MIX_R, RWKV_6, 0, "D", "ffn.time_maa_r"},
    {FFN_MIX_K, RWKV_7, 0, "D", "ffn.x_k"},
    {FFN_KEY, RWKV_ALL, 1, "DF", "ffn.key.weight"},
    {FFN_VALUE, RWKV_ALL, 1, "FD", "ffn.value.weight"},
    {FFN_RECEPTANCE, RWKV_5_6, 1, "DD", "ffn.receptance.weight"},
};

enum { RWKV_MOST_AXES = NPY_MOST_AXES, RWKV_LONGEST_NAME = 95 };

typedef struct rwkv_tensor {
    char name[RWKV_LONGEST_NAME + 1];
    int is_half, is_matrix, is_used;
    size_t rank, shape[RWKV_MOST_AXES]; /* innermost first */
    size_t count, offset;               /* elements, and where they are in the file */
    void *data;                         /* float, or uint16_t for a matrix of f16 */
} rwkv_tensor;

typedef struct rwkv_layer {
    const rwkv_tensor *part[RWKV_SLOTS]; /* NULL where the version has none */
    size_t sizes[128];                   /* of the letters of a shape */
} rwkv_layer;

typedef struct rwkv_model {
    const char *path;
    unsigned version; /* one of the set */
    size_t vocabulary, width, layers, heads, head_size;
    rwkv_tensor *tensors; /* by their names */
    size_t tensor_count;
    const rwkv_tensor *global[RWKV_GLOBAL_SLOTS];
    rwkv_layer *layer;
} rwkv_model;

/* ---- The table of tensors -------------------------------------------------------------------- */

/* An int32, little endian as on the machines that write these files. */
static inline int32_t rwkv_read_number(const unsigned char *b)
{
    uint32_t x = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    int32_t number;
    memcpy(&number, &x, sizeof number);
    return number;
}

/* 0 if it is negative. */
static inline size_t rwkv_read_size(const unsigned char *b)
{
    int32_t x = rwkv_read_number(b);
    return x > 0 ? (size_t)x : 0;
}

/* Takes bytes of the header of tensor number n from the `left` of the file. */
static inline void rwkv_take(const input_file *in, size_t *left, void *to, size_t bytes, size_t n)
{
    if (*left < bytes) {
        fail("%s: truncated, it ends within the header of tensor %zu", in->path, n);
    }
    read_bytes(in, to, bytes, "tensors");
    *left -= bytes;
}

static inline void rwkv_take_name(const input_file *in, size_t *left, rwkv_tensor *t, size_t length,
                                  size_t n)
{
    rwkv_take(in, left, t->name, length, n);
    t->name[length] = '\0';
    if (strlen(t->name) != length) {
        fail("%s: the name of tensor %zu has a zero byte", in->path, n);
    }
}

/* The header of tensor number n; its data are skipped. */
static inline void rwkv_take_tensor(const input_file *in, size_t *left, rwkv_tensor *t, size_t n)
{
    unsigned char start[12], axis[4 * RWKV_MOST_AXES];
    rwkv_take(in, left, start, sizeof start, n);
    size_t length = rwkv_read_size(start + 4);
    memset(t, 0, sizeof *t);
    t->rank = rwkv_read_size(start);
    if (t->rank < 1 || t->rank > RWKV_MOST_AXES || length < 1 || length > RWKV_LONGEST_NAME) {
        fail("%s: the header of tensor %zu is malformed", in->path, n);
    }
    rwkv_take(in, left, axis, 4 * t->rank, n);
    rwkv_take_name(in, left, t, length, n);
    int32_t type = rwkv_read_number(start + 8);
    if (type != 0 && type != 1) {
        fail("%s: tensor %s has type %" PRId32 ", expected 0 (f32) or 1 (f16)", in->path, t->name,
             type);
    }
    t->is_half = type;
    t->offset = in->bytes - *left;
    t->count = 1;
    size_t width = t->is_half ? 2 : 4;
    for (size_t i = 0; i < t->rank; i++) {
        t->shape[i] = rwkv_read_size(axis + 4 * i);
        if (t->shape[i] < 1) {
            fail("%s: tensor %s has an axis without elements", in->path, t->name);
        }
        if (t->shape[i] > *left / width / t->count) {
            fail("%s: truncated, it ends within tensor %s", in->path, t->name);
        }
        t->count *= t->shape[i];
    }
    *left -= t->count * width;
    if (fseeko(in->stream, (off_t)(in->bytes - *left), SEEK_SET) != 0) {
        fail("%s: cannot be read: %s", in->path, strerror(errno));
    }
}

static inline int rwkv_by_name(const void *a, const void *b)
{
    return strcmp(((const rwkv_tensor *)a)->name, ((const rwkv_tensor *)b)->name);
}

/* All headers, sorted by name. */
static inline void rwkv_read_table(const input_file *in, size_t left, rwkv_model *m)
{
    size_t room = 0;
    while (left) {
        if (m->tensor_count == room) {
            room = room ? 2 * room : 64;
            rwkv_tensor *larger = realloc(m->tensors, room * sizeof *larger);
            if (!larger) {
                fail("out of memory: %zu bytes are needed", room * sizeof *larger);
            }
            m->tensors = larger;
        }
        rwkv_take_tensor(in, &left, &m->tensors[m->tensor_count], m->tensor_count);
        m->tensor_count++;
    }
    if (m->tensor_count) {
        qsort(m->tensors, m->tensor_count, sizeof *m->tensors, rwkv_by_name);
    }
    for (size_t i = 1; i < m->tensor_count; i++) {
        if (strcmp(m->tensors[i - 1].name, m->tensors[i].name) == 0) {
            fail("%s: two tensors are named %s", in->path, m->tensors[i].name);
        }
    }
}

static inline rwkv_tensor *rwkv_find(const rwkv_model *m, const char *name)
{
    rwkv_tensor key;
    snprintf(key.name, sizeof key.name, "%s", name);
    return m->tensor_count ? bsearch(&key, m->tensors, m->tensor_count, sizeof key, rwkv_by_name)
                           : NULL;
}

static inline rwkv_tensor *rwkv_need(const rwkv_model *m, const char *name)
{
    rwkv_tensor *t = rwkv_find(m, name);
    if (!t) {
        fail("%s: there is no tensor %s", m->path, name);
    }
    return t;
}

/* ---- Versions and shapes --------------------------------------------------------------------- */

/* As the converter of rwkv.cpp tells them apart. The number of heads is that axis of a tensor, or 1
   where it has fewer. */
static inline void rwkv_find_version(rwkv_model *m)
{
    static const struct {
        const char *name, *heads;
        size_t axis;
        unsigned version;
    } marks[] = {{"blocks.0.att.k_k", "blocks.0.att.r_k", 1, RWKV_7},
                 {"blocks.0.att.time_maa_x", "blocks.0.att.time_decay", 2, RWKV_6},
                 {"blocks.0.att.gate.weight", "blocks.0.att.time_decay", 2, RWKV_5_2},
                 {"blocks.0.att.ln_x.weight", "blocks.0.att.time_decay", 2, RWKV_5_1}};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0] && !m->version; i++) {
        if (rwkv_find(m, marks[i].name)) {
            const rwkv_tensor *t = rwkv_need(m, marks[i].heads);
            m->version = marks[i].version;
            m->heads = marks[i].axis < t->rank ? t->shape[marks[i].axis] : 1;
        }
    }
    if (!m->version) {
        fail("%s: %s", m->path,
             rwkv_find(m, "blocks.0.att.time_first")
                 ? "a model of RWKV-4, expected RWKV-5, 6 or 7"
                 : "not a model of RWKV-5, 6 or 7: it has none of the tensors that tell");
    }
    if (m->width % m->heads != 0) {
        fail("%s: a width of %zu, which is no multiple of its %zu heads", m->path, m->width,
             m->heads);
    }
    m->head_size = m->width / m->heads;
}

static inline size_t rwkv_without_ones(const size_t *shape, size_t rank, size_t *squeezed)
{
    size_t kept = 0;
    for (size_t i = 0; i < rank; i++) {
        if (shape[i] != 1) {
            squeezed[kept++] = shape[i];
        }
    }
    return kept;
}

/* Vectors come with axes of one element in various places; a matrix is as the letters say. */
static inline int rwkv_shapes_agree(const rwkv_tensor *t, const size_t *expected, size_t rank,
                                    int is_matrix)
{
    size_t a[RWKV_MOST_AXES], b[RWKV_MOST_AXES];
    if (!is_matrix) {
        size_t kept = rwkv_without_ones(t->shape, t->rank, a);
        return kept == rwkv_without_ones(expected, rank, b) && memcmp(a, b, kept * sizeof *a) == 0;
    }
    int agree = t->rank == rank;
    for (size_t i = 0; agree && i < rank; i++) {
        agree = !expected[i] || t->shape[i] == expected[i];
    }
    return agree;
}

/* What the letters stand for, 0: any size as yet. */
static inline void rwkv_expect(const size_t *sizes, const char *letters, size_t *expected)
{
    for (size_t i = 0; letters[i]; i++) {
        char c = letters[i];
        expected[i] = c >= '1' && c <= '9' ? (size_t)(c - '0')
                      : c == 'M'           ? 5 * sizes['m']
                                           : sizes[(unsigned char)c];
    }
}

/* Finds a tensor, checks its shape, and takes from it the sizes that may be any. */
static inline const rwkv_tensor *rwkv_bind(const rwkv_model *m, const rwkv_part *part,
                                           const char *name, size_t *sizes)
{
    size_t expected[RWKV_MOST_AXES], rank = strlen(part->shape);
    rwkv_tensor *t = rwkv_need(m, name);
    rwkv_expect(sizes, part->shape, expected);
    int agree = rwkv_shapes_agree(t, expected, rank, part->is_matrix);
    for (size_t i = 0; agree && i < rank; i++) {
        if (!expected[i] && part->shape[i] == 'M') {
            agree = t->shape[i] % 5 == 0;
            sizes['m'] = t->shape[i] / 5;
        } else if (!expected[i]) {
            sizes[(unsigned char)part->shape[i]] = t->shape[i];
        }
    }
    if (!agree) {
        fail("%s: tensor %s has shape (%s), expected (%s)", m->path, name,
             npy_print_sizes(t->shape, t->rank, NULL).text,
             npy_print_sizes(expected, rank, part->shape).text);
    }
    t->is_used = 1;
    t->is_matrix = part->is_matrix;
    return t;
}

/* The first layer of RWKV-7 has no v of an earlier one to go back to. */
static inline int rwkv_has_part(const rwkv_model *m, size_t layer, const rwkv_part *part)
{
    int first_v = part->slot == V0 || part->slot == V1 || part->slot == V2;
    return (part->versions & m->version) != 0 && !(layer == 0 && first_v);
}

/* A file with more layers than its header says would run, but not as that model. */
static inline void rwkv_check_layers(const rwkv_model *m)
{
    for (size_t i = 0; i < m->tensor_count; i++) {
        const char *name = m->tensors[i].name, *at = name + strlen("blocks.");
        size_t layer;
        if (strncmp(name, "blocks.", strlen("blocks.")) == 0 && read_size(&at, &layer) &&
            *at == '.' && layer >= m->layers) {
            fail("%s: there is a tensor %s, but its header has %zu layers", m->path, name,
                 m->layers);
        }
    }
}

static inline void rwkv_bind_all(rwkv_model *m)
{
    enum { LAYER_PARTS = sizeof rwkv_layer_parts / sizeof rwkv_layer_parts[0] };
    if (m->layers > m->tensor_count) { /* before they are allocated */
        fail("%s: %zu layers, but only %zu tensors", m->path, m->layers, m->tensor_count);
    }
    rwkv_check_layers(m);
    m->layer = allocate(m->layers * sizeof *m->layer);
    memset(m->layer, 0, m->layers * sizeof *m->layer);
    for (size_t i = 0; i < m->layers; i++) {
        rwkv_layer *l = &m->layer[i];
        l->sizes['D'] = m->width;
        l->sizes['V'] = m->vocabulary;
        l->sizes['H'] = m->heads;
        l->sizes['S'] = m->head_size;
        for (const rwkv_part *p = rwkv_layer_parts; p < rwkv_layer_parts + LAYER_PARTS; p++) {
            char name[RWKV_LONGEST_NAME + 1];
            snprintf(name, sizeof name, "blocks.%zu.%s", i, p->name);
            if (rwkv_has_part(m, i, p)) {
                l->part[p->slot] = rwkv_bind(m, p, name, l->sizes);
            }
        }
    }
    for (size_t i = 0; i < RWKV_GLOBAL_SLOTS; i++) {
        const rwkv_part *p = &rwkv_global_parts[i];
        m->global[p->slot] = rwkv_bind(m, p, p->name, m->layer[0].sizes);
    }
}

/* ---- The data -------------------------------------------------------------------------------- */

#if defined(__x86_64__) && defined(__GNUC__)
/* A function for CPUs with AVX2, whatever the rest is compiled for, and what it inlines. */
#define RWKV_FAST __attribute__((target("avx2,f16c")))
#define RWKV_INLINE static inline __attribute__((always_inline))

/* The instruction for it, which nearly all CPUs have: returns how many it converted. */
RWKV_FAST static inline size_t rwkv_widen_fast(const uint16_t *from, float *to, size_t n)
{
    size_t whole = n - n % 8;
    for (size_t i = 0; i < whole; i += 8) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
    }
    return whole;
}

/* There is no CPU with AVX2 but without F16C, and not every compiler knows the latter's name. */
static inline int rwkv_has_fast(void) { return __builtin_cpu_supports("avx2") != 0; }
#else
#define RWKV_FAST
#define RWKV_INLINE static inline

static inline size_t rwkv_widen_fast(const uint16_t *from, float *to, size_t n)
{
    (void)from, (void)to, (void)n;
    return 0;
}

static inline int rwkv_has_fast(void) { return 0; }
#endif

/* f16 to float, exactly. In plain C, multiplying by a power of two gets the exponent right, of
   subnormal numbers too; inf and NaN then need theirs set. */
static inline void rwkv_widen(const uint16_t *from, float *to, size_t n)
{
    for (size_t i = rwkv_has_fast() ? rwkv_widen_fast(from, to, n) : 0; i < n; i++) {
        uint32_t magnitude = from[i] & 0x7fffu, bits = magnitude << 13;
        float x;
        memcpy(&x, &bits, sizeof x);
        x *= 0x1p112f;
        memcpy(&bits, &x, sizeof x);
        bits |= magnitude >= 0x7c00 ? 0x7f800000u : 0;
        bits |= (from[i] & 0x8000u) << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

static inline void rwkv_halves_from_bytes(void *data, size_t count)
{
    const unsigned char *bytes = data;
    uint16_t *half = data;
    for (size_t i = 0; i < count; i++) {
        half[i] = (uint16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8);
    }
}

/* A matrix of f16 stays f16: it is widened row by row where it is used. Half the memory decides
   which models fit, and how long a token takes: for 79 million weights on one core of an Intel
   Emerald Rapids 28 ms, 40 as floats, 50 without F16C. */
static inline void rwkv_read_data(const input_file *in, rwkv_tensor *t)
{
    size_t bytes = t->count * (t->is_half ? 2 : 4);
    t->data = allocate(bytes);
    if (fseeko(in->stream, (off_t)t->offset, SEEK_SET) != 0) {
        fail("%s: cannot be read: %s", in->path, strerror(errno));
    }
    read_bytes(in, t->data, bytes, "tensors");
    if (!t->is_half) {
        npy_swap_if_big_endian(t->data, t->count, sizeof(float));
        return;
    }
    rwkv_halves_from_bytes(t->data, t->count);
    if (!t->is_matrix) {
        float *wide = allocate(t->count * sizeof *wide);
        rwkv_widen(t->data, wide, t->count);
        free(t->data);
        t->data = wide;
        t->is_half = 0;
    }
}

/* RWKV-5 files weigh the token itself rather than the one before, x mu + x_prev (1 - mu), and those
   of 5.1 have one decay and one bonus for each head. After this they are as in later ones. */
static inline void rwkv_unify(const rwkv_model *m, const rwkv_layer *l)
{
    static const rwkv_slot mixes[] = {MIX_K, MIX_V, MIX_R, MIX_G, FFN_MIX_K, FFN_MIX_R};
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0] && (m->version & RWKV_5); i++) {
        float *mu = l->part[mixes[i]] ? l->part[mixes[i]]->data : NULL;
        for (size_t c = 0; mu && c < m->width; c++) {
            mu[c] = 1 - mu[c];
        }
    }
    for (size_t i = 0; i < 2 && m->version == RWKV_5_1; i++) {
        rwkv_tensor *t = rwkv_find(m, l->part[i ? BONUS : DECAY]->name);
        float *wide = allocate(m->width * sizeof *wide);
        for (size_t c = 0; c < m->width; c++) {
            wide[c] = ((const float *)t->data)[c / m->head_size];
        }
        free(t->data);
        t->data = wide;
    }
}

static inline void rwkv_read_header(const input_file *in, rwkv_model *m)
{
    enum { MAGIC = 0x67676d66, HEADER = 24 };
    unsigned char header[HEADER];
    if (in->bytes < 4 || fread(header, 1, 4, in->stream) != 4 || rwkv_read_size(header) != MAGIC) {
        fail("%s: not a model of rwkv.cpp, its first bytes are not 'fmgg'", in->path);
    }
    read_bytes(in, header + 4, HEADER - 4, "header");
    int32_t version = rwkv_read_number(header + 4), type = rwkv_read_number(header + 20);
    m->vocabulary = rwkv_read_size(header + 8);
    m->width = rwkv_read_size(header + 12);
    m->layers = rwkv_read_size(header + 16);
    if (version != 100 && version != 101) {
        fail("%s: file version %" PRId32 ", expected 100 or 101", in->path, version);
    }
    if (type != 0 && type != 1) {
        fail("%s: data type %" PRId32 ", expected 0 (f32) or 1 (f16)", in->path, type);
    }
    if (!m->vocabulary || !m->width || !m->layers) {
        fail("%s: its header has a vocabulary, a width or a number of layers below 1", in->path);
    }
    rwkv_read_table(in, in->bytes - HEADER, m);
}

static inline rwkv_model rwkv_read(const char *path)
{
    rwkv_model m = {.path = path};
    input_file in = open_input(path);
    rwkv_read_header(&in, &m);
    rwkv_find_version(&m);
    rwkv_bind_all(&m);
    for (size_t i = 0; i < m.tensor_count; i++) {
        if (m.tensors[i].is_used) {
            rwkv_read_data(&in, &m.tensors[i]);
        }
    }
    fclose(in.stream);
    for (size_t i = 0; i < m.layers; i++) {
        rwkv_unify(&m, &m.layer[i]);
    }
    return m;
}

static inline void rwkv_free(rwkv_model *m)
{
    for (size_t i = 0; i < m->tensor_count; i++) {
        free(m->tensors[i].data);
    }
    free(m->tensors);
    free(m->layer);
}

#endif
