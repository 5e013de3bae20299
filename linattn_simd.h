/* linattn_simd.h: the kernels of linattn.h, included by it once per instruction set. SPDX: MIT

   (A) The vocabulary: about thirty words on vectors of LA_W floats, one block per instruction set,
       and the numbers that suit it. Intrinsics live only here. A new instruction set is a new
       block.
   (B) One kernel text, written in that vocabulary.
   (C) The table of kernels. A new kernel is a function in (B) and a line in LINATTN__KERNEL_LIST.

   Three rules keep the bits equal on every instruction set:
   - an element of S, z or the output is accumulated token by token, or feature by feature, by fma;
   - a sum across lanes is taken over 16 virtual lanes and one tree: (i,i+8) (i,i+4) (i,i+2)
     (i,i+1);
   - never a product that is then added: fma or nothing, as compilers contract such pairs.

   S lies in panels of 16 columns, one cache line per row: [ceil(dim_value / 16)][m][16]. Columns
   beyond dim_value are zero. */

#ifndef LINATTN__ISA
#error "linattn_simd.h is included by linattn.h only"
#endif
#if LINATTN__ISA == LINATTN__ISA_SCALAR
#define LA_NAME(word) linattn__##word##_scalar
#elif LINATTN__ISA == LINATTN__ISA_AVX2
#define LA_NAME(word) linattn__##word##_avx2
#elif LINATTN__ISA == LINATTN__ISA_AVX512
#define LA_NAME(word) linattn__##word##_avx512
#elif LINATTN__ISA == LINATTN__ISA_NEON
#define LA_NAME(word) linattn__##word##_neon
#endif

/* The words, with this inclusion's suffix. */
#define la_scratch LA_NAME(scratch)
#define la_tile LA_NAME(tile)
#define la_zero LA_NAME(zero)
#define la_set1 LA_NAME(set1)
#define la_load LA_NAME(load)
#define la_store LA_NAME(store)
#define la_load_part LA_NAME(load_part)
#define la_store_part LA_NAME(store_part)
#define la_first LA_NAME(first)
#define la_add LA_NAME(add)
#define la_sub LA_NAME(sub)
#define la_mul LA_NAME(mul)
#define la_div LA_NAME(div)
#define la_fma LA_NAME(fma)
#define la_fms LA_NAME(fms)
#define la_fnma LA_NAME(fnma)
#define la_max LA_NAME(max)
#define la_min LA_NAME(min)
#define la_gt LA_NAME(gt)
#define la_eq LA_NAME(eq)
#define la_select LA_NAME(select)
#define la_any LA_NAME(any)
#define la_scale LA_NAME(scale)
#define la_scalable LA_NAME(scalable)
#define la_capped LA_NAME(capped)
#define la_exp_end LA_NAME(exp_end)
#define la_ldexp LA_NAME(ldexp)
#define la_sum16 LA_NAME(sum16)
#define la_max16 LA_NAME(max16)
#define la_transpose LA_NAME(transpose)
#define la_dset1 LA_NAME(dset1)
#define la_dload LA_NAME(dload)
#define la_dstore LA_NAME(dstore)
#define la_dwiden LA_NAME(dwiden)
#define la_dadd LA_NAME(dadd)
#define la_dsub LA_NAME(dsub)
#define la_dmul LA_NAME(dmul)
#define la_ddiv LA_NAME(ddiv)
#define la_dfma LA_NAME(dfma)
#define la_dmax LA_NAME(dmax)
#define la_dscale LA_NAME(dscale)
#define la_dflush LA_NAME(dflush)

/* ==== (A) The vocabulary ======================================================================

   la_load_part(p, n)     lanes 0..n-1 from p, zeros above; reads nothing else. 0 <= n <= LA_W
   la_first(a, b, n)      lanes 0..n-1 of a, the others of b
   la_fma/fms/fnma(a,b,c) a*b+c, a*b-c, c-a*b, rounded once
   la_max(a, b)           a > b ? a : b, so that a NaN in b comes through; la_min likewise
   la_gt, la_eq           false where either is NaN
   la_scale(p, n)         p * 2^n for an integer n <= 127 and p in [.5, 2); 0 where n <= -126
   la_scalable(x)         x, clamped to +-100 where la_scale needs a finite p even for n <= -126,
                          and an n that fits an int even where its result is of no use
   la_exp_end(p, n, x)    e^x = p * 2^n where that is a normal float, from EXP_LOW to EXP_HIGH; 0
                          below, inf above whatever p and n are, NaN for NaN
   la_capped(x)           x, lowered to 89 where la_exp_end needs a finite p even above
   la_ldexp(p, n)         p * 2^n, n <= 129, rounded once, inf beyond FLT_MAX, 0 below FLT_MIN
   la_sum16(a)            the sum of 16 / LA_W vectors by the fixed tree; la_max16 the largest
   la_transpose(a)        LA_W vectors as a square matrix, transposed in place

   LA_DW, la_dvec and the words la_d... are the same for doubles, of which Nystroem's pseudo-inverse
   needs a few:
   la_dwiden(p)           LA_DW floats from p
   la_dscale(p, t)        p * 2^n for t = n + 1.5 * 2^52, both results normal
   la_dflush(x)           x, 0 where it is below 2^-128 in size

   LA_CAUSAL_TOKENS x LA_CAUSAL_VECS    the tile of causal: tokens x vectors of columns
   LA_DECODE_VECS                       vectors of columns that one token takes at a time
   LA_QUERY_TOKENS x LA_QUERY_VECS      the tile of query
   LA_UPDATE_ROWS x LA_UPDATE_VECS      the tile of update: features x vectors of columns
   LA_UPDATE_ROWS x LA_EXACT_VECS       the tiles of exact attention: keys or columns x vectors of
                                        queries, at most 48 queries
   LA_UPDATE_ROWS x LA_UPDATE_VECS      the tile of products of matrices of doubles
   LA_STAGE_VECS                        vectors of features that are mapped side by side: 1, or
                                        a multiple of 16 / LA_W or a divisor of it
   LA_BLOCK, LA_FEATURES                tokens and features mapped into scratch at a time
   LA_PART                              the same for update, both tokens and features. These three
                                        are set by the stack and by L1 */

#if LINATTN__ISA == LINATTN__ISA_SCALAR

#define LA_W 1
#define la_vec float
#define la_mask int
#define LA_CAUSAL_TOKENS 2
#define LA_CAUSAL_VECS 2
#define LA_DECODE_VECS 4
#define LA_QUERY_TOKENS 4
#define LA_QUERY_VECS 2
#define LA_UPDATE_ROWS 4
#define LA_UPDATE_VECS 2
#define LA_EXACT_VECS 2
#define LA_STAGE_VECS 1
#define LA_BLOCK 8
#define LA_FEATURES 64
#define LA_PART 16

LINATTN__INLINE float la_zero(void) { return 0.0f; }
LINATTN__INLINE float la_set1(float x) { return x; }
LINATTN__INLINE float la_load(const float *p) { return *p; }
LINATTN__INLINE void la_store(float *p, float a) { *p = a; }
LINATTN__INLINE float la_load_part(const float *p, int n)
{
    if (n > 0) return *p;
    return 0.0f;
}
LINATTN__INLINE void la_store_part(float *p, float a, int n)
{
    if (n > 0) *p = a;
}
LINATTN__INLINE float la_first(float a, float b, int n)
{
    if (n > 0) b = a;
    return b;
}
LINATTN__INLINE float la_add(float a, float b) { return a + b; }
LINATTN__INLINE float la_sub(float a, float b) { return a - b; }
LINATTN__INLINE float la_mul(float a, float b) { return a * b; }
LINATTN__INLINE float la_div(float a, float b) { return a / b; }
LINATTN__INLINE float la_fma(float a, float b, float c) { return linattn__fma(a, b, c); }
LINATTN__INLINE float la_fms(float a, float b, float c) { return linattn__fma(a, b, -c); }
LINATTN__INLINE float la_fnma(float a, float b, float c) { return linattn__fma(-a, b, c); }
/* Statements, not ?: on floats: under -ffast-math clang takes its operands to be no NaN,
   whatever the pragma says. */
LINATTN__INLINE float la_max(float a, float b)
{
    if (a > b) b = a;
    return b;
}
LINATTN__INLINE float la_min(float a, float b)
{
    if (a < b) b = a;
    return b;
}
LINATTN__INLINE int la_gt(float a, float b) { return a > b; }
LINATTN__INLINE int la_eq(float a, float b) { return a == b; }
LINATTN__INLINE float la_select(int m, float a, float b)
{
    if (m) b = a;
    return b;
}
LINATTN__INLINE int la_any(int m) { return m; }
LINATTN__INLINE float la_scale(float p, float n)
{
    if (n > -126.0f) return p * linattn__pow2((int)n);
    if (n <= -126.0f) return p * 0.0f;
    return p + n; /* NaN */
}
LINATTN__INLINE float la_scalable(float x) { return la_min(100.0f, la_max(-100.0f, x)); }
LINATTN__INLINE float la_capped(float x) { return x; }
LINATTN__INLINE float la_exp_end(float p, float n, float x)
{
    if (!(x <= LINATTN__EXP_HIGH)) return x * LINATTN__FLT_MAX;
    if (x < LINATTN__EXP_LOW) return 0.0f;
    return linattn__from_bits(linattn__to_bits(p) + ((uint32_t)(int)n << 23));
}
LINATTN__INLINE float la_ldexp(float p, float n)
{
    float r;
    if (n < -126.0f) return p * 0.0f;
    if (n > 127.0f)
        r = linattn__fma(p, n - 127.0f, p) * linattn__pow2(127);
    else if (n >= -126.0f)
        r = p * linattn__pow2((int)n);
    else
        return p + n; /* NaN */
    if (r < LINATTN__FLT_MIN) r = 0.0f;
    return r;
}
LINATTN__INLINE float la_sum16(const float *a)
{
    float s[8];
    int i;
    for (i = 0; i < 8; i++) s[i] = a[i] + a[i + 8];
    for (i = 0; i < 4; i++) s[i] = s[i] + s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}
LINATTN__INLINE float la_max16(const float *a)
{
    float m = a[0];
    int i;
    for (i = 1; i < 16; i++) m = la_max(m, a[i]);
    return m;
}
LINATTN__INLINE void la_transpose(float *a) { (void)a; }
#ifdef LINATTN_USE_SLEEF
LINATTN__C_LINKAGE float Sleef_expf_u10(float);
#define LA_SLEEF Sleef_expf_u10
#endif

#define LA_DW 1
#define la_dvec double
LINATTN__INLINE double la_dset1(double x) { return x; }
LINATTN__INLINE double la_dload(const double *p) { return *p; }
LINATTN__INLINE void la_dstore(double *p, double a) { *p = a; }
LINATTN__INLINE double la_dwiden(const float *p) { return (double)*p; }
LINATTN__INLINE double la_dadd(double a, double b) { return a + b; }
LINATTN__INLINE double la_dsub(double a, double b) { return a - b; }
LINATTN__INLINE double la_dmul(double a, double b) { return a * b; }
LINATTN__INLINE double la_ddiv(double a, double b) { return a / b; }
LINATTN__INLINE double la_dfma(double a, double b, double c)
{
    return linattn__double_fma(a, b, c);
}
LINATTN__INLINE double la_dmax(double a, double b)
{
    if (a > b) b = a;
    return b;
}
LINATTN__INLINE double la_dscale(double p, double t)
{
    union {
        uint64_t u;
        double f;
    } x, y;
    x.f = p;
    y.f = t;
    x.u += y.u << 52;
    return x.f;
}
LINATTN__INLINE double la_dflush(double x)
{
    if (x < LINATTN__TINY && x > -LINATTN__TINY) x = 0.0;
    return x;
}

#elif LINATTN__ISA == LINATTN__ISA_AVX512

#define LA_W 16
#define la_vec __m512
#define la_mask __mmask16
#define LA_CAUSAL_TOKENS 6
#define LA_CAUSAL_VECS 2
#define LA_DECODE_VECS 4
#define LA_QUERY_TOKENS 12
#define LA_QUERY_VECS 2
#define LA_UPDATE_ROWS 8
#define LA_UPDATE_VECS 2
#define LA_EXACT_VECS 3
#define LA_STAGE_VECS 4
#define LA_BLOCK 24
#define LA_FEATURES 128
#define LA_PART 64

