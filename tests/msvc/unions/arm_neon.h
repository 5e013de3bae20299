/* What linattn.h needs of MSVC's <arm_neon.h>, see intrin.h: one type for vectors of a width. */
#ifndef ARM_NEON_H
#define ARM_NEON_H

#include <stdint.h>

typedef union __n64 {
    float f[2];
} __n64;
typedef union __n128 {
    float f[4];
} __n128;
typedef __n64 float32x2_t;
typedef __n128 float32x4_t, int32x4_t, uint32x4_t, float64x2_t, int64x2_t, uint64x2_t;

__n64 vadd_f32(__n64, __n64), vdup_n_f32(float), vld1_f32(const float *), vsqrt_f32(__n64);
__n64 vget_low_f32(__n128), vget_high_f32(__n128);
float vget_lane_f32(__n64, const int), vgetq_lane_f32(__n128, const int), vmaxvq_f32(__n128);
double vgetq_lane_f64(__n128, const int);
uint32_t vaddvq_u32(__n128), vmaxvq_u32(__n128);

__n128 vld1q_f32(const float *), vld1q_f64(const double *), vld1q_u32(const uint32_t *);
__n128 vld1q_lane_f32(const float *, __n128, const int);
void vst1q_f32(float *, __n128), vst1q_f64(double *, __n128);
void vst1q_lane_f32(float *, __n128, const int);
__n128 vdupq_n_f32(float), vdupq_n_f64(double), vdupq_n_s32(int32_t), vdupq_n_u32(uint32_t);

__n128 vaddq_f32(__n128, __n128), vsubq_f32(__n128, __n128), vmulq_f32(__n128, __n128);
__n128 vdivq_f32(__n128, __n128), vnegq_f32(__n128), vfmaq_f32(__n128, __n128, __n128);
__n128 vfmsq_f32(__n128, __n128, __n128), vbslq_f32(__n128, __n128, __n128);
__n128 vceqq_f32(__n128, __n128), vcgtq_f32(__n128, __n128), vcleq_f32(__n128, __n128);
__n128 vcltq_f32(__n128, __n128), vcgtq_u32(__n128, __n128), vandq_u32(__n128, __n128);
__n128 vbicq_u32(__n128, __n128), vbicq_u64(__n128, __n128), vaddq_s32(__n128, __n128);
__n128 vaddq_u32(__n128, __n128), vaddq_s64(__n128, __n128), vshlq_n_s32(__n128, const int);
__n128 vshlq_n_s64(__n128, const int), vcvtq_s32_f32(__n128), vcombine_f32(__n64, __n64);
__n128 vzip1q_f32(__n128, __n128), vzip2q_f32(__n128, __n128);

__n128 vaddq_f64(__n128, __n128), vsubq_f64(__n128, __n128), vmulq_f64(__n128, __n128);
__n128 vdivq_f64(__n128, __n128), vfmaq_f64(__n128, __n128, __n128), vabsq_f64(__n128);
__n128 vbslq_f64(__n128, __n128, __n128), vcgtq_f64(__n128, __n128), vcltq_f64(__n128, __n128);
__n128 vcvt_f64_f32(__n64);

__n128 vreinterpretq_f32_s32(__n128), vreinterpretq_f32_u32(__n128);
__n128 vreinterpretq_f64_s64(__n128), vreinterpretq_f64_u64(__n128);
__n128 vreinterpretq_s32_f32(__n128), vreinterpretq_s64_f64(__n128);
__n128 vreinterpretq_u32_f32(__n128);
__n128 vreinterpretq_u32_s32(__n128), vreinterpretq_u64_f64(__n128);

#endif
