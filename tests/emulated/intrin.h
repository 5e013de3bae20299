/* MSVC's <intrin.h> for gcc and clang where vectors of 512 bits are pairs of 256, so that machines
   with AVX2 run what is written for AVX-512: as far as linattn.h needs it, with the bits that
   Intel's manual promises. The processor says that it had them. What masks leave out is neither
   read nor written. */
#ifndef EMULATED_INTRIN_H
#define EMULATED_INTRIN_H

#include "../msvc/intrin.h"

#include <string.h>

#define EMULATED static inline __attribute__((always_inline, unused, target("avx2,fma,f16c")))

typedef struct emulated_ps {
    __m256 a, b; /* the lower half, and the upper */
} emulated_ps;
typedef struct emulated_pd {
    __m256d a, b;
} emulated_pd;
typedef struct emulated_si {
    __m256i a, b;
} emulated_si;

/* ---- What the processor says ----------------------------------------------------------------- */

#undef __cpuidex
#undef _xgetbv
#define __cpuidex emulated_cpuidex
#define _xgetbv emulated_xgetbv

static inline __attribute__((unused)) void emulated_cpuidex(int *found, int leaf, int part)
{
    intrin_cpuidex(found, leaf, part);
    if (leaf == 7 && part == 0) found[1] |= 1 << 16;
}

static inline __attribute__((unused)) uint64_t emulated_xgetbv(unsigned index)
{
    return intrin_xgetbv(index) | 0xe0;
}

/* ---- Half by half ---------------------------------------------------------------------------- */

#define EMULATED_1(type, name, of, half)                                                           \
    EMULATED type emulated_##name(of x)                                                            \
    {                                                                                              \
        const type y = {half(x.a), half(x.b)};                                                     \
        return y;                                                                                  \
    }
#define EMULATED_2(type, name, half)                                                               \
    EMULATED type emulated_##name(type x, type y)                                                  \
    {                                                                                              \
        const type z = {half(x.a, y.a), half(x.b, y.b)};                                           \
        return z;                                                                                  \
    }
#define EMULATED_3(type, name, half)                                                               \
    EMULATED type emulated_##name(type x, type y, type z)                                          \
    {                                                                                              \
        const type w = {half(x.a, y.a, z.a), half(x.b, y.b, z.b)};                                 \
        return w;                                                                                  \
    }
#define EMULATED_BY(type, name, of, half)                                                          \
    EMULATED type emulated_##name(of x, int by)                                                    \
    {                                                                                              \
        const type y = {half(x.a, by), half(x.b, by)};                                             \
        return y;                                                                                  \
    }

EMULATED_1(emulated_ps, castpd_ps, emulated_pd, _mm256_castpd_ps)
EMULATED_1(emulated_ps, castsi512_ps, emulated_si, _mm256_castsi256_ps)
EMULATED_1(emulated_pd, castps_pd, emulated_ps, _mm256_castps_pd)
EMULATED_1(emulated_pd, castsi512_pd, emulated_si, _mm256_castsi256_pd)
EMULATED_1(emulated_si, castps_si512, emulated_ps, _mm256_castps_si256)
EMULATED_1(emulated_si, castpd_si512, emulated_pd, _mm256_castpd_si256)
EMULATED_2(emulated_ps, add_ps, _mm256_add_ps)
EMULATED_2(emulated_ps, sub_ps, _mm256_sub_ps)
EMULATED_2(emulated_ps, mul_ps, _mm256_mul_ps)
EMULATED_2(emulated_ps, div_ps, _mm256_div_ps)
EMULATED_2(emulated_ps, max_ps, _mm256_max_ps)
EMULATED_2(emulated_ps, min_ps, _mm256_min_ps)
EMULATED_2(emulated_ps, unpacklo_ps, _mm256_unpacklo_ps)
EMULATED_2(emulated_ps, unpackhi_ps, _mm256_unpackhi_ps)
EMULATED_2(emulated_pd, add_pd, _mm256_add_pd)
EMULATED_2(emulated_pd, sub_pd, _mm256_sub_pd)
EMULATED_2(emulated_pd, mul_pd, _mm256_mul_pd)
EMULATED_2(emulated_pd, div_pd, _mm256_div_pd)
EMULATED_2(emulated_pd, max_pd, _mm256_max_pd)
EMULATED_2(emulated_pd, unpacklo_pd, _mm256_unpacklo_pd)
EMULATED_2(emulated_pd, unpackhi_pd, _mm256_unpackhi_pd)
EMULATED_2(emulated_si, add_epi64, _mm256_add_epi64)
EMULATED_2(emulated_si, and_si512, _mm256_and_si256)
EMULATED_2(emulated_si, sub_epi32, _mm256_sub_epi32)
EMULATED_3(emulated_ps, fmadd_ps, _mm256_fmadd_ps)
EMULATED_3(emulated_ps, fmsub_ps, _mm256_fmsub_ps)
EMULATED_3(emulated_ps, fnmadd_ps, _mm256_fnmadd_ps)
EMULATED_3(emulated_pd, fmadd_pd, _mm256_fmadd_pd)
EMULATED_BY(emulated_si, slli_epi32, emulated_si, _mm256_slli_epi32)
EMULATED_BY(emulated_si, srli_epi32, emulated_si, _mm256_srli_epi32)
EMULATED_BY(emulated_si, slli_epi64, emulated_si, _mm256_slli_epi64)

