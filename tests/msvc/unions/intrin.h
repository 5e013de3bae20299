/* What linattn.h needs of MSVC's <intrin.h>, declared as it is there: vectors are unions, which
   have no operators and are cast to nothing, and intrinsics are functions. Nothing can run it. */
#ifndef INTRIN_H
#define INTRIN_H

#include <stdint.h>

#define __forceinline inline
#define __declspec(word)

void _ReadWriteBarrier(void);
long _InterlockedCompareExchange(volatile long *at, long wanted, long before);

#ifndef _M_ARM64
unsigned _mm_getcsr(void);
void _mm_setcsr(unsigned modes);
#endif

#ifdef _M_X64
typedef union __m128 {
    float f[4];
} __m128;
typedef union __m256 {
    float f[8];
} __m256;
typedef union __m512 {
    float f[16];
} __m512;
typedef struct __m128d {
    double d[2];
} __m128d;
typedef struct __m256d {
    double d[4];
} __m256d;
typedef struct __m512d {
    double d[8];
} __m512d;
typedef union __m128i {
    int64_t i[2];
} __m128i;
typedef union __m256i {
    int64_t i[4];
} __m256i;
typedef union __m512i {
    int64_t i[8];
} __m512i;
typedef unsigned char __mmask8;
typedef unsigned short __mmask16;

enum { _MM_HINT_T0 = 1, _MM_HINT_T1 = 2, _CMP_EQ_OQ = 0, _CMP_LE_OQ = 18, _CMP_GT_OQ = 30 };
enum { _MM_FROUND_TO_POS_INF = 2, _MM_FROUND_NO_EXC = 8 };

void __cpuidex(int found[4], int leaf, int part);
unsigned long long _xgetbv(unsigned index);
void _mm_prefetch(const char *at, int hint);

__m128 _mm_set_ss(float), _mm_loadu_ps(const float *), _mm_sqrt_ss(__m128);
__m128 _mm_add_ps(__m128, __m128), _mm_movehl_ps(__m128, __m128);
__m128 _mm_shuffle_ps(__m128, __m128, unsigned), _mm_fmadd_ss(__m128, __m128, __m128);
__m128d _mm_set_sd(double), _mm_fmadd_sd(__m128d, __m128d, __m128d);
float _mm_cvtss_f32(__m128);
/* SSE2. */
__m128 _mm_setzero_ps(void), _mm_set1_ps(float), _mm_load_ss(const float *);
__m128 _mm_sub_ps(__m128, __m128), _mm_mul_ps(__m128, __m128), _mm_div_ps(__m128, __m128);
__m128 _mm_max_ps(__m128, __m128), _mm_min_ps(__m128, __m128), _mm_movelh_ps(__m128, __m128);
__m128 _mm_and_ps(__m128, __m128), _mm_andnot_ps(__m128, __m128), _mm_or_ps(__m128, __m128);
__m128 _mm_xor_ps(__m128, __m128), _mm_unpacklo_ps(__m128, __m128);
__m128 _mm_unpackhi_ps(__m128, __m128), _mm_cmpgt_ps(__m128, __m128);
__m128 _mm_cmpeq_ps(__m128, __m128), _mm_cmple_ps(__m128, __m128);
__m128 _mm_castsi128_ps(__m128i), _mm_castpd_ps(__m128d), _mm_cvtpd_ps(__m128d);
void _mm_storeu_ps(float *, __m128), _mm_store_ss(float *, __m128);
void _mm_storel_epi64(__m128i *, __m128i);
int _mm_movemask_ps(__m128), _mm_movemask_epi8(__m128i);
__m128d _mm_set1_pd(double), _mm_loadu_pd(const double *), _mm_cvtps_pd(__m128);
__m128d _mm_add_pd(__m128d, __m128d), _mm_sub_pd(__m128d, __m128d);
__m128d _mm_mul_pd(__m128d, __m128d), _mm_div_pd(__m128d, __m128d);
__m128d _mm_and_pd(__m128d, __m128d), _mm_andnot_pd(__m128d, __m128d);
__m128d _mm_or_pd(__m128d, __m128d), _mm_cmpgt_pd(__m128d, __m128d);
__m128d _mm_castsi128_pd(__m128i);
void _mm_storeu_pd(double *, __m128d);
__m128i _mm_setzero_si128(void), _mm_set1_epi32(int), _mm_setr_epi32(int, int, int, int);
__m128i _mm_add_epi32(__m128i, __m128i), _mm_add_epi64(__m128i, __m128i);
__m128i _mm_and_si128(__m128i, __m128i), _mm_or_si128(__m128i, __m128i);
__m128i _mm_xor_si128(__m128i, __m128i), _mm_cmpeq_epi32(__m128i, __m128i);
__m128i _mm_cmpgt_epi32(__m128i, __m128i), _mm_slli_epi32(__m128i, int);
__m128i _mm_slli_epi64(__m128i, int), _mm_srli_epi64(__m128i, int);
__m128i _mm_srai_epi32(__m128i, int), _mm_slli_si128(__m128i, int);
__m128i _mm_shuffle_epi32(__m128i, int), _mm_loadl_epi64(const __m128i *);
__m128i _mm_castps_si128(__m128), _mm_castpd_si128(__m128d), _mm_cvtps_epi32(__m128);
double _mm_cvtsd_f64(__m128d);