LINATTN__INLINE __mmask16 LA_NAME(lanes)(int n) { return (__mmask16)((1u << n) - 1u); }
LINATTN__INLINE la_vec la_zero(void) { return _mm512_setzero_ps(); }
LINATTN__INLINE la_vec la_set1(float x) { return _mm512_set1_ps(x); }
LINATTN__INLINE la_vec la_load(const float *p) { return _mm512_loadu_ps(p); }
LINATTN__INLINE void la_store(float *p, la_vec a) { _mm512_storeu_ps(p, a); }
LINATTN__INLINE la_vec la_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(LA_NAME(lanes)(n), p);
}
LINATTN__INLINE void la_store_part(float *p, la_vec a, int n)
{
    _mm512_mask_storeu_ps(p, LA_NAME(lanes)(n), a);
}
LINATTN__INLINE la_vec la_first(la_vec a, la_vec b, int n)
{
    return _mm512_mask_mov_ps(b, LA_NAME(lanes)(n), a);
}
LINATTN__INLINE la_vec la_add(la_vec a, la_vec b) { return a + b; }
LINATTN__INLINE la_vec la_sub(la_vec a, la_vec b) { return a - b; }
LINATTN__INLINE la_vec la_mul(la_vec a, la_vec b) { return a * b; }
LINATTN__INLINE la_vec la_div(la_vec a, la_vec b) { return a / b; }
LINATTN__INLINE la_vec la_fma(la_vec a, la_vec b, la_vec c) { return _mm512_fmadd_ps(a, b, c); }
LINATTN__INLINE la_vec la_fms(la_vec a, la_vec b, la_vec c) { return _mm512_fmsub_ps(a, b, c); }
LINATTN__INLINE la_vec la_fnma(la_vec a, la_vec b, la_vec c) { return _mm512_fnmadd_ps(a, b, c); }
#ifdef __clang__
/* Under -ffast-math clang takes the operands of these intrinsics to be no NaN, whatever the pragma
   says; forms without exceptions, and comparisons by operator, keep their meaning. */
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b)
{
    return _mm512_max_round_ps(a, b, _MM_FROUND_NO_EXC);
}
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b)
{
    return _mm512_min_round_ps(a, b, _MM_FROUND_NO_EXC);
}
LINATTN__INLINE la_mask la_gt(la_vec a, la_vec b)
{
    const __m512i m = (__m512i)(a > b);
    return _mm512_test_epi32_mask(m, m);
}
LINATTN__INLINE la_mask la_eq(la_vec a, la_vec b)
{
    const __m512i m = (__m512i)(a == b);
    return _mm512_test_epi32_mask(m, m);
}
#else
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b) { return _mm512_max_ps(a, b); }
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b) { return _mm512_min_ps(a, b); }
LINATTN__INLINE la_mask la_gt(la_vec a, la_vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
LINATTN__INLINE la_mask la_eq(la_vec a, la_vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
#endif
LINATTN__INLINE la_vec la_select(la_mask m, la_vec a, la_vec b)
{
    return _mm512_mask_mov_ps(b, m, a);
}
LINATTN__INLINE int la_any(la_mask m) { return m != 0; }
LINATTN__INLINE la_vec la_scale(la_vec p, la_vec n)
{
    const la_mask flush = la_gt(la_set1(-125.0f), n);
    return _mm512_maskz_scalef_ps((la_mask)~flush, p, n);
}
LINATTN__INLINE la_vec la_scalable(la_vec x) { return x; }
LINATTN__INLINE la_vec la_capped(la_vec x) { return la_min(la_set1(89.0f), x); }
LINATTN__INLINE la_vec la_exp_end(la_vec p, la_vec n, la_vec x)
{
    const la_mask flush = la_gt(la_set1(LINATTN__EXP_LOW), x);
    return _mm512_maskz_scalef_ps((la_mask)~flush, p, n);
}
LINATTN__INLINE la_vec la_ldexp(la_vec p, la_vec n)
{
    const la_vec r = _mm512_scalef_ps(p, n);
    return la_select(la_gt(la_set1(LINATTN__FLT_MIN), r), la_zero(), r);
}
LINATTN__INLINE __m256 LA_NAME(high)(la_vec a)
{
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
}
LINATTN__INLINE float la_sum16(const la_vec *a)
{
    const __m256 b = _mm512_castps512_ps256(a[0]) + LA_NAME(high)(a[0]);
    const __m128 e = _mm256_castps256_ps128(b) + _mm256_extractf128_ps(b, 1);
    const __m128 f = e + _mm_movehl_ps(e, e);
    return _mm_cvtss_f32(f + _mm_shuffle_ps(f, f, 1));
}
LINATTN__INLINE float la_max16(const la_vec *a)
{
    const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a[0]), LA_NAME(high)(a[0]));
    const __m128 e = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 f = _mm_max_ps(e, _mm_movehl_ps(e, e));
    return _mm_cvtss_f32(_mm_max_ps(f, _mm_shuffle_ps(f, f, 1)));
}
LINATTN__INLINE void la_transpose(la_vec *a)
{
    la_vec b[16];
    int i, j;
    LINATTN__UNROLL for (i = 0; i < 16; i += 2)
    {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    /* 4x4 blocks: a[4i + j] holds column j of each of the four in rows 4i and up */
    LINATTN__UNROLL for (i = 0; i < 16; i += 4) LINATTN__UNROLL for (j = 0; j < 2; j++)
    {
        const __m512d low = _mm512_castps_pd(b[i + j]), high = _mm512_castps_pd(b[i + j + 2]);
        a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
        a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
    LINATTN__UNROLL for (j = 0; j < 4; j++)
    {
        const la_vec even_low = _mm512_shuffle_f32x4(a[j], a[4 + j], 0x88);
        const la_vec odd_low = _mm512_shuffle_f32x4(a[j], a[4 + j], 0xdd);
        const la_vec even_high = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0x88);
        const la_vec odd_high = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0xdd);
        b[j] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
        b[8 + j] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
        b[4 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
        b[12 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
    }
    LINATTN__UNROLL for (i = 0; i < 16; i++) a[i] = b[i];
}
#ifdef LINATTN_USE_SLEEF
LINATTN__C_LINKAGE __m512 Sleef_expf16_u10avx512f(__m512);
#define LA_SLEEF Sleef_expf16_u10avx512f
#endif

#define LA_DW 8
#define la_dvec __m512d
LINATTN__INLINE la_dvec la_dset1(double x) { return _mm512_set1_pd(x); }
LINATTN__INLINE la_dvec la_dload(const double *p) { return _mm512_loadu_pd(p); }
LINATTN__INLINE void la_dstore(double *p, la_dvec a) { _mm512_storeu_pd(p, a); }
LINATTN__INLINE la_dvec la_dwiden(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
LINATTN__INLINE la_dvec la_dadd(la_dvec a, la_dvec b) { return a + b; }
LINATTN__INLINE la_dvec la_dsub(la_dvec a, la_dvec b) { return a - b; }
LINATTN__INLINE la_dvec la_dmul(la_dvec a, la_dvec b) { return a * b; }
LINATTN__INLINE la_dvec la_ddiv(la_dvec a, la_dvec b) { return a / b; }
LINATTN__INLINE la_dvec la_dfma(la_dvec a, la_dvec b, la_dvec c)
{
    return _mm512_fmadd_pd(a, b, c);
}
LINATTN__INLINE la_dvec la_dmax(la_dvec a, la_dvec b)
{
    const __m512i m = (__m512i)(a > b);
    return _mm512_mask_mov_pd(b, _mm512_test_epi64_mask(m, m), a);
}
LINATTN__INLINE la_dvec la_dscale(la_dvec p, la_dvec t)
{
    const __m512i shift = _mm512_slli_epi64(_mm512_castpd_si512(t), 52);
    return _mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(p), shift));
}
LINATTN__INLINE la_dvec la_dflush(la_dvec x)
{
    const __m512i below = (__m512i)(x < la_dset1(LINATTN__TINY));
    const __m512i tiny = _mm512_and_si512(below, (__m512i)(x > la_dset1(-LINATTN__TINY)));
    return _mm512_castsi512_pd(_mm512_andnot_si512(tiny, _mm512_castpd_si512(x)));
}

#elif LINATTN__ISA == LINATTN__ISA_AVX2

#define LA_W 8
#define la_vec __m256
#define la_mask __m256
#define LA_CAUSAL_TOKENS 3
#define LA_CAUSAL_VECS 2
#define LA_DECODE_VECS 4
#define LA_QUERY_TOKENS 6
#define LA_QUERY_VECS 2
#define LA_UPDATE_ROWS 6
#define LA_UPDATE_VECS 2
#define LA_EXACT_VECS 2
#define LA_STAGE_VECS 2
#define LA_BLOCK 24
#define LA_FEATURES 128
#define LA_PART 64

LINATTN__INLINE __m256i LA_NAME(lanes)(int n)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), index);
}
LINATTN__INLINE la_vec la_zero(void) { return _mm256_setzero_ps(); }
LINATTN__INLINE la_vec la_set1(float x) { return _mm256_set1_ps(x); }
LINATTN__INLINE la_vec la_load(const float *p) { return _mm256_loadu_ps(p); }
LINATTN__INLINE void la_store(float *p, la_vec a) { _mm256_storeu_ps(p, a); }
LINATTN__INLINE la_vec la_load_part(const float *p, int n)
{
    return n == 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, LA_NAME(lanes)(n));
}
LINATTN__INLINE void la_store_part(float *p, la_vec a, int n)
{
    if (n == 8) /* the masked store is microcode on AMD */
        _mm256_storeu_ps(p, a);
    else
        _mm256_maskstore_ps(p, LA_NAME(lanes)(n), a);
}
LINATTN__INLINE la_vec la_first(la_vec a, la_vec b, int n)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(LA_NAME(lanes)(n)));
}
LINATTN__INLINE la_vec la_add(la_vec a, la_vec b) { return a + b; }
LINATTN__INLINE la_vec la_sub(la_vec a, la_vec b) { return a - b; }
LINATTN__INLINE la_vec la_mul(la_vec a, la_vec b) { return a * b; }
LINATTN__INLINE la_vec la_div(la_vec a, la_vec b) { return a / b; }
LINATTN__INLINE la_vec la_fma(la_vec a, la_vec b, la_vec c) { return _mm256_fmadd_ps(a, b, c); }
LINATTN__INLINE la_vec la_fms(la_vec a, la_vec b, la_vec c) { return _mm256_fmsub_ps(a, b, c); }
LINATTN__INLINE la_vec la_fnma(la_vec a, la_vec b, la_vec c) { return _mm256_fnmadd_ps(a, b, c); }
#if defined(__clang__) && defined(__FAST_MATH__)
/* clang then takes max and min to commute, whatever the pragma says. */
LINATTN__INLINE la_vec LA_NAME(choose)(la_vec m, la_vec a, la_vec b)
{
    return (__m256)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)m);
}
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b) { return LA_NAME(choose)((__m256)(a > b), a, b); }
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b) { return LA_NAME(choose)((__m256)(a < b), a, b); }
#else
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b) { return _mm256_max_ps(a, b); }
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b) { return _mm256_min_ps(a, b); }
#endif
LINATTN__INLINE la_mask la_gt(la_vec a, la_vec b) { return (__m256)(a > b); }
LINATTN__INLINE la_mask la_eq(la_vec a, la_vec b) { return (__m256)(a == b); }
LINATTN__INLINE la_vec la_select(la_mask m, la_vec a, la_vec b)
{
    return _mm256_blendv_ps(b, a, m);
}
LINATTN__INLINE int la_any(la_mask m) { return _mm256_movemask_ps(m) != 0; }
LINATTN__INLINE la_vec LA_NAME(pow2)(la_vec n)
{
    const __m256i i = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(i, 23));
}
LINATTN__INLINE la_vec la_scale(la_vec p, la_vec n)
{
    return p * _mm256_andnot_ps(la_gt(la_set1(-125.0f), n), LA_NAME(pow2)(n));
}
LINATTN__INLINE la_vec la_scalable(la_vec x) { return la_max(la_set1(-100.0f), x); }
LINATTN__INLINE la_vec la_capped(la_vec x) { return x; }
LINATTN__INLINE la_vec la_exp_end(la_vec p, la_vec n, la_vec x)
{
    const __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    const la_vec y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shift));
    const la_vec beyond = x * la_set1(LINATTN__FLT_MAX); /* inf, or NaN */
    const la_vec normal = _mm256_andnot_ps(la_gt(la_set1(LINATTN__EXP_LOW), x), y);
    return la_select((__m256)(x <= la_set1(LINATTN__EXP_HIGH)), normal, beyond);
}
LINATTN__INLINE la_vec la_ldexp(la_vec p, la_vec n)
{
    const la_vec low = la_min(la_set1(127.0f), n), m = la_max(la_set1(-127.0f), low);
    const la_vec r = la_fma(p, n - low, p) * LA_NAME(pow2)(m);
    return _mm256_andnot_ps(la_gt(la_set1(LINATTN__FLT_MIN), r), r);
}
LINATTN__INLINE float la_sum16(const la_vec *a)
{
    const la_vec b = a[0] + a[1];
    const __m128 e = _mm256_castps256_ps128(b) + _mm256_extractf128_ps(b, 1);
    const __m128 f = e + _mm_movehl_ps(e, e);
    return _mm_cvtss_f32(f + _mm_shuffle_ps(f, f, 1));
}
LINATTN__INLINE float la_max16(const la_vec *a)
{
    const la_vec b = la_max(a[0], a[1]);
    const __m128 e = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 f = _mm_max_ps(e, _mm_movehl_ps(e, e));
    return _mm_cvtss_f32(_mm_max_ps(f, _mm_shuffle_ps(f, f, 1)));
}
LINATTN__INLINE void la_transpose(la_vec *a)
{
    la_vec b[8];
    int i, j;
    LINATTN__UNROLL for (i = 0; i < 8; i += 2)
    {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    /* 4x4 blocks: a[4i + j] holds column j of each of the two in rows 4i and up */
    LINATTN__UNROLL for (i = 0; i < 8; i += 4) LINATTN__UNROLL for (j = 0; j < 2; j++)
    {
        const __m256d low = _mm256_castps_pd(b[i + j]), high = _mm256_castps_pd(b[i + j + 2]);
        a[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
        a[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
    }
    LINATTN__UNROLL for (j = 0; j < 4; j++)
    {
        const la_vec low = a[j], high = a[4 + j];
        a[j] = _mm256_permute2f128_ps(low, high, 0x20);
        a[4 + j] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}
#ifdef LINATTN_USE_SLEEF
LINATTN__C_LINKAGE __m256 Sleef_expf8_u10avx2(__m256);
#define LA_SLEEF Sleef_expf8_u10avx2
#endif

#define LA_DW 4
#define la_dvec __m256d
LINATTN__INLINE la_dvec la_dset1(double x) { return _mm256_set1_pd(x); }
LINATTN__INLINE la_dvec la_dload(const double *p) { return _mm256_loadu_pd(p); }
LINATTN__INLINE void la_dstore(double *p, la_dvec a) { _mm256_storeu_pd(p, a); }
LINATTN__INLINE la_dvec la_dwiden(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
LINATTN__INLINE la_dvec la_dadd(la_dvec a, la_dvec b) { return a + b; }
LINATTN__INLINE la_dvec la_dsub(la_dvec a, la_dvec b) { return a - b; }
LINATTN__INLINE la_dvec la_dmul(la_dvec a, la_dvec b) { return a * b; }
LINATTN__INLINE la_dvec la_ddiv(la_dvec a, la_dvec b) { return a / b; }
LINATTN__INLINE la_dvec la_dfma(la_dvec a, la_dvec b, la_dvec c)
{
    return _mm256_fmadd_pd(a, b, c);
}
LINATTN__INLINE la_dvec la_dmax(la_dvec a, la_dvec b)
{
    return (la_dvec)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)(a > b));
}
LINATTN__INLINE la_dvec la_dscale(la_dvec p, la_dvec t)
{
    const __m256i shift = _mm256_slli_epi64(_mm256_castpd_si256(t), 52);
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), shift));
}
LINATTN__INLINE la_dvec la_dflush(la_dvec x)
{
    const __m256i below = (__m256i)(x < la_dset1(LINATTN__TINY));
    const __m256i tiny = _mm256_and_si256(below, (__m256i)(x > la_dset1(-LINATTN__TINY)));
    return _mm256_castsi256_pd(_mm256_andnot_si256(tiny, _mm256_castpd_si256(x)));
}

#elif LINATTN__ISA == LINATTN__ISA_NEON

#define LA_W 4
#define la_vec float32x4_t
#define la_mask uint32x4_t
#define LA_CAUSAL_TOKENS 6
#define LA_CAUSAL_VECS 2
#define LA_DECODE_VECS 4
#define LA_QUERY_TOKENS 6
#define LA_QUERY_VECS 4
#define LA_UPDATE_ROWS 8
#define LA_UPDATE_VECS 2
#define LA_EXACT_VECS 3
#define LA_STAGE_VECS 4
#define LA_BLOCK 24
#define LA_FEATURES 128
#define LA_PART 64