#undef EMULATED_1
#undef EMULATED_2
#undef EMULATED_3
#undef EMULATED_BY

/* ---- Halves, constants, memory --------------------------------------------------------------- */

EMULATED emulated_ps emulated_setzero_ps(void)
{
    const emulated_ps y = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    return y;
}

EMULATED emulated_ps emulated_set1_ps(float x)
{
    const emulated_ps y = {_mm256_set1_ps(x), _mm256_set1_ps(x)};
    return y;
}

EMULATED emulated_pd emulated_set1_pd(double x)
{
    const emulated_pd y = {_mm256_set1_pd(x), _mm256_set1_pd(x)};
    return y;
}

EMULATED emulated_si emulated_set1_epi32(int x)
{
    const emulated_si y = {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
    return y;
}

EMULATED emulated_ps emulated_loadu_ps(const void *at)
{
    const emulated_ps y = {_mm256_loadu_ps((const float *)at),
                           _mm256_loadu_ps((const float *)at + 8)};
    return y;
}

EMULATED emulated_pd emulated_loadu_pd(const void *at)
{
    const emulated_pd y = {_mm256_loadu_pd((const double *)at),
                           _mm256_loadu_pd((const double *)at + 4)};
    return y;
}

EMULATED void emulated_storeu_ps(void *at, emulated_ps x)
{
    _mm256_storeu_ps((float *)at, x.a);
    _mm256_storeu_ps((float *)at + 8, x.b);
}

EMULATED void emulated_storeu_pd(void *at, emulated_pd x)
{
    _mm256_storeu_pd((double *)at, x.a);
    _mm256_storeu_pd((double *)at + 4, x.b);
}

/* Everything undefined of a wider vector is 1e30, so that who uses it is found out. */
EMULATED emulated_ps emulated_castps256_ps512(__m256 x)
{
    const emulated_ps y = {x, _mm256_set1_ps(1e30f)};
    return y;
}

EMULATED __m256 emulated_castps512_ps256(emulated_ps x) { return x.a; }
EMULATED __m128 emulated_castps512_ps128(emulated_ps x) { return _mm256_castps256_ps128(x.a); }
EMULATED __m256d emulated_extractf64x4_pd(emulated_pd x, int half) { return half ? x.b : x.a; }

/* ---- Masks ----------------------------------------------------------------------------------- */

EMULATED __m256i emulated_lanes(unsigned mask)
{
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)mask), bits), bits);
}

EMULATED emulated_ps emulated_mask_mov_ps(emulated_ps from, __mmask16 mask, emulated_ps x)
{
    const __m256 low = _mm256_castsi256_ps(emulated_lanes(mask));
    const __m256 high = _mm256_castsi256_ps(emulated_lanes((unsigned)mask >> 8));
    const emulated_ps y = {_mm256_blendv_ps(from.a, x.a, low), _mm256_blendv_ps(from.b, x.b, high)};
    return y;
}

EMULATED emulated_pd emulated_maskz_mov_pd(__mmask8 mask, emulated_pd x)
{
    const __m256i low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(emulated_lanes(mask)));
    const __m256i high =
        _mm256_cvtepi32_epi64(_mm256_castsi256_si128(emulated_lanes((unsigned)mask >> 4)));
    const emulated_pd y = {_mm256_and_pd(x.a, _mm256_castsi256_pd(low)),
                           _mm256_and_pd(x.b, _mm256_castsi256_pd(high))};
    return y;
}

EMULATED emulated_ps emulated_maskz_mov_ps(__mmask16 mask, emulated_ps x)
{
    const emulated_ps zero = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    return emulated_mask_mov_ps(zero, mask, x);
}