__m128 _mm512_castps512_ps128(__m512), _mm256_castps256_ps128(__m256);
__m128 _mm256_extractf128_ps(__m256, int);
__m256 _mm256_setzero_ps(void), _mm256_set1_ps(float), _mm256_loadu_ps(const float *);
__m256 _mm256_maskload_ps(const float *, __m256i), _mm256_castsi256_ps(__m256i);
__m256 _mm256_castpd_ps(__m256d), _mm256_permute_ps(__m256, int);
__m256 _mm256_add_ps(__m256, __m256), _mm256_sub_ps(__m256, __m256);
__m256 _mm256_mul_ps(__m256, __m256), _mm256_div_ps(__m256, __m256);
__m256 _mm256_max_ps(__m256, __m256), _mm256_min_ps(__m256, __m256);
__m256 _mm256_andnot_ps(__m256, __m256), _mm256_cmp_ps(__m256, __m256, const int);
__m256 _mm256_and_ps(__m256, __m256);
__m256 _mm256_unpacklo_ps(__m256, __m256), _mm256_unpackhi_ps(__m256, __m256);
__m256 _mm256_castps128_ps256(__m128), _mm256_insertf128_ps(__m256, __m128, int);
__m256 _mm256_permute2f128_ps(__m256, __m256, int), _mm256_blendv_ps(__m256, __m256, __m256);
__m256 _mm256_shuffle_ps(__m256, __m256, int);
__m256 _mm256_fmadd_ps(__m256, __m256, __m256), _mm256_fmsub_ps(__m256, __m256, __m256);
__m256 _mm256_fnmadd_ps(__m256, __m256, __m256);
void _mm256_storeu_ps(float *, __m256), _mm256_maskstore_ps(float *, __m256i, __m256);
int _mm256_movemask_ps(__m256);

__m256d _mm256_set1_pd(double), _mm256_loadu_pd(const double *), _mm256_cvtps_pd(__m128);
__m256d _mm256_castps_pd(__m256), _mm256_castsi256_pd(__m256i);
__m256d _mm256_add_pd(__m256d, __m256d), _mm256_sub_pd(__m256d, __m256d);
__m256d _mm256_mul_pd(__m256d, __m256d), _mm256_div_pd(__m256d, __m256d);
__m256d _mm256_unpacklo_pd(__m256d, __m256d), _mm256_unpackhi_pd(__m256d, __m256d);
__m256d _mm256_cmp_pd(__m256d, __m256d, const int), _mm256_fmadd_pd(__m256d, __m256d, __m256d);
void _mm256_storeu_pd(double *, __m256d);

__m128i _mm_loadu_si128(const __m128i *), _mm_packus_epi32(__m128i, __m128i);
__m128i _mm256_castsi256_si128(__m256i), _mm256_extracti128_si256(__m256i, int);
__m128i _mm256_cvtps_ph(__m256, int);
void _mm_storeu_si128(__m128i *, __m128i), _mm256_storeu_si256(__m256i *, __m256i);
__m256 _mm256_cvtph_ps(__m128i);
__m256i _mm256_loadu_si256(const __m256i *), _mm256_cvtepu16_epi32(__m128i);
__m256i _mm256_setzero_si256(void);
__m256i _mm256_inserti128_si256(__m256i, __m128i, int);
__m512 _mm512_cvtph_ps(__m256i), _mm512_castsi512_ps(__m512i);
__m512i _mm512_slli_epi32(__m512i, unsigned), _mm512_cvtepu16_epi32(__m256i);
__m512i _mm512_srli_epi32(__m512i, unsigned), _mm512_and_si512(__m512i, __m512i);
__m512i _mm512_set1_epi32(int);
__m256i _mm512_cvtepi32_epi16(__m512i), _mm512_maskz_cvtps_ph(__mmask16, __m512, int);

