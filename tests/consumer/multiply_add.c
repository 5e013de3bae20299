/* Multiply-add where the compiler has no instruction for it, and the library may not look for one:
   as fmaf and fma of the C library round. Built with LINATTN_NO_DISPATCH, and with LINATTN_SSE2 or
   without. */
#define LINATTN_IMPLEMENTATION
#include "linattn.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef __FMA__
#error "the instruction is used: nothing is emulated"
#endif

static uint64_t last_random = 1;

static uint64_t random_bits(void)
{
    last_random = last_random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return last_random ^ last_random >> 29;
}

/* Any bits; or of a size near 1, so that sums cancel; or few bits, so that they are halfway between
   two floats. */
static float random_float(void)
{
    const uint64_t bits = random_bits() >> 16;
    const uint32_t low = (uint32_t)bits;
    switch (bits >> 32 & 3) {
    case 0: return linattn__from_bits(low);
    case 1: return linattn__from_bits((low & 0x80ffffffu) | 0x3f000000u);
    case 2: return linattn__from_bits((low & 0x80fff000u) | 0x3f000000u);
    default: return linattn__from_bits(low & 0xfff00001u);
    }
}

/* A product that is 2^-150 but for a bit that a sum in double loses, so that the sum lies next to
   the middle of two floats below FLT_MIN. */
static void near_middle(float *a, float *b, float *c)
{
    const uint32_t bits = (uint32_t)(random_bits() >> 16), by = 1 + (bits >> 23 & 7);
    *a = linattn__from_bits(0x1a000000u + by) * (bits & 1 ? -1.0f : 1.0f); /* 2^-75 */
    *b = linattn__from_bits(0x1a000000u - 2 * by);
    *c = linattn__from_bits(bits & 0x807fffffu);
}

/* 0, or between 2^-400 and 2^400 in size. */
static double random_double(void)
{
    const uint64_t bits = random_bits();
    const int exponent = bits & 1 ? (int)(bits >> 1 & 3) - 1 : (int)((bits >> 1) % 799) - 399;
    const double fraction = (double)(random_bits() >> 11) * 0x1p-53 + 1;
    if (bits >> 58 == 0) return 0;
    return ldexp(bits & 2048 ? -fraction : fraction, exponent);
}

static int differ(float a, float b, float c, float actual)
{
    const float expected = fmaf(a, b, c);
    if (memcmp(&actual, &expected, sizeof actual) == 0 || (isnan(actual) && isnan(expected)))
        return 0;
    printf("%a * %a + %a is %a, expected %a\n", (double)a, (double)b, (double)c, (double)actual,
           (double)expected);
    return 1;
}

/* By vectors once with four factors, and once with the first one alone. */
static int four_differ(const float *a, const float *b, const float *c)
{
    int i, differs = 0;
#ifdef LINATTN_SSE2
    const __m128 x = _mm_loadu_ps(b), y = _mm_loadu_ps(c);
    float each[4], first[4];
    _mm_storeu_ps(each, linattn__fma_sse2(_mm_loadu_ps(a), x, y));
    _mm_storeu_ps(first, linattn__fma_hot_sse2(_mm_set1_ps(*a), x, y));
    for (i = 0; i < 4; i++)
        differs |= differ(a[i], b[i], c[i], each[i]) | differ(*a, b[i], c[i], first[i]);
#else
    for (i = 0; i < 4; i++) differs |= differ(a[i], b[i], c[i], linattn__fma(a[i], b[i], c[i]));
#endif
    return differs;
}

int main(void)
{
    for (long i = 0; i < 20000000; i += 4) {
        float a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) {
            a[j] = random_float();
            b[j] = random_float();
            c[j] = j == i / 4 % 4 ? -(a[j] * b[j]) * (i % 32 < 16 ? 1.0f : 1.0000001f)
                                  : random_float();
            if (i % 64 == 0) near_middle(a + j, b + j, c + j);
        }
        if (four_differ(a, b, c)) return 1;
    }
    for (long i = 0; i < 5000000; i++) {
        const double a = random_double(), b = random_double();
        double c = i % 4 ? random_double() : -(a * b) * (i % 8 ? 1 : 1.0000000000000002);
        if (!(fabs(c) < 0x1p400 && (c == 0 || fabs(c) > 0x1p-400))) c = 0;
        const double actual = linattn__double_fma(a, b, c), expected = fma(a, b, c);
        if (memcmp(&actual, &expected, sizeof actual) != 0) {
            printf("%a * %a + %a is %a, expected %a\n", a, b, c, actual, expected);
            return 1;
        }
    }
    return 0;
}