EMULATED emulated_ps emulated_maskz_loadu_ps(__mmask16 mask, const void *at)
{
    const emulated_ps y = {
        _mm256_maskload_ps((const float *)at, emulated_lanes(mask)),
        _mm256_maskload_ps((const float *)at + 8, emulated_lanes((unsigned)mask >> 8))};
    return y;
}

EMULATED void emulated_mask_storeu_ps(void *at, __mmask16 mask, emulated_ps x)
{
    _mm256_maskstore_ps((float *)at, emulated_lanes(mask), x.a);
    _mm256_maskstore_ps((float *)at + 8, emulated_lanes((unsigned)mask >> 8), x.b);
}

EMULATED emulated_ps emulated_mask3_fmadd_ps(emulated_ps x, emulated_ps y, emulated_ps z,
                                             __mmask16 mask)
{
    return emulated_mask_mov_ps(z, mask, emulated_fmadd_ps(x, y, z));
}

#define emulated_cmp_ps_mask(x, y, how)                                                            \
    ((__mmask16)(_mm256_movemask_ps(_mm256_cmp_ps((x).a, (y).a, how)) |                            \
                 _mm256_movemask_ps(_mm256_cmp_ps((x).b, (y).b, how)) << 8))
#define emulated_cmp_pd_mask(x, y, how)                                                            \
    ((__mmask8)(_mm256_movemask_pd(_mm256_cmp_pd((x).a, (y).a, how)) |                             \
                _mm256_movemask_pd(_mm256_cmp_pd((x).b, (y).b, how)) << 4))

EMULATED __mmask16 emulated_test_epi32_mask(emulated_si x, emulated_si y)
{
    const __m256i low = _mm256_cmpeq_epi32(_mm256_and_si256(x.a, y.a), _mm256_setzero_si256());
    const __m256i high = _mm256_cmpeq_epi32(_mm256_and_si256(x.b, y.b), _mm256_setzero_si256());
    return (__mmask16) ~(_mm256_movemask_ps(_mm256_castsi256_ps(low)) |
                         _mm256_movemask_ps(_mm256_castsi256_ps(high)) << 8);
}

EMULATED __mmask16 emulated_cmpgt_epu32_mask(emulated_si x, emulated_si y)
{
    const __m256i low = _mm256_cmpeq_epi32(_mm256_min_epu32(x.a, y.a), x.a);
    const __m256i high = _mm256_cmpeq_epi32(_mm256_min_epu32(x.b, y.b), x.b);
    return (__mmask16) ~(_mm256_movemask_ps(_mm256_castsi256_ps(low)) |
                         _mm256_movemask_ps(_mm256_castsi256_ps(high)) << 8);
}

/* ---- The reciprocal -------------------------------------------------------------------------- */

/* Better than 14 bits: an estimate of 12, and once Newton. */
EMULATED __m256 emulated_estimate(__m256 x)
{
    const __m256 y = _mm256_rcp_ps(x);
    return _mm256_fmadd_ps(_mm256_fnmadd_ps(x, y, _mm256_set1_ps(1.0f)), y, y);
}

EMULATED emulated_ps emulated_rcp14_ps(emulated_ps x)
{
    const emulated_ps y = {emulated_estimate(x.a), emulated_estimate(x.b)};
    return y;
}

/* Upwards, which is all that is asked for. */
EMULATED emulated_ps emulated_fmadd_round_ps(emulated_ps x, emulated_ps y, emulated_ps z, int how)
{
    const unsigned before = _mm_getcsr();
    emulated_ps sum;
    (void)how;
    _mm_setcsr((before & ~0x6000u) | 0x4000u);
    __asm__ volatile("" : "+x"(x.a), "+x"(x.b)); /* not before that, */
    sum = emulated_fmadd_ps(x, y, z);
    __asm__ volatile("" : "+x"(sum.a), "+x"(sum.b)); /* nor after this */
    _mm_setcsr(before);
    return sum;
}

/* ---- Powers of two --------------------------------------------------------------------------- */

/* x 2^floor(n), rounded once: a float times such a power is a double. */
EMULATED __m128 emulated_scale_four(__m128 x, __m128 n)
{
    const __m128 most = _mm_set1_ps(900.0f), zero = _mm_setzero_ps();
    const __m128 down = _mm_floor_ps(_mm_min_ps(_mm_max_ps(n, _mm_sub_ps(zero, most)), most));
    const __m256i power =
        _mm256_cvtepi32_epi64(_mm_add_epi32(_mm_cvtps_epi32(down), _mm_set1_epi32(1023)));
    const __m256d by = _mm256_castsi256_pd(_mm256_slli_epi64(power, 52));
    return _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_cvtps_pd(x), by));
}