__m256i _mm256_set1_epi32(int), _mm256_setr_epi32(int, int, int, int, int, int, int, int);
__m256i _mm256_castps_si256(__m256), _mm256_castpd_si256(__m256d), _mm256_cvtps_epi32(__m256);
__m256i _mm256_add_epi32(__m256i, __m256i), _mm256_add_epi64(__m256i, __m256i);
__m256i _mm256_and_si256(__m256i, __m256i), _mm256_andnot_si256(__m256i, __m256i);
__m256i _mm256_cmpgt_epi32(__m256i, __m256i), _mm256_blendv_epi8(__m256i, __m256i, __m256i);
__m256i _mm256_slli_epi32(__m256i, int), _mm256_srli_epi32(__m256i, int);
__m256i _mm256_slli_epi64(__m256i, int);

__m256 _mm512_castps512_ps256(__m512);
__m512 _mm512_setzero_ps(void), _mm512_set1_ps(float), _mm512_loadu_ps(const void *);
__m512 _mm512_maskz_loadu_ps(__mmask16, const void *), _mm512_castpd_ps(__m512d);
__m512 _mm512_add_ps(__m512, __m512), _mm512_sub_ps(__m512, __m512);
__m512 _mm512_mul_ps(__m512, __m512), _mm512_div_ps(__m512, __m512);
__m512 _mm512_max_ps(__m512, __m512), _mm512_min_ps(__m512, __m512);
__m512 _mm512_scalef_ps(__m512, __m512), _mm512_maskz_scalef_ps(__mmask16, __m512, __m512);
__m512 _mm512_unpacklo_ps(__m512, __m512), _mm512_unpackhi_ps(__m512, __m512);
__m512 _mm512_permute_ps(__m512, const int), _mm512_shuffle_f32x4(__m512, __m512, const int);
__m512 _mm512_shuffle_ps(__m512, __m512, const int);
__m512 _mm512_castps256_ps512(__m256), _mm512_insertf32x4(__m512, __m128, int);
__m512 _mm512_fmadd_ps(__m512, __m512, __m512), _mm512_fmsub_ps(__m512, __m512, __m512);
__m512 _mm512_fnmadd_ps(__m512, __m512, __m512), _mm512_mask_mov_ps(__m512, __mmask16, __m512);
__m512 _mm512_mask3_fmadd_ps(__m512, __m512, __m512, __mmask16);
void _mm512_storeu_ps(void *, __m512), _mm512_mask_storeu_ps(void *, __mmask16, __m512);
__mmask16 _mm512_cmp_ps_mask(__m512, __m512, const int);
__mmask16 _mm512_cmpgt_epu32_mask(__m512i, __m512i), _mm512_test_epi32_mask(__m512i, __m512i);
__m512 _mm512_rcp14_ps(__m512), _mm512_fmadd_round_ps(__m512, __m512, __m512, int);
__m512 _mm512_maskz_mov_ps(__mmask16, __m512);
__m512i _mm512_sub_epi32(__m512i, __m512i);

__m256d _mm512_extractf64x4_pd(__m512d, int);
__m512d _mm512_max_pd(__m512d, __m512d);
__m512d _mm512_set1_pd(double), _mm512_loadu_pd(const void *), _mm512_cvtps_pd(__m256);
__m512d _mm512_castps_pd(__m512), _mm512_castsi512_pd(__m512i);
__m512d _mm512_add_pd(__m512d, __m512d), _mm512_sub_pd(__m512d, __m512d);
__m512d _mm512_mul_pd(__m512d, __m512d), _mm512_div_pd(__m512d, __m512d);
__m512d _mm512_unpacklo_pd(__m512d, __m512d), _mm512_unpackhi_pd(__m512d, __m512d);
__m512d _mm512_fmadd_pd(__m512d, __m512d, __m512d), _mm512_maskz_mov_pd(__mmask8, __m512d);
__m512d _mm512_mask_mov_pd(__m512d, __mmask8, __m512d);
void _mm512_storeu_pd(void *, __m512d);
__mmask8 _mm512_cmp_pd_mask(__m512d, __m512d, const int);
__m512 _mm512_permutex2var_ps(__m512, __m512i, __m512);
__m512i _mm512_castps_si512(__m512);
__m512i _mm512_castpd_si512(__m512d), _mm512_add_epi64(__m512i, __m512i);
__m512i _mm512_slli_epi64(__m512i, unsigned);
#endif

#ifdef _M_ARM64
int64_t _ReadStatusReg(int number);
void _WriteStatusReg(int number, int64_t value);
#endif

#endif