LINATTN__INLINE la_vec la_zero(void) { return vdupq_n_f32(0.0f); }
LINATTN__INLINE la_vec la_set1(float x) { return vdupq_n_f32(x); }
LINATTN__INLINE la_vec la_load(const float *p) { return vld1q_f32(p); }
LINATTN__INLINE void la_store(float *p, la_vec a) { vst1q_f32(p, a); }
LINATTN__INLINE la_vec la_load_part(const float *p, int n)
{
    la_vec a = vdupq_n_f32(0.0f);
    if (n == 4) return vld1q_f32(p);
    if (n > 0) a = vld1q_lane_f32(p, a, 0);
    if (n > 1) a = vld1q_lane_f32(p + 1, a, 1);
    if (n > 2) a = vld1q_lane_f32(p + 2, a, 2);
    return a;
}
LINATTN__INLINE void la_store_part(float *p, la_vec a, int n)
{
    if (n == 4) {
        vst1q_f32(p, a);
        return;
    }
    if (n > 0) vst1q_lane_f32(p, a, 0);
    if (n > 1) vst1q_lane_f32(p + 1, a, 1);
    if (n > 2) vst1q_lane_f32(p + 2, a, 2);
}
LINATTN__INLINE la_vec la_first(la_vec a, la_vec b, int n)
{
    static const uint32_t index[4] = {0, 1, 2, 3};
    return vbslq_f32(vcgtq_u32(vdupq_n_u32((uint32_t)n), vld1q_u32(index)), a, b);
}
LINATTN__INLINE la_vec la_add(la_vec a, la_vec b) { return a + b; }
LINATTN__INLINE la_vec la_sub(la_vec a, la_vec b) { return a - b; }
LINATTN__INLINE la_vec la_mul(la_vec a, la_vec b) { return a * b; }
LINATTN__INLINE la_vec la_div(la_vec a, la_vec b) { return a / b; }
LINATTN__INLINE la_vec la_fma(la_vec a, la_vec b, la_vec c) { return vfmaq_f32(c, a, b); }
LINATTN__INLINE la_vec la_fms(la_vec a, la_vec b, la_vec c)
{
    return vfmaq_f32(vnegq_f32(c), a, b);
}
LINATTN__INLINE la_vec la_fnma(la_vec a, la_vec b, la_vec c) { return vfmsq_f32(c, a, b); }
LINATTN__INLINE la_mask la_gt(la_vec a, la_vec b) { return vcgtq_f32(a, b); }
LINATTN__INLINE la_mask la_eq(la_vec a, la_vec b) { return vceqq_f32(a, b); }
LINATTN__INLINE la_vec la_select(la_mask m, la_vec a, la_vec b) { return vbslq_f32(m, a, b); }
/* Not vmaxq: it orders -0 below 0 and returns NaN whichever operand it is. */
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b) { return vbslq_f32(vcgtq_f32(b, a), a, b); }
LINATTN__INLINE int la_any(la_mask m) { return vmaxvq_u32(m) != 0; }
LINATTN__INLINE la_vec LA_NAME(pow2)(la_vec n)
{
    const int32x4_t i = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(i, 23));
}
LINATTN__INLINE la_vec la_scale(la_vec p, la_vec n)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(LA_NAME(pow2)(n));
    return p * vreinterpretq_f32_u32(vbicq_u32(bits, vcleq_f32(n, vdupq_n_f32(-126.0f))));
}
LINATTN__INLINE la_vec la_scalable(la_vec x) { return la_max(la_set1(-100.0f), x); }
LINATTN__INLINE la_vec la_capped(la_vec x) { return x; }
LINATTN__INLINE la_vec la_exp_end(la_vec p, la_vec n, la_vec x)
{
    const uint32x4_t shift = vreinterpretq_u32_s32(vshlq_n_s32(vcvtq_s32_f32(n), 23));
    const uint32x4_t y = vaddq_u32(vreinterpretq_u32_f32(p), shift);
    const uint32x4_t low = vcltq_f32(x, vdupq_n_f32(LINATTN__EXP_LOW));
    const uint32x4_t normal = vcleq_f32(x, vdupq_n_f32(LINATTN__EXP_HIGH));
    const la_vec beyond = x * vdupq_n_f32(LINATTN__FLT_MAX); /* inf, or NaN */
    return vbslq_f32(normal, vreinterpretq_f32_u32(vbicq_u32(y, low)), beyond);
}
LINATTN__INLINE la_vec la_ldexp(la_vec p, la_vec n)
{
    const la_vec low = la_min(la_set1(127.0f), n), m = la_max(la_set1(-127.0f), low);
    const la_vec r = la_fma(p, n - low, p) * LA_NAME(pow2)(m);
    const uint32x4_t tiny = vcltq_f32(r, vdupq_n_f32(LINATTN__FLT_MIN));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(r), tiny));
}
LINATTN__INLINE float la_sum16(const la_vec *a)
{
    const la_vec b = (a[0] + a[2]) + (a[1] + a[3]);
    const float32x2_t c = vget_low_f32(b) + vget_high_f32(b);
    return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}
LINATTN__INLINE float la_max16(const la_vec *a)
{
    return vmaxvq_f32(la_max(la_max(a[0], a[2]), la_max(a[1], a[3])));
}
LINATTN__INLINE void la_transpose(la_vec *a)
{
    const float32x4x2_t b = vtrnq_f32(a[0], a[1]), c = vtrnq_f32(a[2], a[3]);
    a[0] = vcombine_f32(vget_low_f32(b.val[0]), vget_low_f32(c.val[0]));
    a[1] = vcombine_f32(vget_low_f32(b.val[1]), vget_low_f32(c.val[1]));
    a[2] = vcombine_f32(vget_high_f32(b.val[0]), vget_high_f32(c.val[0]));
    a[3] = vcombine_f32(vget_high_f32(b.val[1]), vget_high_f32(c.val[1]));
}
#ifdef LINATTN_USE_SLEEF
LINATTN__C_LINKAGE float32x4_t Sleef_expf4_u10advsimd(float32x4_t);
#define LA_SLEEF Sleef_expf4_u10advsimd
#endif

#define LA_DW 2
#define la_dvec float64x2_t
LINATTN__INLINE la_dvec la_dset1(double x) { return vdupq_n_f64(x); }
LINATTN__INLINE la_dvec la_dload(const double *p) { return vld1q_f64(p); }
LINATTN__INLINE void la_dstore(double *p, la_dvec a) { vst1q_f64(p, a); }
LINATTN__INLINE la_dvec la_dwiden(const float *p) { return vcvt_f64_f32(vld1_f32(p)); }
LINATTN__INLINE la_dvec la_dadd(la_dvec a, la_dvec b) { return a + b; }
LINATTN__INLINE la_dvec la_dsub(la_dvec a, la_dvec b) { return a - b; }
LINATTN__INLINE la_dvec la_dmul(la_dvec a, la_dvec b) { return a * b; }
LINATTN__INLINE la_dvec la_ddiv(la_dvec a, la_dvec b) { return a / b; }
LINATTN__INLINE la_dvec la_dfma(la_dvec a, la_dvec b, la_dvec c) { return vfmaq_f64(c, a, b); }
LINATTN__INLINE la_dvec la_dmax(la_dvec a, la_dvec b) { return vbslq_f64(vcgtq_f64(a, b), a, b); }
LINATTN__INLINE la_dvec la_dscale(la_dvec p, la_dvec t)
{
    const int64x2_t shift = vshlq_n_s64(vreinterpretq_s64_f64(t), 52);
    return vreinterpretq_f64_s64(vaddq_s64(vreinterpretq_s64_f64(p), shift));
}
LINATTN__INLINE la_dvec la_dflush(la_dvec x)
{
    const uint64x2_t tiny = vcltq_f64(vabsq_f64(x), vdupq_n_f64(LINATTN__TINY));
    return vreinterpretq_f64_u64(vbicq_u64(vreinterpretq_u64_f64(x), tiny));
}

#endif

/* ==== (B) The kernels ========================================================================= */

#define LA_ROW (LA_FEATURES + 16) /* scratch row, in floats: not a power of two, or L1 sets clash */
#define LA_PANEL_VECS (16 / LA_W) /* vectors in a row of a panel */
#define LA_PART_ROW (LA_PART + 16)

/* ---- exp, and the maps on vectors ------------------------------------------------------------ */

/* e^r for |r| <= ln(2)/2: a degree 6 minimax polynomial, relative error 2^-28. */
LINATTN__INLINE la_vec LA_NAME(exp_core)(la_vec r)
{
#ifdef LINATTN_USE_SLEEF
    return LA_SLEEF(r);
#else
    la_vec p = la_set1(0.00138212892f);
    p = la_fma(p, r, la_set1(0.00836866908f));
    p = la_fma(p, r, la_set1(0.0416682586f));
    p = la_fma(p, r, la_set1(0.166665211f));
    p = la_fma(p, r, la_set1(0.49999994f));
    p = la_fma(p, r, la_set1(1.0f));
    return la_fma(p, r, la_set1(1.0f));
#endif
}

/* x = n ln(2) + r with an integer n and |r| <= ln(2)/2, for |x| < 2^21: adding 1.5 * 2^23 rounds to
   an integer, and ln(2) in two parts with fma keeps r exact to its last bit. */
LINATTN__INLINE la_vec LA_NAME(reduce)(la_vec x, la_vec *n)
{
    const la_vec magic = la_set1(12582912.0f);
    la_vec r;
    *n = la_sub(la_fma(x, la_set1(1.44269502f), magic), magic);
    r = la_fnma(*n, la_set1(0.693147182f), x);
    return la_fnma(*n, la_set1(-1.90465421e-09f), r);
}

/* e^x for x <= 0; zero where the result would be below 2^-125. Meaningless for x > 0, but
   harmless. */
LINATTN__INLINE la_vec LA_NAME(exp_negative)(la_vec x)
{
    la_vec n;
    const la_vec r = LA_NAME(reduce)(la_scalable(x), &n);
    return la_scale(LA_NAME(exp_core)(r), n);
}

/* e^x over all floats. */
LINATTN__INLINE la_vec LA_NAME(exp_full)(la_vec x)
{
#ifdef LINATTN_USE_SLEEF
    const la_vec y = LA_SLEEF(x);
    return la_select(la_gt(la_set1(LINATTN__FLT_MIN), y), la_zero(), y);
#else
    la_vec n;
    const la_vec r = LA_NAME(reduce)(la_capped(x), &n);
    return la_exp_end(LA_NAME(exp_core)(r), n, x);
#endif
}

/* e^(x sqrt(s)) = p 2^n, p in [.7, 1.42): n saturates at +-2^21, and is -inf for x = -inf. The
   product x sqrt(s) is carried in two floats, so that large x lose nothing. */
LINATTN__INLINE la_vec LA_NAME(split)(la_vec x, const linattn__params *p, la_vec *n)
{
    const la_vec magic = la_set1(12582912.0f), root = la_set1(p->root);
    const la_vec c = la_min(la_set1(p->limit), la_max(la_set1(-p->limit), x));
    const la_vec k = la_sub(la_fma(c, la_set1(p->rate), magic), magic);
    const la_vec y = la_mul(c, root);
    const la_vec low = la_fma(c, la_set1(p->root_low), la_fms(c, root, y));
    la_vec r = la_fnma(k, la_set1(0.693147182f), y);
    r = la_add(la_fnma(k, la_set1(-1.90465421e-09f), r), low);
    *n = la_select(la_gt(la_set1(-LINATTN__FLT_MAX), x), la_set1(-LINATTN__INF), k);
    return LA_NAME(exp_core)(r);
}

/* The n of split alone. */
LINATTN__INLINE la_vec LA_NAME(exponent)(la_vec x, const linattn__params *p)
{
    const la_vec magic = la_set1(12582912.0f);
    const la_vec c = la_min(la_set1(p->limit), la_max(la_set1(-p->limit), x));
    const la_vec k = la_sub(la_fma(c, la_set1(p->rate), magic), magic);
    return la_select(la_gt(la_set1(-LINATTN__FLT_MAX), x), la_set1(-LINATTN__INF), k);
}

/* The maps without exponent bookkeeping, on y = x sqrt(s). */
LINATTN__INLINE la_vec LA_NAME(plain)(la_vec y, const int map)
{
    if (map == LINATTN_MAP_RELU) return la_max(la_zero(), y);
    if (map == LINATTN_MAP_ELU1) {
        const la_vec e = LA_NAME(exp_negative)(y);
        return la_select(la_gt(la_zero(), y), e, la_add(y, la_set1(1.0f)));
    }
    return y;
}

/* What n of a key is taken relative to: its contribution is stored as p 2^(n - E - BIAS). */
LINATTN__INLINE la_vec LA_NAME(key_exponent)(la_vec e)
{
    return la_add(la_max(la_set1(LINATTN__LOWEST), e), la_set1(LINATTN__BIAS));
}

/* phi(k) as it enters S and z, 0 in lanes beyond the features. */
LINATTN__INLINE la_vec LA_NAME(phi_key)(const linattn__params *p, const float *key, int lanes,
                                        la_vec e_keys, const int map)
{
    const la_vec x = la_load_part(key, lanes);
    la_vec n, phi;
    if (map == LINATTN_MAP_EXP) {
        phi = LA_NAME(split)(x, p, &n);
        phi = la_scale(phi, la_sub(n, e_keys));
    } else {
        phi = LA_NAME(plain)(la_mul(x, la_set1(p->root)), map);
    }
    return lanes < LA_W ? la_first(phi, la_zero(), lanes) : phi;
}

/* phi(q), for exp times 2^(E - top). */
LINATTN__INLINE la_vec LA_NAME(phi_query)(const linattn__params *p, const float *query, int lanes,
                                          la_vec e, float top, const int map)
{
    const la_vec x = la_load_part(query, lanes);
    la_vec n, phi;
    if (map == LINATTN_MAP_EXP) {
        phi = LA_NAME(split)(x, p, &n);
        phi = la_scale(phi, la_sub(la_add(n, e), la_set1(top)));
    } else {
        phi = LA_NAME(plain)(la_mul(x, la_set1(p->root)), map);
    }
    return lanes < LA_W ? la_first(phi, la_zero(), lanes) : phi;
}

/* x, saturating at +-FLT_MAX; a NaN stays. */
LINATTN__INLINE la_vec LA_NAME(clamp)(la_vec x)
{
    const la_vec big = la_set1(LINATTN__FLT_MAX);
    return la_max(la_sub(la_zero(), big), la_min(big, x));
}

/* sum + term, and what rounding lost added to *lost (Knuth's TwoSum). */
LINATTN__INLINE la_vec LA_NAME(two_sum)(la_vec sum, la_vec term, la_vec *lost)
{
    const la_vec total = la_add(sum, term), part = la_sub(total, sum);
    const la_vec error = la_add(la_sub(sum, la_sub(total, part)), la_sub(term, part));
    *lost = la_add(*lost, error);
    return total;
}

/* z += phi. The identity's terms have signs: denominators may cancel to almost nothing, so its z
   keeps what rounding loses, in the place of the exponents. */
LINATTN__INLINE la_vec LA_NAME(add_key)(la_vec z, la_vec phi, la_vec *low, const int map)
{
    return map == LINATTN_MAP_IDENTITY ? LA_NAME(two_sum)(z, phi, low) : la_add(z, phi);
}