/* NaN where n is, and of 0 times infinity. */
EMULATED __m256 emulated_scale_half(__m256 x, __m256 n)
{
    const __m256 infinity = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
    const __m256 less = _mm256_sub_ps(_mm256_setzero_ps(), infinity);
    const __m256 odd =
        _mm256_or_ps(_mm256_cmp_ps(n, infinity, _CMP_EQ_OQ), _mm256_cmp_ps(n, less, _CMP_EQ_OQ));
    const __m256 by = _mm256_andnot_ps(_mm256_cmp_ps(n, less, _CMP_EQ_OQ), n);
    const __m128 low = emulated_scale_four(_mm256_castps256_ps128(x), _mm256_castps256_ps128(n));
    const __m128 high =
        emulated_scale_four(_mm256_extractf128_ps(x, 1), _mm256_extractf128_ps(n, 1));
    __m256 y = _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
    y = _mm256_blendv_ps(y, _mm256_mul_ps(x, by), odd);
    return _mm256_blendv_ps(y, n, _mm256_cmp_ps(n, n, _CMP_UNORD_Q));
}

EMULATED emulated_ps emulated_scalef_ps(emulated_ps x, emulated_ps n)
{
    const emulated_ps y = {emulated_scale_half(x.a, n.a), emulated_scale_half(x.b, n.b)};
    return y;
}

EMULATED emulated_ps emulated_maskz_scalef_ps(__mmask16 mask, emulated_ps x, emulated_ps n)
{
    return emulated_mask_mov_ps(emulated_setzero_ps(), mask, emulated_scalef_ps(x, n));
}

/* ---- Places ---------------------------------------------------------------------------------- */

/* The constants are to be seen where they are, so that these are macros. */
#define emulated_permute_ps(x, how)                                                                \
    ((emulated_ps){_mm256_permute_ps((x).a, how), _mm256_permute_ps((x).b, how)})
#define emulated_shuffle_ps(x, y, how)                                                             \
    ((emulated_ps){_mm256_shuffle_ps((x).a, (y).a, how), _mm256_shuffle_ps((x).b, (y).b, how)})

EMULATED emulated_ps emulated_shuffle_f32x4(emulated_ps x, emulated_ps y, int how)
{
    float of[2][16], to[16];
    int i;
    emulated_storeu_ps(of[0], x);
    emulated_storeu_ps(of[1], y);
    for (i = 0; i < 4; i++) memcpy(to + 4 * i, of[i / 2] + 4 * (how >> 2 * i & 3), 16);
    return emulated_loadu_ps(to);
}

EMULATED emulated_ps emulated_insertf32x4(emulated_ps x, __m128 y, int at)
{
    float to[16];
    emulated_storeu_ps(to, x);
    _mm_storeu_ps(to + 4 * at, y);
    return emulated_loadu_ps(to);
}

EMULATED emulated_ps emulated_permutex2var_ps(emulated_ps x, emulated_si places, emulated_ps y)
{
    float of[32], to[16];
    uint32_t from[16];
    int i;
    emulated_storeu_ps(of, x);
    emulated_storeu_ps(of + 16, y);
    memcpy(from, &places, sizeof from);
    for (i = 0; i < 16; i++) memcpy(to + i, of + (from[i] & 31), sizeof(float));
    return emulated_loadu_ps(to);
}

/* ---- Other widths ---------------------------------------------------------------------------- */

EMULATED emulated_pd emulated_cvtps_pd(__m256 x)
{
    const emulated_pd y = {_mm256_cvtps_pd(_mm256_castps256_ps128(x)),
                           _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
    return y;
}

EMULATED emulated_ps emulated_cvtph_ps(__m256i x)
{
    const emulated_ps y = {_mm256_cvtph_ps(_mm256_castsi256_si128(x)),
                           _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))};
    return y;
}

EMULATED emulated_si emulated_cvtepu16_epi32(__m256i x)
{
    const emulated_si y = {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                           _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1))};
    return y;
}

EMULATED __m256i emulated_cvtepi32_epi16(emulated_si x)
{
    uint32_t from[16];
    uint16_t to[16];
    int i;
    memcpy(from, &x, sizeof from);
    for (i = 0; i < 16; i++) to[i] = (uint16_t)from[i];
    return _mm256_loadu_si256((const __m256i *)(const void *)to);
}

