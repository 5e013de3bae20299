/* The recurrences in plain C, with one pass over S for each token, in which the read of the next
   token is made, too. `rows` goes through whole rows of S, as most would have it, and keeps what it
   adds up in memory. `panels` is the best that C alone will do: S lies in panels of PANEL columns,
   one panel after the other takes all tokens, and its part of the output stays in registers.
   Compiled with -O3 -march=native -ffast-math by gcc and by clang; PLAIN gives the functions their
   names. */
#include <math.h>

#include "peers.h"

/* As many as are fastest. Without AVX-512 what is read twice has sums in more registers than there
   are, but panels of 16 are unrolled whole by gcc and clang, and then not vectorised. */
#ifdef __AVX512F__
enum { PANEL = 64, GENERAL_PANEL = 64 };
#else
enum { PANEL = 32, GENERAL_PANEL = 16 };
#endif

#define JOIN(a, b) a##b
#define NAME(a, b) JOIN(a, b)
#define INLINE static inline __attribute__((always_inline)) /* for panels of constant width */
#define EACH(c) for (size_t c = 0; c < width; c++)

/* ---- One token: u_c is added to column c of s, `width` columns of S -------------------------- */

INLINE void gated(size_t m, size_t width, float a, const float *restrict q, const float *restrict k,
                  const float *restrict u, float *restrict s, float *restrict o)
{
    EACH(c) o[c] = 0.0f;
    for (size_t f = 0; f < m; f++, s += width) {
        const float key = k[f], query = q[f];
        EACH(c)
        {
            s[c] = a * s[c] + key * u[c];
            o[c] += query * s[c];
        }
    }
}

/* And r is what the next token takes away. */
INLINE void gated_delta(size_t m, size_t width, float a, const float *restrict q,
                        const float *restrict k, const float *restrict next,
                        const float *restrict u, float *restrict s, float *restrict o,
                        float *restrict r)
{
    EACH(c) o[c] = r[c] = 0.0f;
    for (size_t f = 0; f < m; f++, s += width) {
        const float key = k[f], query = q[f], read = next[f];
        EACH(c)
        {
            s[c] = a * s[c] + key * u[c];
            o[c] += query * s[c];
            r[c] += read * s[c];
        }
    }
}

INLINE void general(size_t m, size_t width, const float *restrict a, const float *restrict q,
                    const float *restrict k, const float *restrict write,
                    const float *restrict next, const float *restrict taken,
                    const float *restrict v, float *restrict s, float *restrict o,
                    float *restrict r)
{
    EACH(c) o[c] = r[c] = 0.0f;
    for (size_t f = 0; f < m; f++, s += width) {
        const float decay = a[f], key = k[f], query = q[f], by = write[f], read = next[f];
        EACH(c)
        {
            s[c] = decay * s[c] + by * taken[c] + key * v[c];
            o[c] += query * s[c];
            r[c] += read * s[c];
        }
    }
}

INLINE void first_read(size_t m, size_t width, const float *restrict read, const float *restrict s,
                       float *restrict r)
{
    EACH(c) r[c] = 0.0f;
    for (size_t f = 0; f < m; f++, s += width) EACH(c) r[c] += read[f] * s[c];
}

/* ---- All tokens, in `width` columns from `first` on ------------------------------------------ */

/* o, r and u: as many floats each. The read after the last token goes nowhere. */
typedef void columns(const peer_rule *p, size_t first, size_t width, float *restrict o,
                     float *restrict r, float *restrict u);

INLINE void gated_columns(const peer_rule *p, size_t first, size_t width, float *restrict o,
                          float *restrict r, float *restrict u)
{
    (void)r;
    for (size_t t = 0; t < p->n; t++) {
        float *out = p->out + t * p->dv + first;
        EACH(c) u[c] = p->v[t * p->dv + first + c];
        gated(p->m, width, expf(p->decay[t]), p->q + t * p->m, p->k + t * p->m, u,
              p->s + first * p->m, o);
        EACH(c) out[c] = o[c];
    }
}

INLINE void gated_delta_columns(const peer_rule *p, size_t first, size_t width, float *restrict o,
                                float *restrict r, float *restrict u)
{
    first_read(p->m, width, p->k, p->s + first * p->m, r);
    for (size_t t = 0; t < p->n; t++) {
        const float *k = p->k + t * p->m, *v = p->v + t * p->dv + first;
        const float a = expf(p->decay[t]), beta = p->beta[t];
        float *out = p->out + t * p->dv + first;
        EACH(c) u[c] = beta * (v[c] - a * r[c]);
        gated_delta(p->m, width, a, p->q + t * p->m, k, t + 1 < p->n ? k + p->m : k, u,
                    p->s + first * p->m, o, r);
        EACH(c) out[c] = o[c];
    }
}

INLINE void general_columns(const peer_rule *p, size_t first, size_t width, float *restrict o,
                            float *restrict r, float *restrict u)
{
    first_read(p->m, width, p->read, p->s + first * p->m, r);
    for (size_t t = 0; t < p->n; t++) {
        const size_t at = t * p->m, next = t + 1 < p->n ? at + p->m : at;
        float *out = p->out + t * p->dv + first;
        EACH(c) u[c] = r[c];
        general(p->m, width, p->decay + at, p->q + at, p->k + at, p->write + at, p->read + next, u,
                p->v + t * p->dv + first, p->s + first * p->m, o, r);
        EACH(c) out[c] = o[c];
    }
}

INLINE void rows(const peer_rule *p, columns *all)
{
    all(p, 0, p->dv, p->scratch, p->scratch + p->dv, p->scratch + 2 * p->dv);
}

INLINE void panels(const peer_rule *p, columns *all, const size_t width)
{
    float o[PANEL], r[PANEL], u[PANEL];
    size_t c = 0;
    for (; c + width <= p->dv; c += width) all(p, c, width, o, r, u);
    if (c < p->dv) all(p, c, p->dv - c, o, r, u);
}

void NAME(PLAIN, _rows_gated)(const peer_rule *p) { rows(p, gated_columns); }
void NAME(PLAIN, _rows_gated_delta)(const peer_rule *p) { rows(p, gated_delta_columns); }
void NAME(PLAIN, _rows_general)(const peer_rule *p) { rows(p, general_columns); }
void NAME(PLAIN, _panels_gated)(const peer_rule *p) { panels(p, gated_columns, PANEL); }
void NAME(PLAIN, _panels_gated_delta)(const peer_rule *p) { panels(p, gated_delta_columns, PANEL); }
void NAME(PLAIN, _panels_general)(const peer_rule *p) { panels(p, general_columns, GENERAL_PANEL); }