/* ---- Staging: the maps, z and the denominators ----------------------------------------------- */

/* What a block of tokens needs between its stages, on the stack. Query heads that share a key/value
   head share a block: query head g of `count` tokens owns rows g * count and up of q to power. */
typedef struct la_scratch {
    float k[LA_BLOCK * LA_ROW]; /* phi(k), token by token */
    float q[LA_BLOCK * LA_ROW]; /* phi(q), or the weights that stand for it */
    float den[LA_BLOCK * 16];   /* denominators over 16 virtual lanes */
    float lost[LA_BLOCK * 16];  /* and what their rounding lost, for the identity */
    float top[LA_BLOCK];        /* exponent that phi(q) is relative to */
    float scale[LA_BLOCK + 16]; /* output factor: scale * 2^power */
    float power[LA_BLOCK];
} la_scratch;

LINATTN__INLINE int LA_NAME(lanes_left)(size_t end, size_t at)
{
    return end - at < LA_W ? (int)(end - at) : LA_W;
}

/* top[t] = max over the features of the exponent of phi(q), with the state's exponents where these
   weigh in (norm feature divides by z instead). */
static LINATTN__NOINLINE void LA_NAME(peaks)(const linattn__span *s, la_scratch *w, size_t row0,
                                             const float *q, size_t count)
{
    const int with_state = s->params->norm != LINATTN_NORM_FEATURE;
    size_t t, f, i;
    for (t = 0; t < count; t++) {
        const float *row = q + t * s->q_token;
        la_vec top[LA_PANEL_VECS];
        float peak;
        for (i = 0; i < LA_PANEL_VECS; i++) top[i] = la_set1(-LINATTN__INF);
        for (f = 0; f < s->m; f += LA_W) {
            const int lanes = LA_NAME(lanes_left)(s->m, f);
            la_vec n = LA_NAME(exponent)(la_load_part(row + f, lanes), s->params);
            if (with_state) n = la_add(n, la_load(s->e + f));
            n = la_first(n, la_set1(-LINATTN__INF), lanes);
            i = (f / LA_W) % LA_PANEL_VECS;
            top[i] = la_max(top[i], n);
        }
        peak = la_max16(top);
        /* with nothing to weigh all weights are 0 */
        w->top[row0 + t] = 0.0f;
        if (peak > -LINATTN__INF) w->top[row0 + t] = peak;
    }
}

/* The mass sum_f e^q_f = mass 2^top of one query: what the softmax map divides phi(q) by. */
static float LA_NAME(mass)(const linattn__span *s, const float *row, float *top)
{
    la_vec sum[LA_PANEL_VECS], peak[LA_PANEL_VECS];
    size_t f, i;
    for (i = 0; i < LA_PANEL_VECS; i++) {
        sum[i] = la_zero();
        peak[i] = la_set1(-LINATTN__INF);
    }
    for (f = 0; f < s->m; f += LA_W) {
        const int lanes = LA_NAME(lanes_left)(s->m, f);
        const la_vec n = LA_NAME(exponent)(la_load_part(row + f, lanes), s->params);
        i = (f / LA_W) % LA_PANEL_VECS;
        peak[i] = la_max(peak[i], la_first(n, la_set1(-LINATTN__INF), lanes));
    }
    *top = la_max16(peak);
    if (!(*top > -LINATTN__INF)) *top = 0.0f;
    for (f = 0; f < s->m; f += LA_W) {
        const int lanes = LA_NAME(lanes_left)(s->m, f);
        la_vec n, e = LA_NAME(split)(la_load_part(row + f, lanes), s->params, &n);
        e = la_scale(e, la_sub(n, la_set1(*top)));
        i = (f / LA_W) % LA_PANEL_VECS;
        sum[i] = la_add(sum[i], la_first(e, la_zero(), lanes));
    }
    return la_sum16(sum);
}

/* The denominator's term of one vector of features, and the weight that S's rows get. */
LINATTN__INLINE la_vec LA_NAME(weigh_query)(la_vec phi, la_vec z, la_vec low, la_vec *den,
                                            la_vec *lost, const int map, const int feature)
{
    if (feature) {
        const la_vec by = map == LINATTN_MAP_IDENTITY ? la_add(z, low) : z;
        *den = la_add(*den, phi);
        return la_select(la_eq(by, la_zero()), la_zero(), LA_NAME(clamp)(la_div(phi, by)));
    }
    if (map == LINATTN_MAP_IDENTITY) {
        const la_vec term = la_mul(phi, z);
        *lost = la_add(*lost, la_fms(phi, z, term));
        *den = LA_NAME(two_sum)(*den, term, lost);
        *lost = la_fma(phi, low, *lost);
    } else {
        *den = la_fma(phi, z, *den);
    }
    return phi;
}

/* Maps NF vectors of features from f for `count` tokens. With keys, z follows token by token,
   and each query sees z after its own key. Denominators gather in w->den, lane f % 16. */
LINATTN__INLINE void LA_NAME(stage_vectors)(const linattn__span *s, la_scratch *w, size_t row0,
                                            size_t t0, size_t count, const float *q, size_t f0,
                                            size_t f, int keep, const int keys, const int map,
                                            const int feature, const size_t NF)
{
    const linattn__params local = *s->params, *p = &local; /* which no store can change */
    const size_t k_token = s->k_token, q_token = s->q_token;
    const float *x = q + f, *k = keys ? s->k + t0 * k_token + f : x;
    const int lanes = NF > 1 ? LA_W : LA_NAME(lanes_left)(s->m, f);
    la_vec z[LA_STAGE_VECS], low[LA_STAGE_VECS], e[LA_STAGE_VECS];
    const size_t slots = NF < LA_PANEL_VECS ? NF : LA_PANEL_VECS;
    size_t t, j;
    LINATTN__UNROLL for (j = 0; j < NF; j++)
    {
        z[j] = la_load(s->z + f + j * LA_W);
        low[j] = e[j] = la_load(s->e + f + j * LA_W);
    }
    for (t = 0; t < count; t++, k += keys ? k_token : 0, x += q_token) {
        float *const den_at = w->den + (row0 + t) * 16 + f % 16;
        float *const lost_at = w->lost + (row0 + t) * 16 + f % 16;
        la_vec den[LA_STAGE_VECS], lost[LA_STAGE_VECS], phi;
        LINATTN__UNROLL for (j = 0; j < slots; j++)
        {
            den[j] = la_load(den_at + j * LA_W);
            lost[j] = map == LINATTN_MAP_IDENTITY ? la_load(lost_at + j * LA_W) : la_zero();
        }
        LINATTN__UNROLL for (j = 0; j < NF; j++)
        {
            const size_t at = f - f0 + j * LA_W;
            if (keys) {
                phi = LA_NAME(phi_key)(p, k + j * LA_W, lanes, LA_NAME(key_exponent)(e[j]), map);
                la_store(w->k + t * LA_ROW + at, phi);
                z[j] = LA_NAME(add_key)(z[j], phi, &low[j], map);
            }
            phi = LA_NAME(phi_query)(p, x + j * LA_W, lanes, feature ? la_zero() : e[j],
                                     w->top[row0 + t], map);
            phi = LA_NAME(weigh_query)(phi, z[j], low[j], &den[j % slots], &lost[j % slots], map,
                                       feature);
            la_store(w->q + (row0 + t) * LA_ROW + at, phi);
        }
        LINATTN__UNROLL for (j = 0; j < slots; j++)
        {
            la_store(den_at + j * LA_W, den[j]);
            if (map == LINATTN_MAP_IDENTITY) la_store(lost_at + j * LA_W, lost[j]);
        }
    }
    if (!keys || !keep) return;
    LINATTN__UNROLL for (j = 0; j < NF; j++)
    {
        la_store(s->z + f + j * LA_W, z[j]);
        if (map == LINATTN_MAP_IDENTITY) la_store(s->e + f + j * LA_W, low[j]);
    }
}

/* Maps features [f0, f1) of a block into scratch. The rare variants are not unrolled. */
LINATTN__INLINE void LA_NAME(stage_as)(const linattn__span *s, la_scratch *w, size_t row0,
                                       size_t t0, size_t count, const float *q, size_t f0,
                                       size_t f1, int keep, const int keys, const int map,
                                       const int feature)
{
    const int wide = LA_STAGE_VECS > 1 && map != LINATTN_MAP_IDENTITY && !feature;
    const size_t NF = LA_STAGE_VECS;
    size_t f = f0;
    for (; wide && f1 - f >= NF * LA_W; f += NF * LA_W)
        LA_NAME(stage_vectors)(s, w, row0, t0, count, q, f0, f, keep, keys, map, feature, NF);
    for (; f < f1; f += LA_W)
        LA_NAME(stage_vectors)(s, w, row0, t0, count, q, f0, f, keep, keys, map, feature, 1);
}

/* The maps are compile-time constants of what walks vectors, so that their branches stand
   outside its loops. Scalar code, which is there to be small, branches inside. */
LINATTN__INLINE void LA_NAME(stage_map)(const linattn__span *s, la_scratch *w, size_t row0,
                                        size_t t0, size_t count, const float *q, size_t f0,
                                        size_t f1, int keep, const int keys, const int feature)
{
    switch (s->params->map) {
    case LINATTN_MAP_IDENTITY:
        LA_NAME(stage_as)
        (s, w, row0, t0, count, q, f0, f1, keep, keys, LINATTN_MAP_IDENTITY, feature);
        break;
    case LINATTN_MAP_RELU:
        LA_NAME(stage_as)(s, w, row0, t0, count, q, f0, f1, keep, keys, LINATTN_MAP_RELU, feature);
        break;
    case LINATTN_MAP_ELU1:
        LA_NAME(stage_as)(s, w, row0, t0, count, q, f0, f1, keep, keys, LINATTN_MAP_ELU1, feature);
        break;
    default:
        LA_NAME(stage_as)(s, w, row0, t0, count, q, f0, f1, keep, keys, LINATTN_MAP_EXP, feature);
        break;
    }
}

static LINATTN__NOINLINE void LA_NAME(stage)(const linattn__span *s, la_scratch *w, size_t row0,
                                             size_t t0, size_t count, const float *q, size_t f0,
                                             size_t f1, int keep, int keys)
{
    const int feature = s->params->norm == LINATTN_NORM_FEATURE;
    if (LA_W == 1)
        LA_NAME(stage_as)(s, w, row0, t0, count, q, f0, f1, keep, keys, s->params->map, feature);
    else if (feature) /* its divisions outweigh a branch */
        LA_NAME(stage_map)(s, w, row0, t0, count, q, f0, f1, keep, keys, 1);
    else if (keys)
        LA_NAME(stage_map)(s, w, row0, t0, count, q, f0, f1, keep, 1, 0);
    else
        LA_NAME(stage_map)(s, w, row0, t0, count, q, f0, f1, keep, 0, 0);
}

/* scale[t] = 1 / denominator, 0 for 0, never infinite. */
LINATTN__INLINE void LA_NAME(invert)(float *scale, size_t count)
{
    size_t t;
    for (t = 0; t < count; t += LA_W) {
        const la_vec den = la_load(scale + t);
        const la_vec r = LA_NAME(clamp)(la_div(la_set1(1.0f), den));
        la_store(scale + t, la_select(la_eq(den, la_zero()), la_zero(), r));
    }
}

/* The output factors of one query head of a block, once its denominators are complete. */
static LINATTN__NOINLINE void LA_NAME(finish)(const linattn__span *s, la_scratch *w, size_t row0,
                                              size_t t0, size_t count, const float *q, int keys)
{
    const linattn__params *p = s->params;
    const int plain = p->norm == LINATTN_NORM_SUM && !(p->epsilon > 0.0f);
    size_t t, i;
    for (t = 0; t < count; t++) {
        const size_t row = row0 + t;
        la_vec lanes[LA_PANEL_VECS];
        float den, mass = 1.0f, mass_top = 0.0f;
        for (i = 0; i < LA_PANEL_VECS; i++) lanes[i] = la_load(w->den + row * 16 + i * LA_W);
        den = la_sum16(lanes);
        w->power[row] = 0.0f;
        w->scale[row] = den;
        if (p->norm == LINATTN_NORM_SUM && p->map == LINATTN_MAP_IDENTITY) {
            w->scale[row] = linattn__cancelling(w->den + row * 16, w->lost + row * 16, p->epsilon);
        } else if (!plain) {
            if (p->softmax && p->norm != LINATTN_NORM_FEATURE)
                mass = LA_NAME(mass)(s, q + t * s->q_token, &mass_top);
            w->scale[row] = linattn__factor(p, den, w->top[row], mass, mass_top,
                                            keys ? s->seen + t0 + t + 1 : s->seen, &w->power[row]);
        }
    }
    if (plain && p->map != LINATTN_MAP_IDENTITY) LA_NAME(invert)(w->scale + row0, count);
}

/* out *= 2^power, saturating at +-FLT_MAX: only norms length and none, and exp with norm feature,
   leave a power. */
static void LA_NAME(shift_rows)(const linattn__span *s, const float *power, float *out,
                                size_t count)
{
    size_t t, c;
    for (t = 0; t < count; t++) {
        float *const row = out + t * s->out_token;
        if (power[t] == 0.0f) continue;
        for (c = s->column_begin; c < s->column_end; c++)
            row[c] = linattn__saturating_ldexp(row[c], power[t]);
    }
}

/* ---- Masked tokens and moving exponents ------------------------------------------------------ */

/* Does key token t push any exponent up? E_f moves to n once n exceeds E_f + LINATTN__HEADROOM,
   which is one compare against a threshold in the units of x. */
LINATTN__INLINE la_mask LA_NAME(moving)(const linattn__params *p, la_vec x, la_vec e)
{
    const la_vec threshold = la_fma(e, la_set1(p->cell), la_set1(p->margin));
    return la_gt(la_min(la_set1(p->limit), x), threshold);
}

LINATTN__INLINE int LA_NAME(moves)(const linattn__span *s, const float *key)
{
    size_t f;
    for (f = s->row_begin; f < s->row_end; f += LA_W) {
        const int lanes = LA_NAME(lanes_left)(s->m, f);
        const la_vec x = la_first(la_load_part(key + f, lanes), la_set1(-LINATTN__INF), lanes);
        if (la_any(LA_NAME(moving)(s->params, x, la_load(s->e + f)))) return 1;
    }
    return 0;
}

/* Multiplies row f of S and z_f by 2^(from - to), flushing what falls below FLT_MIN: in two
   factors, as one may be out of range. */
static void LA_NAME(rescale_row)(const linattn__span *s, size_t f, float from, float to)
{
    float factor[2];
    size_t c, i;
    if (from == -LINATTN__INF) return; /* the row is still empty */
    linattn__two_factors(from - to, factor);
    s->z[f] = linattn__rescale(s->z[f], factor);
    for (c = s->column_begin; c < s->column_end; c += 16) {
        float *const row = s->s + c * s->m + f * 16;
        for (i = 0; i < 16; i++) row[i] = linattn__rescale(row[i], factor);
    }
}