EMULATED __m256i emulated_maskz_cvtps_ph(__mmask16 mask, emulated_ps x, int how)
{
    const __m128i low = _mm256_cvtps_ph(x.a, 0), high = _mm256_cvtps_ph(x.b, 0);
    (void)mask, (void)how; /* all, and to nearest */
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* ---- Their names ----------------------------------------------------------------------------- */

#define __m512 emulated_ps
#define __m512d emulated_pd
#define __m512i emulated_si
#define _mm512_add_epi64 emulated_add_epi64
#define _mm512_add_pd emulated_add_pd
#define _mm512_add_ps emulated_add_ps
#define _mm512_and_si512 emulated_and_si512
#define _mm512_castpd_ps emulated_castpd_ps
#define _mm512_castpd_si512 emulated_castpd_si512
#define _mm512_castps256_ps512 emulated_castps256_ps512
#define _mm512_castps512_ps128 emulated_castps512_ps128
#define _mm512_castps512_ps256 emulated_castps512_ps256
#define _mm512_castps_pd emulated_castps_pd
#define _mm512_castps_si512 emulated_castps_si512
#define _mm512_castsi512_pd emulated_castsi512_pd
#define _mm512_castsi512_ps emulated_castsi512_ps
#define _mm512_cmp_pd_mask emulated_cmp_pd_mask
#define _mm512_cmp_ps_mask emulated_cmp_ps_mask
#define _mm512_cmpgt_epu32_mask emulated_cmpgt_epu32_mask
#define _mm512_cvtepi32_epi16 emulated_cvtepi32_epi16
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_cvtps_pd emulated_cvtps_pd
#define _mm512_div_pd emulated_div_pd
#define _mm512_div_ps emulated_div_ps
#define _mm512_extractf64x4_pd emulated_extractf64x4_pd
#define _mm512_fmadd_pd emulated_fmadd_pd
#define _mm512_fmadd_ps emulated_fmadd_ps
#define _mm512_fmadd_round_ps emulated_fmadd_round_ps
#define _mm512_fmsub_ps emulated_fmsub_ps
#define _mm512_fnmadd_ps emulated_fnmadd_ps
#define _mm512_loadu_pd emulated_loadu_pd
#define _mm512_loadu_ps emulated_loadu_ps
#define _mm512_insertf32x4 emulated_insertf32x4
#define _mm512_mask3_fmadd_ps emulated_mask3_fmadd_ps
#define _mm512_mask_mov_ps emulated_mask_mov_ps
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
#define _mm512_maskz_cvtps_ph emulated_maskz_cvtps_ph
#define _mm512_maskz_loadu_ps emulated_maskz_loadu_ps
#define _mm512_maskz_mov_pd emulated_maskz_mov_pd
#define _mm512_maskz_mov_ps emulated_maskz_mov_ps
#define _mm512_maskz_scalef_ps emulated_maskz_scalef_ps
#define _mm512_max_pd emulated_max_pd
#define _mm512_max_ps emulated_max_ps
#define _mm512_min_ps emulated_min_ps
#define _mm512_mul_pd emulated_mul_pd
#define _mm512_mul_ps emulated_mul_ps
#define _mm512_permute_ps emulated_permute_ps
#define _mm512_permutex2var_ps emulated_permutex2var_ps
#define _mm512_rcp14_ps emulated_rcp14_ps
#define _mm512_scalef_ps emulated_scalef_ps
#define _mm512_set1_epi32 emulated_set1_epi32
#define _mm512_set1_pd emulated_set1_pd
#define _mm512_set1_ps emulated_set1_ps
#define _mm512_setzero_ps emulated_setzero_ps
#define _mm512_shuffle_f32x4 emulated_shuffle_f32x4
#define _mm512_shuffle_ps emulated_shuffle_ps
#define _mm512_slli_epi32 emulated_slli_epi32
#define _mm512_slli_epi64 emulated_slli_epi64
#define _mm512_srli_epi32 emulated_srli_epi32
#define _mm512_storeu_pd emulated_storeu_pd
#define _mm512_storeu_ps emulated_storeu_ps
#define _mm512_sub_epi32 emulated_sub_epi32
#define _mm512_sub_pd emulated_sub_pd
#define _mm512_sub_ps emulated_sub_ps
#define _mm512_test_epi32_mask emulated_test_epi32_mask
#define _mm512_unpackhi_pd emulated_unpackhi_pd
#define _mm512_unpackhi_ps emulated_unpackhi_ps
#define _mm512_unpacklo_pd emulated_unpacklo_pd
#define _mm512_unpacklo_ps emulated_unpacklo_ps

#endif
