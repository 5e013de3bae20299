/* MSVC's <intrin.h> for gcc and clang, as far as linattn.h needs it: with LINATTN__AS_MSVC they
   compile, and run, what MSVC does. */
#ifndef INTRIN_H
#define INTRIN_H

#include <stdint.h>

#ifdef __x86_64__
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

#define __forceinline inline __attribute__((always_inline, unused))
#define __declspec(word) __attribute__((word, unused))

#define _ReadWriteBarrier intrin_barrier
#define _InterlockedCompareExchange(at, wanted, before)                                            \
    __sync_val_compare_and_swap(at, (long)(before), (long)(wanted))

static inline void intrin_barrier(void) { __asm__ __volatile__("" : : : "memory"); }

#ifdef __x86_64__
#undef __cpuidex
#undef _xgetbv
#define __cpuidex intrin_cpuidex
#define _xgetbv intrin_xgetbv

static inline void intrin_cpuidex(int *found, int leaf, int part)
{
    __asm__ __volatile__("cpuid"
                         : "=a"(found[0]), "=b"(found[1]), "=c"(found[2]), "=d"(found[3])
                         : "a"(leaf), "c"(part));
}

static inline uint64_t intrin_xgetbv(unsigned index)
{
    uint32_t low, high;
    __asm__ __volatile__(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(index));
    return (uint64_t)high << 32 | low;
}
#else
#define _ReadStatusReg(number) intrin_status(number)
#define _WriteStatusReg(number, value) intrin_set_status(number, value)

enum { intrin_fpcr = 0x5a20 }; /* the other is FPSR, 0x5a21 */

static inline int64_t intrin_status(int number)
{
    int64_t value;
    if (number == intrin_fpcr)
        __asm__ __volatile__("mrs %0, fpcr" : "=r"(value) : : "memory");
    else
        __asm__ __volatile__("mrs %0, fpsr" : "=r"(value) : : "memory");
    return value;
}

static inline void intrin_set_status(int number, int64_t value)
{
    if (number == intrin_fpcr)
        __asm__ __volatile__("msr fpcr, %0" : : "r"(value) : "memory");
    else
        __asm__ __volatile__("msr fpsr, %0" : : "r"(value) : "memory");
}
#endif

#endif