static void LA_NAME(settle)(const linattn__span *s, const float *key)
{
    size_t f, i;
    for (f = s->row_begin; f < s->row_end; f += LA_W) {
        const int lanes = LA_NAME(lanes_left)(s->m, f);
        const la_vec x = la_first(la_load_part(key + f, lanes), la_set1(-LINATTN__INF), lanes);
        const la_vec e = la_load(s->e + f);
        const la_mask move = LA_NAME(moving)(s->params, x, e);
        float from[LA_W], to[LA_W];
        if (!la_any(move)) continue;
        la_store(from, e);
        la_store(to, la_select(move, LA_NAME(exponent)(x, s->params), e));
        for (i = 0; i < LA_W; i++)
            if (to[i] > from[i]) LA_NAME(rescale_row)(s, f + i, from[i], to[i]);
        la_store(s->e + f, la_load(to));
    }
}

/* The longest run of tokens from t that can be taken at once, at most `most`: all masked (*masked
   is set), or none masked and no exponent moving after the first token, whose move is made here. */
static LINATTN__NOINLINE size_t LA_NAME(run)(const linattn__span *s, size_t t, size_t most,
                                             int *masked)
{
    const int exponents = s->params->map == LINATTN_MAP_EXP;
    const int maskable = s->params->map != LINATTN_MAP_IDENTITY;
    const float *key = s->k + t * s->k_token;
    size_t count = 1;
    if (most > s->n - t) most = s->n - t;
    *masked = maskable && linattn__masked(key, s->m);
    if (*masked) {
        while (count < most && linattn__masked(key + count * s->k_token, s->m)) count++;
        return count;
    }
    if (exponents) LA_NAME(settle)(s, key);
    for (; maskable && count < most; count++) {
        const float *next = key + count * s->k_token;
        if (linattn__masked(next, s->m) || (exponents && LA_NAME(moves)(s, next))) return count;
    }
    return maskable ? count : most;
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* Where vector u of the columns lies in row 0 of S. */
LINATTN__INLINE float *LA_NAME(column)(const linattn__span *s, size_t u)
{
    return s->s + (u / LA_PANEL_VECS) * 16 * s->m + (u % LA_PANEL_VECS) * LA_W;
}

/* Vector i of a tile, relative to its first: the tile starts a panel or stays within one. */
LINATTN__INLINE size_t LA_NAME(offset)(size_t m, size_t i)
{
    return (i / LA_PANEL_VECS) * 16 * m + (i % LA_PANEL_VECS) * LA_W;
}

/* The block that tiles are taken from: a tile is T tokens from `t`, NR vectors of columns from `u`,
   and one query head. */
typedef struct la_tile {
    const linattn__span *span;
    const la_scratch *w;
    const float *v;      /* of the block's first token */
    float *out;          /* of its first token and query head */
    size_t count, heads; /* tokens and query heads of the block */
    size_t f0, f1;       /* features in scratch */
    int first, last;     /* the first, the last of the features */
    int clamp;           /* the identity's quotients may exceed floats: saturate */
    int keep;            /* the last of these heads leaves the new S behind */
    int ahead;           /* another whole block follows: fetch it */
    const float *q, *k;  /* of the block's first token and query head, to fetch from */
} la_tile;

/* Fetches what the next block needs of the columns of one tile, so that the fetches are spread
   over the tiles: hardware alone does not keep up with four streams that take turns, strided
   ones least. */
LINATTN__INLINE void LA_NAME(tile_fetch)(const la_tile *a, size_t g, size_t t, size_t u,
                                         const int keys, const size_t T, const size_t NR)
{
    const linattn__span *s = a->span;
    size_t i, c;
    for (i = t + a->count; i < t + a->count + T; i++)
        for (c = u * LA_W; c < (u + NR) * LA_W; c += 16) {
            LINATTN__FETCH(a->q + g * s->q_head + i * s->q_token + c);
            LINATTN__FETCH(a->out + g * s->out_head + i * s->out_token + c);
            if (keys && g == 0) {
                LINATTN__FETCH(a->k + i * s->k_token + c);
                LINATTN__FETCH(a->v + i * s->v_token + c);
            }
        }
}

LINATTN__INLINE void LA_NAME(tile_begin)(const la_tile *a, size_t g, size_t t, size_t u, la_vec *o,
                                         const size_t T, const size_t NR)
{
    size_t i, j;
    LINATTN__UNROLL for (i = 0; i < T; i++) LINATTN__UNROLL for (j = 0; j < NR; j++)
    {
        const size_t c = (u + j) * LA_W;
        const float *out = a->out + g * a->span->out_head + (t + i) * a->span->out_token + c;
        o[i * NR + j] =
            a->first ? la_zero() : la_load_part(out, LA_NAME(lanes_left)(a->span->dv, c));
    }
}

LINATTN__INLINE void LA_NAME(tile_end)(const la_tile *a, size_t g, size_t t, size_t u,
                                       const la_vec *o, const size_t T, const size_t NR)
{
    size_t i, j;
    LINATTN__UNROLL for (i = 0; i < T; i++) LINATTN__UNROLL for (j = 0; j < NR; j++)
    {
        const size_t c = (u + j) * LA_W;
        float *out = a->out + g * a->span->out_head + (t + i) * a->span->out_token + c;
        la_vec y = o[i * NR + j];
        if (a->last) y = la_mul(y, la_set1(a->w->scale[g * a->count + t + i]));
        if (a->last && a->clamp) y = LA_NAME(clamp)(y);
        la_store_part(out, y, LA_NAME(lanes_left)(a->span->dv, c));
    }
}

/* The recurrence of Katharopoulos et al. 2020, eq. 18-20: each row of S is loaded once for T
   tokens, which in turn add to it and read it. */
LINATTN__INLINE void LA_NAME(causal_tile)(const la_tile *a, size_t g, size_t t, size_t u,
                                          const size_t T, const size_t NR)
{
    const size_t m = a->span->m;
    const float *k = a->w->k + t * LA_ROW, *q = a->w->q + (g * a->count + t) * LA_ROW;
    float *const start = LA_NAME(column)(a->span, u) + a->f0 * 16;
    const float *row = start;
    const size_t features = a->f1 - a->f0;
    la_vec o[LA_CAUSAL_TOKENS * LA_DECODE_VECS], v[LA_CAUSAL_TOKENS * LA_DECODE_VECS];
    /* heads before the last store their rows nowhere: a branch here would have clang move half
       of the arithmetic behind it, and spill */
    const int keep = a->keep && g + 1 == a->heads;
    float nowhere[16];
    float *to = keep ? start : nowhere;
    const size_t to_row = keep ? 16 : 0, to_m = keep ? m : 0;
    size_t f, i, j;
    LA_NAME(tile_begin)(a, g, t, u, o, T, NR);
    LINATTN__UNROLL for (i = 0; i < T; i++) LINATTN__UNROLL for (j = 0; j < NR; j++)
    {
        const size_t c = (u + j) * LA_W;
        v[i * NR + j] = la_load_part(a->v + (t + i) * a->span->v_token + c,
                                     LA_NAME(lanes_left)(a->span->dv, c));
    }
    for (f = 0; f < features; f++, row += 16, to += to_row) {
        la_vec s[LA_DECODE_VECS];
        LINATTN__UNROLL for (j = 0; j < NR; j++) s[j] = la_load(row + LA_NAME(offset)(m, j));
        LINATTN__UNROLL for (i = 0; i < T; i++)
        {
            const la_vec kf = la_set1(k[i * LA_ROW + f]), qf = la_set1(q[i * LA_ROW + f]);
            LINATTN__UNROLL for (j = 0; j < NR; j++)
            {
                s[j] = la_fma(kf, v[i * NR + j], s[j]);
                o[i * NR + j] = la_fma(qf, s[j], o[i * NR + j]);
            }
        }
        LINATTN__UNROLL for (j = 0; j < NR; j++) la_store(to + LA_NAME(offset)(to_m, j), s[j]);
    }
    LA_NAME(tile_end)(a, g, t, u, o, T, NR);
}

LINATTN__INLINE void LA_NAME(query_tile)(const la_tile *a, size_t g, size_t t, size_t u,
                                         const size_t T, const size_t NR)
{
    const size_t m = a->span->m;
    const float *q = a->w->q + (g * a->count + t) * LA_ROW;
    const float *row = LA_NAME(column)(a->span, u) + a->f0 * 16;
    const size_t features = a->f1 - a->f0;
    la_vec o[LA_QUERY_TOKENS * LA_DECODE_VECS];
    size_t f, i, j;
    LA_NAME(tile_begin)(a, g, t, u, o, T, NR);
    for (f = 0; f < features; f++, row += 16) {
        la_vec s[LA_DECODE_VECS];
        LINATTN__UNROLL for (j = 0; j < NR; j++) s[j] = la_load(row + LA_NAME(offset)(m, j));
        LINATTN__UNROLL for (i = 0; i < T; i++)
        {
            const la_vec qf = la_set1(q[i * LA_ROW + f]);
            LINATTN__UNROLL for (j = 0; j < NR; j++) o[i * NR + j] =
                la_fma(qf, s[j], o[i * NR + j]);
        }
    }
    LA_NAME(tile_end)(a, g, t, u, o, T, NR);
}

/* Every query head walks the same old rows; the last one leaves the new ones behind. */
LINATTN__INLINE void LA_NAME(tile_heads)(const la_tile *a, size_t t, size_t u, const int keys,
                                         const size_t T, const size_t NR)
{
    size_t g;
    for (g = 0; g < a->heads; g++) {
        if (a->ahead && u % LA_PANEL_VECS == 0) LA_NAME(tile_fetch)(a, g, t, u, keys, T, NR);
        if (keys)
            LA_NAME(causal_tile)(a, g, t, u, T, NR);
        else
            LA_NAME(query_tile)(a, g, t, u, T, NR);
    }
}

/* All tokens of a block for the NR vectors from u: tiles of full height, then smaller ones. */
LINATTN__INLINE void LA_NAME(tile_column)(const la_tile *a, size_t u, const int keys,
                                          const size_t NR)
{
    const size_t count = a->count;
    size_t t = 0;
    if (keys) {
        for (; count - t >= LA_CAUSAL_TOKENS; t += LA_CAUSAL_TOKENS)
            LA_NAME(tile_heads)(a, t, u, 1, LA_CAUSAL_TOKENS, NR);
        if (LA_CAUSAL_TOKENS > 3 && count - t >= 3) {
            LA_NAME(tile_heads)(a, t, u, 1, LA_CAUSAL_TOKENS > 3 ? 3 : 1, NR);
            t += 3;
        }
        if (LA_CAUSAL_TOKENS > 2 && count - t >= 2) {
            LA_NAME(tile_heads)(a, t, u, 1, LA_CAUSAL_TOKENS > 2 ? 2 : 1, NR);
            t += 2;
        }
        if (count > t) LA_NAME(tile_heads)(a, t, u, 1, 1, NR);
    } else {
        for (; count - t >= LA_QUERY_TOKENS; t += LA_QUERY_TOKENS)
            LA_NAME(tile_heads)(a, t, u, 0, LA_QUERY_TOKENS, NR);
        for (; count - t >= LA_QUERY_TOKENS / 2; t += LA_QUERY_TOKENS / 2)
            LA_NAME(tile_heads)(a, t, u, 0, LA_QUERY_TOKENS / 2, NR);
        for (; count > t; t++) LA_NAME(tile_heads)(a, t, u, 0, 1, NR);
    }
}

/* All columns of this job. One token alone (a decode step) takes wider tiles, as it needs more rows
   in flight. */
LINATTN__INLINE void LA_NAME(tiles)(const la_tile *a, const int keys)
{
    const size_t wide = keys ? LA_CAUSAL_VECS : LA_QUERY_VECS;
    const size_t end = (a->span->column_end + LA_W - 1) / LA_W;
    size_t u = a->span->column_begin / LA_W;
    if (a->count == 1)
        for (; end - u >= LA_DECODE_VECS; u += LA_DECODE_VECS)
            LA_NAME(tile_heads)(a, 0, u, keys, 1, LA_DECODE_VECS);
    for (; end - u >= wide; u += wide)
        LA_NAME(tile_column)(a, u, keys, keys ? LA_CAUSAL_VECS : LA_QUERY_VECS);
    for (; u < end; u++) LA_NAME(tile_column)(a, u, keys, 1);
}

/* ---- causal and query ------------------------------------------------------------------------ */

/* Reads out `count` tokens from t0 for query heads [g0, g0 + heads) of the group, and with keys
   adds each token to the state before its query. count * heads <= LA_BLOCK; z and S keep the
   sums only where `keep` says so, which is once all query heads have seen the old ones. */
LINATTN__INLINE void LA_NAME(block)(const linattn__span *s, la_scratch *w, size_t t0, size_t count,
                                    size_t g0, size_t heads, int keep, const int keys)
{
    const float *q = s->q + g0 * s->q_head + t0 * s->q_token;
    la_tile a;
    size_t g, f, i;
    LINATTN_ASSERT(count * heads <= LA_BLOCK);
    a.span = s;
    a.w = w;
    a.v = keys ? s->v + t0 * s->v_token : NULL;
    a.out = s->out + g0 * s->out_head + t0 * s->out_token;
    a.count = count;
    a.heads = heads;
    a.keep = keep;
    a.clamp = s->params->map == LINATTN_MAP_IDENTITY;
    a.ahead = s->fetch && count > 1 && s->n - t0 >= 2 * count;
    a.q = q;
    a.k = keys ? s->k + t0 * s->k_token : NULL;
    for (i = 0; i < count * heads * 16; i += LA_W) la_store(w->den + i, la_zero());
    if (s->params->map == LINATTN_MAP_IDENTITY)
        for (i = 0; i < count * heads * 16; i += LA_W) la_store(w->lost + i, la_zero());
    if (s->params->map == LINATTN_MAP_EXP)
        for (g = 0; g < heads; g++) LA_NAME(peaks)(s, w, g * count, q + g * s->q_head, count);
    for (f = 0; f < s->m; f += LA_FEATURES) {
        a.f0 = f;
        a.f1 = s->m - f < LA_FEATURES ? s->m : f + LA_FEATURES;
        a.first = f == 0;
        a.last = a.f1 == s->m;
        for (g = 0; g < heads; g++) {
            const float *qg = q + g * s->q_head;
            LA_NAME(stage)
            (s, w, g * count, t0, count, qg, a.f0, a.f1, keep && g + 1 == heads, keys);
            if (a.last) LA_NAME(finish)(s, w, g * count, t0, count, qg, keys);
        }
        LA_NAME(tiles)(&a, keys);
    }
    for (g = 0; g < heads; g++)
        LA_NAME(shift_rows)(s, w->power + g * count, a.out + g * s->out_head, count);
}

static LINATTN__NOINLINE void LA_NAME(query_block)(const linattn__span *s, la_scratch *w, size_t t0,
                                                   size_t count, size_t g)
{
    LA_NAME(block)(s, w, t0, count, g, 1, 0, 0);
}

static void LA_NAME(query)(const linattn__span *s)
{
    la_scratch w;
    size_t t, g;
    for (g = 0; g < s->group; g++)
        for (t = 0; t < s->n; t += LA_BLOCK)
            LA_NAME(query_block)(s, &w, t, s->n - t < LA_BLOCK ? s->n - t : LA_BLOCK, g);
}

/* A masked token adds nothing: it only queries, but counts for the norm length. */
static void LA_NAME(masked_block)(const linattn__span *s, la_scratch *w, size_t t0, size_t count)
{
    linattn__span one = *s;
    size_t t, g;
    for (t = t0; t < t0 + count; t++) {
        one.seen = s->seen + t + 1;
        for (g = 0; g < s->group; g++) LA_NAME(query_block)(&one, w, t, 1, g);
    }
}

static void LA_NAME(causal)(const linattn__span *s)
{
    la_scratch w;
    const size_t chunk = s->group < LA_BLOCK ? s->group : LA_BLOCK;
    size_t most = LA_BLOCK / chunk, t, g, count;
    if (most > LA_CAUSAL_TOKENS) most -= most % LA_CAUSAL_TOKENS;
    for (t = 0; t < s->n; t += count) {
        int masked;
        count = LA_NAME(run)(s, t, most, &masked);
        if (masked) {
            LA_NAME(masked_block)(s, &w, t, count);
            continue;
        }
        /* more heads than a block holds come in chunks, and then count is 1 */
        for (g = 0; g < s->group; g += chunk) {
            const size_t heads = s->group - g < chunk ? s->group - g : chunk;
            LA_NAME(block)(s, &w, t, count, g, heads, g + heads == s->group, 1);
        }
    }
}

/* ---- update ---------------------------------------------------------------------------------- */

/* c[r][j] += sum over t of a[t][r] b[t][j]: MR rows, NR vectors, `count` terms in order; strides
   in floats. The tile of update (a = phi(k), b = v, c = S) and of exact attention (a = v, b =
   weights, c = outputs). With `masked`, lane l of vector j takes term t only where limit[j][l] >
   order[t]. */
LINATTN__INLINE void LA_NAME(outer_tile)(const linattn__outer *x, size_t r0, const int masked,
                                         const size_t MR, const size_t NR)
{
    const float *a = x->a + r0, *b = x->b;
    float *c = x->c + r0 * x->c_row;
    la_vec acc[LA_UPDATE_ROWS * LA_EXACT_VECS];
    size_t t, r, j;
    LINATTN__UNROLL for (r = 0; r < MR; r++) LINATTN__UNROLL for (j = 0; j < NR; j++)
        acc[r * NR + j] = la_load(c + r * x->c_row + j * x->c_vec);
    for (t = 0; t < x->count; t++, a += x->a_row, b += x->b_row) {
        la_vec y[LA_EXACT_VECS];
        LINATTN__UNROLL for (j = 0; j < NR; j++) y[j] = la_load(b + j * LA_W);
        LINATTN__UNROLL for (r = 0; r < MR; r++)
        {
            const la_vec ar = la_set1(a[r]);
            LINATTN__UNROLL for (j = 0; j < NR; j++)
            {
                const la_vec sum = la_fma(ar, y[j], acc[r * NR + j]);
                if (masked) {
                    const la_mask seen = la_gt(la_load(x->limit + j * LA_W), la_set1(x->order[t]));
                    acc[r * NR + j] = la_select(seen, sum, acc[r * NR + j]);
                } else {
                    acc[r * NR + j] = sum;
                }
            }
        }
    }
    LINATTN__UNROLL for (r = 0; r < MR; r++) LINATTN__UNROLL for (j = 0; j < NR; j++)
        la_store(c + r * x->c_row + j * x->c_vec, acc[r * NR + j]);
}

LINATTN__INLINE void LA_NAME(outer)(const linattn__outer *x, const int masked, const size_t NR)
{
    size_t r = 0;
    for (; x->rows - r >= LA_UPDATE_ROWS; r += LA_UPDATE_ROWS)
        LA_NAME(outer_tile)(x, r, masked, LA_UPDATE_ROWS, NR);
    for (; !masked && x->rows - r >= 2; r += 2) LA_NAME(outer_tile)(x, r, masked, 2, NR);
    for (; r < x->rows; r++) LA_NAME(outer_tile)(x, r, masked, 1, NR);
}

/* phi(k) of NF vectors of features from f into scratch, and z. */
LINATTN__INLINE void LA_NAME(keys_vectors)(const linattn__span *s, float *phi, size_t t0,
                                           size_t count, size_t f, const int map, const size_t NF)
{
    const int ahead = s->fetch && s->n - t0 >= 2 * count;
    const linattn__params local = *s->params, *p = &local; /* which no store can change */
    const size_t k_token = s->k_token;
    const float *k = s->k + t0 * k_token + f;
    const int lanes = NF > 1 ? LA_W : LA_NAME(lanes_left)(s->m, f);
    la_vec z[LA_STAGE_VECS], low[LA_STAGE_VECS], e[LA_STAGE_VECS];
    size_t t, j;
    LINATTN__UNROLL for (j = 0; j < NF; j++)
    {
        z[j] = la_load(s->z + f + j * LA_W);
        low[j] = la_load(s->e + f + j * LA_W);
        e[j] = LA_NAME(key_exponent)(low[j]);
    }
    for (t = 0; t < count; t++, k += k_token, phi += LA_PART_ROW) {
        LINATTN__UNROLL for (j = 0; j < NF; j++)
        {
            const la_vec y = LA_NAME(phi_key)(p, k + j * LA_W, lanes, e[j], map);
            la_store(phi + j * LA_W, y);
            z[j] = LA_NAME(add_key)(z[j], y, &low[j], map);
        }
        for (j = 0; ahead && j < NF * LA_W; j += 16) { /* the next block, as in tile_fetch */
            LINATTN__FETCH(k + count * k_token + j);
            LINATTN__FETCH(s->v + (t0 + count + t) * s->v_token + f + j);
        }
    }
    LINATTN__UNROLL for (j = 0; j < NF; j++)
    {
        la_store(s->z + f + j * LA_W, z[j]);
        if (map == LINATTN_MAP_IDENTITY) la_store(s->e + f + j * LA_W, low[j]);
    }
}

LINATTN__INLINE void LA_NAME(keys_as)(const linattn__span *s, float *phi, size_t t0, size_t count,
                                      size_t f0, size_t f1, const int map)
{
    size_t f = f0;
    for (; f1 - f >= LA_STAGE_VECS * LA_W; f += LA_STAGE_VECS * LA_W)
        LA_NAME(keys_vectors)(s, phi + (f - f0), t0, count, f, map, LA_STAGE_VECS);
    for (; LA_STAGE_VECS > 1 && f < f1; f += LA_W)
        LA_NAME(keys_vectors)(s, phi + (f - f0), t0, count, f, map, 1);
}

static LINATTN__NOINLINE void LA_NAME(keys)(const linattn__span *s, float *phi, size_t t0,
                                            size_t count, size_t f0, size_t f1)
{
    switch (LA_W == 1 ? -1 : s->params->map) {
    case LINATTN_MAP_IDENTITY:
        LA_NAME(keys_as)(s, phi, t0, count, f0, f1, LINATTN_MAP_IDENTITY);
        break;
    case LINATTN_MAP_RELU: LA_NAME(keys_as)(s, phi, t0, count, f0, f1, LINATTN_MAP_RELU); break;
    case LINATTN_MAP_ELU1: LA_NAME(keys_as)(s, phi, t0, count, f0, f1, LINATTN_MAP_ELU1); break;
    case LINATTN_MAP_EXP: LA_NAME(keys_as)(s, phi, t0, count, f0, f1, LINATTN_MAP_EXP); break;
    default: LA_NAME(keys_as)(s, phi, t0, count, f0, f1, s->params->map); break;
    }
}

/* The values of a block for `wide` vectors of columns from u: in place, or packed, as they are read
   once for each tile of rows, and in place may end in a partial vector, lie across cache lines, or
   share a few L1 sets (rows a multiple of 512 bytes apart). */
static const float *LA_NAME(pack)(const linattn__span *s, float *v, size_t t0, size_t count,
                                  size_t u, size_t wide, size_t *stride)
{
    const float *from = s->v + t0 * s->v_token + u * LA_W;
    const size_t line = LA_W * sizeof(float) - 1;
    const int whole = (u + wide) * LA_W <= s->dv;
    const int aligned = !((uintptr_t)from & line) && !((s->v_token * sizeof(float)) & line);
    size_t t, j;
    *stride = s->v_token;
    if (whole && aligned && s->v_token % 128 != 0) return from;
    *stride = wide * LA_W;
    for (t = 0; t < count; t++, from += s->v_token)
        for (j = 0; j < wide; j++)
            la_store(v + (t * wide + j) * LA_W,
                     la_load_part(from + j * LA_W, LA_NAME(lanes_left)(s->dv, (u + j) * LA_W)));
    return v;
}

/* S += phi(K)^T V in register tiles. */
static void LA_NAME(update_block)(const linattn__span *s, size_t t0, size_t count)
{
    float phi[LA_PART * LA_PART_ROW], v[LA_PART * LA_UPDATE_VECS * LA_W];
    const size_t end = (s->column_end + LA_W - 1) / LA_W;
    linattn__outer x;
    size_t f, u, wide;
    x.count = count;
    x.a = phi;
    x.a_row = LA_PART_ROW;
    x.c_row = 16;
    x.c_vec = LA_W == 16 ? 16 * s->m : LA_W;
    x.order = x.limit = NULL;
    for (f = s->row_begin; f < s->row_end; f += LA_PART) {
        x.rows = s->row_end - f < LA_PART ? s->row_end - f : LA_PART;
        LA_NAME(keys)(s, phi, t0, count, f, f + x.rows);
        for (u = s->column_begin / LA_W; u < end; u += wide) {
            wide = end - u < LA_UPDATE_VECS ? 1 : LA_UPDATE_VECS;
            x.b = LA_NAME(pack)(s, v, t0, count, u, wide, &x.b_row);
            x.c = LA_NAME(column)(s, u) + f * 16;
            if (wide == LA_UPDATE_VECS)
                LA_NAME(outer)(&x, 0, LA_UPDATE_VECS);
            else
                LA_NAME(outer)(&x, 0, 1);
        }
    }
}

static void LA_NAME(update)(const linattn__span *s)
{
    size_t t, count;
    for (t = 0; t < s->n; t += count) {
        int masked;
        count = LA_NAME(run)(s, t, LA_PART, &masked);
        if (!masked) LA_NAME(update_block)(s, t, count);
    }
}

/* ---- Exact attention ------------------------------------------------------------------------- */

/* Lanes are queries: NQ vectors of them meet LINATTN__EXACT_KEYS keys at a time. Scores, weights
   and outputs stay transposed, [key or column][query], so that every sum is a chain of fma in
   its own lane, and the running maximum and the denominator are vectors. */

/* P[j][lane] = q.k_j for the keys listed. */
LINATTN__INLINE void LA_NAME(scores)(const linattn__exact *x, const linattn__exact_scratch *w,
                                     const float *const *key, size_t count, const size_t NQ)
{
    size_t j, f, r, u;
    for (j = 0; j < count; j += LA_UPDATE_ROWS) {
        la_vec acc[LA_UPDATE_ROWS * LA_EXACT_VECS];
        const float *k[LA_UPDATE_ROWS];
        const float *q = w->q;
        LINATTN__UNROLL for (r = 0; r < LA_UPDATE_ROWS; r++)
        {
            k[r] = key[j + r < count ? j + r : count - 1]; /* rows beyond count are never read */
            LINATTN__UNROLL for (u = 0; u < NQ; u++) acc[r * NQ + u] = la_zero();
        }
        for (f = 0; f < x->d; f++, q += NQ * LA_W) {
            la_vec y[LA_EXACT_VECS];
            LINATTN__UNROLL for (u = 0; u < NQ; u++) y[u] = la_load(q + u * LA_W);
            LINATTN__UNROLL for (r = 0; r < LA_UPDATE_ROWS; r++)
            {
                const la_vec kr = la_set1(k[r][f]);
                LINATTN__UNROLL for (u = 0; u < NQ; u++) acc[r * NQ + u] =
                    la_fma(kr, y[u], acc[r * NQ + u]);
            }
        }
        LINATTN__UNROLL for (r = 0; r < LA_UPDATE_ROWS; r++)
            LINATTN__UNROLL for (u = 0; u < NQ; u++) la_store(
                w->p + (j + r) * NQ * LA_W + u * LA_W, la_mul(acc[r * NQ + u], la_set1(x->post)));
    }
}

/* Scores become weights e^(score - maximum); where a maximum rises, what was gathered shrinks. */
LINATTN__INLINE void LA_NAME(weigh)(const linattn__exact *x, linattn__exact_scratch *w,
                                    size_t count, const int masked, const size_t NQ)
{
    const size_t row = NQ * LA_W;
    size_t j, u, c;
    for (u = 0; u < NQ; u++) {
        float *const p = w->p + u * LA_W;
        const la_vec limit = la_load(w->limit + u * LA_W);
        const la_vec before = la_load(w->maximum + u * LA_W);
        la_vec top = before, sum = la_load(w->den + u * LA_W);
        for (j = 0; j < count; j++) {
            la_vec y = la_load(p + j * row);
            if (masked) y = la_select(la_gt(limit, la_set1(w->order[j])), y, before);
            top = la_max(top, y);
        }
        if (la_any(la_gt(top, before))) {
            const la_vec shrink = LA_NAME(exp_negative)(la_sub(before, top));
            sum = la_mul(sum, shrink);
            for (c = 0; c < x->dv; c++) {
                float *const o = w->o + c * row + u * LA_W;
                la_store(o, la_mul(la_load(o), shrink));
            }
            la_store(w->maximum + u * LA_W, top);
        }
        for (j = 0; j < count; j++) {
            la_vec y = LA_NAME(exp_negative)(la_sub(la_load(p + j * row), top));
            if (masked) y = la_select(la_gt(limit, la_set1(w->order[j])), y, la_zero());
            la_store(p + j * row, y);
            sum = la_add(sum, y);
        }
        la_store(w->den + u * LA_W, sum);
    }
}

/* The next keys that are not masked tokens: blocks hold only such keys, so that a masked token
   leaves no trace in the order of the sums. Returns where to go on. */
static size_t LA_NAME(gather)(const linattn__exact *x, linattn__exact_scratch *w, size_t j,
                              size_t end, size_t *count)
{
    size_t c = 0;
    for (; j < end && c < LINATTN__EXACT_KEYS; j++) {
        const float *key = x->k + j * x->k_token;
        if (linattn__masked(key, x->d)) continue;
        w->key[c] = key;
        w->index[c++] = j;
    }
    *count = c;
    return j;
}

/* Where the values of a block lie: in place, or packed where masked tokens lie between. */
static const float *LA_NAME(values)(const linattn__exact *x, linattn__exact_scratch *w,
                                    size_t count, size_t *stride)
{
    size_t j, c;
    if (w->index[count - 1] - w->index[0] == count - 1) {
        *stride = x->v_token;
        return x->v + w->index[0] * x->v_token;
    }
    for (j = 0; j < count; j++)
        for (c = 0; c < x->dv; c++) w->v[j * x->dv + c] = x->v[w->index[j] * x->v_token + c];
    *stride = x->dv;
    return w->v;
}

/* Query i of the span, counted over tokens and the heads of the group. */
LINATTN__INLINE const float *LA_NAME(exact_query)(const linattn__exact *x, size_t i)
{
    if (x->group == 1) return x->q + i * x->q_token;
    return x->q + (i / x->group) * x->q_token + (i % x->group) * x->q_head;
}

/* to[f * row + l] = query i0 + l times pre, for LA_W lanes l; those from `lanes` on repeat the last
   one. */
static void LA_NAME(exact_queries)(const linattn__exact *x, float *to, size_t i0, size_t lanes,
                                   size_t row)
{
    const la_vec pre = la_set1(x->pre);
    const float *q[LA_W];
    size_t f, l;
    for (l = 0; l < LA_W; l++) q[l] = LA_NAME(exact_query)(x, i0 + (l < lanes ? l : lanes - 1));
    for (f = 0; f < x->d; f += LA_W) {
        const int part = LA_NAME(lanes_left)(x->d, f);
        la_vec a[LA_W];
        if (part == LA_W) {
            LINATTN__UNROLL for (l = 0; l < LA_W; l++) a[l] = la_mul(la_load(q[l] + f), pre);
            la_transpose(a);
            LINATTN__UNROLL for (l = 0; l < LA_W; l++) la_store(to + (f + l) * row, a[l]);
            continue;
        }
        for (l = 0; l < LA_W; l++) a[l] = la_mul(la_load_part(q[l] + f, part), pre);
        la_transpose(a);
        for (l = 0; l < (size_t)part; l++) la_store(to + (f + l) * row, a[l]);
    }
}

static void LA_NAME(exact_begin)(const linattn__exact *x, linattn__exact_scratch *w, size_t i0,
                                 size_t lanes, size_t row)
{
    size_t l, f;
    for (l = 0; l < row; l += LA_W) LA_NAME(exact_queries)(x, w->q + l, i0 + l, lanes - l, row);
    for (l = 0; l < row; l++) {
        const size_t i = i0 + (l < lanes ? l : lanes - 1);
        w->limit[l] = x->causal ? (float)(i / x->group - i0 / x->group) : 0.0f;
        w->maximum[l] = -LINATTN__FLT_MAX;
        w->den[l] = 0.0f;
    }
    for (f = 0; f < x->dv * row; f += LA_W) la_store(w->o + f, la_zero());
}

/* The outputs of LA_W lanes: o[c * row + l] times scale[l] goes to out[l][c]. */
static void LA_NAME(exact_outputs)(const linattn__exact *x, const float *o, const float *scale,
                                   float *const *out, size_t row)
{
    const la_vec by = la_load(scale);
    size_t c, l;
    for (c = 0; c < x->dv; c += LA_W) {
        const int part = LA_NAME(lanes_left)(x->dv, c);
        la_vec a[LA_W];
        if (part == LA_W) {
            LINATTN__UNROLL for (l = 0; l < LA_W; l++) a[l] =
                la_mul(la_load(o + (c + l) * row), by);
            la_transpose(a);
            LINATTN__UNROLL for (l = 0; l < LA_W; l++) if (out[l]) la_store(out[l] + c, a[l]);
            continue;
        }
        for (l = 0; l < LA_W; l++)
            a[l] = l < (size_t)part ? la_mul(la_load(o + (c + l) * row), by) : la_zero();
        la_transpose(a);
        for (l = 0; l < LA_W; l++)
            if (out[l]) la_store_part(out[l] + c, a[l], part);
    }
}

static void LA_NAME(exact_end)(const linattn__exact *x, const linattn__exact_scratch *w, size_t i0,
                               size_t lanes, size_t row)
{
    float scale[LINATTN__EXACT_LANES], *out[LINATTN__EXACT_LANES];
    size_t l;
    for (l = 0; l < row; l++) {
        const size_t i = i0 + l;
        out[l] = NULL;
        if (l < lanes)
            out[l] = x->out + (i / x->group) * x->out_token + (i % x->group) * x->out_head;
        scale[l] = linattn__inverse(w->den[l]);
    }
    for (l = 0; l < row; l += LA_W) LA_NAME(exact_outputs)(x, w->o + l, scale + l, out + l, row);
}

/* `lanes` queries from i0. Queries are counted over tokens and the heads of the group together,
   so that few tokens still fill vectors. Query of token t sees keys below first + limit, where
   limit is its token's distance from the first lane's. */
LINATTN__INLINE void LA_NAME(exact_block)(const linattn__exact *x, linattn__exact_scratch *w,
                                          size_t i0, size_t lanes, const size_t NQ)
{
    const size_t first = x->causal ? i0 / x->group + x->offset + 1 : x->n_k;
    const size_t end = x->causal ? (i0 + lanes - 1) / x->group + x->offset + 1 : x->n_k;
    size_t j = 0, i, count;
    linattn__outer a;
    LA_NAME(exact_begin)(x, w, i0, lanes, NQ * LA_W);
    a.c = w->o;
    a.c_row = a.b_row = NQ * LA_W;
    a.c_vec = LA_W;
    a.b = w->p;
    a.rows = x->dv;
    a.order = w->order;
    a.limit = w->limit;
    while (j < end) {
        j = LA_NAME(gather)(x, w, j, end, &count);
        if (count == 0) break;
        LA_NAME(scores)(x, w, w->key, count, NQ);
        a.count = count;
        a.a = LA_NAME(values)(x, w, count, &a.a_row);
        if (w->index[count - 1] < first) {
            LA_NAME(weigh)(x, w, count, 0, NQ);
            LA_NAME(outer)(&a, 0, NQ);
        } else {
            for (i = 0; i < count; i++)
                w->order[i] = w->index[i] < first ? -1.0f : (float)(w->index[i] - first);
            LA_NAME(weigh)(x, w, count, 1, NQ);
            LA_NAME(outer)(&a, 1, NQ);
        }
    }
    LA_NAME(exact_end)(x, w, i0, lanes, NQ * LA_W);
}

static void LA_NAME(softmax)(const linattn__exact *x)
{
    linattn__exact_scratch w;
    size_t i, lanes;
    linattn__exact_layout(x, &w);
    for (i = x->begin; i < x->end; i += lanes) {
        lanes = x->end - i < LA_EXACT_VECS * LA_W ? x->end - i : LA_EXACT_VECS * LA_W;
        /* two blocks of two vectors are better than one of three and one of one */
        if (LA_EXACT_VECS == 3 && x->end - i > 3 * LA_W && x->end - i <= 4 * LA_W) lanes = 2 * LA_W;
        if (LA_EXACT_VECS > 2 && lanes > 2 * LA_W)
            LA_NAME(exact_block)(x, &w, i, lanes, LA_EXACT_VECS);
        else if (lanes > LA_W)
            LA_NAME(exact_block)(x, &w, i, lanes, 2);
        else
            LA_NAME(exact_block)(x, &w, i, lanes, 1);
    }
}

/* ---- Nystroem -------------------------------------------------------------------------------- */

/* Sums of NR vectors of components from f over the tokens [t, end), in double; the number of tokens
   in them is the same for all f. */
LINATTN__INLINE size_t LA_NAME(mean_vectors)(const linattn__means *x, size_t t, size_t end,
                                             size_t f, float *mean, const size_t NR)
{
    la_dvec sum[8];
    double part[8 * LA_DW];
    size_t count = 0, i;
    LINATTN__UNROLL for (i = 0; i < NR; i++) sum[i] = la_dset1(0.0);
    for (; t < end; t++) {
        const float *row = x->x + t * x->token;
        if (x->keys && linattn__masked(row, x->d)) continue;
        LINATTN__UNROLL for (i = 0; i < NR; i++) sum[i] =
            la_dadd(sum[i], la_dwiden(row + f + i * LA_DW));
        count++;
    }
    if (count == 0) return 0;
    LINATTN__UNROLL for (i = 0; i < NR; i++)
        la_dstore(part + i * LA_DW, la_ddiv(sum[i], la_dset1((double)count)));
    for (i = 0; i < NR * LA_DW; i++) mean[f + i] = (float)part[i];
    return count;
}

/* The same for one component. */
static size_t LA_NAME(mean_component)(const linattn__means *x, size_t t, size_t end, size_t f,
                                      float *mean)
{
    double sum = 0.0;
    size_t count = 0;
    for (; t < end; t++) {
        const float *row = x->x + t * x->token;
        if (x->keys && linattn__masked(row, x->d)) continue;
        sum = sum + (double)row[f];
        count++;
    }
    if (count) mean[f] = (float)(sum / (double)count);
    return count;
}

static size_t LA_NAME(means)(const linattn__means *x)
{
    float *mean = x->mean;
    size_t t, f, count = 0, segments = 0;
    for (t = 0; t < x->n; t += x->length) {
        const size_t end = x->n - t < x->length ? x->n : t + x->length;
        for (f = 0; x->d - f >= 8 * LA_DW; f += 8 * LA_DW)
            count = LA_NAME(mean_vectors)(x, t, end, f, mean, 8);
        for (; x->d - f >= LA_DW; f += LA_DW) count = LA_NAME(mean_vectors)(x, t, end, f, mean, 1);
        for (; f < x->d; f++) count = LA_NAME(mean_component)(x, t, end, f, mean);
        if (count == 0) continue;
        mean += x->d;
        segments++;
    }
    return segments;
}

/* c[r][j] = sum over t < count of a[t][r] b[t][j], in order: MR rows, NR vectors. Rows of a and c
   and of b have strides of their own. */
LINATTN__INLINE void LA_NAME(product_tile)(const double *a, size_t a_row, const double *b,
                                           size_t b_row, double *c, size_t c_row, size_t count,
                                           const size_t MR, const size_t NR)
{
    la_dvec acc[LA_UPDATE_ROWS * LA_UPDATE_VECS];
    size_t t, r, j;
    LINATTN__UNROLL for (r = 0; r < MR * NR; r++) acc[r] = la_dset1(0.0);
    for (t = 0; t < count; t++, a += a_row, b += b_row) {
        la_dvec y[LA_UPDATE_VECS];
        LINATTN__UNROLL for (j = 0; j < NR; j++) y[j] = la_dload(b + j * LA_DW);
        LINATTN__UNROLL for (r = 0; r < MR; r++)
        {
            const la_dvec ar = la_dset1(a[r]);
            LINATTN__UNROLL for (j = 0; j < NR; j++) acc[r * NR + j] =
                la_dfma(ar, y[j], acc[r * NR + j]);
        }
    }
    LINATTN__UNROLL for (r = 0; r < MR; r++) LINATTN__UNROLL for (j = 0; j < NR; j++)
        la_dstore(c + r * c_row + j * LA_DW, la_dflush(acc[r * NR + j]));
}

/* Rows [r0, r0 + MR) of c = a^T b, `columns` a multiple of 16. A symmetric c is computed right of
   its diagonal; what is computed is also what lies below. */
LINATTN__INLINE void LA_NAME(product_rows)(const double *a, size_t a_row, const double *b,
                                           size_t b_row, double *c, size_t columns, size_t count,
                                           size_t r0, size_t symmetric, const size_t MR)
{
    size_t j = symmetric ? r0 / LA_DW * LA_DW : 0, wide, end, i, r;
    for (; j < columns; j += wide) {
        wide = LA_UPDATE_VECS * LA_DW;
        if (j % wide == 0) {
            LA_NAME(product_tile)
            (a + r0, a_row, b + j, b_row, c + r0 * b_row + j, b_row, count, MR, LA_UPDATE_VECS);
        } else {
            wide = LA_DW;
            LA_NAME(product_tile)
            (a + r0, a_row, b + j, b_row, c + r0 * b_row + j, b_row, count, MR, 1);
        }
        end = j + wide < symmetric ? j + wide : symmetric;
        for (i = j > r0 ? j : r0; i < end; i++)
            for (r = r0; r < r0 + MR && r < i; r++) c[i * b_row + r] = c[r * b_row + i];
    }
}

/* c = a^T b, rows x columns, columns a multiple of 16; c has b's stride. symmetric: 0, or the rows
   of a c that is. From the last row up, so that a tile across the diagonal is stored before those
   that know better. */
static LINATTN__NOINLINE void LA_NAME(product)(const double *a, size_t a_row, const double *b,
                                               size_t b_row, double *c, size_t rows, size_t columns,
                                               size_t count, int symmetric)
{
    const size_t whole = rows / LA_UPDATE_ROWS * LA_UPDATE_ROWS, square = symmetric ? rows : 0;
    size_t r = rows;
    for (; r > whole; r--)
        LA_NAME(product_rows)(a, a_row, b, b_row, c, columns, count, r - 1, square, 1);
    for (; r > 0; r -= LA_UPDATE_ROWS) LA_NAME(product_rows)
    (a, a_row, b, b_row, c, columns, count, r - LA_UPDATE_ROWS, square, LA_UPDATE_ROWS);
}

/* Dense rows to columns of doubles, each times scale, with zeros up to `wide`. */
static void LA_NAME(columns)(const float *x, size_t rows, size_t d, double scale, double *to,
                             size_t wide, size_t row)
{
    size_t i, f;
    for (f = 0; f < d; f++, to += row) {
        for (i = 0; i < rows; i++) to[i] = (double)x[i * d + f] * scale;
        for (; i < wide; i++) to[i] = 0.0;
    }
}

/* e^x for x <= 0, to 1e-14; about 1e-39 below -89. A NaN comes from floats: its low bits, which
   la_dscale shifts, are 0. */
LINATTN__INLINE la_dvec LA_NAME(double_exp)(la_dvec x)
{
    static const double c[] = {2.50521083854417188e-8,
                               2.75573192239858907e-7,
                               2.75573192239858907e-6,
                               2.48015873015873016e-5,
                               1.98412698412698413e-4,
                               1.38888888888888889e-3,
                               8.33333333333333333e-3,
                               4.16666666666666667e-2,
                               1.66666666666666667e-1,
                               0.5,
                               1.0,
                               1.0};
    const la_dvec magic = la_dset1(6755399441055744.0);
    const la_dvec y = la_dmax(la_dset1(-89.0), x);
    const la_dvec t = la_dfma(y, la_dset1(1.44269504088896341), magic);
    const la_dvec r = la_dfma(la_dsub(t, magic), la_dset1(-0.693147180559945309), y);
    la_dvec p = la_dset1(c[0]);
    size_t i;
    LINATTN__UNROLL for (i = 1; i < 12; i++) p = la_dfma(p, r, la_dset1(c[i]));
    return la_dscale(p, t);
}

/* The softmax over each column of the scores: a[j][i] of key landmark j and query landmark i.
   Columns beyond the rows become 0. */
static void LA_NAME(softmax_columns)(double *a, size_t wide, size_t row, size_t rows,
                                     size_t columns)
{
    size_t i, j;
    for (i = 0; i < rows; i += LA_DW) {
        la_dvec top = la_dload(a + i), sum = la_dset1(0.0);
        for (j = 1; j < columns; j++) top = la_dmax(top, la_dload(a + j * row + i));
        for (j = 0; j < columns; j++) {
            const la_dvec y = LA_NAME(double_exp)(la_dsub(la_dload(a + j * row + i), top));
            la_dstore(a + j * row + i, y);
            sum = la_dadd(sum, y);
        }
        for (j = 0; j < columns; j++)
            la_dstore(a + j * row + i, la_dflush(la_ddiv(la_dload(a + j * row + i), sum)));
    }
    for (j = 0; j < columns; j++)
        for (i = rows; i < wide; i++) a[j * row + i] = 0.0;
}

/* |A|_1 |A|_inf of an A without negative elements, given transposed with zeros beyond its rows. Sums
   along memory over 16 lanes, then in order. */
static double LA_NAME(norms)(const double *a, size_t wide, size_t row, size_t columns)
{
    double one = 0.0, all = 0.0, lanes[16], sum;
    size_t i, j, l;
    for (j = 0; j < columns; j++) {
        for (l = 0; l < 16; l += LA_DW) {
            la_dvec part = la_dload(a + j * row + l);
            for (i = 16; i < wide; i += 16) part = la_dadd(part, la_dload(a + j * row + i + l));
            la_dstore(lanes + l, part);
        }
        for (l = 1, sum = lanes[0]; l < 16; l++) sum = sum + lanes[l];
        if (sum > one) one = sum;
    }
    for (i = 0; i < wide; i += LA_DW) {
        la_dvec part = la_dload(a + i);
        for (j = 1; j < columns; j++) part = la_dadd(part, la_dload(a + j * row + i));
        la_dstore(lanes, part);
        for (l = 0; l < LA_DW; l++)
            if (lanes[l] > all) all = lanes[l];
    }
    return one * all;
}

/* E = I - X / c in place of X. */
static void LA_NAME(residual)(double *x, size_t wide, size_t row, size_t rows, double c)
{
    const double by = -1.0 / c;
    size_t i, j;
    for (i = 0; i < rows; i++, x += row) {
        const double diagonal = linattn__double_fma(x[i], by, 1.0);
        for (j = 0; j < wide; j += LA_DW) la_dstore(x + j, la_dmul(la_dload(x + j), la_dset1(by)));
        x[i] = diagonal;
    }
}

/* p: E^2 becomes P = I + E + E^2 + E^3 / 4; e: E becomes (3 I + E) / 4. */
static void LA_NAME(polynomials)(double *e, double *p, const double *cube, size_t wide, size_t row,
                                 size_t rows)
{
    const la_dvec quarter = la_dset1(0.25);
    size_t i, j;
    for (i = 0; i < rows; i++, e += row, p += row, cube += row) {
        for (j = 0; j < wide; j += LA_DW) {
            const la_dvec x = la_dload(e + j);
            const la_dvec y = la_dadd(la_dload(p + j), x);
            la_dstore(p + j, la_dfma(quarter, la_dload(cube + j), y));
            la_dstore(e + j, la_dmul(quarter, x));
        }
        p[i] = p[i] + 1.0;
        e[i] = e[i] + 0.75;
    }
}

/* c = a b for symmetric matrices that commute. */
static void LA_NAME(symmetric)(const linattn__inverse_scratch *w, size_t rows, const double *a,
                               const double *b, double *c)
{
    LA_NAME(product)(a, w->row, b, w->row, c, rows, w->wide, rows, 1);
}

static double LA_NAME(trace)(const double *a, size_t row, size_t rows)
{
    double sum = 0.0;
    size_t i;
    for (i = 0; i < rows; i++) sum = sum + a[i * row + i];
    return sum;
}

/* G with A^+ = A^T G / c, from E = I - A A^T / c in e[0]. With Z = A^T G / c the paper's step is, for
   E = I - AZ: Z <- Z (I + E + E^2 + E^3 / 4), E <- E^3 (3 I + E) / 4. All of these are polynomials
   in A A^T: symmetric, so that half of each product is enough. Returns where G lies. */
static const double *LA_NAME(iterate)(const linattn__inverse_of *x, linattn__inverse_scratch *w)
{
    double *e = w->e[0], *square = w->e[1], *cube = w->e[2], *g = w->g[0], *next = w->g[1], *swap;
    size_t step;
    for (step = 0; step < x->steps; step++) {
        LA_NAME(symmetric)(w, x->rows, e, e, square);
        if (step > 0 && LA_NAME(trace)(square, w->row, x->rows) <= LINATTN__CONVERGED) break;
        LA_NAME(symmetric)(w, x->rows, square, e, cube);
        LA_NAME(polynomials)(e, square, cube, w->wide, w->row, x->rows);
        if (step > 0) LA_NAME(symmetric)(w, x->rows, g, square, next);
        swap = g;
        g = step > 0 ? next : square;
        if (step > 0)
            next = swap;
        else
            square = swap;
        if (step + 1 == x->steps) break;
        LA_NAME(symmetric)(w, x->rows, cube, e, square);
        swap = e;
        e = square;
        square = swap;
    }
    w->e[0] = e;
    return g;
}

/* w = A^T (G bv) / c; limit keeps sums over w within floats. */
static void LA_NAME(inverse_end)(const linattn__inverse_of *x, const linattn__inverse_scratch *w,
                                 const double *g, double c)
{
    const size_t dv = w->dv_row;
    const double limit = (double)LINATTN__FLT_MAX / (4.0 * (double)x->columns);
    size_t i, j;
    for (i = 0; i < x->rows; i++)
        for (j = 0; j < dv; j++) w->x[i * dv + j] = j < x->dv ? (double)x->bv[i * x->dv + j] : 0.0;
    LA_NAME(product)(g, w->row, w->x, dv, w->y, x->rows, dv, x->rows, 0);
    for (i = 0; i < x->rows; i++)
        for (j = 0; j < x->columns; j++) w->e[0][i * w->row + j] = w->a[j * w->row + i];
    LA_NAME(product)(w->e[0], w->row, w->y, dv, w->x, x->columns, dv, x->rows, 0);
    for (i = 0; i < x->columns; i++)
        for (j = 0; j < x->dv; j++) {
            double y = w->x[i * dv + j] / c;
            if (y > limit) y = limit;
            if (y < -limit) y = -limit;
            x->w[i * x->dv + j] = linattn__flush((float)y);
        }
}

static void LA_NAME(inverse)(const linattn__inverse_of *x)
{
    linattn__inverse_scratch w;
    double c;
    linattn__inverse_layout(x, &w);
    LA_NAME(columns)(x->q, x->rows, x->d, x->scale, w.q, w.wide, w.row);
    LA_NAME(columns)(x->k, x->columns, x->d, 1.0, w.k, w.wide, w.row);
    LA_NAME(product)(w.k, w.row, w.q, w.row, w.a, x->columns, w.wide, x->d, 0);
    LA_NAME(softmax_columns)(w.a, w.wide, w.row, x->rows, x->columns);
    c = LA_NAME(norms)(w.a, w.wide, w.row, x->columns);
    LA_NAME(product)(w.a, w.row, w.a, w.row, w.e[0], x->rows, w.wide, x->columns, 1);
    LA_NAME(residual)(w.e[0], w.wide, w.row, x->rows, c);
    LA_NAME(inverse_end)(x, &w, LA_NAME(iterate)(x, &w), c);
}

/* ---- merge ----------------------------------------------------------------------------------- */

static void LA_NAME(merge_row)(float *dst, const float *src, const float *shrink_dst,
                               const float *shrink_src, size_t columns)
{
    size_t c;
    for (c = 0; c < columns; c++) {
        const float a = linattn__rescale(dst[c], shrink_dst);
        dst[c] = a + linattn__rescale(src[c], shrink_src);
    }
}

/* One head: dst += src, the exponents of both aligned to the larger one first. */
static void LA_NAME(merge)(const linattn__span *dst, const linattn__span *src)
{
    const size_t m = dst->m, panels = (dst->dv + 15) / 16;
    size_t f, i, c;
    if (dst->params->map != LINATTN_MAP_EXP) {
        for (i = 0; i < m * panels * 16; i += LA_W)
            la_store(dst->s + i, la_add(la_load(dst->s + i), la_load(src->s + i)));
        for (i = 0; i < m; i += LA_W) { /* z is padded to 16 */
            la_vec low = la_add(la_load(dst->e + i), la_load(src->e + i));
            const la_vec z =
                LA_NAME(add_key)(la_load(dst->z + i), la_load(src->z + i), &low, dst->params->map);
            la_store(dst->z + i, z);
            la_store(dst->e + i, low);
        }
        return;
    }
    for (f = 0; f < m; f++) {
        const float e = dst->e[f] > src->e[f] ? dst->e[f] : src->e[f];
        float shrink_dst[2], shrink_src[2];
        if (src->e[f] == -LINATTN__INF) continue; /* adds nothing */
        linattn__two_factors(dst->e[f] - e, shrink_dst);
        linattn__two_factors(src->e[f] - e, shrink_src);
        LA_NAME(merge_row)(dst->z + f, src->z + f, shrink_dst, shrink_src, 1);
        for (c = 0; c < panels; c++) LA_NAME(merge_row)
        (dst->s + (c * m + f) * 16, src->s + (c * m + f) * 16, shrink_dst, shrink_src, 16);
        dst->e[f] = e;
    }
}

/* ---- The maps on arrays ---------------------------------------------------------------------- */

LINATTN__INLINE la_vec LA_NAME(map_vector)(la_vec x, const linattn__params *p, const int map)
{
    la_vec n, y;
    if (map == LINATTN_MAP_ELU1) { /* as plain, but exact down to FLT_MIN */
        y = la_mul(x, la_set1(p->root));
        return la_select(la_gt(la_zero(), y), LA_NAME(exp_full)(y), la_add(y, la_set1(1.0f)));
    }
    if (map != LINATTN_MAP_EXP) return LA_NAME(plain)(la_mul(x, la_set1(p->root)), map);
    if (p->root == 1.0f) return LA_NAME(exp_full)(x);
    y = LA_NAME(split)(x, p, &n);
    return la_ldexp(y, la_min(la_set1(129.0f), n));
}

LINATTN__INLINE void LA_NAME(map_as)(const float *x, float *y, size_t n, const linattn__params *p,
                                     const int map)
{
    size_t i = 0;
    for (; n - i >= 2 * LA_W; i += 2 * LA_W) {
        const la_vec a = la_load(x + i), b = la_load(x + i + LA_W);
        la_store(y + i, LA_NAME(map_vector)(a, p, map));
        la_store(y + i + LA_W, LA_NAME(map_vector)(b, p, map));
    }
    for (; i < n; i += LA_W) {
        const int lanes = LA_NAME(lanes_left)(n, i);
        la_store_part(y + i, LA_NAME(map_vector)(la_load_part(x + i, lanes), p, map), lanes);
    }
}

static void LA_NAME(map)(const float *x, float *y, size_t n, const linattn__params *p)
{
    switch (LA_W == 1 ? -1 : p->map) {
    case LINATTN_MAP_IDENTITY: LA_NAME(map_as)(x, y, n, p, LINATTN_MAP_IDENTITY); break;
    case LINATTN_MAP_RELU: LA_NAME(map_as)(x, y, n, p, LINATTN_MAP_RELU); break;
    case LINATTN_MAP_ELU1: LA_NAME(map_as)(x, y, n, p, LINATTN_MAP_ELU1); break;
    case LINATTN_MAP_EXP: LA_NAME(map_as)(x, y, n, p, LINATTN_MAP_EXP); break;
    default: LA_NAME(map_as)(x, y, n, p, p->map); break;
    }
}

/* y = softmax over the span's m features of one query. */
static void LA_NAME(map_softmax)(const linattn__span *s, const float *x, float *y)
{
    float top;
    const la_vec mass = la_set1(LA_NAME(mass)(s, x, &top));
    size_t f;
    for (f = 0; f < s->m; f += LA_W) {
        const int lanes = LA_NAME(lanes_left)(s->m, f);
        la_vec n, e = LA_NAME(split)(la_load_part(x + f, lanes), s->params, &n);
        e = la_scale(e, la_sub(n, la_set1(top)));
        e = la_select(la_eq(mass, la_zero()), la_zero(), la_div(e, mass));
        la_store_part(y + f, e, lanes);
    }
}

/* ==== (C) The table =========================================================================== */

#define LA_LINE(name, type) LA_NAME(name),
static const linattn__kernels LA_NAME(kernels) = {LINATTN__KERNEL_LIST(LA_LINE) LINATTN__ISA};
#undef LA_LINE

/* Nothing of the vocabulary outlives the inclusion. */
#undef LA_NAME
#undef la_scratch
#undef la_tile
#undef la_zero
#undef la_set1
#undef la_load
#undef la_store
#undef la_load_part
#undef la_store_part
#undef la_first
#undef la_add
#undef la_sub
#undef la_mul
#undef la_div
#undef la_fma
#undef la_fms
#undef la_fnma
#undef la_max
#undef la_min
#undef la_gt
#undef la_eq
#undef la_select
#undef la_any
#undef la_scale
#undef la_scalable
#undef la_capped
#undef la_exp_end
#undef la_ldexp
#undef la_sum16
#undef la_max16
#undef la_transpose
#undef la_dset1
#undef la_dload
#undef la_dstore
#undef la_dwiden
#undef la_dadd
#undef la_dsub
#undef la_dmul
#undef la_ddiv
#undef la_dfma
#undef la_dmax
#undef la_dscale
#undef la_dflush
#undef LA_W
#undef la_vec
#undef la_mask
#undef LA_DW
#undef la_dvec
#undef LA_CAUSAL_TOKENS
#undef LA_CAUSAL_VECS
#undef LA_DECODE_VECS
#undef LA_QUERY_TOKENS
#undef LA_QUERY_VECS
#undef LA_UPDATE_ROWS
#undef LA_UPDATE_VECS
#undef LA_EXACT_VECS
#undef LA_STAGE_VECS
#undef LA_BLOCK
#undef LA_FEATURES
#undef LA_SLEEF
#undef LA_ROW
#undef LA_PANEL_VECS
#undef LA_PART
#undef LA_PART_ROW
