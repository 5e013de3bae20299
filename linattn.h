/* linattn.h: SIMD kernels for linear attention on CPUs, in one header.       SPDX: MIT

   Linear attention replaces exp(q.k) by a product of feature maps phi(q).phi(k). Sums over the
   sequence then factor into a state of fixed size, S = sum phi(k) v^T and z = sum phi(k): a
   sequence of n tokens costs O(n), one more token costs O(1).

   THREE LINES
       In exactly one C or C++ file:      #define LINATTN_IMPLEMENTATION
                                          #include "linattn.h"
       In every other file:               #include "linattn.h"
   linattn_simd.h must lie beside this file, unless this is the amalgamated single file.

   SHORTEST USE
       linattn_config config = {0};
       config.heads = 8;                      // zeroed fields mean the usual default
       config.dim_key = 64;
       void *state = malloc(linattn_state_size(&config));
       linattn_state_init(&config, state, linattn_state_size(&config));
       linattn_causal(state, linattn_rows(q), linattn_rows(k), linattn_rows(v),
                      linattn_output_rows(out), n, NULL);
   Calling it again continues the sequence: n > 1 is a prefill, n = 1 a decode step. Any cut of the
   sequence into calls gives the same bits. Copying the bytes of the state saves it.

   WHAT IS PROMISED
   - The same bits for scalar, AVX2, AVX-512, NEON and WebAssembly's vectors, for every cut of a
     sequence into calls, every thread count, gcc and clang, C and C++, -O0 to -O3 -march=native
     -ffast-math. (Not a NaN's sign and payload, and not under LINATTN_USE_SLEEF or
     LINATTN_SCALAR_FAST, which say so.)
   - Finite input, finite output: with the maps exp, softmax and favor any finite queries and keys
     (exponents beyond +-1.4e6 count as that), any |value| <= 1e30, any length (exp under the rules
     sum and gated: the others take e^x as it is, which overflows from 88 on); with the other maps
     as long as the sums of phi(k)|v| and of phi(q)phi(k)|v| stay below 1e37 and phi itself is
     finite; exact attention and nystrom whenever scale * q.k is finite and |value| <= 1e30. A key
     whose components are all -inf is a masked token (not for identity, unit, taylor, expdef, but
     under a rule for all). NaN in one head makes NaN in that head only.
   - Nothing of a later token enters an earlier output: favor's stabiliser is a power of two per
     feature that follows the keys as they come.
   - No allocation, no stdio, no libm, no global state but one atomic int: the instruction set.
     The floating-point environment (rounding, flush-to-zero) is set at entry, restored at exit.
   - A bad argument is refused with a status before anything is written.

   LIMITS
   - float32; queries, keys, values and gates may be f16 or bf16, too, and a state may keep S in
     them (config.state_type). Little or big endian, but a state moves only between machines of one
     byte order.
   - A call uses up to 48 KiB of stack, 54 with favor or a rule, 68 with a window; scalar code 5.25,
     but where it shares text with AVX2 and AVX-512, in builds with both, as much as these.
     With operands of 16 bits (but for exact attention and nystrom) 17 more, 5 more in a build of
     scalar code alone; under a rule with a state of 16 bits 33 more, but for scalar code.
   - Sums are floats, and drift: a term that is less than half of their last place is lost. Error of
     elu1 against double, random tokens; one and the same token again and again (tools/streams):
       10^4 tokens  1.8e-6; 7.5e-5          10^6 tokens  2.7e-5; 9.8e-3
       10^7 tokens  1.6e-2; 1.2e-1          10^8 tokens  1.0;    2.6e-1
     Sums that decay drift less, over the 1 / (1 - a) tokens that they hold: decays of 1 - 2^-16
     come to 1.2e-5; 3.1e-6, of 1 - 2^-20 to 1.4e-3; 1e-3, of 0.99 to 6.2e-7; 5.4e-7 for good.
     linattn_state_tokens says how far a state is. Those of config.precision do not drift: below
     3e-6 after 10^8 tokens of either kind, whatever the map or the decay is.
   - Numbers below FLT_MIN in size, 1.2e-38, are kept as they are, and Intel's processors take some
     150 cycles for an operation that meets one (AMD's Zen 4 next to none: at most a fifth longer in
     all). A prefill of (64,64) heads whose keys or queries all are so small takes 10 to 20 times as
     long there with elu1 and exp, 40 to 160 with relu and the identity; whose values are, or for
     elu1 the products phi(k) v, 70 to 160 times. Making keys and queries 0 first would cost all
     others 6 to 10 % with elu1, up to 7 % with relu.
   - gcc >= 8 or clang >= 11, or a compiler that takes their extensions, or MSVC: AVX2 and AVX-512
     for x64 (Visual Studio 2019 and later), NEON for ARM64, whatever /arch and /fp are. Not run on
     MSVC: gcc and clang run its text. Others, and MSVC for 32 bits, get the scalar code.
   - WebAssembly: -msimd128 (clang >= 11) for vectors, which multiply and add in double and then
     look for what was rounded; -mrelaxed-simd (clang >= 16) is 4 to 13 times as fast again, where
     the engine has FMA, which the first call finds out. A module with instructions that an engine
     lacks does not load.
   - Every dimension is at most LINATTN_MAX_DIM, heads are at most LINATTN_MAX_HEADS.
   - The first call of a process asks the CPU what it is: up to 60 us in a virtual machine. For
     threads with a deadline call linattn_isa_active() before; it is all the warm-up there is.

   OPTIONS, to be defined before the inclusion that has LINATTN_IMPLEMENTATION. These are all names
   there are; any other is ignored, but for some near misses, which are errors.
   LINATTN_IMPLEMENTATION   Compile the functions here. Without it only declarations are seen.
   LINATTN_STATIC           All functions are static: one private copy per file, with an instruction
                            set chosen by each, nothing for the linker to share, and what the file
                            does not call is not compiled. Define it at every inclusion, and
                            LINATTN_IMPLEMENTATION with it: gcc warns of static functions that are
                            declared alone.
   LINATTN_API              How functions are declared otherwise, default: extern; such as
                            __declspec(dllexport) or __attribute__((visibility("default"))).
   Instruction sets
   LINATTN_SCALAR_ONLY      Only scalar code: smallest, portable to any CPU; 8 to 60 times slower.
                            x86-64, not compiled for size: twice, with and without FMA.
   LINATTN_NO_AVX2          Leave an instruction set out: smaller object code, and CPUs that have
   LINATTN_NO_AVX512        it fall to the next one below.
   LINATTN_NO_NEON
   LINATTN_SSE2             Add SSE2, for x86 processors without AVX2: 2 to 4 times as fast as
                            scalar code, for 250 KiB. Also for 32 bits: -msse2 -mfpmath=sse.
   LINATTN_NO_DISPATCH      Only the best instruction set that the compiler's flags allow (-mavx2
                            -mfma, -mavx512f; /arch:AVX2), called directly, no CPUID. Smallest fast
                            build; it crashes on a CPU without that instruction set.
   LINATTN_SCALAR_FAST      Scalar code without hardware FMA multiplies and adds in double, rather
                            than through an exact fma: about 3 times as fast there. It rounds twice,
                            so that its bits may differ from all others, rarely and by one unit.
                            Does nothing where the compiler has a hardware FMA.
   LINATTN_USE_SLEEF        Every exp is SLEEF's (1.0 ULP) of the same width; link with -lsleef.
                            About twice as slow; the bits then differ between instruction sets.
   What is compiled. A config that needs what is left out is UNSUPPORTED, a function that is left
   out is not declared.
   LINATTN_NO_RECURRENT     Leave out the rules other than the sum; windows; the maps that make
   LINATTN_NO_WINDOW        features of their own (favor, taylor, expdef); exact attention, and
   LINATTN_NO_FEATURES      nystrom with it; nystrom; the maps on plain arrays;
   LINATTN_NO_EXACT         linattn_random_features.
   LINATTN_NO_NYSTROM
   LINATTN_NO_MAPS
   LINATTN_NO_RANDOM
   LINATTN_NO_HALF          Leave out states of 16-bit numbers (config.state_type), and operands of
                            16 bits: they return ELEMENT. About 8 KiB for each instruction set.
   LINATTN_NO_COMPENSATED   Leave out LINATTN_PRECISION_COMPENSATED, as LINATTN_NO_PREFILL does, and
                            scalar code alone without windows and features.
   LINATTN_NO_PREFILL       For microcontrollers: n tokens go one by one through the kernel of a
                            decode step, and nothing else is compiled. Long sequences take longer.
                            Leaves windows and features out, too.
   LINATTN_ONLY_ELU1        Keep this map alone. They add up: LINATTN_ONLY_ELU1 with
   LINATTN_ONLY_IDENTITY    LINATTN_ONLY_RELU keeps two.
   LINATTN_ONLY_RELU
   LINATTN_ONLY_EXP
   LINATTN_ONLY_SOFTMAX
   LINATTN_ONLY_FAVOR       (with its two variants)
   LINATTN_ONLY_TAYLOR
   LINATTN_ONLY_EXPDEF
   LINATTN_ONLY_UNIT
   How
   LINATTN_FREESTANDING     No standard header but stddef.h, stdint.h and float.h. Copies and
                            clears are loops (the compiler may still call memcpy and memset, as
                            it may anywhere). Costs some speed on large states.
   LINATTN_ASSERT(x)        Check internal invariants with this macro; default: nothing. It never
                            sees bad arguments, which are statuses.

   CONTENTS
   Interface        statuses, config, operands, state, the verbs, maps on plain arrays, random
                    features, instruction sets
   Implementation   what methods share: options, scalar arithmetic, instruction sets, the
                    floating-point environment, operands, threads, configs, states
                    methods, one section each, in the same order here and in linattn_simd.h: sums
                    (update, query, causal, many states, merge, bidirectional), recurrences, sums as
                    plain numbers, windows, features, exact attention, Nystroem, maps on arrays,
                    random features
                    the kernels: linattn_simd.h, once per instruction set
*/
#ifndef LINATTN_H
#define LINATTN_H

#include <stddef.h>
#include <stdint.h>

/* Names that options do not have, but might. */
#if defined(LINATTN_IMPL) || defined(LINATTN_IMPLEMENT) || defined(LINATTN_IMPLEMENTATIONS) ||     \
    defined(LINATTN_SCALAR) || defined(LINATTN_ONLY_SCALAR) || defined(LINATTN_NO_SIMD) ||         \
    defined(LINATTN_NO_AVX) || defined(LINATTN_NO_AVX512F) || defined(LINATTN_NO_AVX_512) ||       \
    defined(LINATTN_NO_WINDOWS) || defined(LINATTN_NO_SOFTMAX) || defined(LINATTN_NO_FEATURE) ||   \
    defined(LINATTN_NODISPATCH) || defined(LINATTN_SLEEF) || defined(LINATTN_FREE_STANDING) ||     \
    defined(LINATTN_NO_HALVES) || defined(LINATTN_NO_STDLIB) || defined(LINATTN_NO_RULES) ||       \
    defined(LINATTN_NO_RECURRENCES) || defined(LINATTN_NO_RECURRENCE) ||                           \
    defined(LINATTN_USE_SSE2) || defined(LINATTN_NO_SSE2) || defined(LINATTN_SSE) ||               \
    defined(LINATTN_NO_PREFIL) || defined(LINATTN_NO_MAP) || defined(LINATTN_ONLY_ELU) ||          \
    defined(LINATTN_NO_FAVOR) || defined(LINATTN_NO_TAYLOR) || defined(LINATTN_NO_NYSTROEM) ||     \
    defined(LINATTN_NO_HALFS) || defined(LINATTN_NO_F16) || defined(LINATTN_NO_BF16)
#error "linattn has no option of a name that is defined: see the list under OPTIONS above"
#endif

#define LINATTN_VERSION_MAJOR 0
#define LINATTN_VERSION_MINOR 1
#define LINATTN_VERSION_PATCH 0

#define LINATTN_MAX_DIM 65536
#define LINATTN_MAX_HEADS 65536

#ifdef LINATTN_STATIC
#define LINATTN__STATIC 1
#undef LINATTN_API
#if defined(__GNUC__) || defined(__clang__)
#define LINATTN_API static __attribute__((unused))
#else
#define LINATTN_API static
#endif
#else
#define LINATTN__STATIC 0
#ifndef LINATTN_API
#define LINATTN_API extern
#endif
#endif

/* What each file that includes this has of its own. */
#if defined(__GNUC__) || defined(__clang__)
#define LINATTN__HERE static inline __attribute__((unused))
#else
#define LINATTN__HERE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Statuses ------------------------------------------------------------------------------- */

/* What every function that can fail returns. On anything but LINATTN_OK nothing was written. */
typedef enum linattn_status {
    LINATTN_OK = 0,
    LINATTN_ERROR_NULL,        /* a pointer that is needed is null */
    LINATTN_ERROR_SIZE,        /* a size is zero, too large, or overflows */
    LINATTN_ERROR_CONFIG,      /* a field of the config is outside its range: linattn_config_error
                                  says which */
    LINATTN_ERROR_OVERLAP,     /* the output overlaps itself, an input, or the state */
    LINATTN_ERROR_WORKSPACE,   /* the workspace or the state memory is too small */
    LINATTN_ERROR_ALIGNMENT,   /* the state is not aligned to 4 bytes */
    LINATTN_ERROR_STATE,       /* not an initialised state, or one of another config or version */
    LINATTN_ERROR_UNSUPPORTED, /* this combination has no meaning or is not implemented */
    LINATTN_ERROR_ISA,         /* this CPU or this build lacks the instruction set */
    LINATTN_ERROR_DECAY, /* linattn_gates: the rule needs a decay, or takes none of that kind */
    LINATTN_ERROR_BETA,  /* the rule needs beta, or takes none */
    LINATTN_ERROR_READ_WRITE, /* the rule needs the vectors read and write, or takes none */
    LINATTN_ERROR_BONUS,      /* the rule takes no bonus */
    LINATTN_ERROR_INPUT_GATE, /* the rule needs an input gate, or takes none */
    LINATTN_ERROR_ELEMENT     /* a view's elements are of no type, or of 16 bits and too many */
} linattn_status;

/* A short English sentence, never NULL. */
LINATTN_API const char *linattn_status_string(linattn_status status);

/* ---- Config --------------------------------------------------------------------------------- */

/* What numbers are: those of a view, and those that a state keeps S in. */
typedef enum linattn_element {
    LINATTN_F32 = 0,
    LINATTN_F16,  /* binary16 of IEEE 754: _Float16, half */
    LINATTN_BF16, /* bfloat16: the upper half of a float */
    LINATTN_ELEMENT_COUNT
} linattn_element;

/* Feature maps, on x' = x * sqrt(scale). m is the number of features, dim_key if nothing else is
   said. favor, taylor and expdef approximate exp(scale q.k). */
typedef enum linattn_feature_map {
    LINATTN_MAP_ELU1 = 0, /* 1 + elu(x'): x' + 1 for x' >= 0, e^x' below. Linear Transformer */
    LINATTN_MAP_IDENTITY, /* x'. Scaling form of Efficient Attention; maps applied outside */
    LINATTN_MAP_RELU,     /* max(x', 0) */
    LINATTN_MAP_EXP,      /* e^x' */
    LINATTN_MAP_SOFTMAX,  /* queries: softmax of x' over the features; keys: e^x'. Efficient
                            Attention */
    LINATTN_MAP_FAVOR,    /* M^-1/2 exp(w_r.x' - |x'|^2/2), m = M: positive random features
                                     with the rows w_r of `projection`. Performer */
    LINATTN_MAP_FAVOR_SIMPLIFIED, /* exp(w_r.x'), m = M. From Performer to linear attention */
    LINATTN_MAP_FAVOR_HYPERBOLIC, /* (2M)^-1/2 exp(-|x'|^2/2) [e^(w_r.x'), e^(-w_r.x')], m = 2M */
    LINATTN_MAP_TAYLOR, /* all monomials up to `degree`: phi(q).phi(k) = sum (scale q.k)^p / p!,
                           m = C(dim_key + degree, degree), each product of coordinates once */
    LINATTN_MAP_EXPDEF, /* the same monomials: phi(q).phi(k) = (1 + scale q.k / degree)^degree */
    LINATTN_MAP_UNIT,   /* x / sqrt(|x|^2 + 1e-6), scale times q. Gated DeltaNet */
    LINATTN_MAP_COUNT
} linattn_feature_map;

/* What the read-out phi(q)^T S is divided by. A denominator of exactly zero gives zeros. */
typedef enum linattn_normaliser {
    LINATTN_NORM_DEFAULT = 0, /* feature for the softmax map, sum for every other */
    LINATTN_NORM_SUM,         /* phi(q)^T z + epsilon: rows of the attention matrix sum to one */
    LINATTN_NORM_FEATURE, /* feature by feature: sum_f phi(q)_f S_f / z_f. Efficient Attention */
    LINATTN_NORM_LENGTH,  /* the number of keys seen, masked ones counted */
    LINATTN_NORM_NONE,    /* nothing */
    LINATTN_NORM_COUNT
} linattn_normaliser;

/* How a token changes the state, with a_t, p_t, r_t from linattn_gates:
       S_t = Diag(a_t) S_{t-1} + p_t (r_t^T S_{t-1}) + k_t v_t^T,   o_t = S_t^T q_t
   k and q mapped. The maps identity, elu1, relu, exp and unit go with all rules; windows do not. */
typedef enum linattn_rule {
    LINATTN_RULE_SUM = 0, /* a = 1, no p and r: update, query, causal, bidirectional. All others are
                             linattn_recurrent's: */
    LINATTN_RULE_GATED,   /* a per head (RetNet, Mamba-2) or per feature (GLA, HGRN2); with a bonus
                             the output reads S before the token (RWKV-5, RWKV-6) */
    LINATTN_RULE_DELTA,   /* a = 1, p = -beta k, r = k, beta k v^T: DeltaNet */
    LINATTN_RULE_GATED_DELTA, /* a per head (Gated DeltaNet, Qwen3-Next) or per feature (KDA),
                                 p = -beta k, r = a k, beta k v^T: S' = Diag(a) S,
                                 S = S' + beta k (v - S'^T k)^T */
    LINATTN_RULE_GENERAL,     /* a per head or feature, p and r given: RWKV-7 */
    LINATTN_RULE_MLSTM,       /* a per head, e^i k v^T with the input gate i, z likewise,
                                 o = S^T q / max(|z^T q|, 1): xLSTM */
    LINATTN_RULE_COUNT
} linattn_rule;

/* How S and z are kept. */
typedef enum linattn_precision {
    LINATTN_PRECISION_PLAIN = 0,   /* in one float each, which serves for millions of tokens: see
                                      LIMITS */
    LINATTN_PRECISION_COMPENSATED, /* in two, for streams without end: every 96 tokens what they
                                      added is moved to a second sum, and what rounding loses there
                                      is kept (Knuth's TwoSum). A token that is masked in every head
                                      is none of the 96; one that some heads mask is, and may move
                                      last bits of theirs: a state has no room for a count of each
                                      head. Twice the state. For the rule SUM, without windows, for
                                      GATED and for MLSTM: the second sum decays by a product of two
                                      floats, when it is moved to. (The states of the other rules
                                      are multiplied by matrices.) What one token lowers to less
                                      than 2^-87 of what it was may be dropped. linattn_state_import
                                      leaves one float each */
    LINATTN_PRECISION_COUNT
} linattn_precision;

/* One attention. Zero the struct, then set what differs: a zero field means the usual default, and
   fields are only ever appended, so that source written today keeps its meaning. */
typedef struct linattn_config {
    size_t heads;                  /* query heads; 0 means 1 */
    size_t kv_heads;               /* key/value heads, dividing heads; 0 means heads. Query head h
                                     reads key/value head h / (heads / kv_heads) */
    size_t dim_key;                /* length of a query and of a key; required */
    size_t dim_value;              /* length of a value and of an output row; 0 means dim_key */
    linattn_feature_map map;       /* 0 means elu1. Ignored by exact attention */
    linattn_normaliser normaliser; /* Ignored by exact attention */
    float scale;             /* s > 0, finite: phi acts on x sqrt(s), so that s multiplies q.k.
                                     0 means 1/sqrt(dim_key) for favor, taylor, expdef, exact
                                     attention and nystrom, 1 for the other maps */
    float epsilon;           /* added to the denominator of LINATTN_NORM_SUM; finite, >= 0 */
    size_t features;         /* favor: M, the rows of projection, at most 4 * LINATTN_MAX_DIM;
                                0 means 4 * dim_key */
    const float *projection; /* favor: [features][dim_key], finite, at most 1e6 in size; required
                                (linattn_random_features makes one). A state holds a copy */
    size_t degree;           /* taylor, expdef: 1 to 8, 0 means 2. Odd ones may have denominators
                                that vanish */
    size_t window;           /* 0: all tokens. Else only keys with i - window < j <= i (causal) or
                                |i - j| < window (bidirectional). Exact attention, too, where a
                                query's place counts from the end of the keys: see there. At most
                                2^30 - 1 */
    size_t landmarks;        /* nystrom: at most LINATTN_MAX_DIM, else all refuse; 0 means 64 */
    size_t iterations;       /* nystrom: most steps of the pseudo-inverse, 0 means 12 */
    linattn_rule rule;       /* 0 means sum. Others: the normaliser is none by default; sum and
                                length go with GATED alone */
    size_t key_heads;        /* a rule's: query and key heads, dividing kv_heads; 0 means kv_heads.
                                Values, gates, states and outputs have kv_heads, and that of head h
                                reads query and key head h / (kv_heads / key_heads): Mamba-2,
                                Qwen3-Next. heads is then key_heads, kv_heads or 0; where
                                the two are the same, as ever */
    linattn_precision precision; /* 0 means plain */
    size_t sinks;                /* exact attention: the first `sinks` keys stay visible beside a
                                window (Xiao et al. 2024); without a window all are, anyway. At most
                                2^30 - 1 */
    float soft_cap;             /* exact attention: scores s q.k become cap tanh(s q.k / cap), as in
                                Gemma 2; finite, > 0; 0: they stay as they are */
    const float *alibi_slopes;  /* exact attention: one finite slope for each query head, [heads];
                                  slope * |i - j| is subtracted from the score of query i and key j,
                                  after the soft cap (Press et al. 2022, ALiBi). NULL: none */
    linattn_element state_type; /* what a state keeps S in, 0: floats. 16-bit numbers halve it: see
                                   there. Not with windows, precision, favor, taylor, expdef;
                                   linattn_bidirectional, which has no state, refuses them */
} linattn_config;

/* LINATTN_OK, or why this config is refused: NULL (also a favor without projection), SIZE (a
   dimension is zero or too large, or the state's size overflows), CONFIG (a field is out of range)
   or UNSUPPORTED (fields that do not go together, or what this build leaves out). Reads the whole
   projection; functions that tell a size do not. */
LINATTN_API linattn_status linattn_config_check(const linattn_config *config);

/* Which field of this config is refused and why, as a short English sentence that begins with the
   field's name; NULL if none is. Where fields hold what only a struct can that was never set, "was
   the config zeroed first? " stands before it. For what linattn_config_check and all verbs return
   SIZE or CONFIG for, and a favor without projection. linattn_config_check is about states: sinks,
   soft_cap and alibi_slopes, which exact attention alone takes, are UNSUPPORTED there, wrong or
   right, and linattn_workspace_size tells whether exact attention takes a config. Where one of the
   three is set, what exact attention refuses comes first, and its "... goes with exact attention
   alone" means that nothing is wrong with it there. */
LINATTN_API const char *linattn_config_error(const linattn_config *config);

/* The number m of features of the config's map. 0 if refused, as for linattn_state_size. */
LINATTN_API size_t linattn_features(const linattn_config *config);

/* ---- Operands ------------------------------------------------------------------------------- */

/* A strided view of [tokens][heads][dim] floats: element (t, h, i) is
   data[t * stride_token + h * stride_head + i]. Strides are in elements. A zero stride means dense:
   stride_head = dim, stride_token = heads * stride_head. Any order of tokens and heads works,
   slices of interleaved q|k|v buffers too; no alignment is needed beyond the element's. Rows of
   an input may overlap: a stride smaller than a row (frames of a signal that slide by a few
   samples, say) is taken as it is.
   stride_sequence: from one sequence to the next, in the calls that take many; 0 means dense there,
   too: n * stride_token.
   element: LINATTN_F16 and LINATTN_BF16 say that `data` points to 16-bit numbers, whatever its
   type; linattn_rows_as makes such views without a cast. Where an input of 16 bits and the output
   share a buffer, two views are told apart if they repeat with one stride in bytes.
   16-bit numbers are made floats some tokens at a time, and all arithmetic is in float: the result
   has the bits of a call with the same numbers as floats, and long sequences take as long (update
   of (128,128) heads a tenth longer on AVX-512), a single token 5 to 10 % longer. q, k, v and the
   gates of a call may each be of another type. There is room for (heads / kv_heads + 1) dim_key +
   dim_value floats of a token, under a rule and the lengths of its 16-bit gates: 4096, in a build
   of scalar code alone 1024. Longer ones are refused (ELEMENT). Exact attention and nystrom take
   rows of any length.
   data may be NULL where there are no tokens. */
typedef struct linattn_view {
    const float *data;
    size_t stride_token, stride_head;
    size_t stride_sequence;
    linattn_element element;
} linattn_view;

/* The same for what is written. Its rows must not overlap one another, any input or the state:
   LINATTN_ERROR_OVERLAP (two views of one interleaved buffer that do not touch are told apart, but
   tokens between whose heads lie other tokens' are refused). */
typedef struct linattn_output {
    float *data;
    size_t stride_token, stride_head;
    size_t stride_sequence;
} linattn_output;

/* Where a size has 64 bits, a view is written in the steps of 16 bytes in which compilers copy it
   for a call: copies wait for what was just stored in others, 8 to 14 ns of a call. */
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__AARCH64EL__)) && SIZE_MAX >> 31 >> 31
typedef size_t linattn__pair __attribute__((vector_size(16)));
typedef union linattn__dense {
    struct {
        linattn__pair begin, middle;
        size_t end;
    } steps;
    linattn_view view;
    linattn_output output;
} linattn__dense;

LINATTN__HERE linattn__dense linattn__dense_rows(const void *data, linattn_element element)
{
    linattn__dense made;
    size_t address;
    __builtin_memcpy(&address, &data, sizeof address);
    {
        const linattn__pair begin = {address, 0}, zeros = {0, 0};
        made.steps.begin = begin;
        made.steps.middle = zeros;
        made.steps.end = element;
    }
    return made;
}
#else
typedef union linattn__dense {
    linattn_view view;
    linattn_output output;
} linattn__dense;

LINATTN__HERE linattn__dense linattn__dense_rows(const void *data, linattn_element element)
{
    linattn__dense made;
    made.view.data = (const float *)data;
    made.view.stride_token = made.view.stride_head = made.view.stride_sequence = 0;
    made.view.element = element;
    return made;
}
#endif

/* Dense [tokens][heads][dim]. */
LINATTN__HERE linattn_view linattn_rows_as(const void *data, linattn_element element)
{
    return linattn__dense_rows(data, element).view;
}

LINATTN__HERE linattn_view linattn_rows(const float *data)
{
    return linattn__dense_rows(data, LINATTN_F32).view;
}

LINATTN__HERE linattn_output linattn_output_rows(float *data)
{
    return linattn__dense_rows(data, LINATTN_F32).output;
}
#undef LINATTN__HERE

/* How a call runs; NULL means in the calling thread. Zero the struct first: fields may be appended.
   parallel_for must call job(arg, i) once for each i in [0, count), in any order, on any threads,
   and return when all have returned. count is at most `threads` (0 and 1 mean no threading): the
   work is cut into that many equal parts. The result has the same bits with and without. Where all
   takes about a microsecond it is not called, but by scalar code compiled for size: to share that
   out would take longer.
   `threads` above 1 without parallel_for is refused (NULL). */
typedef void linattn_job(void *arg, size_t index);
typedef struct linattn_context {
    void (*parallel_for)(void *user, size_t count, linattn_job *job, void *arg);
    void *user;
    size_t threads;
} linattn_context;

/* ---- State ---------------------------------------------------------------------------------- */

/* A state is a flat block of bytes without pointers, aligned to 4 bytes at least: copying the bytes
   saves, clones or rewinds a sequence. Aligned to 64 it is fastest: 16 bytes behind the begin of a
   line of the cache, where glibc's malloc puts what is large, decode steps and delta rules take up
   to 1.45 times as long, other prefills 1.15 (Intel's Emerald Rapids). All instruction sets share
   one layout. It holds the config, the token count and, per key/value head, z[m], m exponents of
   the exponential maps (or low parts of the identity's z), and S[m][dim_value] in panels of 16
   columns. Memory: about 4 * kv_heads * m * (dim_value rounded up to 16) bytes. favor: and one copy
   of the projection, 4 * m * dim_key bytes; taylor and expdef: 4 * m.
   A window keeps its last tokens, and a sum for every 32 of them: about window * (dim_key +
   dim_value + m * dim_value / 32) floats per key/value head; up to 129 tokens that are read one by
   one for less than sums would take, about 2 m dim_value >= (window - 32) (m + dim_value), keep
   none. */

/* S in 16 bits, config.state_type: half the memory. It is computed in float and rounded to nearest
   even after every token, by a prefill where a decode step does, so that bits, cuts, threads and
   instruction sets hold; the output, and the next token, read what it is rounded to. z, exponents
   and decays stay floats. Merges and imports round, too. Where many states come from memory, decode
   steps take half to nine tenths of the time of floats on Intel's Emerald Rapids (AVX2: bf16 as
   long, small states longer), .6 to 1.6 times as long on AMD's Zen 4; in the caches 1.2 to 3.4
   times as long; prefills take 1.7 to 3, of the sum 2.5 to 5 times.
   A sum keeps 11 bits in f16, 8 in bf16, and takes no term that is less than half of its last:
   plain sums of more than some 1000 (f16) or 100 (bf16) terms alike come to a standstill; those
   that decay, or that a delta rule corrects, forget before. README.md has errors.
   f16: sums are to stay below 65520 in size, from there on they are infinite; below 2^-14 they have
   fewer bits, and below 2^-25 none. With the maps that have exponents (exp under the rules SUM and
   GATED, softmax) these bounds are 2^22, 2^-8 and 2^-19 times what the row is kept relative to: the
   largest e^x of its feature so far, or less by up to 2^8. As sums stand still before, values below
   4 never take them there. Under MLSTM they are 65520, 2^-14 and 2^-25 times what a head is kept
   relative to: its largest e^i so far, decayed, within a factor of 2^9. Where it grows, sums are
   multiplied by a power of two, and rounded if that takes them below the second bound.
   bf16: sums are to stay below 5e33, from there on they are infinite, and the next token, merge or
   import makes NaN of them; below 2^-100 they have fewer bits, and below 2^-108 none. NaN stays
   NaN. */

/* The same as a constant expression, for the maps that act on each coordinate, without a window and
   with plain precision, so that a state can be a static array:
       static _Alignas(64) unsigned char memory[LINATTN_STATE_BYTES(2, 16, 16)]; */
#define LINATTN_STATE_BYTES(kv_heads, dim_key, dim_value)                                          \
    (128 + (size_t)4 * (kv_heads) *                                                                \
               (2 * (((size_t)(dim_key) + 15) / 16 * 16) +                                         \
                (dim_key) * (((size_t)(dim_value) + 15) / 16 * 16)))

/* And for a rule other than the sum, with plain precision, too. */
#define LINATTN_RULE_STATE_BYTES(kv_heads, dim_key, dim_value)                                     \
    (LINATTN_STATE_BYTES(kv_heads, dim_key, dim_value) +                                           \
     (size_t)4 * (kv_heads) *                                                                      \
         (16 + 2 * (((size_t)(dim_key) + 15) / 16 * 16) + ((size_t)(dim_value) + 15) / 16 * 16))

/* The two for a state_type of 16 bits. */
#define LINATTN_HALF_STATE_BYTES(kv_heads, dim_key, dim_value)                                     \
    (128 + (size_t)4 * (kv_heads) *                                                                \
               (2 * (((size_t)(dim_key) + 15) / 16 * 16) +                                         \
                ((dim_key) * (((size_t)(dim_value) + 15) / 16 * 8) + 15) / 16 * 16))
#define LINATTN_HALF_RULE_STATE_BYTES(kv_heads, dim_key, dim_value)                                \
    (LINATTN_RULE_STATE_BYTES(kv_heads, dim_key, dim_value) -                                      \
     LINATTN_STATE_BYTES(kv_heads, dim_key, dim_value) +                                           \
     LINATTN_HALF_STATE_BYTES(kv_heads, dim_key, dim_value))

/* Bytes to provide; 0 if the config is refused (linattn_config_check says why), but for a favor
   without projection, whose size does not depend on it. */
LINATTN_API size_t linattn_state_size(const linattn_config *config);

/* Writes an empty state for the config into `bytes` bytes at `state`. Errors: those of
   linattn_config_check, NULL, ALIGNMENT, WORKSPACE (bytes too small), OVERLAP (of the projection).
   Cost: clears the memory. */
LINATTN_API linattn_status linattn_state_init(const linattn_config *config, void *state,
                                              size_t bytes);

/* Empties an initialised state, keeping its config. Errors: NULL, ALIGNMENT, STATE. */
LINATTN_API linattn_status linattn_state_reset(void *state);

/* Is this block, say from a file, a whole state of this config? Errors: those of
   linattn_config_check, NULL, ALIGNMENT, WORKSPACE (fewer bytes than the state), STATE (not a
   state, another version or byte order, another config). Every other function trusts the memory
   behind `state` to be as large as its header says. Reads all exponents: O(kv_heads * m). */
LINATTN_API linattn_status linattn_state_check(const linattn_config *config, const void *state,
                                               size_t bytes);

/* The number of tokens the state has seen, masked ones counted; 0 if it is not a state. */
LINATTN_API uint64_t linattn_state_tokens(const void *state);

/* ---- The verbs ------------------------------------------------------------------------------ */

/* Shapes: q [n][heads][dim_key], k [n][kv_heads][dim_key], v [n][kv_heads][dim_value],
   out [n][heads][dim_value]. n = 0 does nothing. Inputs may overlap one another. */

/* S += phi(k) v^T, z += phi(k) for n tokens. MATHS: Katharopoulos et al. 2020, eq. 18-19.
   Errors: NULL, ALIGNMENT, STATE, SIZE (views that overflow), ELEMENT (of no type, or of 16 bits in
   rows that are too long: see linattn_view), OVERLAP (an input lies in the state), UNSUPPORTED
   (a window: only linattn_causal moves it).
   Cost: 2 m dim_value flops per token and key/value head; favor 2 m dim_key more. */
LINATTN_API linattn_status linattn_update(void *state, linattn_view k, linattn_view v, size_t n,
                                          const linattn_context *context);

/* out = phi(q)^T S / normaliser for n queries; the state is not changed. An empty state gives
   zeros. Errors as for update (of a window, too: only causal queries it), and OVERLAP for the
   output. Cost: 2 m dim_value flops per token and query head. */
LINATTN_API linattn_status linattn_query(const void *state, linattn_view q, linattn_output out,
                                         size_t n, const linattn_context *context);

/* For each token in turn: update with its key and value, then query. Queries see the keys up to
   their own. n = 1 is a decode step (one pass over the state), n > 1 a prefill; the bits are those
   of n calls of one. Katharopoulos et al. 2020, eq. 16-20. Errors as for update and query, but that
   windows are welcome here: the last `window` keys, the query's own among them, without ever
   subtracting. Cost: 4 m dim_value flops per token and head, favor 4 m dim_key more; a window, of
   whatever length, up to 2.8 times as much, one that keeps no sums down to as much (with normaliser
   feature, and with sum under the identity, unit and odd degrees, some tens of times: these read
   out token by token). Single steps of a window are not even: every 32nd one ends a sum, and once
   in `window` tokens, about, all its sums are added up from the last one on. One head of (64,64),
   where a step takes .6 us and .8 on average: every 32nd 4 us, the worst 6, 19 and 130 us with
   windows of 256, 1024 and 4096; of 64, which keeps no sums, 1. */
LINATTN_API linattn_status linattn_causal(void *state, linattn_view q, linattn_view k,
                                          linattn_view v, linattn_output out, size_t n,
                                          const linattn_context *context);

/* The same for many sequences, each with a state of its own: agents of a game, requests of a
   server. Operands have one part for each state, stride_sequence apart; n tokens each. Checked
   once, the bits of separate calls, shared out over the threads by states, and states that do not
   stay in the caches are fetched ahead. All states must be of one config (STATE), no two of those
   that are written may overlap (OVERLAP): found at once where their addresses ascend or descend,
   stretch by stretch where they lie close together in any order, which takes some
   count * count / 50 ns more, and by sorting where they are scattered, some count * count / 10 ns.
   count = 0 does nothing; other errors as for one state. Cost: that of the tokens, and some 10 ns
   for each state. */
LINATTN_API linattn_status linattn_update_many(void *const *states, size_t count, linattn_view k,
                                               linattn_view v, size_t n,
                                               const linattn_context *context);
LINATTN_API linattn_status linattn_query_many(const void *const *states, size_t count,
                                              linattn_view q, linattn_output out, size_t n,
                                              const linattn_context *context);
LINATTN_API linattn_status linattn_causal_many(void *const *states, size_t count, linattn_view q,
                                               linattn_view k, linattn_view v, linattn_output out,
                                               size_t n, const linattn_context *context);

/* What a rule is told for each token besides q, k and v. Zero the struct, then set what the rule
   takes: a view whose data is NULL is not there. Views as all others, with their zero strides and
   elements. */
typedef struct linattn_gates {
    linattn_view decay;    /* a, in [0, 1]: [n][kv_heads]. Needed by all rules but DELTA */
    int decay_per_feature; /* or [n][kv_heads][dim_key]; not for MLSTM */
    int decay_fixed;       /* or one for all tokens and sequences: without [n] */
    int decay_log;         /* natural logarithms, at most 0: a = e^decay */
    linattn_view beta;     /* in [0, 2]: [n][kv_heads]. Needed by DELTA and GATED_DELTA */
    int beta_shared;       /* or one for all heads: [n] */
    linattn_view read;     /* r and p, of the shape of k: [n][key_heads][dim_key]. Needed by */
    linattn_view write;    /* GENERAL */
    linattn_view bonus;    /* u: [kv_heads][dim_key], for all tokens. For GATED, which then reads
                              before it writes: o_t = (S_{t-1} + Diag(u) k_t v_t^T)^T q_t; not with
                              the normaliser sum */
    linattn_view input;    /* i, any finite number, beyond 1.4e6 in size as that: [n][kv_heads].
                              Needed by MLSTM */
} linattn_gates;

#ifndef LINATTN_NO_RECURRENT
/* For each token in turn: the state moves by its config's rule, then the query is read out; as
   linattn_causal, which it is for LINATTN_RULE_SUM (with gates NULL or zeroed). q and out both
   without data: only the state moves. A masked token (a key of all -inf, under a rule with every
   map) leaves the state as it is, decay included, and its query reads that state.
   Shapes: as for causal, with key_heads heads of q and k where config.key_heads is set.
   linattn_query reads such a state; linattn_update and linattn_causal refuse it.
   Finite: for decays in [0, 1], beta in [0, 2] and |k| <= 1 (delta rules) or sums below 1e37
   (GATED), whatever the length; MLSTM for any finite gates. Beyond these what the formula gives.
   What decays is flushed to zero before it is denormal, once it is below 2^-62 in size (what the
   keys of the delta rules and of GENERAL read may cancel to less, for some tokens). exp under
   GATED: a key whose e^x is 2^-100 of what its feature has held may be lost until the rest has
   decayed; a decay of 0 begins the feature afresh.
   A layer of Gated DeltaNet (Qwen3-Next: 16 key heads, 32 value heads, 128 each):
       linattn_config config = {0};
       config.rule = LINATTN_RULE_GATED_DELTA;
       config.map = LINATTN_MAP_UNIT;          // q / |q|, k / |k|
       config.key_heads = 16;
       config.kv_heads = 32;
       config.dim_key = 128;
       config.scale = 0.08838835f;             // 1 / sqrt(128), of q
       ...                                     // linattn_state_size, linattn_state_init
       linattn_gates gates = {0};
       gates.decay = linattn_rows(log_decay);  // [n][32]: -exp(A_log) softplus(a + dt_bias)
       gates.decay_log = 1;
       gates.beta = linattn_rows(beta);        // [n][32]: sigmoid(b)
       linattn_recurrent(state, linattn_rows(q), linattn_rows(k), linattn_rows(v), &gates,
                         linattn_output_rows(out), n, NULL);
   with q, k [n][16][128], v, out [n][32][128]: n > 1 is a prefill, n = 1 a decode step.
   The bits are those of n calls of one token, on every instruction set and with all threads; a = 1
   gives the bits of the rule without decay. MATHS: Sun et al. 2023 (RetNet), Yang et al. 2024
   (GLA; DeltaNet; Gated DeltaNet), Peng et al. 2024, 2025 (RWKV), Beck et al. 2024 (xLSTM, eq. 19).
   Errors: as for causal, and DECAY, BETA, READ_WRITE, BONUS, INPUT_GATE for what the rule needs and
   lacks, or is given and does not take.
   Cost: flops per element of S, token and head: GATED 4, DELTA and GATED_DELTA 6, GENERAL 8. Decays
   are multiplied up over some tokens before they go into S; where they are not (GATED with exp,
   states of 16 bits, compensated sums, decays per feature with a normaliser or of values shorter
   than 64) they take one more. */
LINATTN_API linattn_status linattn_recurrent(void *state, linattn_view q, linattn_view k,
                                             linattn_view v, const linattn_gates *gates,
                                             linattn_output out, size_t n,
                                             const linattn_context *context);

/* The same for many sequences, as linattn_causal_many. A fixed decay and the bonus are shared. */
LINATTN_API linattn_status linattn_recurrent_many(void *const *states, size_t count, linattn_view q,
                                                  linattn_view k, linattn_view v,
                                                  const linattn_gates *gates, linattn_output out,
                                                  size_t n, const linattn_context *context);
#endif

/* The sums of one key/value head as plain numbers, for models with a trained or a foreign initial
   state, of any rule and any map without a window: S = sum phi(k) v^T (decayed, corrected), dense
   [m][dim_value], or transposed [dim_value][m] as ggml and RWKV have it; and z = sum phi(k) [m],
   which may be NULL. For the maps identity and unit they do not depend on the scale. Numbers beyond
   floats saturate at +-FLT_MAX. Rules without a normaliser have no z: zeros, but for exp.
   import replaces them (z, where it is NULL, by zeros; GATED with exp: as if of one key) and leaves
   the token count; what it read export gives back, to the bit but for the maps with exponents and
   the sign of a zero in compensated sums. A state of a rule other than the sum that was imported
   into cannot be the later one of a merge. Errors: NULL, ALIGNMENT, STATE, SIZE (no such head),
   UNSUPPORTED (a window), OVERLAP. */
LINATTN_API linattn_status linattn_state_export(const void *state, size_t head, int transposed,
                                                float *sums, float *z);
LINATTN_API linattn_status linattn_state_import(void *state, size_t head, int transposed,
                                                const float *sums, const float *z);

/* dst += src: the state of both token sets. Same config required (STATE). The order of the sums
   differs from that of one pass, so the bits do, too. Rules GATED and MLSTM: src is the later one
   of the two, over tokens that follow those of dst, and began empty; what dst holds decays by all
   of its decays. Errors: NULL, ALIGNMENT, STATE, OVERLAP (the two blocks overlap), UNSUPPORTED (a
   window; the delta rules and GENERAL, which do not merge; a src of a rule that was imported into).
   */
LINATTN_API linattn_status linattn_merge(void *dst, const void *src);

/* Every query sees every key: init, update, query over one workspace. n_q and n_k may differ
   (cross-attention), but with a window must be the same (UNSUPPORTED). No keys: zeros. workspace:
   linattn_workspace_size(config, LINATTN_WORKSPACE_BIDIRECTIONAL, ...) bytes, any alignment,
   content ignored and destroyed. Errors: those of linattn_config_check, and as for query. */
LINATTN_API linattn_status linattn_bidirectional(const linattn_config *config, linattn_view q,
                                                 size_t n_q, linattn_view k, linattn_view v,
                                                 size_t n_k, linattn_output out, void *workspace,
                                                 size_t workspace_bytes,
                                                 const linattn_context *context);

#ifndef LINATTN_NO_EXACT
/* Exact attention: out_i = sum_j a_ij v_j, a_i = softmax_j(scale q_i.k_j), streaming over the keys
   with a running maximum; no n x n matrix is stored. For caches of keys and values, too:
   - Query i has the place i + (n_k - n_q), the last query that of the last key, and causal != 0
     lets it see the keys up to its place: a decode step passes n_q = 1 and the whole cache. n_q >
     n_k is then UNSUPPORTED.
   - config.window: only keys less than `window` places away, so that a causal query sees the last
     `window` keys, its own among them. config.sinks: and the first so many keys; causal != 0 hides
     those beyond a query's place all the same. Cost grows with window + sinks, not with n_k: what
     no query of a block sees is not even read.
   - config.soft_cap, then config.alibi_slopes, change the scores. With a window or with slopes
     n_q > n_k is UNSUPPORTED; with slopes more than 2^24 keys are refused (SIZE).
   - q, k and v may each be f16 or bf16, in rows of any length: see linattn_view.
   A layer of Gemma 2 that decodes with a cache of f16 [n][4][256]:
       linattn_config config = {0};
       config.heads = 8;
       config.kv_heads = 4;
       config.dim_key = 256;
       config.window = 4096;                    // every other layer: 0
       config.soft_cap = 50;
       bytes = linattn_workspace_size(&config, LINATTN_WORKSPACE_SOFTMAX, NULL);
       ...                                      // malloc(bytes), once for all layers
       linattn_softmax(&config, linattn_rows(q), 1, linattn_rows_as(k_cache, LINATTN_F16),
                       linattn_rows_as(v_cache, LINATTN_F16), n, linattn_output_rows(out), 1,
                       workspace, bytes, NULL);
   The bits are the same for any cut of the queries into calls; a window that hides nothing gives
   the bits of none, unless keys are masked. map and normaliser with all that belongs to them
   (epsilon, features, projection, degree) are ignored, whatever they hold. No visible key: zeros.
   Workspace: LINATTN_WORKSPACE_SOFTMAX, grows with dim_key + dim_value and the threads, not with n.
   Errors: NULL, SIZE, CONFIG (linattn_config_error says which field), ELEMENT, UNSUPPORTED,
   OVERLAP, WORKSPACE.
   Cost: 2 (dim_key + dim_value) flops and one exp per query, visible key and head; at (128,128) a
   soft cap takes some 7 % more, slopes 4 %, and the window of a prefill what some 80 keys more
   would. With keys and values of 16 bits a prefill takes as long, and a decode step over a long
   cache two thirds of the time. */
LINATTN_API linattn_status linattn_softmax(const linattn_config *config, linattn_view q, size_t n_q,
                                           linattn_view k, linattn_view v, size_t n_k,
                                           linattn_output out, int causal, void *workspace,
                                           size_t workspace_bytes, const linattn_context *context);
#endif

#if !defined(LINATTN_NO_NYSTROM) && !defined(LINATTN_NO_EXACT)
/* Nystroemformer (Xiong et al. 2021): out = F A^+ (B V) with F = softmax(s Q K~^T), A =
   softmax(s Q~ K~^T), B = softmax(s Q~ K^T). Every query sees every key; causal != 0 is
   UNSUPPORTED. Landmarks Q~ and K~: n tokens in segments of ceil(n / landmarks), the last may be
   shorter, each landmark the mean of its own tokens; with n <= landmarks every token is its own
   landmark. Masked keys are left out of the mean, and a segment of nothing else is no landmark.
   Query heads have each their own Q~ and A; n_q and n_k may differ, A is then not square. No
   visible key: zeros. The pseudo-inverse, in double: Z = A^T / (|A|_1 |A|_inf), then
   config.iterations times Z <- Z (13 I - AZ (15 I - AZ (7 I - AZ))) / 4. It stops early only where
   no step would change Z any more: once |I - AZ| (Frobenius) is at most 2^-30, as a step cubes it;
   and after 24 steps, as what then is still to come is smaller than the rounding of float operands.
   (The residual |AZA - A| falls with every step until then: an eigenvalue e of I - AZ becomes e^3
   (3 + e) / 4.) A is often ill-conditioned, the steps then do not converge, and their number
   decides what comes out: the paper takes 6. Where it has no full rank, as with fewer keys than
   landmarks or with equal ones, rounding errors grow 3.25-fold with each: from 1e-16 to 1e-9 after
   the default of 12, to 1e-4 and more after 20.
   map, normaliser and all that belongs to them are ignored as by softmax, and so is window; sinks,
   soft_cap and alibi_slopes are UNSUPPORTED. Workspace: LINATTN_WORKSPACE_NYSTROM, grows with
   landmarks * (landmarks + dim_key + dim_value) and the threads, not with n. Errors: those of
   softmax.
   Cost, per head: 2 landmarks (n_q + n_k) (dim_key + dim_value) flops and landmarks (n_q + n_k)
   exp; the pseudo-inverse some 5 landmarks^3 per step, in double. */
LINATTN_API linattn_status linattn_nystrom(const linattn_config *config, linattn_view q, size_t n_q,
                                           linattn_view k, linattn_view v, size_t n_k,
                                           linattn_output out, int causal, void *workspace,
                                           size_t workspace_bytes, const linattn_context *context);
#endif

typedef enum linattn_workspace {
    LINATTN_WORKSPACE_BIDIRECTIONAL = 0,
    LINATTN_WORKSPACE_SOFTMAX,
    LINATTN_WORKSPACE_NYSTROM
} linattn_workspace;

/* Bytes that the call needs with this context (NULL as in the call); 0 if refused, as for
   linattn_state_size. */
LINATTN_API size_t linattn_workspace_size(const linattn_config *config, linattn_workspace verb,
                                          const linattn_context *context);

#ifndef LINATTN_NO_MAPS
/* ---- The maps on plain arrays --------------------------------------------------------------- */

/* phi of the config's map for n vectors: x [n][dim_key], y [n][features], dense. keys != 0 takes
   the map of the keys (they differ for softmax, and for unit by the scale of q). In place (y == x)
   is allowed for the maps that act on each coordinate, any other overlap is refused. Overflow gives
   inf here, as in expf: the verbs never form these values. Of the config only dim_key, map, scale,
   features, projection and degree are looked at. Errors: those of linattn_config_check for these,
   and as for exp. */
LINATTN_API linattn_status linattn_map(const linattn_config *config, int keys, const float *x,
                                       float *y, size_t n);

/* y[i] = e^x[i], at most 1 ULP off; results below FLT_MIN are 0; inf above 88.72. y == x is
   allowed, other overlap refused (OVERLAP). */
LINATTN_API linattn_status linattn_exp(const float *x, float *y, size_t n);
LINATTN_API linattn_status linattn_elu1(const float *x, float *y, size_t n);
LINATTN_API linattn_status linattn_relu(const float *x, float *y, size_t n);
#endif

#ifndef LINATTN_NO_RANDOM
/* ---- Random features ------------------------------------------------------------------------ */

typedef enum linattn_random_kind {
    LINATTN_RANDOM_INDEPENDENT = 0, /* rows N(0, I) */
    LINATTN_RANDOM_ORTHOGONAL,      /* every dim rows are orthogonal to one another, in directions
                                       of Haar measure; norms are those of independent N(0, I) rows,
                                       so that each row by itself is N(0, I) */
    LINATTN_RANDOM_ORTHOGONAL_UNIT, /* the same directions, every norm sqrt(dim) */
    LINATTN_RANDOM_COUNT
} linattn_random_kind;

/* Writes the projection w [features][dim], dense, whose rows the favor maps multiply with queries
   and keys. Choromanski et al. 2021, Performer, section 2.4: orthogonal rows lower the variance of
   phi(q).phi(k). The same seed gives the same bits on every machine, and more features only append
   rows: the first ones stay. Different seeds give independent projections.
   features: 1 to 4 * LINATTN_MAX_DIM; dim: 1 to LINATTN_MAX_DIM. Errors: NULL, SIZE (also where
   features * dim overflows), CONFIG (no such kind). Cost: features dim normal numbers of some
   20 ns; for the orthogonal kinds 4 features dim min(features, dim) flops more, and the numbers of
   the norms. Scalar code in the calling thread: 2 ms for 256 x 64. */
LINATTN_API linattn_status linattn_random_features(uint64_t seed, linattn_random_kind kind,
                                                   size_t features, size_t dim, float *projection);
#endif

/* ---- Instruction sets ----------------------------------------------------------------------- */

typedef enum linattn_isa {
    LINATTN_ISA_AUTO = 0, /* the best one available: what is used without select */
    LINATTN_ISA_SCALAR,
    LINATTN_ISA_NEON,
    LINATTN_ISA_AVX2,
    LINATTN_ISA_AVX512,
    LINATTN_ISA_SIMD128, /* WebAssembly's, by products and sums in double */
    LINATTN_ISA_RELAXED, /* by relaxed_madd, where the engine rounds it once */
    LINATTN_ISA_SSE2,    /* x86's of four, with LINATTN_SSE2 */
    LINATTN_ISA_COUNT
} linattn_isa;

/* Sets of instruction sets: bit (1u << isa). Compiled into this build; and of these, those that
   this CPU and its operating system support. */
LINATTN_API unsigned linattn_isa_compiled(void);
LINATTN_API unsigned linattn_isa_available(void);

/* The one in use, never AUTO. Which ones there are is asked once per process, by the first call
   that needs to know: some 60 us in a virtual machine, where CPUID traps. Threads with a deadline
   (audio, frames) are spared that where the program has called this function before, at its start,
   say. Nothing else is put off to a first call. */
LINATTN_API linattn_isa linattn_isa_active(void);

/* Use this one from the next call on, in the whole process; with LINATTN_STATIC this and what is
   said above holds for the calls of each file. LINATTN_ERROR_ISA if it is not available: nothing
   changes then. Thread-safe; calls under way finish with what they began. */
LINATTN_API linattn_status linattn_isa_select(linattn_isa isa);

/* "auto", "scalar", "neon", "avx2", "avx512", "simd128", "relaxed", "sse2"; "unknown" for anything
   else. */
LINATTN_API const char *linattn_isa_name(linattn_isa isa);

#ifdef __cplusplus
}
#endif

#endif /* LINATTN_H */

/* ============================================================================================== */
#if defined(LINATTN_IMPLEMENTATION) && !defined(LINATTN__IMPLEMENTED)
#define LINATTN__IMPLEMENTED

/* ---- Options and target ---------------------------------------------------------------------- */

#if defined(LINATTN_SCALAR_ONLY) && defined(LINATTN_NO_DISPATCH)
#error "LINATTN_SCALAR_ONLY has nothing to dispatch: define it without LINATTN_NO_DISPATCH"
#endif
#if defined(LINATTN_SCALAR_ONLY) && defined(LINATTN_SSE2)
#error "LINATTN_SCALAR_ONLY leaves out what LINATTN_SSE2 adds: drop one of them"
#endif
#if defined(LINATTN_STATIC) != LINATTN__STATIC
#error "LINATTN_STATIC has to be defined at every inclusion of linattn.h, also at the first"
#endif
#if (defined(LINATTN_NO_FEATURES) || defined(LINATTN_NO_PREFILL)) &&                               \
    (defined(LINATTN_ONLY_FAVOR) || defined(LINATTN_ONLY_TAYLOR) || defined(LINATTN_ONLY_EXPDEF))
#error "LINATTN_NO_FEATURES and _NO_PREFILL leave out favor, taylor, expdef: drop it or _ONLY_..."
#endif
#if defined(LINATTN_FREESTANDING) && defined(LINATTN_USE_SLEEF)
#error "SLEEF needs a hosted C library: drop LINATTN_FREESTANDING or LINATTN_USE_SLEEF"
#endif
#if defined(LINATTN_SCALAR_FAST) && defined(LINATTN_USE_SLEEF)
#error "LINATTN_SCALAR_FAST is for programs without libraries: drop it or LINATTN_USE_SLEEF"
#endif

#include <float.h>
#ifndef LINATTN_FREESTANDING
#include <string.h>
#endif

/* What MSVC compiles: intrinsics, without operators on vectors, attributes and assembly. The tests
   define LINATTN__AS_MSVC, so that other compilers take it, too. */
#if (defined(_MSC_VER) && !defined(__clang__)) || defined(LINATTN__AS_MSVC)
#define LINATTN__MSVC 1
#else
#define LINATTN__MSVC 0
#endif
#if (defined(__GNUC__) || defined(__clang__)) && !LINATTN__MSVC
#define LINATTN__GNU 1
#else
#define LINATTN__GNU 0
#endif
#if defined(__x86_64__) || (defined(_M_X64) && !defined(_M_ARM64EC))
#define LINATTN__X64 (LINATTN__GNU || LINATTN__MSVC)
#else
#define LINATTN__X64 0
#endif
#if defined(__aarch64__) || defined(_M_ARM64)
#define LINATTN__ARM64 (LINATTN__GNU || LINATTN__MSVC)
#else
#define LINATTN__ARM64 0
#endif

/* 16 and 32 are about types narrower than float, or as wide. MSVC's -1 is about /fp:fast, which is
   undone below. */
#if defined(_MSC_VER) && !defined(__clang__)
#if defined(_M_IX86) && _M_IX86_FP < 2
#error "linattn needs float arithmetic in float: compile with /arch:SSE2"
#endif
#elif defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD == 1
#error "linattn needs float arithmetic in float: compile with -fexcess-precision=fast"
#elif defined(FLT_EVAL_METHOD) && (FLT_EVAL_METHOD < 0 || FLT_EVAL_METHOD == 2)
#error "linattn needs float arithmetic in float: compile with -msse2 -mfpmath=sse"
#endif

#ifndef LINATTN_ASSERT
#define LINATTN_ASSERT(x) ((void)0)
#endif

/* Instruction sets in this build. Values as in linattn_isa, which the preprocessor cannot see. */
#define LINATTN__ISA_SCALAR 1
#define LINATTN__ISA_NEON 2
#define LINATTN__ISA_AVX2 3
#define LINATTN__ISA_AVX512 4
#define LINATTN__ISA_SIMD128 5
#define LINATTN__ISA_RELAXED 6
#define LINATTN__ISA_SSE2 7

/* A WebAssembly module has the instructions that it was compiled with, or does not load. */
#if defined(__wasm_simd128__) && LINATTN__GNU && !defined(LINATTN_SCALAR_ONLY) &&                  \
    !defined(LINATTN_USE_SLEEF)
#define LINATTN__HAS_SIMD128 1
#else
#define LINATTN__HAS_SIMD128 0
#endif
/* Only an engine can tell whether its relaxed_madd rounds once. */
#if LINATTN__HAS_SIMD128 && defined(__wasm_relaxed_simd__) && !defined(LINATTN_NO_DISPATCH)
#define LINATTN__HAS_RELAXED 1
#else
#define LINATTN__HAS_RELAXED 0
#endif

/* All 64-bit processors have SSE2; for others the compiler's flags say so. */
#if defined(LINATTN_SSE2) &&                                                                       \
    (LINATTN__X64 || (LINATTN__GNU && defined(__i386__) && defined(__SSE2_MATH__)))
#define LINATTN__CAN_SSE2 1
#else
#define LINATTN__CAN_SSE2 0
#endif

#if defined(LINATTN_SCALAR_ONLY) || !(LINATTN__X64 || LINATTN__ARM64)
#define LINATTN__HAS_AVX512 0
#define LINATTN__HAS_AVX2 0
#define LINATTN__HAS_NEON 0
#define LINATTN__HAS_SSE2 LINATTN__CAN_SSE2
#if (LINATTN__HAS_SIMD128 || LINATTN__HAS_SSE2) && defined(LINATTN_NO_DISPATCH)
#define LINATTN__HAS_SCALAR 0
#else
#define LINATTN__HAS_SCALAR 1
#endif
#else
/* Only the instruction sets that the compiler's flags allow: where clang plays Microsoft's
   compiler, its own headers had no others. */
#if defined(LINATTN_NO_DISPATCH) ||                                                                \
    (defined(_MSC_VER) && defined(__clang__) && __clang_major__ < 19)
#define LINATTN__BY_FLAGS 1
#else
#define LINATTN__BY_FLAGS 0
#endif
/* /arch:AVX2 is one flag for all. Halves are asked for where flags alone make them known. */
#if defined(__AVX2__) &&                                                                           \
    (LINATTN__MSVC || (defined(__FMA__) && (defined(__F16C__) || !defined(_MSC_VER))))
#define LINATTN__AVX2_FMA 1
#else
#define LINATTN__AVX2_FMA 0
#endif
#if LINATTN__X64 && !defined(LINATTN_NO_AVX512) &&                                                 \
    (!LINATTN__BY_FLAGS || (defined(__AVX512F__) && LINATTN__AVX2_FMA)) &&                         \
    !(defined(_MSC_VER) && _MSC_VER < 1920) /* Visual Studio 2019 has all that is needed */
#define LINATTN__HAS_AVX512 1
#else
#define LINATTN__HAS_AVX512 0
#endif
#if LINATTN__X64 && !defined(LINATTN_NO_AVX2) &&                                                   \
    (!LINATTN__BY_FLAGS || (!LINATTN__HAS_AVX512 && LINATTN__AVX2_FMA))
#define LINATTN__HAS_AVX2 1
#else
#define LINATTN__HAS_AVX2 0
#endif
#if LINATTN__ARM64 && (defined(__ARM_NEON) || LINATTN__MSVC) && !defined(LINATTN_NO_NEON)
#define LINATTN__HAS_NEON 1
#else
#define LINATTN__HAS_NEON 0
#endif
#if LINATTN__CAN_SSE2 &&                                                                           \
    !(defined(LINATTN_NO_DISPATCH) && (LINATTN__HAS_AVX512 || LINATTN__HAS_AVX2))
#define LINATTN__HAS_SSE2 1
#else
#define LINATTN__HAS_SSE2 0
#endif
#if !defined(LINATTN_NO_DISPATCH) ||                                                               \
    !(LINATTN__HAS_AVX512 || LINATTN__HAS_AVX2 || LINATTN__HAS_NEON || LINATTN__HAS_SSE2)
#define LINATTN__HAS_SCALAR 1
#else
#define LINATTN__HAS_SCALAR 0
#endif
#endif
#define LINATTN__COUNT                                                                             \
    (LINATTN__HAS_AVX512 + LINATTN__HAS_AVX2 + LINATTN__HAS_NEON + LINATTN__HAS_RELAXED +          \
     LINATTN__HAS_SIMD128 + LINATTN__HAS_SSE2 + LINATTN__HAS_SCALAR)
/* Is it to be small? Vectors are there for speed, whatever the compiler is told: -Os is what Xcode
   gives to programs that are shipped. */
#if defined(__OPTIMIZE_SIZE__) && LINATTN__COUNT == LINATTN__HAS_SCALAR
#define LINATTN__TO_BE_SMALL 1
#else
#define LINATTN__TO_BE_SMALL 0
#endif
/* Then there is scalar, too, and the three share what they can. */
#define LINATTN__BOTH (LINATTN__HAS_AVX512 && LINATTN__HAS_AVX2 && !LINATTN__HAS_SSE2)

/* Methods in this build, and maps: those that LINATTN_ONLY_... name, or all. */
#if defined(LINATTN_ONLY_ELU1) || defined(LINATTN_ONLY_IDENTITY) || defined(LINATTN_ONLY_RELU) ||  \
    defined(LINATTN_ONLY_EXP) || defined(LINATTN_ONLY_SOFTMAX) || defined(LINATTN_ONLY_FAVOR) ||   \
    defined(LINATTN_ONLY_TAYLOR) || defined(LINATTN_ONLY_EXPDEF) || defined(LINATTN_ONLY_UNIT)
#define LINATTN__SOME_MAPS 1
#else
#define LINATTN__SOME_MAPS 0
#endif
#if !LINATTN__SOME_MAPS || defined(LINATTN_ONLY_ELU1)
#define LINATTN__HAS_ELU1 1
#else
#define LINATTN__HAS_ELU1 0
#endif
#if !LINATTN__SOME_MAPS || defined(LINATTN_ONLY_IDENTITY)
#define LINATTN__HAS_IDENTITY 1
#else
#define LINATTN__HAS_IDENTITY 0
#endif
#if !LINATTN__SOME_MAPS || defined(LINATTN_ONLY_RELU)
#define LINATTN__HAS_RELU 1
#else
#define LINATTN__HAS_RELU 0
#endif
#if !LINATTN__SOME_MAPS || defined(LINATTN_ONLY_EXP)
#define LINATTN__HAS_MAP_EXP 1
#else
#define LINATTN__HAS_MAP_EXP 0
#endif
#if !LINATTN__SOME_MAPS || defined(LINATTN_ONLY_SOFTMAX)
#define LINATTN__HAS_SOFTMAX 1
#else
#define LINATTN__HAS_SOFTMAX 0
#endif
#if !LINATTN__SOME_MAPS || defined(LINATTN_ONLY_UNIT)
#define LINATTN__HAS_UNIT 1
#else
#define LINATTN__HAS_UNIT 0
#endif
#if defined(LINATTN_NO_FEATURES) || defined(LINATTN_NO_PREFILL)
#define LINATTN__FAVOR 0
#define LINATTN__TAYLOR 0
#define LINATTN__EXPDEF 0
#else
#if !LINATTN__SOME_MAPS || defined(LINATTN_ONLY_FAVOR)
#define LINATTN__FAVOR 1
#else
#define LINATTN__FAVOR 0
#endif
#if !LINATTN__SOME_MAPS || defined(LINATTN_ONLY_TAYLOR)
#define LINATTN__TAYLOR 1
#else
#define LINATTN__TAYLOR 0
#endif
#if !LINATTN__SOME_MAPS || defined(LINATTN_ONLY_EXPDEF)
#define LINATTN__EXPDEF 1
#else
#define LINATTN__EXPDEF 0
#endif
#endif
#define LINATTN__HAS_FEATURES (LINATTN__FAVOR || LINATTN__TAYLOR || LINATTN__EXPDEF)
#ifdef LINATTN_NO_RECURRENT
#define LINATTN__HAS_RECURRENT 0
#else
#define LINATTN__HAS_RECURRENT 1
#endif
#if defined(LINATTN_NO_WINDOW) || defined(LINATTN_NO_PREFILL)
#define LINATTN__HAS_WINDOW 0
#else
#define LINATTN__HAS_WINDOW 1
#endif
/* Scalar code gains nothing from blocks of tokens, but for windows and features. */
#if defined(LINATTN_NO_PREFILL) ||                                                                 \
    (LINATTN__COUNT == LINATTN__HAS_SCALAR && !LINATTN__HAS_WINDOW && !LINATTN__HAS_FEATURES)
#define LINATTN__HAS_PREFILL 0
#else
#define LINATTN__HAS_PREFILL 1
#endif
#if defined(LINATTN_NO_COMPENSATED) || !LINATTN__HAS_PREFILL
#define LINATTN__HAS_COMPENSATED 0
#else
#define LINATTN__HAS_COMPENSATED 1
#endif
#ifdef LINATTN_NO_HALF
#define LINATTN__HAS_HALF 0
#else
#define LINATTN__HAS_HALF 1
#endif
#if defined(LINATTN_NO_EXACT)
#define LINATTN__HAS_EXACT 0
#else
#define LINATTN__HAS_EXACT 1
#endif
#if defined(LINATTN_NO_NYSTROM) || defined(LINATTN_NO_EXACT)
#define LINATTN__HAS_NYSTROM 0
#else
#define LINATTN__HAS_NYSTROM 1
#endif
#ifdef LINATTN_NO_MAPS
#define LINATTN__HAS_MAPS 0
#else
#define LINATTN__HAS_MAPS 1
#endif
#ifdef LINATTN_NO_RANDOM
#define LINATTN__HAS_RANDOM 0
#else
#define LINATTN__HAS_RANDOM 1
#endif

/* Maps with exponents; those whose sums may cancel; and which map it is, known at compile time
   where there is one. */
#define LINATTN__HAS_EXP (LINATTN__HAS_MAP_EXP || LINATTN__HAS_SOFTMAX || LINATTN__FAVOR)
#define LINATTN__HAS_SIGNED                                                                        \
    (LINATTN__HAS_IDENTITY || LINATTN__HAS_UNIT || LINATTN__TAYLOR || LINATTN__EXPDEF)
#define LINATTN__HAS_FLOOR /* windows pass keys that are mapped already through relu */            \
    (LINATTN__HAS_RELU || LINATTN__HAS_SIGNED || LINATTN__HAS_WINDOW)
#define LINATTN__IS_EXP(map) (LINATTN__HAS_EXP && (map) == LINATTN_MAP_EXP)
#define LINATTN__IS_SIGNED(map) (LINATTN__HAS_SIGNED && (map) == LINATTN_MAP_IDENTITY)
#define LINATTN__IS_ELU1(map)                                                                      \
    (LINATTN__HAS_ELU1 && ((map) == LINATTN_MAP_ELU1 || !(LINATTN__HAS_FLOOR || LINATTN__HAS_EXP)))
#define LINATTN__MAPS                                                                              \
    ((unsigned)LINATTN__HAS_ELU1 << LINATTN_MAP_ELU1 |                                             \
     (unsigned)LINATTN__HAS_IDENTITY << LINATTN_MAP_IDENTITY |                                     \
     (unsigned)LINATTN__HAS_RELU << LINATTN_MAP_RELU |                                             \
     (unsigned)LINATTN__HAS_MAP_EXP << LINATTN_MAP_EXP |                                           \
     (unsigned)LINATTN__HAS_SOFTMAX << LINATTN_MAP_SOFTMAX |                                       \
     7u * LINATTN__FAVOR << LINATTN_MAP_FAVOR | (unsigned)LINATTN__TAYLOR << LINATTN_MAP_TAYLOR |  \
     (unsigned)LINATTN__EXPDEF << LINATTN_MAP_EXPDEF |                                             \
     (unsigned)LINATTN__HAS_UNIT << LINATTN_MAP_UNIT)

#if LINATTN__MSVC
#include <intrin.h>
#elif LINATTN__HAS_AVX512 || LINATTN__HAS_AVX2
#include <immintrin.h>
#elif LINATTN__HAS_SSE2
#include <emmintrin.h>
#endif
#if LINATTN__HAS_NEON || (LINATTN__ARM64 && LINATTN__MSVC)
#include <arm_neon.h>
#endif
#if LINATTN__HAS_SIMD128
#include <wasm_simd128.h>
#endif

#if LINATTN__GNU
#if LINATTN__TO_BE_SMALL && !defined(__FAST_MATH__)
#define LINATTN__INLINE static inline __attribute__((unused)) /* where that is smaller */
#elif defined(__clang__) && !defined(__OPTIMIZE__) /* a sixth of the code, a third of the time */
#define LINATTN__INLINE static inline __attribute__((unused))
#elif !defined(__OPTIMIZE__) /* nothrow: or g++ wants the C++ runtime; clang wants it with */
#define LINATTN__INLINE static inline __attribute__((unused, nothrow))
#elif defined(__clang__)
#define LINATTN__INLINE static inline __attribute__((always_inline, unused))
#else
#define LINATTN__INLINE static inline __attribute__((always_inline, unused, nothrow))
#endif
#ifdef __clang__
#define LINATTN__NOINLINE __attribute__((noinline, unused))
#else /* or gcc makes copies for the constants that it is called with */
#define LINATTN__NOINLINE __attribute__((noinline, noclone, unused))
#endif
#define LINATTN__UNUSED __attribute__((unused))
#define LINATTN__COLD __attribute__((cold)) /* not worth code: compiled for size */
/* Likewise what users call: gcc compiles it for size as what it calls first is cold, and does not
   take functions that call it for cold. */
#if defined(__clang__) || __GNUC__ < 8
#define LINATTN__ALONE LINATTN__COLD
#else
#define LINATTN__ALONE __attribute__((noipa))
#endif
#define LINATTN__WARM __attribute__((hot)) /* for speed, though only such functions call it */
#ifdef __clang__ /* whose loops, unrolled, are large code where gcc's are not */
#define LINATTN__SMALL __attribute__((minsize))
#else
#define LINATTN__SMALL
#endif
#define LINATTN__ANY_TYPE __attribute__((may_alias))
#elif LINATTN__MSVC
#define LINATTN__INLINE static __forceinline
#define LINATTN__NOINLINE __declspec(noinline)
#define LINATTN__UNUSED
#define LINATTN__SMALL
#define LINATTN__COLD
#define LINATTN__ALONE
#define LINATTN__WARM
#define LINATTN__ANY_TYPE
#else
#define LINATTN__INLINE static inline
#define LINATTN__NOINLINE
#define LINATTN__UNUSED
#define LINATTN__SMALL
#define LINATTN__COLD
#define LINATTN__ALONE
#define LINATTN__WARM
#define LINATTN__ANY_TYPE
#endif
/* Not inline, but a copy for what it is called with may be made. */
#if LINATTN__GNU
#define LINATTN__OPENING static __attribute__((noinline, unused))
#else
#define LINATTN__OPENING static LINATTN__NOINLINE
#endif
/* A function of its own for all who call it; where size counts, it may be inline in the only
   one. */
#if LINATTN__TO_BE_SMALL
#define LINATTN__SHARED static LINATTN__UNUSED
#else
#define LINATTN__SHARED static LINATTN__NOINLINE
#endif
/* Inline where speed is wanted rather than size. */
#if LINATTN__TO_BE_SMALL && !defined(__FAST_MATH__)
#define LINATTN__HOT static LINATTN__UNUSED
#else
#define LINATTN__HOT LINATTN__INLINE
#endif
#ifdef __cplusplus
#define LINATTN__C_LINKAGE extern "C"
#else
#define LINATTN__C_LINKAGE extern
#endif

#if LINATTN__GNU && (defined(__FMA__) || defined(__aarch64__) || defined(__FP_FAST_FMAF))
#define LINATTN__HARDWARE_FMA 1
#elif LINATTN__MSVC && (LINATTN__ARM64 || (LINATTN__X64 && defined(__AVX2__)))
#define LINATTN__HARDWARE_FMA 1
#else
#define LINATTN__HARDWARE_FMA 0
#endif
/* The instruction, for code that may have it. */
#if LINATTN__GNU
#define LINATTN__FMA(a, b, c) __builtin_fmaf(a, b, c)
#define LINATTN__DOUBLE_FMA(a, b, c) __builtin_fma(a, b, c)
#elif LINATTN__X64
#define LINATTN__FMA(a, b, c)                                                                      \
    _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)))
#define LINATTN__DOUBLE_FMA(a, b, c)                                                               \
    _mm_cvtsd_f64(_mm_fmadd_sd(_mm_set_sd(a), _mm_set_sd(b), _mm_set_sd(c)))
#elif LINATTN__ARM64
#define LINATTN__FMA(a, b, c)                                                                      \
    vgetq_lane_f32(vfmaq_f32(vdupq_n_f32(c), vdupq_n_f32(a), vdupq_n_f32(b)), 0)
#define LINATTN__DOUBLE_FMA(a, b, c)                                                               \
    vgetq_lane_f64(vfmaq_f64(vdupq_n_f64(c), vdupq_n_f64(a), vdupq_n_f64(b)), 0)
#endif

/* Loops over a tile's constant sizes must unroll before registers are assigned. */
#if defined(__clang__) && LINATTN__TO_BE_SMALL
#define LINATTN__UNROLL _Pragma("clang loop unroll(disable)")
#elif defined(__clang__)
#define LINATTN__UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__) && __GNUC__ >= 8
#define LINATTN__UNROLL _Pragma("GCC unroll 64")
#else
#define LINATTN__UNROLL
#endif

/* But clang unrolls short loops in a hot one, too, and spills what that one needs. */
#ifdef __clang__
#define LINATTN__ROLLED _Pragma("clang loop unroll(disable)")
#else
#define LINATTN__ROLLED
#endif

/* Fetch a cache line into L2, as L1 is full of the state, or into L1; no access, so any address
   will do. */
#if LINATTN__GNU
#define LINATTN__FETCH(p) __builtin_prefetch(p, 0, 2)
#define LINATTN__FETCH_NEAR(p) __builtin_prefetch(p, 0, 3)
#elif LINATTN__X64
#define LINATTN__FETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)
#define LINATTN__FETCH_NEAR(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#else
#define LINATTN__FETCH(p) ((void)(p))
#define LINATTN__FETCH_NEAR(p) ((void)(p))
#endif

/* Scratch that begins where a line of the cache does: where vectors of 64 bytes lie across two of
   them, calls take up to a tenth longer. Not on Windows, where gcc does not align the stack so;
   rules, which take up to a fifth longer, see to it themselves, by linattn__align. */
#if LINATTN__GNU && LINATTN__COUNT > LINATTN__HAS_SCALAR && !defined(_WIN32) && !defined(__CYGWIN__)
#define LINATTN__LINED __attribute__((aligned(64)))
#else
#define LINATTN__LINED
#endif

/* For a function that only fetches: compilers would else see no effect, and leave out its calls. */
#if LINATTN__GNU
#define LINATTN__EFFECT() __asm__ __volatile__("")
#else
#define LINATTN__EFFECT() ((void)0)
#endif

/* Hides where a pointer comes from: compilers would else turn several that a loop moves on into one
   and an index, which takes an instruction more in each access. */
#if LINATTN__GNU
#define LINATTN__OPAQUE(p) __asm__("" : "+r"(p))
#else
#define LINATTN__OPAQUE(p) ((void)(p))
#endif

/* The user's flags may have -ffast-math, which would fold x + c - c, contract products and sums,
   and delete tests for NaN. All code below is compiled without. clang can do that for some
   processors only. */
#if defined(__clang__) && (defined(__x86_64__) || defined(__i386__) ||                             \
                           (defined(__aarch64__) && __clang_major__ >= 16) ||                      \
                           (defined(__riscv) && __clang_major__ >= 19) ||                          \
                           (defined(__powerpc__) && __clang_major__ >= 15) ||                      \
                           (defined(__s390x__) && __clang_major__ >= 15))
#define LINATTN__FLOAT_CONTROL
#pragma float_control(precise, on, push)
#pragma clang fp contract(off)
#elif defined(__clang__)
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "this clang cannot undo -ffast-math for one header here: compile this file without it"
#endif
#if defined(__ARM_FEATURE_MVE) && __ARM_FEATURE_MVE & 2
#error "vectors of float flush to zero on this processor: compile this file with +nomve.fp"
#endif
#elif defined(__GNUC__)
#pragma GCC push_options
#if defined(__OPTIMIZE_SIZE__) && !LINATTN__TO_BE_SMALL
#pragma GCC optimize("O2", "ira-region=mixed") /* -Os: a tenth less code, 1.33 of the time */
#endif
#pragma GCC optimize("no-fast-math", "fp-contract=off")
/* a seventh of the time that compiling takes, and no difference to the code's speed */
#pragma GCC optimize("no-tree-vrp", "no-tree-dominator-opts")
#ifdef __x86_64__
#pragma GCC optimize("no-tree-bit-ccp") /* a twelfth of the time, likewise */
#if __GNUC__ >= 11
#pragma GCC optimize("no-ipa-modref") /* a hundredth of the time, and as much of the code */
#endif
/* or the upper halves of registers stay in use where kernels call scalar code, */
#pragma GCC optimize("no-ipa-ra")                       /* which then takes 100 ns more */
#pragma GCC optimize("align-jumps=1")                   /* a hundredth of the code */
#pragma GCC optimize("no-reorder-blocks-and-partition") /* half as much: parts have frames, too */
#endif
#if defined(__x86_64__) && LINATTN__COUNT > 1
/* Up to the random features no loop is faster for these passes: a twentieth of the time that
   compiling takes. The vectoriser of straight code is not among them: without it one token of a
   small state takes up to 1.1 of the time. */
#define LINATTN__BRIEF
#pragma GCC push_options
#pragma GCC optimize("no-schedule-insns2", "no-gcse", "no-tree-pta")
#pragma GCC optimize("align-functions=1") /* a three-hundredth of the code */
#endif
#if defined(__ARM_FEATURE_MVE) && __ARM_FEATURE_MVE & 2 /* its vectors flush to zero, always */
#pragma GCC optimize("no-tree-vectorize")
#endif
#pragma GCC diagnostic push /* gcc's own avx512fintrin.h has __m512 y = y; for "undefined" */
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#elif defined(_MSC_VER)
/* Contraction is a matter of its own. What /W4 warns of: constant conditions, functions that are
   not used or not inlined, values that may not be set, _ReadWriteBarrier. */
#pragma float_control(precise, on, push)
#pragma fp_contract(off)
#pragma warning(push)
#pragma warning(disable : 4127 4505 4701 4714 4996)
#endif

/* ---- Scalar arithmetic that all instruction sets share --------------------------------------- */

#define LINATTN__FLT_MIN 1.17549435e-38f
#define LINATTN__FLT_MAX 3.40282347e+38f
#define LINATTN__INF linattn__from_bits(0x7f800000u)
/* The least x whose e^x, by the polynomial in linattn_simd.h, is at least FLT_MIN; the largest
   whose e^x is finite. */
#define LINATTN__EXP_LOW (-87.3365402f)
#define LINATTN__EXP_HIGH 88.7228317f

/* The exponential maps: a contribution with exponent n is stored as p 2^(n - E - BIAS). E moves
   only when n exceeds it by more than HEADROOM, so moves are rare; BIAS keeps sums of 2^17
   values of 1e30 below FLT_MAX even so. Exponents saturate at +-2^21; LOWEST stands for "none
   yet". */
#define LINATTN__BIAS 20.0f
#define LINATTN__HEADROOM 8.0f
#define LINATTN__SATURATION 2097152.0
#define LINATTN__LOWEST (-4194304.0f)
#define LINATTN__LOG2E 1.4426950408889634
#define LINATTN__LN2 0.69314718055994531

LINATTN__INLINE float linattn__from_bits(uint32_t bits)
{
    union {
        uint32_t u;
        float f;
    } x;
    x.u = bits;
    return x.f;
}

LINATTN__INLINE uint32_t linattn__to_bits(float value)
{
    union {
        uint32_t u;
        float f;
    } x;
    x.f = value;
    return x.u;
}

#if LINATTN__HAS_HALF || LINATTN__HAS_EXACT
/* A 16-bit number as a float, exactly; a NaN's payload may change. */
LINATTN__INLINE float linattn__from_half(uint32_t half)
{
    const uint32_t sign = (half & 0x8000u) << 16;
    const uint32_t bits = (half & 0x7fffu) << 13; /* with an exponent that is 112 too small */
    if (bits >= 0x7c00u << 13) return linattn__from_bits(sign | 0x70000000u | bits);
    if (bits >= 0x0400u << 13) return linattn__from_bits(sign | (bits + (112u << 23)));
    return linattn__from_bits(
        sign | linattn__to_bits(linattn__from_bits(bits | (113u << 23)) - 6.10351562e-05f));
}
#endif

#if LINATTN__HAS_HALF
/* The bits of a float rounded to nearest even, as those of binary16. */
LINATTN__INLINE uint32_t linattn__to_f16(uint32_t bits)
{
    const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return sign | 0x7e00u;
    if (size >= 0x477ff000u) return sign | 0x7c00u; /* 65520 */
    if (size >= 0x38800000u) return sign | (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
    /* denormal: a multiple of 2^-24, as those of floats from 1/2 on are */
    return sign | (linattn__to_bits(linattn__from_bits(size) + 0.5f) - 0x3f000000u);
}

/* The same as those of a bfloat16, still in 32 bits: see la_round. */
LINATTN__INLINE uint32_t linattn__round_bf16(uint32_t bits)
{
    const uint32_t size = bits & 0x7fffffffu;
    const float coarse = 7.75481824e-26f; /* 1.5 * 2^-84 */
    if (size >= 0x7f800000u) return 0x7fc00000u;
    if (size >= 0x77800000u) return 0x7f800000u;
    if (size >= 0x0d800000u) return (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    return linattn__to_bits(linattn__from_bits(bits) + coarse - coarse);
}
#endif

/* 2^n for -126 <= n <= 127. */
LINATTN__INLINE float linattn__pow2(int n) { return linattn__from_bits((uint32_t)(n + 127) << 23); }

/* Where the compiler may not use the instruction, scalar code does where the CPU has it. */
#if LINATTN__X64 && !LINATTN__HARDWARE_FMA && LINATTN__HAS_SCALAR &&                               \
    !defined(LINATTN_NO_DISPATCH) && !defined(LINATTN_SCALAR_FAST)
#define LINATTN__CHOSEN_FMA 1
#else
#define LINATTN__CHOSEN_FMA 0
#endif

/* Alone and not small, scalar code is there twice, without and with the instruction. */
#if LINATTN__CHOSEN_FMA && LINATTN__COUNT == 1 && !LINATTN__TO_BE_SMALL
#define LINATTN__HAS_FUSED 1
#define LINATTN__ON_FUSED(code) code
#else
#define LINATTN__HAS_FUSED 0
#define LINATTN__ON_FUSED(code)
#endif

#if LINATTN__COUNT > 1 || LINATTN__CHOSEN_FMA
/* The one piece of global state: a linattn_isa, AUTO until one is needed or selected, whether the
   CPU has FMA, and marks of processors. */
#define LINATTN__FUSED 256
#define LINATTN__HALVED 512
#define LINATTN__NEAR 1024
#define LINATTN__CONTENDED 2048
#define LINATTN__INTEL 4096
#define LINATTN__MARKS (LINATTN__HALVED | LINATTN__NEAR | LINATTN__CONTENDED | LINATTN__INTEL)
#if LINATTN__GNU
static int linattn__chosen;
#else
static volatile long linattn__chosen;
#endif

LINATTN__INLINE int linattn__chosen_now(void)
{
#if LINATTN__GNU
    return __atomic_load_n(&linattn__chosen, __ATOMIC_RELAXED);
#else
    return (int)linattn__chosen;
#endif
}
#endif

/* a * b + c rounded once. */
#if LINATTN__HARDWARE_FMA
LINATTN__INLINE float linattn__fma(float a, float b, float c) { return LINATTN__FMA(a, b, c); }
#elif defined(LINATTN_SCALAR_FAST)
LINATTN__INLINE float linattn__fma(float a, float b, float c)
{
    const double product = (double)a * (double)b; /* exact */
    return (float)(product + (double)c);
}
#else
/* Without hardware: the product is exact in double. Where two floats are equally near to the sum,
   it ends in 28 zeros; any other is rounded rightly, whatever it has lost. There the sum's error is
   found by TwoSum and folded into its last bit (round to odd). Inline it would treble the code. */
static LINATTN__NOINLINE float linattn__fma(float a, float b, float c)
{
    double p, d;
    union {
        uint64_t u;
        double f;
    } s;
    double t, error;
#if LINATTN__CHOSEN_FMA
    if (linattn__chosen_now() & LINATTN__FUSED) {
#if LINATTN__GNU
        __asm__("vfmadd213ss %2, %1, %0" : "+x"(a) : "x"(b), "xm"(c));
        return a;
#else
        return LINATTN__FMA(a, b, c);
#endif
    }
#endif
    p = (double)a * (double)b;
    d = (double)c;
    s.f = p + d;
    if (s.u & 0xfffffff) return (float)s.f;
    t = s.f - p;
    error = (p - (s.f - t)) + (d - t);
    if (error != 0.0 && !(s.u & 1) && (s.u & 0x7ff0000000000000u) != 0x7ff0000000000000u)
        s.u += (error > 0.0) == (s.f > 0.0) ? 1u : ~(uint64_t)0;
    return (float)s.f;
}
#endif

#if LINATTN__HAS_NYSTROM
/* The same in double, for Nystroem's pseudo-inverse. Its operands are 0 or lie between 2^-400 and
   2^400 in size, so that no part of a product is lost. */
#if LINATTN__HARDWARE_FMA &&                                                                       \
    (LINATTN__MSVC || defined(__FMA__) || defined(__aarch64__) || defined(__FP_FAST_FMA))
LINATTN__INLINE double linattn__double_fma(double a, double b, double c)
{
    return LINATTN__DOUBLE_FMA(a, b, c);
}
#elif defined(LINATTN_SCALAR_FAST)
LINATTN__INLINE double linattn__double_fma(double a, double b, double c)
{
    const double product = a * b;
    return product + c;
}
#else
/* sum + term = the result + *error, exactly (Knuth's TwoSum). */
LINATTN__INLINE double linattn__double_sum(double sum, double term, double *error)
{
    const double total = sum + term, part = total - sum;
    *error = (sum - (total - part)) + (term - part);
    return total;
}

/* The product's error by Dekker, the sum of the three parts with the smaller two rounded to odd
   (Boldo and Melquiond 2008). */
static LINATTN__NOINLINE double linattn__exact_double_fma(double a, double b, double c)
{
    const double p = a * b, split_a = 134217729.0 * a, split_b = 134217729.0 * b;
    const double ah = split_a - (split_a - a), al = a - ah;
    const double bh = split_b - (split_b - b), bl = b - bh;
    const double low = (((ah * bh - p) + ah * bl) + al * bh) + al * bl;
    double t_low, v_low, error;
    const double t = linattn__double_sum(c, low, &t_low);
    const double v = linattn__double_sum(p, t, &v_low);
    union {
        uint64_t u;
        double f;
    } s;
    s.f = p + c;
    if ((s.u & 0x7ff0000000000000u) == 0x7ff0000000000000u) return s.f;
    s.f = linattn__double_sum(t_low, v_low, &error);
    if (error != 0.0 && !(s.u & 1)) s.u += (error > 0.0) == (s.f > 0.0) ? 1u : ~(uint64_t)0;
    return v + s.f;
}

static LINATTN__NOINLINE double linattn__double_fma(double a, double b, double c)
{
#if LINATTN__CHOSEN_FMA
    if (linattn__chosen_now() & LINATTN__FUSED) {
#if LINATTN__GNU
        __asm__("vfmadd213sd %2, %1, %0" : "+x"(a) : "x"(b), "xm"(c));
        return a;
#else
        return LINATTN__DOUBLE_FMA(a, b, c);
#endif
    }
#endif
    return linattn__exact_double_fma(a, b, c);
}
#endif
#endif

LINATTN__INLINE float linattn__clamp(float x)
{
    if (x > LINATTN__FLT_MAX) x = LINATTN__FLT_MAX;
    if (x < -LINATTN__FLT_MAX) x = -LINATTN__FLT_MAX;
    return x;
}

/* x, 0 where it is below FLT_MIN in size. */
LINATTN__INLINE float linattn__flush(float x)
{
    if (x < LINATTN__FLT_MIN && x > -LINATTN__FLT_MIN) x = 0.0f;
    return x;
}

/* 1 / x, 0 for 0, never infinite. */
LINATTN__INLINE float linattn__inverse(float x)
{
    if (x == 0.0f) return 0.0f;
    return linattn__clamp(1.0f / x);
}

/* The exponent of the size of a float's bits, 0 for what has none. (Not inlined: for Cortex-M55 gcc
   would make a conversion under a condition, which its assembler misreads.) */
static LINATTN__NOINLINE float linattn__exponent_of(uint32_t bits)
{
    const int exponent = (int)(bits >> 23 & 0xff);
    return (float)(exponent == 0 || exponent == 0xff ? 0 : exponent - 127);
}

/* 2^delta, delta <= 0, as two factors that are in range; rescale applies them. */
LINATTN__INLINE void linattn__two_factors(float delta, float *factor)
{
    if (delta > -250.0f) {
        const int n = (int)delta, first = n < -125 ? -125 : n;
        factor[0] = linattn__pow2(first);
        factor[1] = linattn__pow2(n - first);
    } else {
        factor[0] = factor[1] = 0.0f;
    }
}

LINATTN__INLINE float linattn__rescale(float x, const float *factor)
{
    return linattn__flush(x * factor[0] * factor[1]);
}

/* Where features come from: the operands as they are, a projection of them, or their monomials.
   The map then acts on each by itself. */
#define LINATTN__DIRECT 0
#define LINATTN__PROJECTED 1
#define LINATTN__MONOMIALS 2
#define LINATTN__UNIT 3                            /* or divided by their norms */
#define LINATTN__MAP_POSITIVE LINATTN_MAP_COUNT    /* x, as the identity, but sums do not cancel */
#define LINATTN__MAP_POWER (LINATTN_MAP_COUNT + 1) /* e^x without exponents: sums in range */

/* Does the map act on the operands as they are, or divided by their norms? */
LINATTN__INLINE int linattn__is_direct(int source)
{
    return source == LINATTN__DIRECT || source == LINATTN__UNIT;
}

typedef struct linattn__params {
    int map;    /* SOFTMAX is EXP here, and `softmax` is set; what favor and taylor end with */
    int source; /* DIRECT, PROJECTED or MONOMIALS */
    int norm;   /* never DEFAULT; not beside map, which it is compared with: see linattn__span */
    int softmax;
#if LINATTN__HAS_FEATURES
    int lowered;       /* projected: |x'|^2/2 is subtracted */
    size_t signs;      /* not 0: feature `signs` + i is projected as i is, with the other sign */
    size_t degree;     /* of monomials */
    float source_root; /* sqrt(s) where it acts before the features are made */
#endif
    float epsilon;
    float root; /* sqrt(s), with root_low its rounding error */
    float root_low;
    float rate;         /* sqrt(s) log2(e) */
    float limit;        /* |x| at which exponents saturate */
    float cell, margin; /* E moves when x > E * cell + margin */
    float floor;        /* phi(x) = max(x', floor): 0 for relu, -inf for the identity */
    float rest;         /* factor of phi(q) phi(k) that goes to the output: of favor 1/m; of the */
    float rest_root;    /* identity s / root^2, so that root is a power of two and phi exact */
} linattn__params;

/* clang from 16 on, under -ffast-math, takes what floating-point parameters and results hold to be
   finite, whatever the pragmas say: a float that may be inf or NaN crosses into a function that is
   not inlined behind a pointer. */

/* *at *= 2^n, saturating at +-FLT_MAX, 0 below FLT_MIN. */
static void linattn__saturating_ldexp(float *at, float n)
{
    float x = *at;
    int i;
    for (i = 0; i < 3 && n > 0.0f; i++) {
        const float step = n > 127.0f ? 127.0f : n;
        x = linattn__clamp(x * linattn__pow2((int)step));
        n = n - step;
    }
    for (i = 0; i < 3 && n < 0.0f; i++) {
        const float step = n < -126.0f ? -126.0f : n;
        x = x * linattn__pow2((int)step);
        n = n - step;
    }
    *at = linattn__flush(x);
}

#if LINATTN__HAS_SIGNED
/* *scale = 1 / sum, 0 for 0, never infinite. */
LINATTN__INLINE void linattn__cancelling(double sum, float *scale)
{
    sum = sum == 0.0 ? 0.0 : 1.0 / sum;
    if (sum > (double)LINATTN__FLT_MAX) sum = (double)LINATTN__FLT_MAX;
    if (sum < -(double)LINATTN__FLT_MAX) sum = -(double)LINATTN__FLT_MAX;
    *scale = (float)sum;
}
#endif

/* For 64 bits 32-bit x86 takes the 8087, which rounds, and traps, as the host likes. */
LINATTN__INLINE float linattn__count(uint64_t tokens)
{
#if defined(__i386__) || defined(_M_IX86)
    const double high = (double)(uint32_t)(tokens >> 32);
    return (float)(high * 4294967296.0 + (double)(uint32_t)tokens); /* the product is exact */
#else
    return (float)tokens;
#endif
}

/* What the read-out of one query is multiplied by: *scale 2^power. The true denominator is
   den 2^(top + BIAS) for the exponential maps; a softmax query is also divided by
   mass 2^mass_top. */
static void linattn__factor(const linattn__params *p, const float *den, float top,
                            const float *mass, float mass_top, uint64_t seen, float *scale,
                            float *power)
{
    const int exponents = LINATTN__IS_EXP(p->map);
    if (p->norm == LINATTN_NORM_SUM) {
        float epsilon = p->softmax ? p->epsilon * *mass : p->epsilon;
        if (exponents) linattn__saturating_ldexp(&epsilon, mass_top - top - LINATTN__BIAS);
        *scale = linattn__inverse(*den + epsilon);
        return;
    }
    if (p->norm == LINATTN_NORM_FEATURE) {
        *scale = p->softmax ? linattn__inverse(*den) : p->rest_root;
        if (exponents && !p->softmax) *power = top;
        return;
    }
    *scale = p->rest;
    if (p->norm == LINATTN_NORM_LENGTH) *scale = seen ? p->rest / linattn__count(seen) : 0.0f;
    if (exponents) *power = top + LINATTN__BIAS;
    if (p->softmax) {
        *scale = *scale * linattn__inverse(*mass);
        *power = *power - mass_top;
    }
}

/* Is this key a masked token, all -inf? The first component decides for almost all. */
LINATTN__INLINE int linattn__masked(const float *key, size_t m)
{
    size_t f;
    for (f = 0; f < m; f++)
        if (!(key[f] < -LINATTN__FLT_MAX)) return 0;
    return 1;
}

/* ---- Instruction sets ------------------------------------------------------------------------ */

/* Kernels are declared before the functions that reach them, and defined at the end of this file,
   once per instruction set, with its name as suffix. A verb asks for its own by LINATTN__KERNEL, so
   that a program holds those of the verbs that it calls and no others. */
#if LINATTN__HAS_AVX512
#define LINATTN__ON_AVX512(code) code
#else
#define LINATTN__ON_AVX512(code)
#endif
#if LINATTN__HAS_AVX2
#define LINATTN__ON_AVX2(code) code
#else
#define LINATTN__ON_AVX2(code)
#endif
#if LINATTN__HAS_NEON
#define LINATTN__ON_NEON(code) code
#else
#define LINATTN__ON_NEON(code)
#endif
#if LINATTN__HAS_RELAXED
#define LINATTN__ON_RELAXED(code) code
#else
#define LINATTN__ON_RELAXED(code)
#endif
#if LINATTN__HAS_SSE2
#define LINATTN__ON_SSE2(code) code
#else
#define LINATTN__ON_SSE2(code)
#endif
#if LINATTN__HAS_SIMD128
#define LINATTN__ON_SIMD128(code) code
#else
#define LINATTN__ON_SIMD128(code)
#endif
#if LINATTN__HAS_SCALAR
#define LINATTN__ON_SCALAR(code) code
#else
#define LINATTN__ON_SCALAR(code)
#endif

#define LINATTN__DECLARE(type, name)                                                               \
    LINATTN__ON_AVX512(static type linattn__##name##_avx512;)                                      \
    LINATTN__ON_AVX2(static type linattn__##name##_avx2;)                                          \
    LINATTN__ON_NEON(static type linattn__##name##_neon;)                                          \
    LINATTN__ON_RELAXED(static type linattn__##name##_relaxed;)                                    \
    LINATTN__ON_SIMD128(static type linattn__##name##_simd128;)                                    \
    LINATTN__ON_SSE2(static type linattn__##name##_sse2;)                                          \
    LINATTN__ON_SCALAR(static type linattn__##name##_scalar;)                                      \
    LINATTN__ON_FUSED(static type linattn__##name##_fused;)

#if LINATTN__HAS_FUSED
#define LINATTN__KERNEL(name)                                                                      \
    (linattn__fused() ? linattn__##name##_fused : linattn__##name##_scalar)
#elif LINATTN__COUNT == 1 && LINATTN__CHOSEN_FMA
#define LINATTN__KERNEL(name) (linattn__isa(), linattn__##name##_scalar)
#elif LINATTN__COUNT == 1 /* direct calls */
#define LINATTN__KERNEL(name)                                                                      \
    LINATTN__ON_AVX512(linattn__##name##_avx512)                                                   \
    LINATTN__ON_AVX2(linattn__##name##_avx2)                                                       \
    LINATTN__ON_NEON(linattn__##name##_neon)                                                       \
    LINATTN__ON_SIMD128(linattn__##name##_simd128)                                                 \
    LINATTN__ON_SSE2(linattn__##name##_sse2)                                                       \
    LINATTN__ON_SCALAR(linattn__##name##_scalar)
#else
#define LINATTN__KERNEL(name) LINATTN__KERNEL_OF(linattn__isa(), name)
#define LINATTN__KERNEL_OF(isa, name)                                                              \
    (LINATTN__ON_AVX512((isa) == LINATTN__ISA_AVX512 ? linattn__##name##_avx512 :)                 \
         LINATTN__ON_AVX2((isa) == LINATTN__ISA_AVX2 ? linattn__##name##_avx2 :) LINATTN__ON_NEON( \
             (isa) == LINATTN__ISA_NEON ? linattn__##name##_neon :)                                \
             LINATTN__ON_RELAXED((isa) == LINATTN__ISA_RELAXED ? linattn__##name##_relaxed :)      \
                 LINATTN__ON_SIMD128((isa) == LINATTN__ISA_SIMD128 ? linattn__##name##_simd128 :)  \
                     LINATTN__ON_SSE2((isa) == LINATTN__ISA_SSE2 ? linattn__##name##_sse2 :)       \
                         linattn__##name##_scalar)
#endif

/* What AVX-512 has in common with AVX2. */
#if LINATTN__BOTH
#define LINATTN__DECLARE_COMMON(type, name)                                                        \
    static type linattn__##name##_avx2;                                                            \
    static type linattn__##name##_scalar;
#define LINATTN__COMMON(name)                                                                      \
    (linattn__isa() == LINATTN__ISA_SCALAR ? linattn__##name##_scalar : linattn__##name##_avx2)
/* And what all three have. */
#define LINATTN__DECLARE_ONE(type, name) static type linattn__##name##_scalar;
#define LINATTN__ONE(name) linattn__##name##_scalar
/* 0, 1 or 2 for the three, in this order, as the numbers of their sets are 1, 3 and 4. */
#define LINATTN__SET() ((int)linattn__isa() >> 1)
#define LINATTN__TAKES_AVX2(span) ((span)->set == 1)
#define LINATTN__TAKES_VECTORS(span) ((span)->set > 0)
#else
#define LINATTN__TAKES_AVX2(span) ((void)(span), linattn__isa() == LINATTN__ISA_AVX2)
#define LINATTN__TAKES_VECTORS(span) ((void)(span), linattn__isa() != LINATTN__ISA_SCALAR)
#define LINATTN__DECLARE_COMMON(type, name) LINATTN__DECLARE(type, name)
#define LINATTN__COMMON(name) LINATTN__KERNEL(name)
#define LINATTN__DECLARE_ONE(type, name) LINATTN__DECLARE(type, name)
#define LINATTN__ONE(name) LINATTN__KERNEL(name)
#endif

#if (LINATTN__HAS_AVX512 + LINATTN__HAS_AVX2 && !defined(LINATTN_NO_DISPATCH)) ||                  \
    LINATTN__CHOSEN_FMA
#if LINATTN__MSVC
static void linattn__cpuid(uint32_t leaf, uint32_t *regs)
{
    int found[4], i;
    __cpuidex(found, (int)leaf, 0);
    for (i = 0; i < 4; i++) regs[i] = (uint32_t)found[i];
}

static uint32_t linattn__xgetbv(void) { return (uint32_t)_xgetbv(0); }
#else
static void linattn__cpuid(uint32_t leaf, uint32_t *regs)
{
    __asm__ __volatile__("cpuid"
                         : "=a"(regs[0]), "=b"(regs[1]), "=c"(regs[2]), "=d"(regs[3])
                         : "a"(leaf), "c"(0));
}

/* The registers that the operating system saves, XCR0. */
static uint32_t linattn__xgetbv(void)
{
    uint32_t low, high;
    __asm__ __volatile__(".byte 0x0f, 0x01, 0xd0" /* xgetbv, for assemblers that lack it */
                         : "=a"(low), "=d"(high)
                         : "c"(0));
    return low;
}
#endif

/* The instruction sets, one bit each, and marks of processors. LINATTN__HALVED: of those with
   AVX-512 Zen 4 is the only family 25. LINATTN__NEAR: Zen 5. LINATTN__CONTENDED: Zen 3, which is of
   Zen 4's family. LINATTN__INTEL: family 6 is no one else's. */
LINATTN__COLD static unsigned linattn__detect(void)
{
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    const uint32_t need = fma | osxsave | avx | f16c; /* all that have AVX2 have F16C */
    const uint32_t avx2 = 1u << 5, avx512f = 1u << 16;
    uint32_t r[4], saved, family, zen4;
    unsigned set = 1u << LINATTN_ISA_SCALAR | 1u << LINATTN_ISA_SSE2;
    linattn__cpuid(0, r);
    if (r[0] < 7) return set;
    linattn__cpuid(1, r);
    if ((r[2] & need) != need) return set;
#ifdef LINATTN__FAMILY /* tests' word for the processor that kernels are chosen by */
    family = LINATTN__FAMILY;
#else
    family = (r[0] >> 8 & 15) + (r[0] >> 20 & 255);
#endif
    saved = linattn__xgetbv();
    linattn__cpuid(7, r);
    if ((saved & 0x06) != 0x06 || !(r[1] & avx2)) return set;
    set |= 1u << LINATTN_ISA_AVX2;
    if ((saved & 0xe6) == 0xe6 && (r[1] & avx512f)) set |= 1u << LINATTN_ISA_AVX512;
#ifdef LINATTN__FAMILY /* both kinds of family 25 at once: their marks are about other kernels */
    zen4 = 0;
#else
    zen4 = r[1] & avx512f;
#endif
    if (family == 25) set |= LINATTN__HALVED;
    if (family == 25 && !zen4) set |= LINATTN__CONTENDED;
    if (family == 26) set |= LINATTN__NEAR;
    if (family == 6) set |= LINATTN__INTEL;
    return set;
}
#elif LINATTN__HAS_RELAXED
/* (1 + 2^-12)^2 - 1 - 2^-11 is 2^-24, and 0 where the product is rounded; in double likewise. An
   engine keeps to what it does once. */
LINATTN__COLD static unsigned linattn__detect(void)
{
    const volatile float a = 1.000244140625f, c = -1.00048828125f;
    const volatile double b = 1.00000000023283064365386962890625, d = -1.0000000004656612873077393;
    const v128_t x = wasm_f32x4_splat(a), y = wasm_f64x2_splat(b);
    const v128_t s = wasm_f32x4_relaxed_madd(x, x, wasm_f32x4_splat(c));
    const v128_t t = wasm_f64x2_relaxed_madd(y, y, wasm_f64x2_splat(d));
    const int once = wasm_v128_any_true(s) && wasm_v128_any_true(t);
    return once ? ~0u : ~(1u << LINATTN_ISA_RELAXED);
}
#else
LINATTN__COLD static unsigned linattn__detect(void) { return ~0u; }
#endif

LINATTN__ALONE LINATTN_API unsigned linattn_isa_compiled(void)
{
    return (unsigned)LINATTN__HAS_AVX512 << LINATTN_ISA_AVX512 |
           (unsigned)LINATTN__HAS_AVX2 << LINATTN_ISA_AVX2 |
           (unsigned)LINATTN__HAS_NEON << LINATTN_ISA_NEON |
           (unsigned)LINATTN__HAS_RELAXED << LINATTN_ISA_RELAXED |
           (unsigned)LINATTN__HAS_SIMD128 << LINATTN_ISA_SIMD128 |
           (unsigned)LINATTN__HAS_SSE2 << LINATTN_ISA_SSE2 |
           (unsigned)LINATTN__HAS_SCALAR << LINATTN_ISA_SCALAR;
}

LINATTN__ALONE LINATTN_API unsigned linattn_isa_available(void)
{
    return linattn_isa_compiled() & linattn__detect();
}

#if LINATTN__COUNT > 1 || LINATTN__CHOSEN_FMA
/* The one that is asked for, or the best, with the mark of FMA; AUTO if there is none. */
LINATTN__COLD static int linattn__find(linattn_isa isa)
{
    static const unsigned char best_first[] = {
        LINATTN__ISA_AVX512,  LINATTN__ISA_AVX2, LINATTN__ISA_NEON,  LINATTN__ISA_RELAXED,
        LINATTN__ISA_SIMD128, LINATTN__ISA_SSE2, LINATTN__ISA_SCALAR};
    const unsigned detected = linattn__detect(), available = linattn_isa_compiled() & detected;
    const int fused = detected >> LINATTN__ISA_AVX2 & 1u ? LINATTN__FUSED : 0;
    const int marks = fused | (int)(detected & LINATTN__MARKS);
    size_t i;
    for (i = 0; i < sizeof best_first; i++)
        if ((available >> best_first[i] & 1u) &&
            (isa == LINATTN_ISA_AUTO || (int)isa == best_first[i]))
            return best_first[i] | marks;
    return LINATTN_ISA_AUTO;
}

/* A build without scalar code (NO_AVX2 and the like keep it) cannot get here, so find succeeds. */
LINATTN__COLD static LINATTN__NOINLINE int linattn__choose(void)
{
    const int found = linattn__find(LINATTN_ISA_AUTO);
    int before = LINATTN_ISA_AUTO; /* a select that came first wins */
#if LINATTN__GNU
    __atomic_compare_exchange_n(&linattn__chosen, &before, found, 0, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
#else
    before = (int)_InterlockedCompareExchange(&linattn__chosen, found, before);
#endif
    return before == LINATTN_ISA_AUTO ? found : before;
}

LINATTN__INLINE int linattn__isa(void)
{
    int found = linattn__chosen_now();
    if (found == LINATTN_ISA_AUTO) found = linattn__choose();
    return found & (LINATTN__FUSED - 1);
}

/* For kernels of AVX-512, by which the choice is made: does a row that is stored to four panels,
   a vector each, take longer than in two goes of two panels? On Zen 4 14 cycles, where these take
   11; on Intel's processors tiles of four vectors are the faster ones. */
LINATTN__INLINE int linattn__halved(void) { return linattn__chosen_now() & LINATTN__HALVED; }

#if LINATTN__BOTH
/* On Zen 4: are AVX2's tiles, which are a panel wide, faster for so many columns than tiles of two
   panels, of which one is left? 16 columns in 16 bits take .7 of the time, 40 in floats .93. */
LINATTN__INLINE int linattn__narrow(size_t dv) { return (dv - 1) % 32 < 16 && dv <= 112; }
#endif

/* Are fetches dropped that no buffer is free for? On Zen 4 and Zen 3: what comes from beyond L3 is
   to be asked for more than once. But Zen 3's hardware keeps up with the panels of states that
   follow one another: fetched in several tiles they take up to 1.2 of the time. */
LINATTN__INLINE int linattn__drops(void) { return linattn__halved(); }

/* Does a fetch into L1 take less time than one into L2, whatever is in L1? On Zen 5, where one into
   L2 makes decode steps a tenth slower in L3, and states from beyond it come fastest line by line
   with no more than one panel under way: .6 of the time of tiles of four. Nor are the tiles of
   causal that have four vectors worth it there: they are 8 % slower. */
LINATTN__INLINE int linattn__near(void) { return linattn__chosen_now() & LINATTN__NEAR; }

/* For kernels of AVX2: do stores take turns with fused multiply-adds whose addend has waited in the
   file of registers? On Zen 3: 12 with two stores take 7.9 cycles rather than 6, with four 9.3, but
   8 with two 4, as each then goes on from its own result as soon as that is there. */
LINATTN__INLINE int linattn__contended(void) { return linattn__chosen_now() & LINATTN__CONTENDED; }

/* Does hardware keep up with few streams from memory by itself? On Intel's processors, where
   fetches make queries alone a tenth slower. */
LINATTN__INLINE int linattn__intel(void) { return linattn__chosen_now() & LINATTN__INTEL; }

#if LINATTN__HAS_FUSED
static int linattn__fused(void)
{
    (void)linattn__isa();
    return linattn__chosen_now() & LINATTN__FUSED;
}
#endif

LINATTN__ALONE LINATTN_API linattn_status linattn_isa_select(linattn_isa isa)
{
    const int found = linattn__find(isa);
    if (found == LINATTN_ISA_AUTO) return LINATTN_ERROR_ISA;
#if LINATTN__GNU
    __atomic_store_n(&linattn__chosen, found, __ATOMIC_RELAXED);
#else
    linattn__chosen = found;
#endif
    return LINATTN_OK;
}
#else
LINATTN__INLINE int linattn__isa(void)
{
    return LINATTN__ON_AVX512(LINATTN__ISA_AVX512) LINATTN__ON_AVX2(LINATTN__ISA_AVX2)
        LINATTN__ON_NEON(LINATTN__ISA_NEON) LINATTN__ON_SIMD128(LINATTN__ISA_SIMD128)
            LINATTN__ON_SSE2(LINATTN__ISA_SSE2) LINATTN__ON_SCALAR(LINATTN__ISA_SCALAR);
}

LINATTN__INLINE int linattn__halved(void) { return 0; }
LINATTN__INLINE int linattn__drops(void) { return 0; }
LINATTN__INLINE int linattn__near(void) { return 0; }
LINATTN__INLINE int linattn__contended(void) { return 0; }
LINATTN__INLINE int linattn__intel(void) { return 0; }

LINATTN__ALONE LINATTN_API linattn_status linattn_isa_select(linattn_isa isa)
{
    return isa == LINATTN_ISA_AUTO || (int)isa == linattn__isa() ? LINATTN_OK : LINATTN_ERROR_ISA;
}
#endif

LINATTN__INLINE void linattn__fetch(const float *p, int into_l1)
{
    if (into_l1)
        LINATTN__FETCH_NEAR(p);
    else
        LINATTN__FETCH(p);
}

LINATTN_API linattn_isa linattn_isa_active(void)
{
    const int isa = linattn__isa();
    return (linattn_isa)isa;
}

LINATTN__ALONE LINATTN_API const char *linattn_isa_name(linattn_isa isa)
{
    switch (isa) {
    case LINATTN_ISA_AUTO: return "auto";
    case LINATTN_ISA_SCALAR: return "scalar";
    case LINATTN_ISA_NEON: return "neon";
    case LINATTN_ISA_AVX2: return "avx2";
    case LINATTN_ISA_AVX512: return "avx512";
    case LINATTN_ISA_SIMD128: return "simd128";
    case LINATTN_ISA_RELAXED: return "relaxed";
    case LINATTN_ISA_SSE2: return "sse2";
    case LINATTN_ISA_COUNT:
    default: return "unknown";
    }
}

LINATTN__ALONE LINATTN_API const char *linattn_status_string(linattn_status status)
{
    switch (status) {
    case LINATTN_OK: return "success";
    case LINATTN_ERROR_NULL: return "a required pointer is null";
    case LINATTN_ERROR_SIZE: return "a size is zero, too large, or overflows";
    case LINATTN_ERROR_CONFIG:
        return "a field of the config is outside its range: linattn_config_error says which";
    case LINATTN_ERROR_OVERLAP: return "the output overlaps itself, an input or the state";
    case LINATTN_ERROR_WORKSPACE: return "the workspace or state memory is too small";
    case LINATTN_ERROR_ALIGNMENT: return "the state is not aligned to 4 bytes";
    case LINATTN_ERROR_STATE: return "not a state of this config and version";
    case LINATTN_ERROR_UNSUPPORTED: return "this combination is not supported";
    case LINATTN_ERROR_ISA: return "the instruction set is not available";
    case LINATTN_ERROR_DECAY: return "gates.decay: the rule needs one, or takes none of that kind";
    case LINATTN_ERROR_BETA: return "gates.beta: the rule needs one, or takes none";
    case LINATTN_ERROR_READ_WRITE:
        return "gates.read and write: the rule needs them, or takes none";
    case LINATTN_ERROR_BONUS: return "gates.bonus: the rule takes none";
    case LINATTN_ERROR_INPUT_GATE: return "gates.input: the rule needs one, or takes none";
    case LINATTN_ERROR_ELEMENT:
        return "a view's elements are of no type, or of 16 bits in rows that are too long";
    default: return "unknown status";
    }
}

/* ---- The floating-point environment ---------------------------------------------------------- */

/* Round to nearest, no flushing, nothing traps: on every machine the same. Restored at exit with
   the sticky flags. At entry it is read anyway, and written only where it differs; at exit a write
   alone is the shorter on x86-64 (by 6 ns on Zen 4) and aarch64. The memory clobbers keep
   arithmetic, whose operands come from memory, on its side. */
#if LINATTN__ARM64
#if LINATTN__GNU
#define LINATTN__FP_GET(x, name) __asm__ __volatile__("mrs %0, " #name : "=r"(x) : : "memory")
#define LINATTN__FP_SET(x, name) __asm__ __volatile__("msr " #name ", %0" : : "r"(x) : "memory")
#else /* by the number that its encoding has */
#define LINATTN__FP_fpcr 0x5a20
#define LINATTN__FP_fpsr 0x5a21
#define LINATTN__FP_GET(x, name)                                                                   \
    ((x) = (uint64_t)_ReadStatusReg(LINATTN__FP_##name), _ReadWriteBarrier())
#define LINATTN__FP_SET(x, name)                                                                   \
    (_ReadWriteBarrier(), _WriteStatusReg(LINATTN__FP_##name, (int64_t)(x)), _ReadWriteBarrier())
#endif
typedef struct linattn__environment {
    uint64_t control, status;
} linattn__environment;
static linattn__environment linattn__enter(void)
{
    const uint64_t want = 0;
    linattn__environment now;
    LINATTN__FP_GET(now.control, fpcr);
    LINATTN__FP_GET(now.status, fpsr);
    if (now.control != want) LINATTN__FP_SET(want, fpcr);
    return now;
}
static void linattn__leave(linattn__environment before)
{
    if (before.control != 0) LINATTN__FP_SET(before.control, fpcr);
    LINATTN__FP_SET(before.status, fpsr);
}
#undef LINATTN__FP_fpcr
#undef LINATTN__FP_fpsr
#else
/* The other machines have one register for modes, traps and sticky flags. IEEE(x): x with the modes
   and traps that are wanted, and its flags. */
#if LINATTN__GNU && (defined(__x86_64__) || defined(__SSE__)) /* MXCSR */
#define LINATTN__FP_GET(x) __asm__ __volatile__("stmxcsr %0" : "=m"(x) : : "memory")
#define LINATTN__FP_SET(x) __asm__ __volatile__("ldmxcsr %0" : : "m"(x) : "memory")
#define LINATTN__FP_IEEE(x) (0x1f80u | ((x)&0x3fu))
#elif LINATTN__MSVC && (LINATTN__X64 || defined(_M_IX86))
#define LINATTN__FP_GET(x) ((x) = _mm_getcsr(), _ReadWriteBarrier())
#define LINATTN__FP_SET(x) (_ReadWriteBarrier(), _mm_setcsr(x), _ReadWriteBarrier())
#define LINATTN__FP_IEEE(x) (0x1f80u | ((x)&0x3fu))
#elif LINATTN__GNU && defined(__arm__) && defined(__ARM_FP) /* FPSCR */
#define LINATTN__FP_GET(x) __asm__ __volatile__("vmrs %0, fpscr" : "=r"(x) : : "memory")
#define LINATTN__FP_SET(x) __asm__ __volatile__("vmsr fpscr, %0" : : "r"(x) : "memory", "cc")
#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' /* LTPSIZE stays, for loops need it */
#define LINATTN__FP_IEEE(x) ((x)&0xf807009fu)
#else
#define LINATTN__FP_IEEE(x) ((x)&0xf800009fu)
#endif
#elif LINATTN__GNU && (defined(__riscv_flen) || defined(__riscv_zfinx)) /* fcsr */
#define LINATTN__FP_GET(x) __asm__ __volatile__("frcsr %0" : "=r"(x) : : "memory")
#define LINATTN__FP_SET(x) __asm__ __volatile__("fscsr %0" : : "r"(x) : "memory")
#define LINATTN__FP_IEEE(x) ((x)&0x1fu)
#elif LINATTN__GNU && defined(__mips_hard_float) && !defined(__mips16) /* FCSR */
#define LINATTN__FP_GET(x) __asm__ __volatile__("cfc1 %0, $31" : "=r"(x) : : "memory")
#define LINATTN__FP_SET(x) __asm__ __volatile__("ctc1 %0, $31" : : "r"(x) : "memory")
#define LINATTN__FP_IEEE(x) ((x) & ~0x01000f83u)
#elif LINATTN__GNU && defined(__s390x__) /* FPC */
#define LINATTN__FP_GET(x) __asm__ __volatile__("efpc %0" : "=d"(x) : : "memory")
#define LINATTN__FP_SET(x) __asm__ __volatile__("sfpc %0" : : "d"(x) : "memory")
#define LINATTN__FP_IEEE(x) ((x) & ~0xf8000007u)
#elif LINATTN__GNU && defined(__sparc__) && !defined(_SOFT_FLOAT) /* FSR */
#define LINATTN__FP_GET(x) __asm__ __volatile__("st %%fsr, %0" : "=m"(x) : : "memory")
#define LINATTN__FP_SET(x) __asm__ __volatile__("ld %0, %%fsr" : : "m"(x) : "memory")
#define LINATTN__FP_IEEE(x) ((x) & ~0xcfc00000u)
#elif LINATTN__GNU && defined(__powerpc__) && !defined(_SOFT_FLOAT) && !defined(__NO_FPRS__)
/* FPSCR, the lower half of what a register of floats takes */
typedef union linattn__fpscr {
    double in_register;
    uint64_t bits;
} linattn__fpscr;
#define LINATTN__FP_GET(x)                                                                         \
    do {                                                                                           \
        linattn__fpscr fpscr;                                                                      \
        __asm__ __volatile__("mffs %0" : "=f"(fpscr.in_register) : : "memory");                    \
        (x) = (uint32_t)fpscr.bits;                                                                \
    } while (0)
#define LINATTN__FP_SET(x)                                                                         \
    do {                                                                                           \
        linattn__fpscr fpscr;                                                                      \
        fpscr.bits = (x);                                                                          \
        __asm__ __volatile__("mtfsf 255, %0" : : "f"(fpscr.in_register) : "memory");               \
    } while (0)
#define LINATTN__FP_IEEE(x) ((x) & ~0xffu)
#else /* its default environment is taken to be IEEE's */
#define LINATTN__FP_GET(x) ((void)((x) = 0))
#define LINATTN__FP_SET(x) ((void)(x))
#define LINATTN__FP_IEEE(x) (x)
#endif
typedef uint32_t linattn__environment;
static linattn__environment linattn__enter(void)
{
    uint32_t now = 0, want; /* a sanitizer does not see what assembly writes */
    LINATTN__FP_GET(now);
    want = LINATTN__FP_IEEE(now);
    if (want != now) LINATTN__FP_SET(want);
    return now;
}
static void linattn__leave(linattn__environment before)
{
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__OPTIMIZE__) &&   \
    !defined(__AVX__)
    /* as gcc does at the end of kernels that it optimises */
    const int isa = linattn__isa();
    if (isa == LINATTN_ISA_AVX2 || isa == LINATTN_ISA_AVX512) __asm__ __volatile__("vzeroupper");
#endif
    uint32_t now = before;
#if LINATTN__X64
    /* AMD's processors write faster than they read: a tenth of a call at (4,4). Intel's begin no
       arithmetic before what was written is there, which is a tenth of a call at (16,16). */
    if (!linattn__intel()) {
        LINATTN__FP_SET(before);
        return;
    }
#endif
    LINATTN__FP_GET(now);
    if (before != now) LINATTN__FP_SET(before);
}
#undef LINATTN__FP_IEEE
#endif
#undef LINATTN__FP_GET
#undef LINATTN__FP_SET

/* ---- Operands -------------------------------------------------------------------------------- */

#define LINATTN__MAX_FLOATS (SIZE_MAX / 8) /* of one operand: offsets stay far from wrapping */

/* a * b, or SIZE_MAX where that exceeds LINATTN__MAX_FLOATS; SIZE_MAX passes through, but for 0. */
LINATTN__HOT size_t linattn__times(size_t a, size_t b)
{
#if LINATTN__GNU
    size_t product; /* without a division, as this runs in every decode step */
    return __builtin_mul_overflow(a, b, &product) || product > LINATTN__MAX_FLOATS ? SIZE_MAX
                                                                                   : product;
#else
    if (a == 0 || b == 0) return 0;
    return a > LINATTN__MAX_FLOATS || b > LINATTN__MAX_FLOATS / a ? SIZE_MAX : a * b;
#endif
}

LINATTN__HOT size_t linattn__plus(size_t a, size_t b)
{
    return a > LINATTN__MAX_FLOATS || b > LINATTN__MAX_FLOATS - a ? SIZE_MAX : a + b;
}

LINATTN__INLINE size_t linattn__round16(size_t x) { return (x + 15) / 16 * 16; }

static void linattn__copy(void *dst, const void *src, size_t bytes)
{
#ifdef LINATTN_FREESTANDING
    unsigned char *d = (unsigned char *)dst;
    const unsigned char *s = (const unsigned char *)src;
    size_t i;
    for (i = 0; i < bytes; i++) d[i] = s[i];
#else
    memcpy(dst, src, bytes);
#endif
}

/* Kernels call it, too: out of line, as small code would be slow to clear. */
static LINATTN__NOINLINE void linattn__zeros(float *to, size_t count)
{
#ifdef LINATTN_FREESTANDING
    size_t i;
    for (i = 0; i < count; i++) to[i] = 0.0f;
#else
    memset(to, 0, count * sizeof(float));
#endif
}

/* Workspaces may lie anywhere, and scratch: what is used starts at the next multiple of 64. */
#define LINATTN__ALIGNMENT 64

static void *linattn__align(void *workspace)
{
    const uintptr_t at = (uintptr_t)workspace;
    return (char *)workspace + (LINATTN__ALIGNMENT - at % LINATTN__ALIGNMENT) % LINATTN__ALIGNMENT;
}

/* A view with its default strides: what is repeated `count` times, `stride` floats apart, by
   sequence, token and head. A stride that is never walked is 0, but for that of the single head of
   one token, and its count may be unset. */
#define LINATTN__HEAD 0
#define LINATTN__SEQUENCE 1
#define LINATTN__TOKEN 2

typedef struct linattn__extent {
    const float *data;
    size_t bytes;                    /* that it spans */
    size_t count[3], stride[3], dim; /* in elements */
#if LINATTN__HAS_HALF
    int element;
#endif
} linattn__extent;

/* Any number of tokens and sequences, at any distance. */
LINATTN__COLD static LINATTN__NOINLINE linattn_status
linattn__read_tokens(linattn__extent *e, size_t head, size_t token, size_t sequence,
                     size_t sequences, size_t n, size_t heads)
{
    size_t floats = e->dim;
    if (heads == 1) e->stride[LINATTN__HEAD] = 0;
    if (!token) token = linattn__times(heads, head);
    if (!sequence) sequence = linattn__times(n, token);
    e->count[LINATTN__SEQUENCE] = sequences;
    e->count[LINATTN__TOKEN] = n;
    e->stride[LINATTN__SEQUENCE] = sequences > 1 ? sequence : 0;
    e->stride[LINATTN__TOKEN] = n > 1 ? token : 0;
    if (heads > 1) floats = linattn__plus(floats, linattn__times(heads - 1, head));
    if (n > 1) floats = linattn__plus(floats, linattn__times(n - 1, token));
    if (sequences > 1) floats = linattn__plus(floats, linattn__times(sequences - 1, sequence));
    e->bytes = 0;
    if (n == 0 || floats == 0) return LINATTN_OK;
    if (!e->data) return LINATTN_ERROR_NULL;
    if (floats == SIZE_MAX || (uintptr_t)e->data > UINTPTR_MAX - floats * sizeof(float))
        return LINATTN_ERROR_SIZE;
    e->bytes = floats * sizeof(float);
    return LINATTN_OK;
}

/* How far the heads of one token may lie apart so that nothing overflows; 0 for more than one. */
LINATTN__INLINE size_t linattn__reach(size_t sequences, size_t n)
{
    return (n ^ 1) | (sequences ^ 1) ? 0 : LINATTN__MAX_FLOATS / 2 / LINATTN_MAX_HEADS;
}

#if LINATTN__HAS_HALF
/* A view of 16-bit elements. */
LINATTN__COLD static linattn_status linattn__read_halves(linattn__extent *e,
                                                         const linattn_view *view, size_t sequences,
                                                         size_t n, size_t heads, size_t dim);
#endif

LINATTN__HOT linattn_status linattn__read_view(linattn__extent *e, const linattn_view *view,
                                               size_t sequences, size_t n, size_t heads, size_t dim)
{
    const size_t head = view->stride_head ? view->stride_head : dim;
    uintptr_t end;
#if LINATTN__HAS_HALF
    if (view->element != LINATTN_F32)
        return linattn__read_halves(e, view, sequences, n, heads, dim);
    e->element = LINATTN_F32;
#else
    if (view->element != LINATTN_F32) return LINATTN_ERROR_ELEMENT;
#endif
    e->data = view->data;
    e->dim = dim;
    e->count[LINATTN__HEAD] = heads;
    e->stride[LINATTN__HEAD] = head;
    if (head > linattn__reach(sequences, n))
        return linattn__read_tokens(e, head, view->stride_token, view->stride_sequence, sequences,
                                    n, heads);
    e->stride[LINATTN__SEQUENCE] = e->stride[LINATTN__TOKEN] = 0;
    e->bytes = (dim + (heads - 1) * head) * sizeof(float);
    end = (uintptr_t)e->data + e->bytes;
    if ((uintptr_t)e->data - 1 < end) return LINATTN_OK; /* neither null nor beyond the last byte */
    return e->data ? LINATTN_ERROR_SIZE : LINATTN_ERROR_NULL;
}

/* What elements are. Compilers know it where there is one type alone. */
#if LINATTN__HAS_HALF
#define LINATTN__TYPE(element) (element)
#else
#define LINATTN__TYPE(element) ((void)(element), (int)LINATTN_F32)
#endif
#define LINATTN__IS_HALF(element) (LINATTN__TYPE(element) != LINATTN_F32)

/* What lies `count` elements on. */
LINATTN__INLINE const float *linattn__beyond(const float *at, size_t count, int element)
{
    return (const float *)(const void *)((const char *)at +
                                         count * (LINATTN__IS_HALF(element) ? 2 : sizeof *at));
}

#if LINATTN__HAS_EXACT || LINATTN__HAS_COMPENSATED
/* Is element f of a key -inf? */
LINATTN__INLINE int linattn__lowest(const float *key, size_t f, int element)
{
    uint16_t half;
    if (!LINATTN__IS_HALF(element)) return key[f] < -LINATTN__FLT_MAX;
    linattn__copy(&half, linattn__beyond(key, f, element), sizeof half);
    return half == (element == LINATTN_F16 ? 0xfc00u : 0xff80u);
}

/* Is this key of any elements all -inf? */
LINATTN__COLD static int linattn__masked_row(const float *key, size_t d, int element)
{
    size_t f;
    for (f = 0; f < d; f++)
        if (!linattn__lowest(key, f, element)) return 0;
    return 1;
}
#endif

#if LINATTN__HAS_HALF
LINATTN__COLD static linattn_status linattn__read_halves(linattn__extent *e,
                                                         const linattn_view *view, size_t sequences,
                                                         size_t n, size_t heads, size_t dim)
{
    linattn_view plain = *view;
    linattn_status status;
    if ((unsigned)view->element >= LINATTN_ELEMENT_COUNT) return LINATTN_ERROR_ELEMENT;
    plain.element = LINATTN_F32;
    status = linattn__read_view(e, &plain, sequences, n, heads, dim);
    e->bytes = e->bytes / 2;
    e->element = (int)view->element;
    return status;
}
#endif

/* How many elements a float is. */
#if LINATTN__HAS_HALF
#define LINATTN__IN_FLOAT(e) ((e)->element == LINATTN_F32 ? (size_t)1 : (size_t)2)
#else
#define LINATTN__IN_FLOAT(e) ((size_t)1)
#endif

LINATTN__INLINE linattn_view linattn__view_of(linattn_output out)
{
    linattn_view view;
    view.data = out.data;
    view.stride_token = out.stride_token;
    view.stride_head = out.stride_head;
    view.stride_sequence = out.stride_sequence;
    view.element = LINATTN_F32;
    return view;
}

/* Differences of addresses wrap: one of the two is the distance, the other one is enormous. */
LINATTN__HOT int linattn__disjoint(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return (y - x >= a_bytes && x - y >= b_bytes) || a_bytes == 0 || b_bytes == 0;
}

/* Does a block of memory that the call writes or keeps lie apart from this operand? */
LINATTN__HOT int linattn__apart(const linattn__extent *e, const void *block, size_t bytes)
{
    return linattn__disjoint(e->data, e->bytes, block, bytes);
}

/* Do the rows of an output stay clear of one another? Each of the three repetitions must step over
   all that repeats in smaller steps. */
static int linattn__rows_apart(const linattn__extent *o)
{
    size_t span = o->dim, done = 0, round, i;
    if (o->bytes == 0) return 1;
    for (round = 0; round < 3; round++) {
        size_t next = 3;
        for (i = 0; i < 3; i++)
            if (o->stride[i] && o->count[i] > 1 && !(done >> i & 1) &&
                (next == 3 || o->stride[i] < o->stride[next]))
                next = i;
        if (next == 3) return 1;
        if (o->stride[next] < span) return 0;
        span += (o->count[next] - 1) * o->stride[next];
        done |= (size_t)1 << next;
    }
    return 1;
}

/* What an operand spans modulo `period`, in floats: what repeats in multiples of it adds none. */
static size_t linattn__folded(const linattn__extent *e, size_t period)
{
    const size_t each = LINATTN__IN_FLOAT(e);
    size_t span = e->dim;
    int i;
    for (i = 0; i < 3; i++)
        if (e->stride[i] % (period * each))
            span = linattn__plus(span, (e->count[i] - 1) * e->stride[i]);
    return span / each + span % each;
}

/* Both operands repeat with one period: does the input's part of it lie beside the output's? */
static int linattn__fold_apart(const linattn__extent *o, const linattn__extent *i, size_t period)
{
    const uintptr_t x = (uintptr_t)o->data, y = (uintptr_t)i->data;
    const uintptr_t bytes = (uintptr_t)period * sizeof(float);
    const size_t o_span = linattn__folded(o, period), i_span = linattn__folded(i, period);
    const uintptr_t ahead = y >= x ? (y - x) % bytes : (bytes - (x - y) % bytes) % bytes;
    return o_span <= period && i_span <= period && ahead >= o_span * sizeof(float) &&
           ahead + i_span * sizeof(float) <= bytes;
}

/* Slices of one interleaved buffer do not touch, whatever they are interleaved by. */
LINATTN__COLD static LINATTN__NOINLINE int linattn__interleaved(const linattn__extent *o,
                                                                const linattn__extent *i)
{
    int k;
    for (k = 0; k < 3; k++)
        if (o->stride[k] && o->stride[k] * LINATTN__IN_FLOAT(i) == i->stride[k] &&
            linattn__fold_apart(o, i, o->stride[k]))
            return 1;
    return 0;
}

/* Is the input clear of the output? */
LINATTN__HOT int linattn__clear_of(const linattn__extent *o, const linattn__extent *i)
{
    return linattn__apart(o, i->data, i->bytes) || linattn__interleaved(o, i);
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Does the context ask for threads without saying how? */
LINATTN__INLINE int linattn__cannot_thread(const linattn_context *context)
{
    return context && context->threads > 1 && !context->parallel_for;
}

LINATTN__INLINE size_t linattn__threads(const linattn_context *context, size_t items)
{
    const size_t most = context && context->parallel_for && context->threads ? context->threads : 1;
    return most < items ? most : items;
}

/* What parallel_for is given: jobs on other threads need the floating-point environment, too. */
typedef struct linattn__jobs {
    linattn_job *job;
    void *work;
} linattn__jobs;

static void linattn__threaded_job(void *arg, size_t index)
{
    const linattn__jobs *jobs = (const linattn__jobs *)arg;
    const linattn__environment environment = linattn__enter();
    jobs->job(jobs->work, index);
    linattn__leave(environment);
}

static void linattn__run_jobs(linattn_job *job, void *work, size_t count,
                              const linattn_context *context)
{
    linattn__jobs jobs;
    if (count <= 1) {
        job(work, 0);
        return;
    }
    jobs.job = job;
    jobs.work = work;
    context->parallel_for(context->user, count, linattn__threaded_job, &jobs);
}

/* Part `part` of `parts` of `count` things, in whole units. */
static void linattn__share(size_t count, size_t unit, size_t part, size_t parts, size_t *begin,
                           size_t *end)
{
    size_t units, each, more, b, e;
    *begin = 0;
    *end = count;
    if (parts == 1) return; /* which divisions would take time to find */
    units = (count + unit - 1) / unit;
    each = units / parts;
    more = units % parts;
    b = (part * each + (part < more ? part : more)) * unit;
    e = b + (each + (part < more ? 1 : 0)) * unit;
    *begin = b < count ? b : count;
    *end = e < count ? e : count;
}

/* ---- Configs --------------------------------------------------------------------------------- */

#define LINATTN__MAX_WINDOW 0x3fffffffu
#define LINATTN__MAX_FEATURES (4 * (size_t)LINATTN_MAX_DIM) /* the default's largest */
#define LINATTN__HEADER_BYTES 128                           /* of a state */
#define LINATTN__HEADER_FLOATS (LINATTN__HEADER_BYTES / sizeof(float))

/* What a config is refused for. linattn_config_error has the sentences. */
typedef enum linattn__refusal {
    LINATTN__REFUSED_CONFIG,
    LINATTN__REFUSED_NO_DIM_KEY,
    LINATTN__REFUSED_DIM_KEY,
    LINATTN__REFUSED_DIM_VALUE,
    LINATTN__REFUSED_HEADS,
    LINATTN__REFUSED_WINDOW,
    LINATTN__REFUSED_LANDMARKS,
    LINATTN__REFUSED_KV_HEADS,
    LINATTN__REFUSED_MAP,
    LINATTN__REFUSED_NORMALISER,
    LINATTN__REFUSED_SCALE,
    LINATTN__REFUSED_EPSILON,
    LINATTN__REFUSED_DEGREE,
    LINATTN__REFUSED_FEATURES,
    LINATTN__REFUSED_NO_PROJECTION,
    LINATTN__REFUSED_PROJECTION,
    LINATTN__REFUSED_LARGE_HEADS,
    LINATTN__REFUSED_LARGE_WINDOW,
    LINATTN__REFUSED_LARGE_DEGREE,
    LINATTN__REFUSED_LARGE_FEATURES,
    LINATTN__REFUSED_BUILD_MAP,
    LINATTN__REFUSED_BUILD_WINDOW,
    LINATTN__REFUSED_RULE,
    LINATTN__REFUSED_BUILD_RULE,
    LINATTN__REFUSED_RULE_MAP,
    LINATTN__REFUSED_RULE_WINDOW,
    LINATTN__REFUSED_RULE_NORMALISER,
    LINATTN__REFUSED_KEY_HEADS,
    LINATTN__REFUSED_KEY_HEADS_HEADS,
    LINATTN__REFUSED_KEY_HEADS_RULE,
    LINATTN__REFUSED_PRECISION,
    LINATTN__REFUSED_BUILD_PRECISION,
    LINATTN__REFUSED_PRECISION_RULE,
    LINATTN__REFUSED_SINKS,
    LINATTN__REFUSED_SOFT_CAP,
    LINATTN__REFUSED_SLOPES,
    LINATTN__REFUSED_EXACT_SINKS,
    LINATTN__REFUSED_EXACT_SOFT_CAP,
    LINATTN__REFUSED_EXACT_SLOPES,
    LINATTN__REFUSED_STATE_TYPE,
    LINATTN__REFUSED_BUILD_STATE_TYPE,
    LINATTN__REFUSED_STATE_TYPE_MAP,
    LINATTN__REFUSALS
} linattn__refusal;

/* A config with its defaults filled in. */
typedef struct linattn__shape {
    linattn__refusal refused; /* where reading it failed */
    size_t heads, kv_heads, group, d, m, dv;
    size_t key_group; /* states that read each head of q and k */
    int rule, map, norm, source;
#if LINATTN__HAS_COMPENSATED
    int precision;
#endif
#if LINATTN__HAS_HALF
    int element; /* of S */
#endif
    size_t features, degree; /* 0 where the map has none */
    float scale, epsilon;    /* scale 0: the verb's default */
    size_t window;           /* 0: none */
    size_t shared_floats;    /* what the heads share: projection or weights of monomials */
    size_t head_floats;      /* of the state of one key/value head */
    size_t state_bytes;      /* of the whole state, 0 if that overflows */
} linattn__shape;

/* Is it finite and not below zero? What is checked before linattn__enter is judged by its bits: the
   host may have NaN trap, or denormals count as zero. */
LINATTN__INLINE int linattn__not_negative(uint32_t bits)
{
    return bits < 0x7f800000u || bits == 0x80000000u;
}

static linattn_status linattn__refuse(linattn__shape *s, linattn__refusal why,
                                      linattn_status status)
{
    s->refused = why;
    return status;
}

/* What a method adds to configs, if it is compiled in. */
#if LINATTN__HAS_FEATURES
static linattn_status linattn__read_features(linattn__shape *s);
#endif
#if LINATTN__HAS_WINDOW
static size_t linattn__band_floats(const linattn__shape *s, size_t window);
#endif

/* Heads of queries; and of keys, where they are not those of values. */
LINATTN__INLINE size_t linattn__key_heads(const linattn__shape *s)
{
    return s->key_group > 1 ? s->kv_heads / s->key_group : s->kv_heads;
}

/* Are sizes far from an overflow? */
LINATTN__INLINE int linattn__is_small(const linattn__shape *s)
{
    return SIZE_MAX >> 31 >> 31 && s->source == LINATTN__DIRECT;
}

/* The floats of z, exponents and S in panels, of one head. */
LINATTN__INLINE size_t linattn__floats_of(size_t m, size_t dv)
{
    return 2 * linattn__round16(m) + m * linattn__round16(dv);
}
LINATTN__INLINE size_t linattn__sums_floats(const linattn__shape *s)
{
#if LINATTN__HAS_HALF
    if (s->element) /* two of S in each, up to the next line */
        return linattn__plus(2 * linattn__round16(s->m),
                             linattn__round16(linattn__times(s->m, linattn__round16(s->dv) / 2)));
#endif
    if (linattn__is_small(s)) return linattn__floats_of(s->m, s->dv);
    return linattn__plus(2 * linattn__round16(s->m), linattn__times(s->m, linattn__round16(s->dv)));
}

/* What a rule other than the sum adds to a head: see the recurrences. */
LINATTN__INLINE size_t linattn__rule_floats_of(size_t m, size_t dv)
{
    return 2 * linattn__round16(m) + 16 + linattn__round16(dv);
}
#if LINATTN__HAS_RECURRENT
static size_t linattn__rule_floats(const linattn__shape *s);
LINATTN__COLD static void linattn__clear_rule(float *head, size_t m16);
#endif

/* The floats of a head, and the bytes of the state. */
LINATTN__HOT void linattn__measure_state(linattn__shape *s, size_t window)
{
    size_t floats;
    s->head_floats = linattn__sums_floats(s);
#if LINATTN__HAS_RECURRENT
    if (s->rule) s->head_floats = linattn__plus(s->head_floats, linattn__rule_floats(s));
#endif
#if LINATTN__HAS_COMPENSATED
    if (s->precision) s->head_floats = linattn__plus(s->head_floats, s->head_floats);
#endif
#if LINATTN__HAS_WINDOW
    if (window) s->head_floats = linattn__band_floats(s, window);
#else
    (void)window;
#endif
    floats = s->kv_heads * s->head_floats + LINATTN__HEADER_FLOATS;
    if (!linattn__is_small(s) || window) {
        floats = linattn__plus(s->shared_floats, LINATTN__HEADER_FLOATS);
        floats = linattn__plus(linattn__times(s->kv_heads, s->head_floats), floats);
    }
    s->state_bytes = floats == SIZE_MAX ? 0 : floats * sizeof(float);
}

/* Which of them is none, or too large? */
LINATTN__COLD static linattn_status linattn__refuse_sizes(linattn__shape *s)
{
    linattn__refusal why = LINATTN__REFUSED_HEADS;
    if (s->dv > LINATTN_MAX_DIM) why = LINATTN__REFUSED_DIM_VALUE;
    if (s->d > LINATTN_MAX_DIM) why = LINATTN__REFUSED_DIM_KEY;
    if (s->d == 0) why = LINATTN__REFUSED_NO_DIM_KEY;
    return linattn__refuse(s, why, LINATTN_ERROR_SIZE);
}

/* Heads, dimensions, scale: what every method reads. */
LINATTN__HOT linattn_status linattn__check_heads(linattn__shape *s)
{
    /* MAX_DIM and MAX_HEADS are one power of two */
    if (((s->d - 1) | (s->dv - 1) | (s->heads - 1)) >= LINATTN_MAX_DIM)
        return linattn__refuse_sizes(s);
    s->group = 1;
    if (s->heads != s->kv_heads) {
        s->group = s->kv_heads ? s->heads / s->kv_heads : 0; /* 0 for more than heads, too */
        if (s->group * s->kv_heads != s->heads)
            return linattn__refuse(s, LINATTN__REFUSED_KV_HEADS, LINATTN_ERROR_CONFIG);
    }
    if (!linattn__not_negative(linattn__to_bits(s->scale)))
        return linattn__refuse(s, LINATTN__REFUSED_SCALE, LINATTN_ERROR_CONFIG);
    return LINATTN_OK;
}

/* What a rule other than the sum goes with. */
#define LINATTN__RULE_MAPS                                                                         \
    (1u << LINATTN_MAP_ELU1 | 1u << LINATTN_MAP_IDENTITY | 1u << LINATTN_MAP_RELU |                \
     1u << LINATTN_MAP_EXP | 1u << LINATTN_MAP_UNIT)

static LINATTN__NOINLINE linattn_status linattn__check_rule(linattn__shape *s)
{
    if ((unsigned)s->rule >= LINATTN_RULE_COUNT)
        return linattn__refuse(s, LINATTN__REFUSED_RULE, LINATTN_ERROR_CONFIG);
    if (!LINATTN__HAS_RECURRENT)
        return linattn__refuse(s, LINATTN__REFUSED_BUILD_RULE, LINATTN_ERROR_UNSUPPORTED);
    if (!(LINATTN__RULE_MAPS >> s->map & 1))
        return linattn__refuse(s, LINATTN__REFUSED_RULE_MAP, LINATTN_ERROR_UNSUPPORTED);
    if (s->window)
        return linattn__refuse(s, LINATTN__REFUSED_RULE_WINDOW, LINATTN_ERROR_UNSUPPORTED);
    if (s->norm == LINATTN_NORM_DEFAULT) s->norm = LINATTN_NORM_NONE;
    if (s->norm != LINATTN_NORM_NONE &&
        (s->rule != LINATTN_RULE_GATED || s->norm == LINATTN_NORM_FEATURE))
        return linattn__refuse(s, LINATTN__REFUSED_RULE_NORMALISER, LINATTN_ERROR_UNSUPPORTED);
    return LINATTN_OK;
}

#if LINATTN__HAS_COMPENSATED
/* What other sums than plain ones go with. */
static LINATTN__NOINLINE linattn_status linattn__check_precision(linattn__shape *s)
{
    if ((unsigned)s->precision >= LINATTN_PRECISION_COUNT)
        return linattn__refuse(s, LINATTN__REFUSED_PRECISION, LINATTN_ERROR_CONFIG);
    if (s->window || (s->rule > LINATTN_RULE_GATED && s->rule != LINATTN_RULE_MLSTM))
        return linattn__refuse(s, LINATTN__REFUSED_PRECISION_RULE, LINATTN_ERROR_UNSUPPORTED);
    return LINATTN_OK;
}
#endif

#if LINATTN__HAS_HALF
/* What S in 16 bits goes with. */
LINATTN__COLD static LINATTN__NOINLINE linattn_status linattn__check_element(linattn__shape *s)
{
    int plain = !s->window && !(s->map >= LINATTN_MAP_FAVOR && s->map <= LINATTN_MAP_EXPDEF);
#if LINATTN__HAS_COMPENSATED
    plain = plain && !s->precision;
#endif
    if ((unsigned)s->element >= LINATTN_ELEMENT_COUNT)
        return linattn__refuse(s, LINATTN__REFUSED_STATE_TYPE, LINATTN_ERROR_CONFIG);
    if (!plain)
        return linattn__refuse(s, LINATTN__REFUSED_STATE_TYPE_MAP, LINATTN_ERROR_UNSUPPORTED);
    return LINATTN_OK;
}
#endif

/* What most states do without: windows, rules, precisions, maps that make features of their own. */
LINATTN__COLD static LINATTN__NOINLINE linattn_status linattn__check_rest(linattn__shape *s,
                                                                          int made)
{
    linattn_status status = LINATTN_OK;
    if (s->window > LINATTN__MAX_WINDOW)
        return linattn__refuse(s, LINATTN__REFUSED_WINDOW, LINATTN_ERROR_SIZE);
    if (!(LINATTN__MAPS >> s->map & 1))
        return linattn__refuse(s, LINATTN__REFUSED_BUILD_MAP, LINATTN_ERROR_UNSUPPORTED);
    if (s->window && !LINATTN__HAS_WINDOW)
        return linattn__refuse(s, LINATTN__REFUSED_BUILD_WINDOW, LINATTN_ERROR_UNSUPPORTED);
    if (s->rule) status = linattn__check_rule(s);
#if LINATTN__HAS_COMPENSATED
    if (status == LINATTN_OK && s->precision) status = linattn__check_precision(s);
#endif
#if LINATTN__HAS_HALF
    if (status == LINATTN_OK && s->element) status = linattn__check_element(s);
#endif
    if (s->map == LINATTN_MAP_UNIT) s->source = LINATTN__UNIT;
#if LINATTN__HAS_FEATURES
    if (status == LINATTN_OK && made) status = linattn__read_features(s);
#else
    (void)made;
#endif
    return status;
}

/* The map, the normaliser and the rule, and what a state of these takes. */
LINATTN__COLD static LINATTN__NOINLINE linattn_status linattn__check_map(linattn__shape *s)
{
    const unsigned usual = LINATTN__MAPS & ((1u << LINATTN_MAP_FAVOR) - 1);
    const int made = s->map >= LINATTN_MAP_FAVOR && s->map <= LINATTN_MAP_EXPDEF;
    int rest = s->rule;
    if ((unsigned)s->map >= LINATTN_MAP_COUNT)
        return linattn__refuse(s, LINATTN__REFUSED_MAP, LINATTN_ERROR_CONFIG);
    if ((unsigned)s->norm >= LINATTN_NORM_COUNT)
        return linattn__refuse(s, LINATTN__REFUSED_NORMALISER, LINATTN_ERROR_CONFIG);
    if (!linattn__not_negative(linattn__to_bits(s->epsilon)))
        return linattn__refuse(s, LINATTN__REFUSED_EPSILON, LINATTN_ERROR_CONFIG);
    s->source = LINATTN__DIRECT;
    s->m = s->d;
    s->shared_floats = 0;
    if (!made) s->features = s->degree = 0;
#if LINATTN__HAS_COMPENSATED
    rest |= s->precision;
#endif
#if LINATTN__HAS_HALF
    rest |= s->element;
#endif
    if (rest || s->window || !(usual >> s->map & 1)) {
        const linattn_status status = linattn__check_rest(s, made);
        if (status != LINATTN_OK) return status;
    }
    if (s->norm == LINATTN_NORM_DEFAULT)
        s->norm = s->map == LINATTN_MAP_SOFTMAX ? LINATTN_NORM_FEATURE : LINATTN_NORM_SUM;
    linattn__measure_state(s, s->window);
    return LINATTN_OK;
}

/* Heads and dimensions. */
static linattn_status linattn__take_heads(const linattn_config *c, size_t heads, linattn__shape *s)
{
    s->heads = heads;
    s->kv_heads = c->kv_heads ? c->kv_heads : heads;
    s->d = c->dim_key;
    s->dv = c->dim_value ? c->dim_value : c->dim_key;
    s->scale = c->scale;
    s->rule = LINATTN_RULE_SUM;
    s->key_group = 1;
    if (c->landmarks > LINATTN_MAX_DIM)
        return linattn__refuse(s, LINATTN__REFUSED_LANDMARKS, LINATTN_ERROR_SIZE);
    return linattn__check_heads(s);
}

/* What exact attention takes and nothing else does. */
LINATTN__INLINE int linattn__is_exact(const linattn_config *c)
{
    return c->sinks || linattn__to_bits(c->soft_cap) << 1 || c->alibi_slopes;
}

static LINATTN__NOINLINE linattn_status linattn__refuse_scores(const linattn_config *c,
                                                               linattn__shape *s)
{
    linattn__refusal why = LINATTN__REFUSED_EXACT_SLOPES;
    if (linattn__to_bits(c->soft_cap) << 1) why = LINATTN__REFUSED_EXACT_SOFT_CAP;
    if (c->sinks) why = LINATTN__REFUSED_EXACT_SINKS;
    return linattn__refuse(s, why, LINATTN_ERROR_UNSUPPORTED);
}

#if LINATTN__HAS_EXACT
/* The part that exact attention and nystrom read. */
static linattn_status linattn__read_heads(const linattn_config *c, linattn__shape *s)
{
    if (!c) return linattn__refuse(s, LINATTN__REFUSED_CONFIG, LINATTN_ERROR_NULL);
    return linattn__take_heads(c, c->heads ? c->heads : 1, s);
}

/* What changes the scores of exact attention, and which of them there are. */
LINATTN__COLD static linattn_status linattn__check_exact(const linattn_config *c, linattn__shape *s)
{
    const size_t heads = c->heads ? c->heads : 1;
    size_t i;
    if (c->sinks > LINATTN__MAX_WINDOW)
        return linattn__refuse(s, LINATTN__REFUSED_SINKS, LINATTN_ERROR_SIZE);
    if (!linattn__not_negative(linattn__to_bits(c->soft_cap)))
        return linattn__refuse(s, LINATTN__REFUSED_SOFT_CAP, LINATTN_ERROR_CONFIG);
    for (i = 0; c->alibi_slopes && i < heads && heads <= LINATTN_MAX_HEADS; i++)
        if ((linattn__to_bits(c->alibi_slopes[i]) & 0x7f800000u) == 0x7f800000u)
            return linattn__refuse(s, LINATTN__REFUSED_SLOPES, LINATTN_ERROR_CONFIG);
    return LINATTN_OK;
}

LINATTN__COLD static linattn_status linattn__read_exact(const linattn_config *c, linattn__shape *s)
{
    const linattn_status status = linattn__read_heads(c, s);
    if (status != LINATTN_OK) return status;
    s->window = c->window;
    if (s->window > LINATTN__MAX_WINDOW)
        return linattn__refuse(s, LINATTN__REFUSED_WINDOW, LINATTN_ERROR_SIZE);
    return linattn__check_exact(c, s);
}
#endif

/* Fewer heads of queries and keys than of values: the output has as many as these. */
static linattn_status linattn__read_key_heads(size_t key_heads, linattn__shape *s)
{
    s->key_group = s->kv_heads / key_heads;
    if (s->key_group * key_heads != s->kv_heads)
        return linattn__refuse(s, LINATTN__REFUSED_KEY_HEADS, LINATTN_ERROR_CONFIG);
    if (s->key_group > 1 && s->heads != s->kv_heads)
        return linattn__refuse(s, LINATTN__REFUSED_KEY_HEADS_HEADS, LINATTN_ERROR_CONFIG);
    if (s->key_group > 1 && s->rule == LINATTN_RULE_SUM)
        return linattn__refuse(s, LINATTN__REFUSED_KEY_HEADS_RULE, LINATTN_ERROR_UNSUPPORTED);
    return LINATTN_OK;
}

LINATTN__COLD static linattn_status linattn__read_config(const linattn_config *c, linattn__shape *s)
{
    size_t heads;
    linattn_status status;
    if (!c) return linattn__refuse(s, LINATTN__REFUSED_CONFIG, LINATTN_ERROR_NULL);
    heads = c->heads;
    if (c->key_heads && c->kv_heads && (heads == c->key_heads || !heads)) heads = c->kv_heads;
    status = linattn__take_heads(c, heads ? heads : 1, s);
    if (status != LINATTN_OK) return status;
    s->rule = (int)c->rule;
    if (c->key_heads) status = linattn__read_key_heads(c->key_heads, s);
    if (status != LINATTN_OK) return status;
    if (linattn__is_exact(c)) return linattn__refuse_scores(c, s);
    s->map = (int)c->map;
    s->norm = (int)c->normaliser;
    s->epsilon = c->epsilon;
    s->features = c->features;
    s->degree = c->degree;
    s->window = c->window;
#if LINATTN__HAS_COMPENSATED
    s->precision = (int)c->precision;
#else
    if (c->precision)
        return linattn__refuse(s, LINATTN__REFUSED_BUILD_PRECISION, LINATTN_ERROR_UNSUPPORTED);
#endif
#if LINATTN__HAS_HALF
    s->element = (int)c->state_type;
#else
    if (c->state_type)
        return linattn__refuse(s, LINATTN__REFUSED_BUILD_STATE_TYPE, LINATTN_ERROR_UNSUPPORTED);
#endif
    return linattn__check_map(s);
}

#define LINATTN__MAX_PROJECTION 0x49742400u /* the bits of 1e6 */

/* What to blame for a state that memory cannot hold. */
static linattn__refusal linattn__too_large(const linattn__shape *s)
{
    if (s->window) return LINATTN__REFUSED_LARGE_WINDOW;
    if (s->source == LINATTN__MONOMIALS) return LINATTN__REFUSED_LARGE_DEGREE;
    if (s->source == LINATTN__PROJECTED) return LINATTN__REFUSED_LARGE_FEATURES;
    return LINATTN__REFUSED_LARGE_HEADS;
}

#if LINATTN__HAS_FEATURES
/* Are the bits of all numbers, but for their signs, at most these? Of NaN they are not. */
LINATTN__WARM static LINATTN__NOINLINE int linattn__all_at_most(const float *x, size_t count,
                                                                uint32_t most)
{
    uint32_t more = 0;
    size_t i;
    for (i = 0; i < count; i++) more |= most - (linattn__to_bits(x[i]) & 0x7fffffffu);
    return more >> 31 == 0;
}
#endif

/* A config, checked whole, the numbers of its projection included. */
LINATTN__COLD static linattn_status linattn__check_config(const linattn_config *c,
                                                          linattn__shape *s)
{
    const linattn_status status = linattn__read_config(c, s);
    if (status != LINATTN_OK) return status;
    if (s->state_bytes == 0) return linattn__refuse(s, linattn__too_large(s), LINATTN_ERROR_SIZE);
#if LINATTN__HAS_FEATURES
    if (s->source == LINATTN__PROJECTED) {
        if (!c->projection)
            return linattn__refuse(s, LINATTN__REFUSED_NO_PROJECTION, LINATTN_ERROR_NULL);
        if (!linattn__all_at_most(c->projection, s->features * s->d, LINATTN__MAX_PROJECTION))
            return linattn__refuse(s, LINATTN__REFUSED_PROJECTION, LINATTN_ERROR_CONFIG);
    }
#endif
    return LINATTN_OK;
}

LINATTN__ALONE LINATTN_API linattn_status linattn_config_check(const linattn_config *config)
{
    linattn__shape s;
    return linattn__check_config(config, &s);
}

/* Does it hold sizes that nobody means, no enumerators, or a denormal: the half of a pointer? */
static int linattn__looks_unset(const linattn_config *c)
{
    const size_t most = 0x7fffffff;
    const uint32_t scale = linattn__to_bits(c->scale) & 0x7fffffffu;
    const uint32_t epsilon = linattn__to_bits(c->epsilon) & 0x7fffffffu;
    const uint32_t cap = linattn__to_bits(c->soft_cap) & 0x7fffffffu;
    const int map = (int)c->map, norm = (int)c->normaliser;
    if (c->heads > most || c->kv_heads > most || c->dim_key > most || c->dim_value > most) return 1;
    if (c->features > most || c->degree > most || c->window > most || c->landmarks > most) return 1;
    if (c->iterations > most || (map & ~0xff) || (norm & ~0xff)) return 1;
    if (c->key_heads > most || ((int)c->rule & ~0xff) || ((int)c->precision & ~0xff)) return 1;
    if ((int)c->state_type & ~0xff) return 1;
    if (c->sinks > most || (cap && cap < 0x00800000u)) return 1;
    return (scale && scale < 0x00800000u) || (epsilon && epsilon < 0x00800000u);
}

#define LINATTN__QUESTION "was the config zeroed first? "

/* One text for both: with the question, or from behind it on. */
static const char *linattn__why(linattn__refusal refused, int unset)
{
#define LINATTN__WHY(text) LINATTN__QUESTION text
    static const char *const text[LINATTN__REFUSALS] = {
        /* in the order of linattn__refusal */
        LINATTN__WHY("config is null"),
        LINATTN__WHY("dim_key is 0, but has no default"),
        LINATTN__WHY("dim_key is larger than LINATTN_MAX_DIM"),
        LINATTN__WHY("dim_value is larger than LINATTN_MAX_DIM"),
        LINATTN__WHY("heads is larger than LINATTN_MAX_HEADS"),
        LINATTN__WHY("window is larger than 2^30 - 1"),
        LINATTN__WHY("landmarks is larger than LINATTN_MAX_DIM"),
        LINATTN__WHY("kv_heads does not divide heads"),
        LINATTN__WHY("map is none of linattn_feature_map"),
        LINATTN__WHY("normaliser is none of linattn_normaliser"),
        LINATTN__WHY("scale is negative, infinite or NaN"),
        LINATTN__WHY("epsilon is negative, infinite or NaN"),
        LINATTN__WHY("degree is larger than 8"),
        LINATTN__WHY("features is larger than 4 * LINATTN_MAX_DIM"),
        LINATTN__WHY("projection is null, but favor needs one: see linattn_random_features"),
        LINATTN__WHY("projection holds a number that is NaN or larger than 1e6 in size"),
        LINATTN__WHY("heads times dim_key times dim_value is more than memory can hold"),
        LINATTN__WHY("window makes a state larger than memory can be"),
        LINATTN__WHY("degree makes a state larger than memory can be"),
        LINATTN__WHY("features makes a state larger than memory can be"),
        LINATTN__WHY("map is one that this build leaves out"),
        LINATTN__WHY("window is what this build leaves out"),
        LINATTN__WHY("rule is none of linattn_rule"),
        LINATTN__WHY("rule is what this build leaves out"),
        LINATTN__WHY("map is not one that goes with rules: identity, elu1, relu, exp, unit"),
        LINATTN__WHY("window goes with the rule sum only"),
        LINATTN__WHY("normaliser must be none under this rule; sum and length go with gated"),
        LINATTN__WHY("key_heads does not divide kv_heads"),
        LINATTN__WHY("heads must be 0, key_heads or kv_heads where key_heads is set"),
        LINATTN__WHY("key_heads goes with rules other than the sum"),
        LINATTN__WHY("precision is none of linattn_precision"),
        LINATTN__WHY("precision is what this build leaves out"),
        LINATTN__WHY("precision other than plain goes with sum without a window, gated, mlstm"),
        LINATTN__WHY("sinks is larger than 2^30 - 1"),
        LINATTN__WHY("soft_cap is negative, infinite or NaN"),
        LINATTN__WHY("alibi_slopes holds a number that is infinite or NaN"),
        LINATTN__WHY("sinks goes with exact attention alone"),
        LINATTN__WHY("soft_cap goes with exact attention alone"),
        LINATTN__WHY("alibi_slopes goes with exact attention alone"),
        LINATTN__WHY("state_type is none of linattn_element"),
        LINATTN__WHY("state_type is what this build leaves out"),
        LINATTN__WHY("state_type of 16 bits goes with no window, precision or map of features"),
    };
#undef LINATTN__WHY
    return text[refused] + (unset ? 0 : sizeof LINATTN__QUESTION - 1);
}
#undef LINATTN__QUESTION

LINATTN__ALONE LINATTN_API const char *linattn_config_error(const linattn_config *config)
{
    linattn__shape s;
#if LINATTN__HAS_EXACT
    if (!config || !linattn__is_exact(config) || linattn__read_exact(config, &s) == LINATTN_OK)
#endif
        if (linattn__check_config(config, &s) == LINATTN_OK) return NULL;
    return linattn__why(s.refused, config && linattn__looks_unset(config));
}

LINATTN__ALONE LINATTN_API size_t linattn_features(const linattn_config *config)
{
    linattn__shape s;
    return linattn__read_config(config, &s) == LINATTN_OK && s.state_bytes ? s.m : 0;
}

LINATTN__ALONE LINATTN_API size_t linattn_state_size(const linattn_config *config)
{
    linattn__shape s;
    return linattn__read_config(config, &s) == LINATTN_OK ? s.state_bytes : 0;
}

#if LINATTN__HAS_EXACT || LINATTN__HAS_FEATURES || LINATTN__HAS_EXP || LINATTN__HAS_SIGNED ||      \
    LINATTN__HAS_RANDOM
/* sqrt in double, by Newton's steps from a guess that halves the exponent. */
static double linattn__sqrt(double x)
{
    double y, before;
    int i;
    union {
        uint64_t u;
        double f;
    } guess;
    if (x == 1.0) return x; /* the usual scale, in every decode step */
    guess.f = x;
    guess.u = (guess.u >> 1) + 0x1ff8000000000000u;
    y = guess.f;
    for (i = 0; i < 8; i++) {
        before = y;
        y = 0.5 * (y + x / y);
        if (y == before) break;
    }
    return y;
}
#endif

#if LINATTN__HAS_EXACT || LINATTN__HAS_FEATURES
static float linattn__root_scale(const linattn__shape *s)
{
    if (linattn__to_bits(s->scale) << 1) return s->scale;
    return (float)(1.0 / linattn__sqrt((double)s->d));
}
#endif

/* s of the map: 1 for those that act on each coordinate unless given. */
LINATTN__INLINE float linattn__scale(const linattn__shape *s)
{
    if (linattn__to_bits(s->scale) << 1) return s->scale;
    if (linattn__is_direct(s->source)) return 1.0f;
#if LINATTN__HAS_FEATURES
    return linattn__root_scale(s);
#else
    return 1.0f;
#endif
}

#if LINATTN__HAS_UNIT || !(LINATTN__HAS_EXP || LINATTN__HAS_SIGNED)
/* sqrt(x) rounded to nearest, by integers: as near as that of a double. */
static LINATTN__NOINLINE float linattn__root(float x)
{
    uint32_t bits = linattn__to_bits(x), root = 0, rest = 0, i;
    int exponent = (int)(bits >> 23) - 127;
    uint32_t mantissa = bits & 0x7fffffu;
    if (exponent > -127) {
        mantissa |= 0x800000u;
    } else {
        for (exponent = -126; !(mantissa >> 23); exponent--) mantissa <<= 1;
    }
    if (exponent & 1) {
        mantissa <<= 1;
        exponent--;
    }
    /* two bits of the radicand for each of 25 bits of the root, the last of which rounds */
    for (i = 0; i < 25; i++) {
        const uint32_t two = i < 12 ? mantissa >> (23 - 2 * i) : i == 12 ? mantissa << 1 : 0u;
        rest = rest << 2 | (two & 3u);
        root <<= 1;
        if (rest > 2 * root) {
            rest -= 2 * root + 1;
            root++;
        }
    }
    root = (root >> 1) + (root & 1);
    return linattn__from_bits(root + ((uint32_t)(exponent / 2 + 126) << 23));
}
#endif

/* Does the identity take a part of the scale into queries and keys? */
LINATTN__INLINE int linattn__scales_keys(const linattn__shape *s)
{
    return s->map == LINATTN_MAP_IDENTITY && s->rule == LINATTN_RULE_SUM;
}

#if LINATTN__HAS_EXP || LINATTN__HAS_SIGNED
/* What the maps with exponents and the identity need of sqrt(s), which is carried in two floats. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__read_root(const linattn__shape *s,
                                                               linattn__params *p)
{
    const double root_all = linattn__sqrt((double)linattn__scale(s));
    const double root = linattn__is_direct(s->source) ? root_all : 1.0;
    double cell;
#if LINATTN__HAS_FEATURES
    p->source_root = (float)root_all;
#endif
    p->root = (float)root;
    if (!LINATTN__IS_EXP(p->map) && !LINATTN__IS_SIGNED(p->map)) return;
    cell = LINATTN__LN2 / root;
    p->root_low = (float)(root - (double)p->root);
    p->rate = (float)(root * LINATTN__LOG2E);
    p->limit = (float)(cell * (LINATTN__SATURATION - 1.0));
    p->cell = (float)cell;
    p->margin = (float)(cell * (double)LINATTN__HEADROOM);
    if (s->map == LINATTN_MAP_FAVOR || s->map == LINATTN_MAP_FAVOR_HYPERBOLIC) {
        p->rest = (float)(1.0 / (double)s->m); /* of phi(q) phi(k); the sums leave it out */
        p->rest_root = (float)(1.0 / linattn__sqrt((double)s->m));
        p->epsilon = linattn__clamp(p->epsilon * (float)s->m);
    }
    if (s->map == LINATTN_MAP_IDENTITY || s->map == LINATTN_MAP_UNIT) {
        double power = 1.0; /* and 1 where keys are to stay as they are, which read their state */
        while (linattn__scales_keys(s) && power * 1.5 < root) power = power * 2.0;
        while (linattn__scales_keys(s) && power * 0.75 > root) power = power * 0.5;
        p->root = (float)power;
        p->rest = (float)(root * root / (power * power));
        p->rest_root = s->source == LINATTN__UNIT ? p->rest : (float)(root / power);
        p->epsilon = linattn__clamp((float)((double)s->epsilon / (root * root / (power * power))));
    }
}
#else
LINATTN__INLINE void linattn__read_root(const linattn__shape *s, linattn__params *p)
{
    const float scale = linattn__scale(s);
    p->root = 1.0f;
    if (linattn__to_bits(scale) != 0x3f800000u) p->root = linattn__root(scale);
}
#endif

/* What linattn__read_root has for a scale of 1, but for the features of projections. */
LINATTN__INLINE void linattn__unit_root(linattn__params *p)
{
    p->rest = p->rest_root = p->root = 1.0f;
    if (!LINATTN__IS_EXP(p->map)) return;
    p->root_low = 0.0f;
    p->rate = (float)LINATTN__LOG2E;
    p->limit = (float)(LINATTN__LN2 * (LINATTN__SATURATION - 1.0));
    p->cell = (float)LINATTN__LN2;
    p->margin = (float)(LINATTN__LN2 * (double)LINATTN__HEADROOM);
}

/* All but what needs a root: says whether that is to be read, too. */
LINATTN__INLINE int linattn__set_params(const linattn__shape *s, linattn__params *p)
{
    p->softmax = LINATTN__HAS_SOFTMAX && s->map == LINATTN_MAP_SOFTMAX;
    p->map = s->map;
    if (p->softmax || s->source == LINATTN__PROJECTED) p->map = LINATTN_MAP_EXP;
    if (s->source == LINATTN__MONOMIALS)
        p->map = s->degree % 2 ? LINATTN_MAP_IDENTITY : LINATTN__MAP_POSITIVE;
    if (s->source == LINATTN__UNIT) p->map = LINATTN_MAP_IDENTITY;
    if (LINATTN__HAS_RECURRENT && s->rule > LINATTN_RULE_GATED && LINATTN__IS_EXP(s->map))
        p->map = LINATTN__MAP_POWER;
    p->source = s->source;
#if LINATTN__HAS_FEATURES
    p->signs = 0;
    if (!linattn__is_direct(s->source)) {
        if (s->map == LINATTN_MAP_FAVOR_HYPERBOLIC && s->features % 16 == 0) p->signs = s->features;
        p->lowered = s->map != LINATTN_MAP_FAVOR_SIMPLIFIED;
        p->degree = s->degree;
        p->source_root = 1.0f;
    }
#endif
    p->norm = s->norm;
    p->epsilon = s->epsilon;
    p->floor = s->map == LINATTN_MAP_RELU ? 0.0f : -LINATTN__INF;
    linattn__unit_root(p);
    /* the usual cases, in every decode step */
    if (linattn__is_direct(s->source) && linattn__to_bits(s->scale) == 0x3f800000u) return 0;
    if (linattn__is_direct(s->source) && LINATTN__IS_SIGNED(p->map) && !linattn__scales_keys(s) &&
        s->epsilon == 0.0f) {
        p->rest = linattn__scale(s);
        if (s->source == LINATTN__UNIT) p->rest_root = p->rest;
        return 0;
    }
    return 1;
}

/* Within enter and leave, so that its arithmetic is as there. */
static void linattn__read_params(const linattn__shape *s, linattn__params *p)
{
    if (linattn__set_params(s, p)) linattn__read_root(s, p);
}

/* ---- States ---------------------------------------------------------------------------------- */

#define LINATTN__MAGIC 0x5454414cu /* "LATT"; reads otherwise in the other byte order */
#if LINATTN__HAS_WINDOW            /* whose last change is younger than the others' */
#define LINATTN__STATE_VERSION(window) ((window) > 0 ? 4u : 2u)
#else
#define LINATTN__STATE_VERSION(window) 2u
#endif

/* The first bytes of a state: the config with its defaults filled in. They are read in place, of
   whatever type they were written. */
typedef uint32_t LINATTN__ANY_TYPE linattn__word;
typedef struct linattn__header {
    linattn__word magic, version;
    linattn__word bytes_low, bytes_high; /* of the whole state */
    linattn__word tokens_low, tokens_high;
    linattn__word heads, kv_heads, d, dv, map, norm; /* map: and 256 times what S is kept in */
    linattn__word scale, epsilon;                    /* bits */
    linattn__word features, degree, window;
    linattn__word rule, key_heads; /* key_heads: 0 for kv_heads */
#if LINATTN__HAS_COMPENSATED
    linattn__word precision; /* 0 where it is left out, and the bytes tell */
    linattn__word masked;    /* tokens that folds do not count, modulo FOLD */
#endif
} linattn__header; /* and zeros up to LINATTN__HEADER_BYTES */

LINATTN__COLD static void linattn__make_header(const linattn__shape *s, linattn__header *h)
{
    const uint64_t bytes = s->state_bytes;
    h->magic = LINATTN__MAGIC;
    h->version = LINATTN__STATE_VERSION(s->window);
    h->bytes_low = (uint32_t)bytes;
    h->bytes_high = (uint32_t)(bytes >> 32);
    h->tokens_low = h->tokens_high = 0;
    h->heads = (uint32_t)s->heads;
    h->kv_heads = (uint32_t)s->kv_heads;
    h->d = (uint32_t)s->d;
    h->dv = (uint32_t)s->dv;
    h->map = (uint32_t)s->map;
#if LINATTN__HAS_HALF
    h->map |= (uint32_t)s->element << 8;
#endif
    h->norm = (uint32_t)s->norm;
    h->scale = linattn__to_bits(linattn__scale(s));
    h->epsilon = linattn__to_bits(s->epsilon) & 0x7fffffffu; /* -0 is 0 */
    h->features = (uint32_t)s->features;
    h->degree = (uint32_t)s->degree;
    h->window = (uint32_t)s->window;
    h->rule = (uint32_t)s->rule;
#if LINATTN__HAS_COMPENSATED
    h->precision = (uint32_t)s->precision;
    h->masked = 0;
#endif
    h->key_heads = s->key_group > 1 ? (uint32_t)(s->kv_heads / s->key_group) : 0;
}

static void linattn__set_tokens(void *state, uint64_t tokens)
{
    linattn__header *const h = (linattn__header *)state;
    h->tokens_low = (uint32_t)tokens;
    h->tokens_high = (uint32_t)(tokens >> 32);
}

static uint64_t linattn__seen(const void *state)
{
    const linattn__header *const h = (const linattn__header *)state;
    return (uint64_t)h->tokens_high << 32 | h->tokens_low;
}

#if LINATTN__HAS_COMPENSATED
#define LINATTN__FOLD 96 /* tokens; their sums lose less than 2^-18 */

/* Tokens that folds do not count, modulo FOLD. */
static void linattn__set_masked(void *state, size_t masked)
{
    ((linattn__header *)state)->masked = (uint32_t)(masked % LINATTN__FOLD);
}

static size_t linattn__masked_before(const void *state)
{
    return ((const linattn__header *)state)->masked % LINATTN__FOLD;
}
#endif

/* Two words of a header, wherever it lies. */
LINATTN__INLINE uint64_t linattn__two_words(const void *header, size_t word)
{
    uint64_t two;
    linattn__copy(&two, (const unsigned char *)header + word * sizeof(uint32_t), sizeof two);
    return two;
}

/* Same config, whatever the tokens seen: these are words 4 and 5. */
LINATTN__COLD static int linattn__same_config(const void *a, const void *b)
{
    static const unsigned char words[] = {
        0, 2, 6, 8, 10, 12, 14, 16, 17 + LINATTN__HAS_COMPENSATED};
    uint64_t differ = 0;
    size_t i;
    LINATTN__UNROLL for (i = 0; i < sizeof words; i++) differ |=
        linattn__two_words(a, words[i]) ^ linattn__two_words(b, words[i]);
    return differ == 0;
}

/* Is there a header? */
LINATTN__HOT linattn_status linattn__find_header(const void *state)
{
    const linattn__header *const h = (const linattn__header *)state;
    if (!state) return LINATTN_ERROR_NULL;
    if ((uintptr_t)state % sizeof(float) != 0) return LINATTN_ERROR_ALIGNMENT;
    return h->magic == LINATTN__MAGIC && h->version == LINATTN__STATE_VERSION(h->window)
               ? LINATTN_OK
               : LINATTN_ERROR_STATE;
}

/* A state's header, checked: it must describe a config in the form that make_header writes. */
static LINATTN__NOINLINE linattn_status linattn__read_state(const void *state, linattn__shape *s)
{
    const linattn__header *const h = (const linattn__header *)state;
    const linattn_status status = linattn__find_header(state);
    if (status != LINATTN_OK) return status;
    if (h->norm == LINATTN_NORM_DEFAULT || h->scale == 0) return LINATTN_ERROR_STATE;
    s->heads = h->heads;
    s->kv_heads = h->kv_heads;
    s->d = h->d;
    s->dv = h->dv;
    s->map = (int)h->map;
#if LINATTN__HAS_HALF
    s->map = (int)(h->map & 0xffu);
    s->element = (int)(h->map >> 8);
#endif
    s->norm = (int)h->norm;
    s->scale = linattn__from_bits(h->scale);
    s->epsilon = linattn__from_bits(h->epsilon);
    s->features = h->features;
    s->degree = h->degree;
    s->window = h->window;
    s->rule = (int)h->rule;
#if LINATTN__HAS_COMPENSATED
    s->precision = (int)h->precision;
#endif
    s->key_group = 1;
    if (h->key_heads) {
        if (s->rule == LINATTN_RULE_SUM || h->key_heads >= h->kv_heads ||
            h->kv_heads % h->key_heads || h->heads != h->kv_heads)
            return LINATTN_ERROR_STATE;
        s->key_group = s->kv_heads / h->key_heads;
    }
    if (linattn__check_heads(s) != LINATTN_OK || linattn__check_map(s) != LINATTN_OK ||
        s->state_bytes == 0 || ((uint64_t)h->bytes_high << 32 | h->bytes_low) != s->state_bytes)
        return LINATTN_ERROR_STATE;
    return LINATTN_OK;
}

static float *linattn__shared(void *state) { return (float *)state + LINATTN__HEADER_FLOATS; }

static float *linattn__head(void *state, const linattn__shape *s, size_t head)
{
    return linattn__shared(state) + s->shared_floats + head * s->head_floats;
}

/* What heads share, written, or compared with what is there: returns 0 where, not writing, a number
   differs. Within enter and leave. */
#if LINATTN__HAS_FEATURES
LINATTN__COLD static int linattn__put_shared(const linattn_config *c, const linattn__shape *s,
                                             float *shared, int write);
#else
LINATTN__INLINE int linattn__put_shared(const linattn_config *c, const linattn__shape *s,
                                        float *shared, int write)
{
    (void)c;
    (void)s;
    (void)shared;
    (void)write;
    return 1;
}
#endif

LINATTN__INLINE int linattn__has_exponents(const linattn__shape *s)
{
    return LINATTN__HAS_EXP && s->rule <= LINATTN_RULE_GATED &&
           (s->map == LINATTN_MAP_EXP || s->map == LINATTN_MAP_SOFTMAX ||
            s->source == LINATTN__PROJECTED);
}

/* What rules add where exponents move and sums have a past: those that it is relative to, as its
   own place has low parts of kept; and before the sums by how much they were lowered since. */
LINATTN__INLINE size_t linattn__moving_floats(const linattn__shape *s)
{
#if LINATTN__HAS_COMPENSATED
    if (s->precision && linattn__has_exponents(s)) return linattn__round16(s->m);
#else
    (void)s;
#endif
    return 0;
}

#if LINATTN__HAS_COMPENSATED
/* The exponential map: a past is relative to the exponents that its sums had when they were last
   folded, or less where all was lowered; they have only risen since. What takes a row to them. */
static LINATTN__NOINLINE float linattn__past_shift(const float *past, const float *e)
{
    const float n = *past - *e;
    if (!(*past >= LINATTN__LOWEST)) return 1.0f; /* of nothing yet */
    return n > -126.0f && n <= 0.0f ? linattn__pow2((int)n) : 0.0f;
}

static LINATTN__NOINLINE void linattn__past_shifts(const float *past, const float *e, float *shift,
                                                   size_t count)
{
    size_t i;
    for (i = 0; i < count; i++) shift[i] = linattn__past_shift(past + i, e + i);
}

/* Those of a head's past lie before its S. */
static float *linattn__past_exponents(float *head, const linattn__shape *s)
{
    return head + s->head_floats - s->m * linattn__round16(s->dv) - linattn__round16(s->m);
}
#endif

/* An empty state: zeros, and exponents of -inf ("no key yet"). */
LINATTN__COLD static void linattn__clear(void *state, const linattn__shape *s,
                                         const linattn__header *h)
{
    const size_t m16 = linattn__round16(s->m), floats = s->head_floats;
    size_t head, i;
    for (i = 0; i < LINATTN__HEADER_FLOATS; i++) ((float *)state)[i] = 0.0f;
    linattn__copy(state, h, sizeof *h);
    for (head = 0; head < s->kv_heads; head++) {
        float *const p = linattn__head(state, s, head);
        linattn__zeros(p, floats);
        if (linattn__has_exponents(s) && !s->window)
            for (i = 0; i < m16; i++) p[m16 + i] = -LINATTN__INF;
#if LINATTN__HAS_COMPENSATED
        for (i = 0; s->precision && linattn__has_exponents(s) && i < m16; i++)
            linattn__past_exponents(p, s)[i] = -LINATTN__INF;
#endif
#if LINATTN__HAS_RECURRENT
        if (s->rule) linattn__clear_rule(p, m16);
#if LINATTN__HAS_COMPENSATED
        for (i = 0; s->rule && s->precision && i < m16; i++) p[floats / 2 + 2 * m16 + i] = 1.0f;
#endif
#endif
    }
}

/* Within enter and leave. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__make_state(const linattn_config *config,
                                                                const linattn__shape *s,
                                                                linattn__header *h, void *state)
{
    linattn__make_header(s, h);
    linattn__clear(state, s, h);
    (void)linattn__put_shared(config, s, linattn__shared(state), 1);
}

/* Is memory that will be written clear of the config's projection? */
LINATTN__INLINE int linattn__projection_apart(const linattn_config *c, const linattn__shape *s,
                                              const void *block, size_t bytes)
{
    return s->source != LINATTN__PROJECTED ||
           linattn__disjoint(block, bytes, c->projection, s->features * s->d * sizeof(float));
}

LINATTN__ALONE LINATTN_API linattn_status linattn_state_init(const linattn_config *config,
                                                             void *state, size_t bytes)
{
    linattn__shape s;
    linattn__header h;
    linattn__environment environment;
    const linattn_status status = linattn__check_config(config, &s);
    if (status != LINATTN_OK) return status;
    if (!state) return LINATTN_ERROR_NULL;
    if ((uintptr_t)state % sizeof(float) != 0) return LINATTN_ERROR_ALIGNMENT;
    if (bytes < s.state_bytes) return LINATTN_ERROR_WORKSPACE;
    if (!linattn__projection_apart(config, &s, state, s.state_bytes)) return LINATTN_ERROR_OVERLAP;
    environment = linattn__enter();
    linattn__make_state(config, &s, &h, state);
    linattn__leave(environment);
    return LINATTN_OK;
}

LINATTN__ALONE LINATTN_API linattn_status linattn_state_reset(void *state)
{
    linattn__shape s;
    linattn__header h;
    const linattn_status status = linattn__read_state(state, &s);
    if (status != LINATTN_OK) return status;
    linattn__copy(&h, state, sizeof h);
    h.tokens_low = h.tokens_high = 0;
#if LINATTN__HAS_COMPENSATED
    h.masked = 0;
#endif
    linattn__clear(state, &s, &h);
    return LINATTN_OK;
}

/* Exponents are -inf or integers that cannot overflow in sums. */
static int linattn__exponents_valid(const float *e, size_t count)
{
    size_t i;
    for (i = 0; i < count; i++) {
        const uint32_t bits = linattn__to_bits(e[i]), size = bits & 0x7fffffffu;
        if (size == 0 || bits == 0xff800000u) continue;
        if (size < 0x3f800000u || size > 0x4a000000u) return 0;   /* 1, 2^21 */
        if (size & 0x007fffffu >> ((size >> 23) - 127)) return 0; /* a fraction */
    }
    return 1;
}

#if LINATTN__HAS_WINDOW
LINATTN__COLD static int linattn__band_valid(const linattn__shape *s, float *head);
#endif

/* A window has exponents in each of its parts. */
LINATTN__COLD static LINATTN__NOINLINE int linattn__heads_valid(const linattn__shape *s,
                                                                void *state)
{
    const size_t m16 = linattn__round16(s->m);
    size_t head;
    for (head = 0; head < s->kv_heads; head++) {
        float *const at = linattn__head(state, s, head);
        if (!linattn__exponents_valid(at + m16, m16)) return 0;
#if LINATTN__HAS_COMPENSATED
        if (s->precision && !linattn__exponents_valid(linattn__past_exponents(at, s), m16))
            return 0;
#endif
#if LINATTN__HAS_WINDOW
        if (s->window && !linattn__band_valid(s, at)) return 0;
#endif
    }
    return 1;
}

LINATTN__ALONE LINATTN_API linattn_status linattn_state_check(const linattn_config *config,
                                                              const void *state, size_t bytes)
{
    linattn__shape want, s;
    linattn__header expected;
    linattn__environment environment;
    void *const at = (void *)(uintptr_t)state;
    int valid;
    linattn_status status = linattn__check_config(config, &want);
    if (status != LINATTN_OK) return status;
    if (!state) return LINATTN_ERROR_NULL;
    if ((uintptr_t)state % sizeof(float) != 0) return LINATTN_ERROR_ALIGNMENT;
    if (bytes < LINATTN__HEADER_BYTES) return LINATTN_ERROR_WORKSPACE;
    status = linattn__read_state(state, &s);
    if (status != LINATTN_OK) return status;
    environment = linattn__enter();
    linattn__make_header(&want, &expected);
    valid = linattn__same_config(state, &expected);
    if (valid && bytes >= s.state_bytes) {
        valid = linattn__put_shared(config, &s, linattn__shared(at), 0);
        if (valid && linattn__has_exponents(&s)) valid = linattn__heads_valid(&s, at);
    }
    linattn__leave(environment);
    if (!valid) return LINATTN_ERROR_STATE;
    return bytes < s.state_bytes ? LINATTN_ERROR_WORKSPACE : LINATTN_OK;
}

LINATTN__ALONE LINATTN_API uint64_t linattn_state_tokens(const void *state)
{
    linattn__shape s;
    return linattn__read_state(state, &s) == LINATTN_OK ? linattn__seen(state) : 0;
}

/* ---- Sums ------------------------------------------------------------------------------------ */

struct linattn__band;
struct linattn__gating;

#if LINATTN__BOTH
/* Features of one token of one head: what they and scratch are, the kernels say. */
struct linattn__span;
struct linattn__head_scalar;
struct linattn__token_scalar;
typedef void linattn__part_kernel(const struct linattn__span *s,
                                  const struct linattn__head_scalar *h,
                                  struct linattn__token_scalar *w, size_t f0, size_t f1);
#endif

/* A run of tokens of a key/value head, or of several for the kernel `step`. Strides in floats. What
   is read soon after it was written is in no order that compilers read as one vector: a processor
   cannot forward two stores to one load, and a decode step would wait for each of them. */
typedef struct linattn__span {
    const linattn__params *params;
    float *z;            /* the head's state; query does not write it */
    const float *shared; /* projection in panels of 16 rows, or weights of monomials, */
    float *e;            /* exponents of the exponential maps, lost bits of z of the identity */
    const float *q;
    float *s;
    const float *k, *v;
    float *out;
    size_t q_head, k_head, v_head, out_head, q_token, k_token, v_token, out_token;
    size_t heads, head_floats;  /* key/value heads, and from the state of one to the next */
    size_t group;               /* query heads that read each */
    size_t n;                   /* tokens */
    size_t d, m, dv;            /* length of a key, features, length of a value */
    size_t row_end, column_end; /* of the features and columns below */
    uint64_t seen;              /* tokens before this call */
#if LINATTN__HAS_WINDOW
    uint64_t keys; /* before and in this call: fewer than tokens where the last have none */
#endif
#if LINATTN__HAS_HALF
    void (*kernel)(const struct linattn__span *s); /* where there are `elements` */
#endif
#if LINATTN__BOTH
    linattn__part_kernel *const *update; /* of one token, by `set`, of verbs without queries */
    int set; /* whose kernels this call takes: 0 scalar code's, 1 those of AVX2, 2 AVX-512 */
#endif
    /* What is 0 for most, side by side, to be cleared in few stores. */
    int stream; /* states come from memory, each for one token: see linattn__stream_of */
#if LINATTN__HAS_PREFILL || LINATTN__HAS_RECURRENT
    int fetch; /* operands come from memory: fetch ahead */
    int turns; /* heads take turns: after these tokens come those of another, see LINATTN__TURN */
#endif
#if LINATTN__HAS_HALF
    unsigned elements; /* q, k or v are of 16-bit ones: kernels are called by linattn__widened */
    int element;       /* of S */
    size_t ahead;      /* so many bytes behind S in 16 bits lies what comes next */
#endif
    size_t lag;          /* token t queries with q[t - lag], from t = lag on */
    size_t row_begin;    /* features that update may touch, a multiple of 16 first */
    size_t column_begin; /* columns of S and out of this job, likewise */
#if LINATTN__HAS_COMPENSATED
    size_t past; /* so many floats behind z, e and s lie those of the past */
#endif
#if LINATTN__HAS_FEATURES
    size_t shared_begin; /* from this feature on */
    size_t rows;         /* the projection is the caller's, with so many rows, and there is */
#endif
#if LINATTN__HAS_WINDOW
    size_t window; /* 0: none */
    const struct linattn__band *band;
#endif
#if LINATTN__HAS_FEATURES
    float *panels; /* room for some panels of it */
#endif
#if LINATTN__HAS_PREFILL
    ptrdiff_t next_head; /* where there are turns: which comes next, so many on, */
    size_t next_token;   /* from this token of its own on */
#endif
} linattn__span;

/* What S is kept in, a constant where there are floats alone. */
#if LINATTN__HAS_HALF
#define LINATTN__ELEMENT(of) ((of)->element)
#else
#define LINATTN__ELEMENT(of) LINATTN_F32
#endif

#if LINATTN__HAS_HALF
/* Element i of S in 16 bits. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__read_half(const float *s, size_t i,
                                                               int element, float *x)
{
    uint16_t half;
    linattn__copy(&half, (const char *)s + i * sizeof half, sizeof half);
    *x = element == LINATTN_F16 ? linattn__from_half(half)
                                : linattn__from_bits((uint32_t)half << 16);
}

LINATTN__COLD static LINATTN__NOINLINE void linattn__write_half(float *s, size_t i, int element,
                                                                const float *x)
{
    const uint32_t bits = linattn__to_bits(*x);
    const uint16_t half = (uint16_t)(element == LINATTN_F16 ? linattn__to_f16(bits)
                                                            : linattn__round_bf16(bits) >> 16);
    linattn__copy((char *)s + i * sizeof half, &half, sizeof half);
}

/* Row f of this job's columns. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__rescale_halves(const linattn__span *s,
                                                                    size_t f, const float *factor)
{
    size_t c;
    for (c = s->column_begin; c < s->column_end; c++) {
        const size_t i = (c / 16 * s->m + f) * 16 + c % 16;
        float x;
        linattn__read_half(s->s, i, s->element, &x);
        x = linattn__rescale(x, factor);
        linattn__write_half(s->s, i, s->element, &x);
    }
}

/* Columns beyond dv are zero: by words, as one token under a rule would else take longer for them
   than for all the others. */
LINATTN__WARM static LINATTN__NOINLINE void linattn__clear_halves(const linattn__span *s)
{
    const size_t row = 16 * sizeof(uint16_t), kept = s->dv % 16 * sizeof(uint16_t);
    char *at = (char *)s->s + s->dv / 16 * s->m * row;
    uint64_t keep[4] = {0, 0, 0, 0}, words[4];
    size_t f, i;
    for (i = 0; i < kept; i++) ((unsigned char *)keep)[i] = 0xff;
    for (f = 0; kept && f < s->m; f++, at += row) {
        linattn__copy(words, at, row);
        for (i = 0; i < 4; i++) words[i] &= keep[i];
        linattn__copy(at, words, row);
    }
}
#endif

/* Element i of S, of whatever type. */
#if LINATTN__HAS_HALF
LINATTN__COLD static LINATTN__NOINLINE void linattn__get_sum(const float *s, size_t i, int element,
                                                             float *x)
{
    if (element)
        linattn__read_half(s, i, element, x);
    else
        *x = s[i];
}

LINATTN__COLD static LINATTN__NOINLINE void linattn__set_sum(float *s, size_t i, int element,
                                                             const float *x)
{
    if (element)
        linattn__write_half(s, i, element, x);
    else
        s[i] = *x;
}
#else
#define linattn__get_sum(s, i, element, x) ((void)(*(x) = (s)[i]))
#define linattn__set_sum(s, i, element, x) ((void)((s)[i] = *(x)))
#endif

/* Sums of the maps with exponents are small: in f16 they are kept times 2^14, so that both they and
   what a key adds to them are far from the ends of its range. */
#define LINATTN__RAISED 16384.0f
#define LINATTN__LOWERED 6.103515625e-5f
#define LINATTN__RAISES(element, map) ((element) == LINATTN_F16 && LINATTN__IS_EXP(map))

/* c[r][j] += sum_t a[t][r] b[t][j]: see the kernels' outer_tile. */
typedef struct linattn__outer {
    const float *a, *b;
    float *c, *copy;
    size_t a_row, b_row, c_row, c_vec;
    size_t count, rows;
    const float *ahead;        /* what comes next, a row for each term, */
    size_t ahead_row, fetches; /* and how many of these the tiles fetch */
} linattn__outer;

/* More than this does not stay in caches. (Tests fetch small operands, too.) */
#ifndef LINATTN__FETCH_FLOATS
#define LINATTN__FETCH_FLOATS 1572864
#endif
/* Scalar code alone waits for nothing but itself. */
#define LINATTN__FETCHES(s) (LINATTN__COUNT > LINATTN__HAS_SCALAR && (s)->fetch)
/* Then heads take turns, so many tokens at a time: the next head's rows lie beside those of the one
   before, in pages that are at hand, and where one ends the other's are fetched. A multiple of what
   blocks take. */
#ifndef LINATTN__TURN
#define LINATTN__TURN 192
#endif
/* Rows so many floats apart, or a multiple, take the places of one another in Zen 3's L2. */
#ifndef LINATTN__CROWDED
#define LINATTN__CROWDED 2048
#endif
/* So many floats of S are read in a microsecond, or in scalar code a 16th of them: to share out no
   more than that would take longer. (Tests share out all.) */
#ifndef LINATTN__SHARE_FLOATS
#define LINATTN__SHARE_FLOATS 8192
#endif
#define LINATTN__FAR_FLOATS ((linattn__near() ? 3u : 4u) * LINATTN__FETCH_FLOATS) /* nor in L3 */
#define LINATTN__FEATURES 128 /* mapped at a time */
#define LINATTN__PANELS 4096  /* floats of a projection that the caller holds */

/* Features are taken in chunks of this size, the same on every instruction set, as the running
   maximum of the exponents moves from one to the next: m in equal parts. */
static size_t linattn__chunk(size_t m)
{
    size_t chunks;
    if (m <= LINATTN__FEATURES) return linattn__round16(m);
    chunks = (m + LINATTN__FEATURES - 1) / LINATTN__FEATURES;
    return (m / chunks + 15 + (m % chunks != 0)) / 16 * 16;
}

#if LINATTN__HAS_PREFILL || LINATTN__HAS_RECURRENT
/* The tokens of a turn, `turn` where heads take turns, or all: where rows of heads lie side by side
   and come from memory. */
LINATTN__INLINE size_t linattn__turn(const linattn__span *s, size_t turn)
{
    const int apart = s->k ? s->v_token > s->dv : s->q_token > s->d;
    return LINATTN__FETCHES(s) && apart && turn < s->n ? turn : s->n;
}
#endif

typedef void linattn__span_kernel(const linattn__span *s);
typedef void linattn__step_kernel(linattn__span *s); /* moves it to its last head */
typedef void linattn__merge_kernel(const linattn__span *dst, const linattn__span *src);
#if LINATTN__HAS_HALF
typedef void linattn__widen_kernel(const float *from, int element, size_t row, size_t rows,
                                   size_t n, float *to);
LINATTN__DECLARE(linattn__widen_kernel, widen)
#endif
LINATTN__DECLARE(linattn__step_kernel, step)
#if LINATTN__BOTH
static linattn__step_kernel *const linattn__step_of[] = {linattn__step_scalar, linattn__step_avx2,
                                                         linattn__step_avx512};
#define LINATTN__RUN_STEP(span) linattn__step_of[(span)->set](span)
/* What takes keys alone only verbs that do so have to have: it is not linked with others. */
static linattn__part_kernel linattn__step_update_avx2, linattn__step_update_avx512;
LINATTN__UNUSED static linattn__part_kernel *const linattn__step_update_of[] = {
    NULL, linattn__step_update_avx2, linattn__step_update_avx512};
#define LINATTN__TAKE_UPDATE(span) ((span)->update = linattn__step_update_of)
#else
#define LINATTN__TAKE_UPDATE(span) ((void)(span))
#define LINATTN__RUN_STEP(span) LINATTN__KERNEL(step)(span)
#endif
LINATTN__DECLARE_COMMON(linattn__merge_kernel, merge)
#if LINATTN__HAS_PREFILL
LINATTN__DECLARE_ONE(linattn__span_kernel, update)
LINATTN__DECLARE_ONE(linattn__span_kernel, query)
LINATTN__DECLARE_ONE(linattn__span_kernel, causal)
#endif
#if LINATTN__HAS_COMPENSATED
LINATTN__DECLARE_COMMON(linattn__span_kernel, fold)
#define LINATTN__PAST(span) ((span)->past)
#else
#define LINATTN__PAST(span) 0
#endif

/* Private copies of z and E for the parts of a causal head, on the stack: see causal_job. */
#if LINATTN__COUNT > LINATTN__HAS_SCALAR
#define LINATTN__PRIVATE_FLOATS 2048
#else
#define LINATTN__PRIVATE_FLOATS 128
#endif

/* The operands of one call, checked together. */
typedef struct linattn__operands {
    linattn__extent q, k, v, out;
    size_t n_q, n_k;
    uintptr_t low, high; /* all of them lie between these addresses */
} linattn__operands;

/* One call of a verb, shared by its jobs. */
typedef struct linattn__work {
    linattn__span span; /* of all heads */
    linattn__params params;
    linattn__environment environment; /* of the caller */
    size_t jobs;
#if LINATTN__HAS_COMPENSATED
    linattn__span_kernel *fold;
    uint64_t first;                       /* the tokens that were seen before the call */
    const struct linattn__gating *gating; /* of its first token */
#endif
#if LINATTN__HAS_PREFILL
    linattn__span_kernel *kernel;
    size_t parts; /* of each head, in update and query */
    size_t whole; /* causal: heads that are not split over the jobs, */
    float *spare; /* the z and E that split heads end with */
#endif
} linattn__work;

#if LINATTN__HAS_RECURRENT || LINATTN__HAS_COMPENSATED
/* The header of a call's state lies before what its heads share. */
LINATTN__INLINE const linattn__header *linattn__header_of(const linattn__work *w)
{
    return (const linattn__header *)(const void *)(w->span.shared - LINATTN__HEADER_FLOATS);
}
#endif

#if LINATTN__HAS_PREFILL || LINATTN__HAS_RECURRENT
/* How many heads are taken whole, an even share of them in each of `*jobs` jobs. The others are
   split by columns, where there is room for private copies of `own` floats of each. */
LINATTN__COLD static size_t linattn__whole_heads(const linattn__span *s, size_t own,
                                                 const linattn_context *context, size_t *jobs)
{
    const size_t most = linattn__threads(context, s->heads * ((s->dv + 15) / 16));
    const size_t left = s->heads % most;
    *jobs = most;
    if (own <= LINATTN__PRIVATE_FLOATS && left * own <= LINATTN__PRIVATE_FLOATS)
        return s->heads - left;
    if (most > s->heads) *jobs = s->heads;
    return s->heads;
}
#endif

/* Where operands of a call say what their elements are. */
#define LINATTN__Q 0
#define LINATTN__K 2
#define LINATTN__V 4

/* What lies `count` elements on in one of them. */
#if LINATTN__HAS_HALF
#define LINATTN__ON(s, at, count, which) linattn__beyond(at, count, LINATTN__TYPE_OF(s, which))
#define LINATTN__TYPE_OF(s, which) ((int)((s)->elements >> LINATTN__##which & 3))
#define LINATTN__WIDENED(s) ((s)->elements)
#else
#define LINATTN__TYPE_OF(s, which) LINATTN_F32
#define LINATTN__WIDENED(s) 0
#define LINATTN__ON(s, at, count, which) ((at) + (count))
#endif

/* Moves a span of floats on to the next key/value head. */
LINATTN__INLINE void linattn__move(linattn__span *s, size_t heads)
{
    s->z += heads * s->head_floats;
    s->e += heads * s->head_floats;
    s->s += heads * s->head_floats;
    if (s->q) {
        s->q += heads * s->group * s->q_head;
        s->out += heads * s->group * s->out_head;
    }
    if (s->k) {
        s->k += heads * s->k_head;
        s->v += heads * s->v_head;
    }
}

/* The same of any elements. */
#if LINATTN__HAS_HALF
static LINATTN__NOINLINE void linattn__move_any(linattn__span *s, size_t heads)
{
    s->z += heads * s->head_floats;
    s->e += heads * s->head_floats;
    s->s += heads * s->head_floats;
    if (s->q) {
        s->q = LINATTN__ON(s, s->q, heads * s->group * s->q_head, Q);
        s->out += heads * s->group * s->out_head;
    }
    if (!s->k) return;
    s->k = LINATTN__ON(s, s->k, heads * s->k_head, K);
    s->v = LINATTN__ON(s, s->v, heads * s->v_head, V);
}
#else
LINATTN__INLINE void linattn__move_any(linattn__span *s, size_t heads) { linattn__move(s, heads); }
#endif

#if LINATTN__HAS_PREFILL || LINATTN__HAS_HALF
/* Tokens [t, t + count) of a span. */
static void linattn__cut(linattn__span *s, size_t t, size_t count)
{
    const size_t queries = t < s->lag ? 0 : t - s->lag;
    s->n = count;
    s->lag = t < s->lag ? s->lag - t : 0;
    if (s->q) {
        s->q = LINATTN__ON(s, s->q, queries * s->q_token, Q);
        s->out += queries * s->out_token;
    }
    if (s->k) { /* queries alone all see the same keys */
        s->seen += t;
        s->k = LINATTN__ON(s, s->k, t * s->k_token, K);
        s->v = LINATTN__ON(s, s->v, t * s->v_token, V);
    }
}
#endif

#if LINATTN__HAS_PREFILL
/* A row `offset` elements from `at`. */
LINATTN__COLD static void linattn__fetch_row(const float *at, ptrdiff_t offset, size_t dim,
                                             int element)
{
    const ptrdiff_t bytes = LINATTN__IS_HALF(element) ? 2 : (ptrdiff_t)sizeof *at;
    const char *row = (const char *)at + offset * bytes, *const end = row + dim * (size_t)bytes;
    for (; row < end; row += 64) LINATTN__FETCH((const float *)(const void *)row);
}

/* Fetches what token t of the head that lies so many on brings. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__fetch_token(const linattn__span *s,
                                                                 ptrdiff_t heads, size_t t)
{
    const ptrdiff_t token = (ptrdiff_t)t, group = (ptrdiff_t)s->group;
    ptrdiff_t g;
    LINATTN__EFFECT();
    if (s->k) {
        linattn__fetch_row(s->k, heads * (ptrdiff_t)s->k_head + token * (ptrdiff_t)s->k_token, s->d,
                           LINATTN__TYPE_OF(s, K));
        linattn__fetch_row(s->v, heads * (ptrdiff_t)s->v_head + token * (ptrdiff_t)s->v_token,
                           s->dv, LINATTN__TYPE_OF(s, V));
    }
    for (g = heads * group; s->q && g < (heads + 1) * group; g++) {
        linattn__fetch_row(s->q, g * (ptrdiff_t)s->q_head + token * (ptrdiff_t)s->q_token, s->d,
                           LINATTN__TYPE_OF(s, Q));
        linattn__fetch_row(s->out, g * (ptrdiff_t)s->out_head + token * (ptrdiff_t)s->out_token,
                           s->dv, LINATTN_F32);
    }
}
#endif

#if LINATTN__HAS_HALF
/* Floats that operands of 16 bits become at a time. */
#if LINATTN__COUNT > LINATTN__HAS_SCALAR
#define LINATTN__WIDE 4096
#else
#define LINATTN__WIDE 1024
#endif

/* What a span's token of so many rows takes there. */
LINATTN__INLINE size_t linattn__wide_floats(const linattn__span *s)
{
    return (s->q ? s->group * s->d : 0) + (s->k ? s->d + s->dv : 0);
}

/* Makes floats of `tokens` times `heads` rows of an operand, if they are not, at *scratch, which
   moves behind them. */
static void linattn__as_floats(const float **at, size_t *token, size_t *head, size_t tokens,
                               size_t heads, size_t dim, int element, float **scratch)
{
    linattn__widen_kernel *const widen = LINATTN__KERNEL(widen);
    const float *const from = *at;
    size_t t;
    if (element == LINATTN_F32 || !from) return;
    *at = *scratch;
    if (heads == 1) {
        widen(from, element, *token, tokens, dim, *scratch);
    } else {
        for (t = 0; t < tokens; t++)
            widen(linattn__beyond(from, t * *token, element), element, *head, heads, dim,
                  *scratch + t * heads * dim);
    }
    *scratch += tokens * heads * dim;
    *head = dim;
    *token = heads * dim;
}

/* The first tokens and heads of a span whose operands are of 16 bits, as floats. */
static float *linattn__widen_span(linattn__span *s, float *scratch)
{
    const unsigned e = s->elements;
    size_t keys = s->n;
#if LINATTN__HAS_WINDOW
    if (s->seen + keys > s->keys) keys = s->keys > s->seen ? (size_t)(s->keys - s->seen) : 0;
#endif
    linattn__as_floats(&s->q, &s->q_token, &s->q_head, s->n > s->lag ? s->n - s->lag : 0,
                       s->heads * s->group, s->d, (int)(e >> LINATTN__Q & 3), &scratch);
    linattn__as_floats(&s->k, &s->k_token, &s->k_head, keys, s->heads, s->d,
                       (int)(e >> LINATTN__K & 3), &scratch);
    linattn__as_floats(&s->v, &s->v_token, &s->v_head, keys, s->heads, s->dv,
                       (int)(e >> LINATTN__V & 3), &scratch);
    s->elements = 0;
#if LINATTN__HAS_PREFILL || LINATTN__HAS_RECURRENT
    s->fetch = s->turns = 0;
#endif
    return scratch;
}

#if LINATTN__HAS_PREFILL
/* Fetches so many tokens of a span's head from t on, or what comes when it has no more. */
LINATTN__COLD static void linattn__fetch_tokens(const linattn__span *s, size_t t, size_t count)
{
    for (; count > 0; count--, t++) {
        if (t < s->n)
            linattn__fetch_token(s, 0, t);
        else if (s->turns)
            linattn__fetch_token(s, s->next_head, s->next_token + (t - s->n));
    }
}
#endif

/* Calls the kernel of a span for as many tokens of one head at a time, or heads of one token, as
   there is room for: any cut has the same bits. */
LINATTN__COLD static void linattn__widened_heads(const linattn__span *all, size_t all_heads)
{
    float memory[LINATTN__WIDE + LINATTN__ALIGNMENT / sizeof(float)];
    float *const scratch = (float *)linattn__align(memory);
    const size_t most = LINATTN__WIDE / linattn__wide_floats(all);
    const size_t tokens = all->n > 1 ? most : 1, heads = all->n > 1 ? 1 : most;
    size_t h, t;
#if LINATTN__HAS_PREFILL
    /* with dense keys alone hardware keeps up */
    const int fetches = LINATTN__FETCHES(all) && all->n > 1 && (all->q || all->v_token > all->dv);
#endif
    for (h = 0; h < all_heads; h += heads)
        for (t = 0; t < all->n; t += tokens) {
            linattn__span s = *all;
            linattn__move_any(&s, h);
            linattn__cut(&s, t, all->n - t < tokens ? all->n - t : tokens);
            s.heads = all_heads - h < heads ? all_heads - h : heads;
#if LINATTN__HAS_PREFILL
            if (fetches) linattn__fetch_tokens(all, t + tokens, tokens);
#endif
            (void)linattn__widen_span(&s, scratch);
            all->kernel(&s);
        }
}

#if LINATTN__HAS_PREFILL
/* The kernels that take one head. */
LINATTN__COLD static void linattn__widened(const linattn__span *s) { linattn__widened_heads(s, 1); }
#endif

LINATTN__COLD static void linattn__step_copy(const linattn__span *s)
{
    linattn__span own = *s;
    LINATTN__RUN_STEP(&own);
}
#endif

#if LINATTN__HAS_PREFILL
static void linattn__span_of(const linattn__work *w, size_t head, linattn__span *s)
{
    *s = w->span;
    s->heads = 1;
    linattn__move_any(s, head);
}
#endif

/* z, E and S of a state's first head. */
LINATTN__INLINE void linattn__use_state(linattn__span *span, const linattn__shape *s, void *state)
{
    const size_t m16 = linattn__round16(s->m);
    span->shared = linattn__shared(state);
    span->z = linattn__head(state, s, 0);
    span->e = span->z + m16;
    span->s = span->e + m16;
#if LINATTN__HAS_RECURRENT
    if (s->rule) span->s += linattn__rule_floats_of(s->m, s->dv) + linattn__moving_floats(s);
#endif
}

/* Are panels of states fetched in several tiles? Tests do so whatever else is there. */
LINATTN__INLINE int linattn__asks_again(void)
{
#ifdef LINATTN__FAMILY
    return linattn__drops();
#else
    return linattn__drops() && !linattn__contended();
#endif
}

/* For states of so many floats in all: 1, and 2 where they come from beyond L3. On Zen 4: how many
   tiles ahead are fetched, so that each line is asked for in as many: 1, 2 where L3 may hold a part
   of them, 4 where it cannot. A tile too many takes up to a tenth; states from beyond L3 come in .5
   to .85 of the time. */
LINATTN__COLD static int linattn__stream_of(size_t floats)
{
    const int again = linattn__asks_again();
    const size_t least = again ? 2 * LINATTN__FETCH_FLOATS : LINATTN__FAR_FLOATS;
    if (floats <= least) return 1;
    return again && floats / 2 > LINATTN__FAR_FLOATS ? 4 : 2;
}

/* Tiles ahead that are fetched, where those are that come next. */
LINATTN__INLINE size_t linattn__tiles_ahead(const linattn__span *s)
{
    return linattn__asks_again() && s->stream ? (size_t)s->stream : 1;
}

/* Everything but the params, and what they need. */
LINATTN__INLINE void linattn__start_span(linattn__work *w, const linattn__shape *s, uint64_t seen,
                                         void *state)
{
    linattn__span *const span = &w->span;
    linattn__use_state(span, s, state);
    span->params = &w->params;
    span->heads = s->kv_heads;
    span->head_floats = s->head_floats;
    span->group = s->group;
    span->d = s->d;
    span->m = s->m;
    span->dv = s->dv;
    span->row_end = s->m;
    span->column_end = s->dv;
    span->seen = seen;
#if LINATTN__BOTH
    span->set = LINATTN__SET();
#endif
    span->stream = 0;
#if LINATTN__HAS_PREFILL || LINATTN__HAS_RECURRENT
    span->fetch = span->turns = 0;
#endif
#if LINATTN__HAS_HALF
    span->elements = 0;
    span->element = s->element;
    span->ahead = 0;
#endif
    span->lag = span->row_begin = span->column_begin = 0;
#if LINATTN__HAS_WINDOW
    span->keys = seen;
    span->window = s->window;
    span->band = NULL;
#endif
#if LINATTN__HAS_COMPENSATED
    span->past = s->precision ? s->head_floats / 2 : 0;
#endif
#if LINATTN__HAS_FEATURES
    span->shared_begin = span->rows = 0;
    span->panels = NULL;
#endif
}

static void linattn__start(linattn__work *w, const linattn__shape *s, uint64_t seen, void *state)
{
    linattn__read_params(s, &w->params);
    linattn__start_span(w, s, seen, state);
    w->span.q = w->span.k = w->span.v = NULL;
    w->span.out = NULL;
    w->span.n = 0;
}

LINATTN__INLINE void linattn__use_query(linattn__work *w, const linattn__operands *x)
{
#if LINATTN__HAS_HALF
    w->span.elements |= (unsigned)x->q.element << LINATTN__Q;
#endif
    w->span.q = x->q.data;
    w->span.q_token = x->q.stride[LINATTN__TOKEN];
    w->span.q_head = x->q.stride[LINATTN__HEAD];
    w->span.out = (float *)(uintptr_t)x->out.data;
    w->span.out_token = x->out.stride[LINATTN__TOKEN];
    w->span.out_head = x->out.stride[LINATTN__HEAD];
    w->span.n = x->n_q;
}

LINATTN__INLINE void linattn__use_keys(linattn__work *w, const linattn__operands *x)
{
#if LINATTN__HAS_HALF
    w->span.elements |= (unsigned)x->k.element << LINATTN__K | (unsigned)x->v.element << LINATTN__V;
#endif
    w->span.k = x->k.data;
    w->span.k_token = x->k.stride[LINATTN__TOKEN];
    w->span.k_head = x->k.stride[LINATTN__HEAD];
    w->span.v = x->v.data;
    w->span.v_token = x->v.stride[LINATTN__TOKEN];
    w->span.v_head = x->v.stride[LINATTN__HEAD];
    w->span.n = x->n_k;
#if LINATTN__HAS_WINDOW
    w->span.keys = w->span.seen + x->n_k;
#endif
}

/* One token of all heads of a span, or all tokens. */
LINATTN__INLINE void linattn__step_heads(linattn__span *s)
{
#if LINATTN__HAS_HALF
    if (s->elements) {
        s->kernel = linattn__step_copy;
        linattn__widened_heads(s, s->heads);
        return;
    }
#endif
    LINATTN__RUN_STEP(s);
}

#if !LINATTN__HAS_PREFILL
/* Heads, shared out. */
static void linattn__step_job(void *arg, size_t index)
{
    const linattn__work *w = (const linattn__work *)arg;
    linattn__span s = w->span;
    size_t head, end;
    linattn__share(w->span.heads, 1, index, w->jobs, &head, &end);
    linattn__move_any(&s, head);
    s.heads = end - head;
    linattn__step_heads(&s);
}
#endif

/* The context of a call, for so many sequences, that is worth sharing out, or NULL: there are no
   threads, or so little to do that they would take longer to begin. */
#if LINATTN__TO_BE_SMALL
LINATTN__INLINE const linattn_context *linattn__worth(const linattn_context *context,
                                                      const linattn__span *s, size_t sequences)
{
    (void)s;
    (void)sequences;
    return context;
}
#else
LINATTN__COLD static LINATTN__NOINLINE const linattn_context *
linattn__worth(const linattn_context *context, const linattn__span *s, size_t sequences)
{
    const size_t least = LINATTN__SHARE_FLOATS / (LINATTN__TAKES_VECTORS(s) ? 1u : 16u);
    const size_t floats = s->heads * s->group * s->m * s->dv;
    const int alone = s->n < least && sequences < least && s->n * sequences * floats < least;
    return linattn__threads(context, 2) < 2 || alone ? NULL : context;
}
#endif

#if LINATTN__HAS_PREFILL
/* Are the operands of this call so many that they come from memory? Then blocks fetch values and
   outputs ahead, too, which saves a tenth and more from 16 MB on, and costs some percent at 4 MB:
   but update, which nothing else holds up, then saves as much. On Intel's processors queries alone
   lose a tenth by it, and on Zen 3 all with queries below (32,32). */
static int linattn__from_memory(const linattn__span *s)
{
    const size_t q = s->q ? s->q_token + s->out_token : 0, k = s->k ? s->k_token + s->v_token : 0;
    if (s->q && (s->m * s->dv < 1024 || (!s->k && linattn__intel()))) return 0;
    return s->n > LINATTN__FETCH_FLOATS / (s->q ? 1u : 4u) / (q + k + 1);
}

LINATTN__INLINE void linattn__use_kernel(linattn__work *w, linattn__span_kernel *kernel)
{
    w->kernel = kernel;
#if LINATTN__HAS_HALF
    if (!w->span.elements) return;
    w->kernel = linattn__widened;
    w->span.kernel = kernel;
#endif
}

/* Heads [head, end): all tokens of each, or where they take turns so many of each, until there are
   no more. */
static void linattn__run_heads(const linattn__work *w, size_t head, size_t end)
{
    const size_t first = head, n = w->span.n;
    const size_t turn = end - head > 1 ? linattn__turn(&w->span, LINATTN__TURN) : n;
    linattn__span s;
    size_t t;
    for (t = 0; t < n; t += turn)
        for (head = first; head < end; head++) {
            const int more = head + 1 < end;
            linattn__span_of(w, head, &s);
            if (turn < n) {
                linattn__cut(&s, t, n - t < turn ? n - t : turn);
                s.turns = more || n - t >= 2 * turn;
                s.next_head = more ? 1 : (ptrdiff_t)first - (ptrdiff_t)head;
                s.next_token = more ? 0 : s.n;
            }
            w->kernel(&s);
        }
}

/* Parts of heads: features that keys are added to, or tokens of queries alone. */
static LINATTN__NOINLINE void linattn__run_parts(const linattn__work *w, size_t i, size_t end)
{
    linattn__span s;
    for (; i < end; i++) {
        const size_t part = i % w->parts;
        size_t t0, t1;
        linattn__span_of(w, i / w->parts, &s);
        if (s.k) {
            linattn__share(s.m, 16, part, w->parts, &s.row_begin, &s.row_end);
            if (s.row_begin == s.row_end) continue;
        } else {
            linattn__share(s.n, 1, part, w->parts, &t0, &t1);
            if (t0 == t1) continue;
            linattn__cut(&s, t0, t1 - t0);
        }
        w->kernel(&s);
    }
}

/* The heads of a span, token by token: few of them, or such as sums in 16 bits are rounded at. What
   a step moves on is put back, rather than that each takes a copy: that takes as long as a small
   step. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__token_heads(linattn__span *s)
{
    float *const z = s->z, *const e = s->e, *const rows = s->s, *const out = s->out;
    const float *const k = s->k, *const v = s->v, *const q = s->q;
    const uint64_t seen = s->seen;
    const size_t n = s->n, lag = s->lag;
    size_t t;
    for (t = 0; t < n; t++) {
        if (LINATTN__FETCHES(s) && n - t > 2) linattn__fetch_token(s, 0, t + 2);
        linattn__cut(s, t, 1);
        linattn__step_heads(s);
        s->z = z;
        s->e = e;
        s->s = rows;
        s->k = k;
        s->v = v;
        s->q = q;
        s->out = out;
        s->seen = seen;
        s->lag = lag;
    }
    s->n = n;
}

/* The same as a kernel, whose span is its caller's. */
LINATTN__COLD static void linattn__token_kernel(const linattn__span *s)
{
    linattn__span own = *s;
    linattn__token_heads(&own);
}

/* Heads [head, end), token by token. */
LINATTN__COLD static void linattn__run_together(const linattn__work *w, size_t head, size_t end)
{
    linattn__span s = w->span;
    if (head == end) return;
    linattn__move_any(&s, head);
    s.heads = end - head;
    linattn__token_heads(&s);
}

/* update and query. */
LINATTN__COLD static void linattn__parts_job(void *arg, size_t index)
{
    const linattn__work *w = (const linattn__work *)arg;
    size_t i, end;
    linattn__share(w->span.heads * w->parts, 1, index, w->jobs, &i, &end);
    if (w->parts == 1)
        linattn__run_heads(w, i, end);
    else
        linattn__run_parts(w, i, end);
}

/* causal: whole heads first. The heads left over are split by columns of the values: each job
   walks all their tokens with z and E of its own; job 0's are kept in `spare`, to be stored once
   all jobs, which start from the state's, have ended. */
LINATTN__COLD static void linattn__causal_job(void *arg, size_t index)
{
    const linattn__work *w = (const linattn__work *)arg;
    const size_t m16 = linattn__round16(w->span.m);
    size_t head, end;
    linattn__share(w->whole, 1, index, w->jobs, &head, &end);
    if (w->kernel == linattn__token_kernel &&
        (w->span.n == 1 || (end - head) * w->span.head_floats <= 65536)) /* which stay in L2 */
        linattn__run_together(w, head, end);
    else
        linattn__run_heads(w, head, end);
    for (head = w->whole; head < w->span.heads; head++) {
        float own[LINATTN__PRIVATE_FLOATS], *private_z = own;
        linattn__span s;
        if (index == 0) private_z = w->spare + (head - w->whole) * 2 * m16;
        linattn__span_of(w, head, &s);
        linattn__share(s.dv, 16, index, w->jobs, &s.column_begin, &s.column_end);
        if (s.column_begin == s.column_end) continue;
        linattn__copy(private_z, s.z, 2 * m16 * sizeof(float));
        s.z = private_z;
        s.e = private_z + m16;
        w->kernel(&s);
    }
}

/* All heads in this thread, from which the span may move on. */
static LINATTN__NOINLINE void linattn__heads_alone(linattn__work *w)
{
    size_t head;
    if (LINATTN__FETCHES(&w->span)) {
        linattn__run_heads(w, 0, w->span.heads);
        return;
    }
    for (head = 0; head < w->span.heads; head++) {
        w->kernel(&w->span);
        linattn__move_any(&w->span, 1);
    }
}

/* Heads split over threads. The memory for private copies is here, not in `work`, for calls that
   need none. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__causal_threads(linattn__work *w,
                                                                    const linattn_context *context)
{
    const size_t m16 = linattn__round16(w->span.m);
    float spare[LINATTN__PRIVATE_FLOATS];
    size_t i;
    w->whole = linattn__whole_heads(&w->span, 2 * m16, context, &w->jobs);
    w->spare = spare;
    linattn__run_jobs(linattn__causal_job, w, w->jobs, context);
    for (i = w->whole; i < w->span.heads; i++)
        linattn__copy(w->span.z + i * w->span.head_floats, spare + (i - w->whole) * 2 * m16,
                      2 * m16 * sizeof(float));
}

/* Few tokens, shared out. Returns 0, and has done nothing, where keys alone are for more threads
   than there are heads: blocks of rows are. */
LINATTN__COLD static LINATTN__NOINLINE int linattn__few_threads(linattn__work *w,
                                                                const linattn_context *context)
{
    const size_t heads = w->span.heads, jobs = linattn__threads(context, SIZE_MAX);
    if (!w->span.q && jobs > heads) return 0;
    w->kernel = linattn__token_kernel;
    if (w->span.k && w->span.q) {
        linattn__causal_threads(w, context);
        return 1;
    }
    w->whole = heads;
    w->jobs = jobs < heads ? jobs : heads;
    linattn__run_jobs(linattn__causal_job, w, w->jobs, context);
    return 1;
}

/* Heads alone if they share out evenly, else each in `jobs` parts. */
LINATTN__COLD static void linattn__do_parts(linattn__work *w, size_t divisible,
                                            const linattn_context *context)
{
    w->span.fetch = linattn__from_memory(&w->span);
    w->jobs = linattn__threads(context, w->span.heads * divisible);
    w->parts = w->span.heads % w->jobs == 0 ? 1 : w->jobs;
    linattn__run_jobs(linattn__parts_job, w, w->jobs, context);
}

#endif

#if LINATTN__HAS_PREFILL
/* The queries of each head as if they were query heads of a token, which read S together. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__query_heads(const linattn__span *s)
{
    linattn__span one = *s;
    size_t head;
    one.heads = 1;
    one.group = s->n;
    one.n = 1;
    one.q_head = s->q_token;
    one.out_head = s->out_token;
    for (head = 0; head < s->heads; head++) {
        const size_t at = head * s->head_floats;
        one.z = s->z + at;
        one.e = s->e + at;
        one.s = s->s + at;
        one.q = s->q + head * s->q_head;
        one.out = s->out + head * s->out_head;
        linattn__step_heads(&one);
    }
}
#endif

#if LINATTN__HAS_PREFILL && LINATTN__HAS_HALF
/* Threads share out heads and columns, of queries alone heads and tokens. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__half_tokens(linattn__work *w,
                                                                 const linattn_context *context)
{
    linattn__use_kernel(w, linattn__token_kernel);
    w->span.fetch = linattn__from_memory(&w->span);
    if (!context || !context->parallel_for || context->threads <= 1)
        linattn__run_heads(w, 0, w->span.heads);
    else if (w->span.k)
        linattn__causal_threads(w, context);
    else
        linattn__do_parts(w, w->span.n, context);
}
#endif

/* Does this call go token by token? A decode step does (in scalar code one that makes features does
   not), and sums in 16 bits, which are rounded at every token. Then the kernel `step` takes all
   heads. */
LINATTN__INLINE int linattn__is_step(const linattn__work *w)
{
    return !LINATTN__HAS_PREFILL || LINATTN__ELEMENT(&w->span) ||
           (w->span.n == 1 &&
            (linattn__is_direct(w->params.source) || LINATTN__TAKES_VECTORS(&w->span)));
}

/* Does such a call. Returns 0, and has done nothing, where that is for blocks. */
static int linattn__do_step(linattn__work *w, const linattn_context *context)
{
#if LINATTN__HAS_PREFILL && LINATTN__HAS_HALF
    if (w->span.element && (w->span.n > 1 || context)) {
        linattn__half_tokens(w, context);
        return 1;
    }
#endif
#if LINATTN__HAS_PREFILL
    if (linattn__threads(context, 2) > 1) return linattn__few_threads(w, context);
#else
    w->jobs = linattn__threads(context, w->span.heads);
    if (w->jobs > 1) {
        linattn__run_jobs(linattn__step_job, w, w->jobs, context);
        return 1;
    }
#endif
    linattn__step_heads(&w->span);
    return 1;
}

#if LINATTN__HAS_PREFILL
/* Blocks of scalar code are worth it where rows of S take several keys at once, and where these are
   large; compiled for size, when their tiles stay in memory, nowhere. */
#if LINATTN__COUNT != LINATTN__HAS_SCALAR
#define LINATTN__NO_BLOCKS(span) 0
#elif LINATTN__TO_BE_SMALL
#define LINATTN__NO_BLOCKS(span) 1
#else
#define LINATTN__NO_BLOCKS(span) ((span)->q && (span)->m * (span)->dv <= 4096)
#endif

/* So few tokens that blocks take longer than one by one: if that is so, they are done, for all
   heads at once, or head by head where large ones do not stay in the cache. How few was
   measured. */
LINATTN__COLD static LINATTN__NOINLINE int linattn__few_tokens(linattn__work *w,
                                                               const linattn_context *context)
{
    linattn__span *const all = &w->span;
    const int many = all->heads > 1;
    const int large = all->head_floats > 1024 && all->heads * all->head_floats > 65536;
    size_t most;
    if (LINATTN__NO_BLOCKS(all)) {
        most = SIZE_MAX;
    } else if (all->m <= 16 && all->dv <= 16) {
        const int tiny = all->m <= 8 && all->dv <= 8;
        most = 7;
        if (all->k) most = (tiny ? 5u : all->q ? 3u : 2u) + (many ? 2u : 0u);
    } else {
        const int avx2 = LINATTN__TAKES_AVX2(all), narrow = all->m <= 24 && all->dv <= 24;
        most = narrow ? 7 : 3;
        if (all->k && !all->q)
            most = narrow && many ? 2 : 1;
        else if (all->k && all->group > 1)
            most = all->group < 4 ? 3 : 1;
        else if (all->k)
            most = avx2 || (((all->dv - 1) & 8) == 0 && !large) ? 2 : 1;
    }
    if (all->n > most || !linattn__is_direct(w->params.source)) return 0;
    if (linattn__threads(context, 2) > 1) return linattn__few_threads(w, context);
    w->kernel = linattn__token_kernel;
    if (!all->k && all->group == 1 && !LINATTN__WIDENED(all) && !LINATTN__NO_BLOCKS(all))
        linattn__query_heads(all);
    else if (large)
        linattn__run_heads(w, 0, all->heads);
    else
        linattn__token_heads(all);
    return 1;
}

LINATTN__INLINE void linattn__update_tokens(linattn__work *w, const linattn_context *context)
{
    if (linattn__is_step(w) && linattn__do_step(w, context)) return;
    if (linattn__few_tokens(w, context)) return;
    linattn__use_kernel(w, LINATTN__ONE(update));
    linattn__do_parts(w, (w->span.m + 15) / 16, context);
}

#if LINATTN__BOTH
/* Are tokens of small heads faster by AVX2? On Zen 4, where the map takes less than what a vector
   has to wait for: .77 to .98 of the time. */
LINATTN__INLINE int linattn__half_vectors(const linattn__span *s)
{
    const int map = s->params->map, exponential = LINATTN__IS_ELU1(map) || LINATTN__IS_EXP(map);
    const size_t most = exponential ? 8 : 16;
    return s->m <= most && s->dv <= most && linattn__halved();
}
#endif

LINATTN__INLINE void linattn__causal_tokens(linattn__work *w, const linattn_context *context)
{
    if (linattn__is_step(w) && linattn__do_step(w, context)) return;
#if LINATTN__BOTH
    if (w->span.set > 1 && linattn__half_vectors(&w->span)) w->span.set = 1;
#endif
    if (linattn__few_tokens(w, context)) return;
    linattn__use_kernel(w, LINATTN__ONE(causal));
    w->span.fetch = linattn__from_memory(&w->span);
    if (context && context->parallel_for && context->threads > 1)
        linattn__causal_threads(w, context);
    else
        linattn__heads_alone(w);
}

typedef void linattn__tokens_run(linattn__work *w, const linattn_context *context);

#if LINATTN__HAS_COMPENSATED
LINATTN__COLD static void linattn__fold_job(void *arg, size_t index)
{
    const linattn__work *w = (const linattn__work *)arg;
    size_t head, end;
    linattn__share(w->span.heads, 1, index, w->jobs, &head, &end);
    for (; head < end; head++) {
        linattn__span s;
        linattn__span_of(w, head, &s);
        w->fold(&s);
    }
}

/* Is token t masked in every head? */
LINATTN__COLD static int linattn__masked_token(const linattn__span *s, size_t t, size_t heads)
{
#if LINATTN__HAS_HALF
    const int element = (int)(s->elements >> LINATTN__K & 3);
#else
    const int element = LINATTN_F32;
#endif
    size_t h;
    for (h = 0; h < heads; h++)
        if (!linattn__masked_row(LINATTN__ON(s, s->k, t * s->k_token + h * s->k_head, K), s->d,
                                 element))
            return 0;
    return 1;
}

/* Runs that end where the sums are folded: at the same tokens of the stream, however it is cut, and
   whatever masked tokens lie between these. */
LINATTN__COLD static LINATTN__NOINLINE void
linattn__folded_runs(linattn__work *w, linattn__tokens_run *run, const linattn_context *context)
{
    linattn__span *const s = &w->span;
    float *const z = s->z, *const e = s->e, *const sums = s->s, *const out = s->out;
    const float *const q = s->q, *const k = s->k, *const v = s->v;
    const size_t n = s->n;
    const linattn__header *const h = linattn__header_of(w);
    const size_t key_heads = h->key_heads ? h->key_heads : s->heads;
    size_t t, count, left, masked = linattn__masked_before(h);
    w->first = s->seen;
    for (t = 0; t < n; t += count) {
        left = LINATTN__FOLD - (size_t)((w->first + t + LINATTN__FOLD - masked) % LINATTN__FOLD);
        s->k = k;
        s->v = v;
        s->seen = w->first;
        for (count = 0; left && count < n - t; count++) {
            const int apart = linattn__masked_token(s, t + count, key_heads);
            masked += (size_t)apart;
            left -= (size_t)!apart;
        }
        masked %= LINATTN__FOLD;
        linattn__cut(s, t, count);
        run(w, context);
        s->z = z; /* a single token has moved them */
        s->e = e;
        s->s = sums;
        s->q = q;
        s->out = out;
        if (left) break;
        w->jobs = linattn__threads(context, s->heads);
        linattn__run_jobs(linattn__fold_job, w, w->jobs, context);
    }
    s->seen = w->first;
    s->n = n;
    linattn__set_masked((void *)(uintptr_t)h, masked);
}
#endif

/* All tokens of a call, or run by run where their sums are compensated. */
LINATTN__INLINE void linattn__do_runs(linattn__work *w, linattn__tokens_run *run,
                                      const linattn_context *context)
{
#if LINATTN__HAS_COMPENSATED
    if (w->span.past) {
        w->fold = LINATTN__COMMON(fold);
        linattn__folded_runs(w, run, context);
        return;
    }
#endif
    run(w, context);
}
#endif

static LINATTN__NOINLINE void linattn__do_update(linattn__work *w, const linattn_context *context)
{
    LINATTN__TAKE_UPDATE(&w->span);
#if LINATTN__HAS_PREFILL
    linattn__do_runs(w, linattn__update_tokens, context);
#else
    (void)linattn__do_step(w, context);
#endif
}

static LINATTN__NOINLINE void linattn__do_query(linattn__work *w, const linattn_context *context)
{
    if (linattn__is_step(w) && linattn__do_step(w, context)) return;
#if LINATTN__HAS_PREFILL
    if (linattn__few_tokens(w, context)) return;
    linattn__use_kernel(w, LINATTN__ONE(query));
    linattn__do_parts(w, w->span.n, context);
#endif
}

#if LINATTN__HAS_WINDOW
static void linattn__do_band(linattn__work *w, const linattn_context *context);
#endif
#if LINATTN__HAS_RECURRENT
static LINATTN__NOINLINE void linattn__do_recurrent(linattn__work *w,
                                                    const struct linattn__gating *gates,
                                                    const linattn_context *context);
#endif

static LINATTN__NOINLINE void linattn__do_causal(linattn__work *w, const linattn_context *context)
{
#if LINATTN__HAS_WINDOW
    if (w->span.window) {
        linattn__do_band(w, context);
        return;
    }
#endif
#if LINATTN__HAS_PREFILL
    linattn__do_runs(w, linattn__causal_tokens, context);
#else
    (void)linattn__do_step(w, context);
#endif
}

/* What a verb does. */
#define LINATTN__KEYS 1
#define LINATTN__QUERIES 2
#define LINATTN__ELEMENTS 4 /* with 16-bit elements in rows of any length */
#define LINATTN__RULES 8    /* of a rule other than the sum */

LINATTN__INLINE void linattn__do_verb(linattn__work *w, const int verb,
                                      const linattn_context *context)
{
#if LINATTN__HAS_RECURRENT
    /* programs without queries are without rules */
    if (verb == LINATTN__QUERIES && linattn__header_of(w)->rule) {
        linattn__do_recurrent(w, NULL, context);
        return;
    }
#endif
    if (verb == LINATTN__KEYS)
        linattn__do_update(w, context);
    else if (verb == LINATTN__QUERIES)
        linattn__do_query(w, context);
    else
        linattn__do_causal(w, context);
}

#if LINATTN__HAS_HALF
/* Are there rows of 16-bit elements that are too long to be made floats? */
LINATTN__INLINE int linattn__too_wide(const linattn__shape *s, int verb, const linattn__operands *x)
{
    int elements = 0;
    if ((verb & LINATTN__ELEMENTS) || (s->group + 1) * s->d + s->dv <= LINATTN__WIDE) return 0;
    if (verb & LINATTN__QUERIES) elements |= x->q.element;
    if (verb & LINATTN__KEYS) elements |= x->k.element | x->v.element;
    return elements != 0;
}
#endif

/* One of the operands that are read, where a call is none of the usual ones. */
static LINATTN__NOINLINE linattn_status linattn__read_input(linattn__extent *e,
                                                            const linattn_view *view,
                                                            size_t sequences, size_t n,
                                                            size_t heads, size_t dim)
{
    return linattn__read_view(e, view, sequences, n, heads, dim);
}

LINATTN__INLINE void linattn__widen(linattn__operands *x, const linattn__extent *e)
{
#if !LINATTN__TO_BE_SMALL
    const uintptr_t begin = (uintptr_t)e->data, end = begin + e->bytes;
    if (begin < x->low) x->low = begin;
    if (end > x->high) x->high = end;
#else
    (void)x, (void)e;
#endif
}

/* Does a block lie outside of all that the operands lie in? Most do, and are seen to at once; where
   code is to be small they are compared one by one. */
LINATTN__INLINE int linattn__outside(const linattn__operands *x, const void *block, size_t bytes)
{
#if !LINATTN__TO_BE_SMALL
    const uintptr_t at = (uintptr_t)block;
    return at - x->low >= x->high - x->low && x->low - at >= bytes;
#else
    (void)x, (void)block, (void)bytes;
    return 0;
#endif
}

/* Is the output clear of itself and of the inputs? */
LINATTN__COLD static LINATTN__NOINLINE int linattn__output_clear(const linattn__operands *x,
                                                                 int verb)
{
    if (!linattn__rows_apart(&x->out) || !linattn__clear_of(&x->out, &x->q)) return 0;
    return !(verb & LINATTN__KEYS) ||
           (linattn__clear_of(&x->out, &x->k) && linattn__clear_of(&x->out, &x->v));
}

/* The operands of a call for `sequences` sequences, checked against one another. */
static linattn_status linattn__read_operands(const linattn__shape *s, int verb, size_t sequences,
                                             const linattn_view *q, size_t n_q,
                                             const linattn_view *k, const linattn_view *v,
                                             size_t n_k, const linattn_output *out,
                                             linattn__operands *x)
{
    linattn_view to;
    linattn_status status = LINATTN_OK;
    x->n_q = n_q;
    x->n_k = n_k;
#if !LINATTN__TO_BE_SMALL
    x->low = UINTPTR_MAX;
    x->high = 0;
#endif
    if (verb & LINATTN__KEYS) {
        status = linattn__read_input(&x->k, k, sequences, n_k, linattn__key_heads(s), s->d);
        if (status != LINATTN_OK) return status;
        status = linattn__read_input(&x->v, v, sequences, n_k, s->kv_heads, s->dv);
        if (status != LINATTN_OK) return status;
        linattn__widen(x, &x->k);
        linattn__widen(x, &x->v);
    }
#if LINATTN__HAS_HALF
    if (!(verb & LINATTN__QUERIES))
        return linattn__too_wide(s, verb, x) ? LINATTN_ERROR_ELEMENT : LINATTN_OK;
#else
    if (!(verb & LINATTN__QUERIES)) return LINATTN_OK;
#endif
    status = linattn__read_input(&x->q, q, sequences, n_q,
                                 s->key_group > 1 ? linattn__key_heads(s) : s->heads, s->d);
    if (status != LINATTN_OK) return status;
    linattn__widen(x, &x->q);
    to = linattn__view_of(*out);
    status = linattn__read_view(&x->out, &to, sequences, n_q, s->heads, s->dv);
    if (status != LINATTN_OK) return status;
    if ((x->out.stride[LINATTN__HEAD] < s->dv ||
         (x->out.stride[LINATTN__TOKEN] | x->out.stride[LINATTN__SEQUENCE]) ||
         !linattn__outside(x, x->out.data, x->out.bytes)) &&
        !linattn__output_clear(x, verb))
        return LINATTN_ERROR_OVERLAP;
    linattn__widen(x, &x->out);
#if LINATTN__HAS_HALF
    if (linattn__too_wide(s, verb, x)) return LINATTN_ERROR_ELEMENT;
#endif
    return LINATTN_OK;
}

/* Does each of the operands lie apart from memory that is written, or read while the output is? */
LINATTN__COLD static LINATTN__NOINLINE int linattn__each_apart(const linattn__operands *x, int verb,
                                                               const void *block, size_t bytes)
{
    if ((verb & LINATTN__QUERIES) && !linattn__apart(&x->out, block, bytes)) return 0;
    if (!(verb & LINATTN__KEYS)) return 1; /* the block is only read */
    if ((verb & LINATTN__QUERIES) && !linattn__apart(&x->q, block, bytes)) return 0;
    return linattn__apart(&x->k, block, bytes) && linattn__apart(&x->v, block, bytes);
}

LINATTN__INLINE int linattn__operands_apart(const linattn__operands *x, int verb, const void *block,
                                            size_t bytes)
{
    return linattn__outside(x, block, bytes) || linattn__each_apart(x, verb, block, bytes);
}

#if !LINATTN__TO_BE_SMALL
/* A shorter way through the same checks, for what most calls are: a state with a feature for each
   coordinate, without a window or compensated sums, and rows of floats, token by token or head by
   head, in blocks that lie apart from one another. What it does not take, for whatever reason, is
   looked at in full after it. */
#define LINATTN__USUAL 0x100000u /* no stride or number of tokens is above: no product overflows */

/* Does the state of a rule other than the sum, or of the sum, go with its map and norm? */
LINATTN__INLINE int linattn__usual_rule(const linattn__header *h, int rules)
{
    const unsigned direct = (1u << LINATTN_MAP_FAVOR) - 1;
    if (!rules) /* where all of these maps are there the first test is the whole */
        return h->map < LINATTN_MAP_FAVOR &&
               ((LINATTN__MAPS & direct) == direct || (LINATTN__MAPS >> h->map & 1));
    return h->rule - 1 < LINATTN_RULE_COUNT - 1 && h->map < LINATTN_MAP_COUNT &&
           (LINATTN__MAPS & LINATTN__RULE_MAPS) >> h->map & 1 &&
           (h->norm == LINATTN_NORM_NONE ||
            (h->rule == LINATTN_RULE_GATED && h->norm != LINATTN_NORM_FEATURE));
}

/* Is this the header of such a state, one that linattn__read_state takes? */
LINATTN__INLINE int linattn__usual_header(const linattn__header *h, int rules)
{
    uint32_t rest = h->window | h->key_heads;
#if LINATTN__HAS_COMPENSATED
    rest |= h->precision;
#endif
    if (!rules) rest |= h->rule;
    return h->magic == LINATTN__MAGIC && h->version == LINATTN__STATE_VERSION(0) && rest == 0 &&
           h->norm - 1 < LINATTN_NORM_COUNT - 1 && h->scale - 1 < 0x7f7fffffu &&
           h->epsilon < 0x7f800000u && linattn__usual_rule(h, rules);
}

/* Its sizes, from which nothing overflows. */
LINATTN__INLINE int linattn__usual_sizes(const linattn__header *h, linattn__shape *s, int rules)
{
    s->heads = h->heads;
    s->kv_heads = h->kv_heads;
    s->d = h->d;
    s->dv = h->dv;
    LINATTN__OPAQUE(s->d); /* or gcc makes vectors of them, and takes these apart again */
    LINATTN__OPAQUE(s->dv);
    s->m = s->d;
    s->group = 1;
    if (((s->d - 1) | (s->dv - 1) | (s->heads - 1)) >= LINATTN_MAX_DIM) return 0;
    if (s->heads != s->kv_heads) {
        s->group = s->kv_heads ? s->heads / s->kv_heads : 0;
        if (s->group * s->kv_heads != s->heads) return 0;
    }
    s->head_floats = linattn__floats_of(s->d, s->dv);
    if (rules) s->head_floats += linattn__rule_floats_of(s->d, s->dv);
    s->state_bytes = LINATTN__HEADER_BYTES + s->kv_heads * s->head_floats * sizeof(float);
    return ((uint64_t)h->bytes_high << 32 | h->bytes_low) == s->state_bytes;
}

/* Are these addresses, strides and elements, of two operands, those of such operands? Below NULL
   there is nothing but the highest addresses. */
LINATTN__INLINE int linattn__usual_views(const float *a, const float *b, size_t strides,
                                         unsigned elements)
{
    const uintptr_t addresses = ((uintptr_t)a - 1) | ((uintptr_t)b - 1);
    return strides < LINATTN__USUAL && elements == LINATTN_F32 && addresses <= UINTPTR_MAX / 2;
}

/* What an operand, or a state, lies in. */
typedef struct linattn__place {
    uintptr_t begin, end;
} linattn__place;

/* Returns the stride of an operand's heads, and sets its place. more: rows but the first. */
LINATTN__INLINE size_t linattn__usual_rows(linattn__place *at, const float *data, size_t head,
                                           size_t more, size_t dim)
{
    if (!head) head = dim;
    at->begin = (uintptr_t)data;
    at->end = at->begin + (more * head + dim) * sizeof(float);
    return head;
}

LINATTN__INLINE int linattn__places_apart(linattn__place a, linattn__place b)
{
    return a.end <= b.begin || b.end <= a.begin;
}

/* The same for n tokens, once their first one's place is set. */
LINATTN__INLINE size_t linattn__usual_block(linattn__place *at, size_t n, size_t token, size_t head,
                                            size_t heads, size_t dim)
{
    if (!token) token = heads * head;
    at->end = at->begin + ((n - 1) * token + (heads - 1) * head + dim) * sizeof(float);
    return token;
}

/* What the span of such a state has of its operands, whose places are those of the first token:
   `to` is that of the output, or the state's. Says whether they are such, and lie apart. */
LINATTN__INLINE int linattn__usual_operands(linattn__span *s, int verb, const linattn_view *q,
                                            const linattn_view *k, const linattn_view *v,
                                            const linattn_output *out, size_t n,
                                            const linattn__shape *x, const linattn__place block,
                                            linattn__place *to)
{
    linattn__place at_q, at_k, at_v;
    at_k = at_v = block; /* unless there are keys */
    s->n = n;
    s->q_token = s->k_token = s->v_token = s->out_token = 0;
    if (verb & LINATTN__KEYS) {
        const size_t more = x->kv_heads - 1;
        if (!linattn__usual_views(k->data, v->data, k->stride_head | v->stride_head | (n - 1),
                                  (unsigned)k->element | (unsigned)v->element))
            return 0;
        s->k = k->data;
        s->v = v->data;
        s->k_head = linattn__usual_rows(&at_k, k->data, k->stride_head, more, x->d);
        s->v_head = linattn__usual_rows(&at_v, v->data, v->stride_head, more, x->dv);
        if (!linattn__places_apart(at_k, block) || !linattn__places_apart(at_v, block)) return 0;
    } else {
        s->k = s->v = NULL;
    }
    if (verb & LINATTN__QUERIES) {
        const size_t more = x->heads - 1;
        if (!linattn__usual_views(q->data, out->data, q->stride_head | out->stride_head | (n - 1),
                                  (unsigned)q->element))
            return 0;
        s->q = q->data;
        s->out = out->data;
        s->q_head = linattn__usual_rows(&at_q, q->data, q->stride_head, more, x->d);
        s->out_head = linattn__usual_rows(to, out->data, out->stride_head, more, x->dv);
        if (s->out_head < x->dv || !linattn__places_apart(*to, block) ||
            !linattn__places_apart(*to, at_q) || !linattn__places_apart(*to, at_k) ||
            !linattn__places_apart(*to, at_v) || !linattn__places_apart(at_q, block))
            return 0;
    } else {
        s->q = NULL;
        s->out = NULL;
        *to = block;
    }
    return 1;
}

/* The same of the tokens that follow. */
LINATTN__COLD static LINATTN__NOINLINE int
linattn__usual_tokens(linattn__span *s, int verb, const linattn_view *q, const linattn_view *k,
                      const linattn_view *v, const linattn_output *out, linattn__place state,
                      linattn__place *to)
{
    const size_t n = s->n, d = s->d, dv = s->dv, heads = s->heads * s->group;
    linattn__place at_q, at_k, at_v;
    at_k = at_v = state;
    if (verb & LINATTN__KEYS) {
        if ((k->stride_token | v->stride_token) >= LINATTN__USUAL) return 0;
        at_k.begin = (uintptr_t)s->k;
        at_v.begin = (uintptr_t)s->v;
        s->k_token = linattn__usual_block(&at_k, n, k->stride_token, s->k_head, s->heads, d);
        s->v_token = linattn__usual_block(&at_v, n, v->stride_token, s->v_head, s->heads, dv);
        if (!linattn__places_apart(at_k, state) || !linattn__places_apart(at_v, state)) return 0;
    }
    if (!(verb & LINATTN__QUERIES)) return 1;
    if ((q->stride_token | out->stride_token) >= LINATTN__USUAL) return 0;
    at_q.begin = (uintptr_t)s->q;
    s->q_token = linattn__usual_block(&at_q, n, q->stride_token, s->q_head, heads, d);
    s->out_token = linattn__usual_block(to, n, out->stride_token, s->out_head, heads, dv);
    if (s->out_token < heads * s->out_head && (s->out_head < n * s->out_token || s->out_token < dv))
        return 0;
    return linattn__places_apart(*to, state) && linattn__places_apart(*to, at_q) &&
           linattn__places_apart(*to, at_k) && linattn__places_apart(*to, at_v) &&
           linattn__places_apart(at_q, state);
}

/* Where the scale is none of those that most states have. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__usual_root(const void *state,
                                                                linattn__params *p)
{
    linattn__shape s;
    if (linattn__read_state(state, &s) == LINATTN_OK) linattn__read_params(&s, p);
}

/* As linattn__read_params, in less code and time where the scale is 1, and a rule's map is not one
   that goes with it in a form of its own. */
LINATTN__INLINE void linattn__usual_params(const linattn__header *h, linattn__shape *s, int rules,
                                           linattn__params *p)
{
    if (h->scale == 0x3f800000u && (!rules || h->map < LINATTN_MAP_EXP)) {
        const int softmax = LINATTN__HAS_SOFTMAX && h->map == LINATTN_MAP_SOFTMAX;
        p->softmax = softmax;
        p->map = softmax ? LINATTN_MAP_EXP : (int)h->map;
        p->source = LINATTN__DIRECT;
#if LINATTN__HAS_FEATURES
        p->signs = 0;
#endif
        p->norm = (int)h->norm;
        p->epsilon = linattn__from_bits(h->epsilon);
        p->floor = linattn__from_bits(h->map == LINATTN_MAP_RELU ? 0 : 0xff800000u);
        linattn__unit_root(p);
        return;
    }
    s->map = (int)h->map;
    s->norm = (int)h->norm;
    s->scale = linattn__from_bits(h->scale);
    s->epsilon = linattn__from_bits(h->epsilon);
    s->source = s->map == LINATTN_MAP_UNIT ? LINATTN__UNIT : LINATTN__DIRECT;
    if (!rules || linattn__set_params(s, p)) linattn__usual_root(h, p);
}

/* Checks a call, and has its span, which for one token a step takes as it is; of rules also what is
   written: the state, and the output, if there is one. Inline in each verb, which saves a sixth of
   one token of a small head. */
LINATTN__INLINE int linattn__open_usual(void *state, linattn__work *w, const linattn_view *q,
                                        const linattn_view *k, const linattn_view *v,
                                        const linattn_output *out, size_t n, const int verb,
                                        const linattn_context *context, linattn__place *written)
{
    const linattn__header *const h = (const linattn__header *)state;
    const int rules = verb & LINATTN__RULES;
    linattn__place block, to;
    linattn__shape s;
    if (SIZE_MAX >> 31 >> 31 == 0 || !state || (uintptr_t)state % sizeof(float) != 0 ||
        linattn__cannot_thread(context) || !linattn__usual_header(h, rules) ||
        !linattn__usual_sizes(h, &s, rules))
        return 0;
    s.shared_floats = s.window = 0;
#if LINATTN__HAS_COMPENSATED
    s.precision = 0;
#endif
#if LINATTN__HAS_HALF
    s.element = LINATTN_F32;
#endif
    s.rule = rules ? (int)h->rule : LINATTN_RULE_SUM;
    linattn__start_span(w, &s, linattn__seen(state), state);
    if (s.state_bytes / sizeof(float) > LINATTN__FETCH_FLOATS && n == 1)
        w->span.stream = linattn__stream_of(s.state_bytes / sizeof(float));
    block.begin = (uintptr_t)state;
    block.end = block.begin + s.state_bytes;
    if (!linattn__usual_operands(&w->span, verb, q, k, v, out, n, &s, block, &to)) return 0;
    if (n > 1) {
        linattn__place all = to; /* those of one token stay in registers */
        if (!linattn__usual_tokens(&w->span, verb, q, k, v, out, block, &all)) return 0;
        to.end = all.end;
    }
    if (rules) {
        written[0] = block;
        written[1] = to;
    }
    w->environment = linattn__enter();
    linattn__usual_params(h, &s, rules, &w->params);
    return 1;
}
#endif

/* Enters the environment for operands that are checked. */
LINATTN__INLINE void linattn__begin(linattn__work *w, const linattn__shape *s,
                                    const linattn__operands *x, int verb, void *state)
{
    const size_t n = verb & LINATTN__KEYS ? x->n_k : x->n_q;
    w->environment = linattn__enter();
    linattn__start(w, s, linattn__seen(state), state);
    if (verb & LINATTN__KEYS) linattn__use_keys(w, x);
    if (verb & LINATTN__QUERIES) linattn__use_query(w, x);
    if (n == 1 && s->state_bytes / sizeof(float) > LINATTN__FETCH_FLOATS)
        w->span.stream = linattn__stream_of(s->state_bytes / sizeof(float));
#if LINATTN__HAS_HALF
    if (w->span.stream) w->span.ahead = s->head_floats * sizeof(float);
#endif
}

/* Reads and checks what one of the three verbs is called with on a state, and where there is
   anything to do enters the environment. A function of its own, so that its locals are gone from
   the stack when kernels run. */
LINATTN__OPENING linattn_status linattn__open_any(void *state, linattn__work *w,
                                                  const linattn_view *q, const linattn_view *k,
                                                  const linattn_view *v, const linattn_output *out,
                                                  size_t n, const int verb,
                                                  const linattn_context *context)
{
    linattn__shape s;
    linattn__operands x;
    linattn_status status = linattn__read_state(state, &s);
    if (status != LINATTN_OK) return status;
    /* windows forget by tokens: sums without the tokens cannot; other rules need gates */
    if ((s.window && verb != (LINATTN__KEYS | LINATTN__QUERIES)) ||
        (s.rule && verb != LINATTN__QUERIES))
        return LINATTN_ERROR_UNSUPPORTED;
    status = linattn__read_operands(&s, verb, 1, q, n, k, v, n, out, &x);
    if (status != LINATTN_OK) return status;
    if (linattn__cannot_thread(context)) return LINATTN_ERROR_NULL;
    if (!linattn__operands_apart(&x, verb, state, s.state_bytes)) return LINATTN_ERROR_OVERLAP;
    if (n > 0) linattn__begin(w, &s, &x, verb, state);
    return LINATTN_OK;
}

/* Runs one of the three verbs on a state, or says why not. */
LINATTN__INLINE linattn_status linattn__call(void *state, const int verb, const linattn_view *q,
                                             const linattn_view *k, const linattn_view *v,
                                             const linattn_output *out, size_t n,
                                             const linattn_context *context)
{
    linattn__work w;
    int usual = 0;
#if !LINATTN__TO_BE_SMALL
    usual = linattn__open_usual(state, &w, q, k, v, out, n, verb, context, NULL);
#endif
    if (!usual) {
        const linattn_status status = linattn__open_any(state, &w, q, k, v, out, n, verb, context);
        if (status != LINATTN_OK || n == 0) return status;
    }
    if (verb == LINATTN__KEYS) LINATTN__TAKE_UPDATE(&w.span);
    if (context) context = linattn__worth(context, &w.span, 1);
    if (usual && n == 1 && !context)
        LINATTN__RUN_STEP(&w.span);
    else
        linattn__do_verb(&w, verb, context);
    linattn__leave(w.environment);
    if (verb & LINATTN__KEYS) linattn__set_tokens(state, w.span.seen + n);
    return LINATTN_OK;
}

LINATTN_API linattn_status linattn_update(void *state, linattn_view k, linattn_view v, size_t n,
                                          const linattn_context *context)
{
    return linattn__call(state, LINATTN__KEYS, NULL, &k, &v, NULL, n, context);
}

LINATTN_API linattn_status linattn_query(const void *state, linattn_view q, linattn_output out,
                                         size_t n, const linattn_context *context)
{
    return linattn__call((void *)(uintptr_t)state, LINATTN__QUERIES, &q, NULL, NULL, &out, n,
                         context);
}

LINATTN_API linattn_status linattn_causal(void *state, linattn_view q, linattn_view k,
                                          linattn_view v, linattn_output out, size_t n,
                                          const linattn_context *context)
{
    return linattn__call(state, LINATTN__KEYS | LINATTN__QUERIES, &q, &k, &v, &out, n, context);
}

/* ---- Many states: one call for a sequence each ----------------------------------------------- */

/* One call for `count` states, shared by its jobs. */
typedef struct linattn__crowd {
    linattn__work work; /* as for the first state */
    void *const *states;
    size_t bytes, count, jobs, n;
    size_t k, v, q, out; /* strides from one sequence to the next */
    int verb;
    int from_memory, distant, stream; /* states come from L3, or from beyond it */
    int walks;                        /* kernels fetch what comes next, row by row */
    linattn__step_kernel *step;       /* not NULL: does one state, which takes nothing else */
    struct linattn__gating *gating;   /* of the first state, under a rule other than the sum */
    /* what the verb does with one state, which `work` then has */
    void (*run)(const struct linattn__crowd *c, linattn__work *work, size_t index);
} linattn__crowd;

/* Fetches the state that comes next: its lines do not follow from those of this one. */
static void linattn__fetch_state(const void *state, size_t bytes)
{
    const char *const at = (const char *)state;
    size_t i;
    LINATTN__EFFECT();
    if (bytes > 16384) bytes = 16384;
    if (bytes > 8192 && linattn__near()) { /* a choice in the loop would take as long as a fetch */
        for (i = 0; i < bytes; i += 64) LINATTN__FETCH_NEAR(at + i);
        return;
    }
    for (i = 0; i < bytes; i += 64) LINATTN__FETCH(at + i);
}

#if LINATTN__HAS_HALF
/* S in 16 bits its tiles fetch themselves, row by row. Returns the bytes before it. */
static size_t linattn__fetches_ahead(const linattn__crowd *c, linattn__span *span, size_t index)
{
    const linattn__span *const first = &c->work.span;
    span->ahead = (uintptr_t)c->states[index + 1] - (uintptr_t)c->states[index];
    return (size_t)(first->s - (float *)c->states[0]) * sizeof(float);
}
#endif

/* What comes next, while state `index` is at work. Kernels that walk through the rows of large
   heads fetch it themselves, but for small states from beyond L3 that do not follow one another: on
   Zen 4 .45 to .95 of the time that fetching each next state takes. */
static void linattn__fetch_next(const linattn__crowd *c, linattn__span *span, size_t index,
                                size_t end)
{
    size_t bytes = c->bytes, i = index + 1, last = index + 2;
    if (!c->from_memory) return;
    if (c->walks) {
        const int follows = i >= end || bytes > 49152 ||
                            (uintptr_t)c->states[i] - (uintptr_t)c->states[index] - bytes < 256;
        span->stream = c->distant && !follows ? 0 : c->stream;
        if (span->stream) return;
        last++;
    }
#if LINATTN__HAS_HALF
    if (span->element && i < end) bytes = linattn__fetches_ahead(c, span, index);
#endif
    for (; i < last && i < end; i++) linattn__fetch_state(c->states[i], bytes);
}

/* Makes one of the states, and its operands, those of `w`. */
static void linattn__crowd_one(const linattn__crowd *c, linattn__work *w, size_t index)
{
    void *const state = c->states[index];
    linattn__span *const span = &w->span;
    const linattn__span *const first = &c->work.span;
    const size_t z = (size_t)(first->z - (float *)c->states[0]);
    span->shared = linattn__shared(state);
    span->z = (float *)state + z;
    span->e = span->z + (first->e - first->z);
    span->s = span->z + (first->s - first->z);
    span->seen = linattn__seen(state);
#if LINATTN__HAS_WINDOW
    span->keys = span->seen + c->n;
#endif
    if (c->verb & LINATTN__KEYS) {
        span->k = LINATTN__ON(first, first->k, index * c->k, K);
        span->v = LINATTN__ON(first, first->v, index * c->v, V);
    }
    if (c->verb & LINATTN__QUERIES) {
        span->q = LINATTN__ON(first, first->q, index * c->q, Q);
        span->out = first->out + index * c->out;
    }
}

static void linattn__crowd_job(void *arg, size_t index)
{
    const linattn__crowd *c = (const linattn__crowd *)arg;
    linattn__work w = c->work;
    size_t i, end;
    w.span.params = &w.params;
    linattn__share(c->count, 1, index, c->jobs, &i, &end);
    for (; i < end; i++) {
        linattn__fetch_next(c, &w.span, i, end);
        linattn__crowd_one(c, &w, i);
        if (c->step)
            c->step(&w.span);
        else
            c->run(c, &w, i);
        if (c->verb & LINATTN__KEYS) linattn__set_tokens(c->states[i], w.span.seen + c->n);
    }
}

static void linattn__run_update(const linattn__crowd *c, linattn__work *w, size_t index)
{
    (void)c, (void)index;
    linattn__do_verb(w, LINATTN__KEYS, NULL);
}

static void linattn__run_query(const linattn__crowd *c, linattn__work *w, size_t index)
{
    (void)c, (void)index;
    linattn__do_verb(w, LINATTN__QUERIES, NULL);
}

static void linattn__run_causal(const linattn__crowd *c, linattn__work *w, size_t index)
{
    (void)c, (void)index;
    linattn__do_verb(w, LINATTN__KEYS | LINATTN__QUERIES, NULL);
}

#define LINATTN__CROWD 128 /* states that are sorted at a time */

/* Does state `at` lie clear of the sorted ones? Where it belongs is left in *place. */
static int linattn__beside(const uintptr_t *sorted, size_t count, uintptr_t at, size_t bytes,
                           size_t *place)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (sorted[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    *place = low;
    return (low == count || sorted[low] - at >= bytes) &&
           (low == 0 || at - sorted[low - 1] >= bytes);
}

/* Do states that are scattered lie clear of one another? Some of them at a time are sorted, and all
   that follow are looked up there. */
LINATTN__COLD static LINATTN__NOINLINE int linattn__scattered_apart(void *const *states,
                                                                    size_t count, size_t bytes)
{
    uintptr_t sorted[LINATTN__CROWD];
    size_t i, j, begin, held, place;
    for (begin = 0; begin < count; begin += held) {
        for (held = 0; held < LINATTN__CROWD && begin + held < count; held++) {
            const uintptr_t at = (uintptr_t)states[begin + held];
            if (!linattn__beside(sorted, held, at, bytes, &place)) return 0;
            for (j = held; j > place; j--) sorted[j] = sorted[j - 1];
            sorted[place] = at;
        }
        for (i = begin + held; i < count; i++)
            if (!linattn__beside(sorted, held, (uintptr_t)states[i], bytes, &place)) return 0;
    }
    return 1;
}

/* The states that begin in the stretch of memory from `low` on that has room for LINATTN__CROWD of
   them: each has a place of its own there, or two overlap. */
typedef struct linattn__stretch {
    uintptr_t low, top, next; /* the last of them, and the first one behind: 0, none */
    size_t count;
} linattn__stretch;

LINATTN__COLD static LINATTN__NOINLINE int
linattn__stretch_apart(linattn__stretch *s, void *const *states, size_t count, size_t bytes)
{
    uintptr_t place[LINATTN__CROWD];
    size_t i, u;
    for (u = 0; u < LINATTN__CROWD; u++) place[u] = 0;
    s->top = s->next = 0;
    s->count = 0;
    for (i = 0; i < count; i++) {
        const uintptr_t at = (uintptr_t)states[i];
        if (at < s->low) continue;
        if ((at - s->low) / LINATTN__CROWD >= bytes) {
            if (!s->next || at < s->next) s->next = at;
            continue;
        }
        u = (size_t)(at - s->low) / bytes;
        if (place[u] || (u > 0 && place[u - 1] && at - place[u - 1] < bytes) ||
            (u + 1 < LINATTN__CROWD && place[u + 1] && place[u + 1] - at < bytes))
            return 0;
        place[u] = at;
        s->count++;
        if (at > s->top) s->top = at;
    }
    return !s->next || s->next - s->top >= bytes;
}

/* Do the states lie clear of one another? Those that ascend or descend, as in one array, take one
   look at each; those that lie close together in any order one for each stretch. */
LINATTN__COLD static LINATTN__NOINLINE int linattn__states_apart(void *const *states, size_t count,
                                                                 size_t bytes)
{
    linattn__stretch s;
    size_t up = 1, down = 1, i;
    s.next = count ? (uintptr_t)states[0] : 0;
    for (i = 1; i < count; i++) {
        const uintptr_t before = (uintptr_t)states[i - 1], at = (uintptr_t)states[i];
        up &= at > before && at - before >= bytes;
        down &= at < before && before - at >= bytes;
        if (at < s.next) s.next = at;
    }
    while (!up && !down && s.next) {
        s.low = s.next;
        if (!linattn__stretch_apart(&s, states, count, bytes)) return 0;
        if (s.next && s.count < LINATTN__CROWD / 8)
            return linattn__scattered_apart(states, count, bytes);
    }
    return 1;
}

/* Is a state clear of an operand, at least between its repetitions, as in an array of structs that
   hold both? */
static int linattn__state_apart(const linattn__extent *e, const void *state, size_t bytes)
{
    linattn__extent block;
    const size_t each = LINATTN__IN_FLOAT(e);
    int k;
    if (linattn__apart(e, state, bytes)) return 1;
    block.data = (const float *)state;
    block.dim = bytes / sizeof(float);
    for (k = 0; k < 3; k++) {
        block.count[k] = 1;
        block.stride[k] = 0;
    }
#if LINATTN__HAS_HALF
    block.element = LINATTN_F32;
#endif
    for (k = 0; k < 3; k++)
        if (e->stride[k] && e->stride[k] % each == 0 &&
            linattn__fold_apart(e, &block, e->stride[k] / each))
            return 1;
    return 0;
}

/* Is a state clear of all operands? */
static LINATTN__NOINLINE int linattn__state_beside(const linattn__operands *x, int verb,
                                                   const void *state, size_t bytes)
{
    if ((verb & LINATTN__QUERIES) && !linattn__state_apart(&x->out, state, bytes)) return 0;
    if (!(verb & LINATTN__KEYS)) return 1; /* states are only read */
    if ((verb & LINATTN__QUERIES) && !linattn__state_apart(&x->q, state, bytes)) return 0;
    return linattn__state_apart(&x->k, state, bytes) && linattn__state_apart(&x->v, state, bytes);
}

/* The stride that all operands have from one sequence to the next, in bytes; 0 if they differ, or
   are not floats. */
static size_t linattn__common_stride(const linattn__operands *x, int verb)
{
    const linattn__extent *const first = verb & LINATTN__KEYS ? &x->k : &x->q;
    const size_t stride = first->stride[LINATTN__SEQUENCE];
#if LINATTN__HAS_HALF
    if (((verb & LINATTN__KEYS) && (x->k.element || x->v.element)) ||
        ((verb & LINATTN__QUERIES) && x->q.element))
        return 0;
#endif
    if ((verb & LINATTN__KEYS) && x->v.stride[LINATTN__SEQUENCE] != stride) return 0;
    if ((verb & LINATTN__QUERIES) &&
        (x->q.stride[LINATTN__SEQUENCE] != stride || x->out.stride[LINATTN__SEQUENCE] != stride))
        return 0;
    return stride * sizeof(float);
}

/* Does a state, modulo that stride, lie beside all operands? */
static LINATTN__NOINLINE int linattn__state_folds(const linattn__operands *x, int verb,
                                                  const void *state, size_t bytes, size_t stride)
{
    const size_t period = stride / sizeof(float);
    linattn__extent block;
    int k;
    block.data = (const float *)state;
    block.dim = bytes / sizeof(float);
    for (k = 0; k < 3; k++) {
        block.count[k] = 1;
        block.stride[k] = 0;
    }
#if LINATTN__HAS_HALF
    block.element = LINATTN_F32;
#endif
    if ((verb & LINATTN__QUERIES) && !(linattn__fold_apart(&x->q, &block, period) &&
                                       linattn__fold_apart(&x->out, &block, period)))
        return 0;
    return !(verb & LINATTN__KEYS) || (linattn__fold_apart(&x->k, &block, period) &&
                                       linattn__fold_apart(&x->v, &block, period));
}

/* States of one config, clear of one another where they are written, and of the operands: at once
   where all of these lie outside of what the states span. */
static linattn_status linattn__read_states(void *const *states, size_t count, int verb,
                                           const linattn__shape *s, const linattn__operands *x)
{
    const size_t step = linattn__common_stride(x, verb);
    uintptr_t low = UINTPTR_MAX, high = 0;
    int folded = 0;
    size_t i;
    for (i = 0; i < count; i++) {
        const linattn_status status = linattn__find_header(states[i]);
        if (status != LINATTN_OK) return status;
        if (!linattn__same_config(states[i], states[0])) return LINATTN_ERROR_STATE;
        if ((uintptr_t)states[i] < low) low = (uintptr_t)states[i];
        if ((uintptr_t)states[i] > high) high = (uintptr_t)states[i];
    }
    if ((verb & LINATTN__KEYS) && !linattn__states_apart(states, count, s->state_bytes))
        return LINATTN_ERROR_OVERLAP;
    if (linattn__operands_apart(x, verb, (const void *)low, (size_t)(high - low) + s->state_bytes))
        return LINATTN_OK;
    for (i = 0; i < count; i++) {
        /* in step with the operands it lies as the one before, modulo their stride */
        if (folded && (uintptr_t)states[i] - (uintptr_t)states[i - 1] == step) continue;
        folded = step && linattn__state_folds(x, verb, states[i], s->state_bytes, step);
        if (!folded && !linattn__state_beside(x, verb, states[i], s->state_bytes))
            return LINATTN_ERROR_OVERLAP;
    }
    return LINATTN_OK;
}

#if LINATTN__HAS_RECURRENT
static linattn_status linattn__open_many_gates(linattn__crowd *c, const linattn__shape *s,
                                               const linattn_gates *gates,
                                               const linattn__extent *out);
#endif

/* Reads and checks a call, as linattn__open_any does. */
LINATTN__COLD static LINATTN__NOINLINE linattn_status linattn__open_many(
    linattn__crowd *c, const linattn_view *q, const linattn_view *k, const linattn_view *v,
    const struct linattn_gates *gates, const linattn_output *out, const linattn_context *context)
{
    const int verb = c->verb;
    linattn__shape s;
    linattn__operands x;
    linattn_status status;
    if (!c->states) return LINATTN_ERROR_NULL;
    if (c->count > LINATTN__MAX_FLOATS / sizeof *c->states) return LINATTN_ERROR_SIZE;
    status = linattn__read_state(c->states[0], &s);
    if (status != LINATTN_OK) return status;
    if ((s.window && verb != (LINATTN__KEYS | LINATTN__QUERIES)) ||
        (s.rule && verb != LINATTN__QUERIES && !c->gating))
        return LINATTN_ERROR_UNSUPPORTED;
    status = linattn__read_operands(&s, verb, c->count, q, c->n, k, v, c->n, out, &x);
    if (status == LINATTN_OK && linattn__cannot_thread(context)) status = LINATTN_ERROR_NULL;
    if (status == LINATTN_OK) status = linattn__read_states(c->states, c->count, verb, &s, &x);
    (void)gates;
#if LINATTN__HAS_RECURRENT
    if (status == LINATTN_OK && c->gating) status = linattn__open_many_gates(c, &s, gates, &x.out);
#endif
    if (status != LINATTN_OK || c->n == 0) return status;
    c->work.environment = linattn__enter();
    linattn__start(&c->work, &s, linattn__seen(c->states[0]), c->states[0]);
    c->k = c->v = c->q = c->out = 0;
    if (verb & LINATTN__KEYS) {
        linattn__use_keys(&c->work, &x);
        c->k = x.k.stride[LINATTN__SEQUENCE];
        c->v = x.v.stride[LINATTN__SEQUENCE];
    }
    if (verb & LINATTN__QUERIES) {
        linattn__use_query(&c->work, &x);
        c->q = x.q.stride[LINATTN__SEQUENCE];
        c->out = x.out.stride[LINATTN__SEQUENCE];
    }
    c->bytes = s.state_bytes;
    if (linattn__is_step(&c->work) && !s.rule && !s.window && !LINATTN__PAST(&c->work.span) &&
        !LINATTN__ELEMENT(&c->work.span) && !LINATTN__WIDENED(&c->work.span))
        c->step = LINATTN__KERNEL(step);
    return LINATTN_OK;
}

static void linattn__gather(linattn__crowd *c, void *const *states, size_t count, size_t n,
                            int verb,
                            void (*run)(const linattn__crowd *c, linattn__work *w, size_t index))
{
    c->states = states;
    c->count = count;
    c->n = n;
    c->verb = verb;
    c->run = run;
    c->step = NULL;
    c->gating = NULL;
}

static linattn_status linattn__call_many(linattn__crowd *c, const linattn_view *q,
                                         const linattn_view *k, const linattn_view *v,
                                         const struct linattn_gates *gates,
                                         const linattn_output *out, const linattn_context *context)
{
    linattn__span *span;
    linattn_status status;
    if (c->count == 0) return LINATTN_OK;
    status = linattn__open_many(c, q, k, v, gates, out, context);
    if (status != LINATTN_OK || c->n == 0) return status;
    span = &c->work.span;
    c->from_memory = c->bytes / sizeof(float) > LINATTN__FETCH_FLOATS / 4 / c->count;
    c->distant = c->bytes / sizeof(float) > LINATTN__FAR_FLOATS / c->count;
    c->stream = linattn__stream_of(c->distant ? SIZE_MAX : c->bytes / sizeof(float) * c->count);
    c->walks =
        linattn__drops() && c->n == 1 && (span->m > 16 || span->dv > 16) && !LINATTN__ELEMENT(span);
    if (c->n == 1 && c->distant && linattn__near()) span->stream = c->stream;
    c->jobs = linattn__threads(linattn__worth(context, &c->work.span, c->count), c->count);
    linattn__run_jobs(linattn__crowd_job, c, c->jobs, context);
    linattn__leave(c->work.environment);
    return LINATTN_OK;
}

LINATTN_API linattn_status linattn_update_many(void *const *states, size_t count, linattn_view k,
                                               linattn_view v, size_t n,
                                               const linattn_context *context)
{
    linattn__crowd c;
    LINATTN__TAKE_UPDATE(&c.work.span);
    linattn__gather(&c, states, count, n, LINATTN__KEYS, linattn__run_update);
    return linattn__call_many(&c, NULL, &k, &v, NULL, NULL, context);
}

LINATTN_API linattn_status linattn_query_many(const void *const *states, size_t count,
                                              linattn_view q, linattn_output out, size_t n,
                                              const linattn_context *context)
{
    linattn__crowd c;
    linattn__gather(&c, (void *const *)(uintptr_t)states, count, n, LINATTN__QUERIES,
                    linattn__run_query);
    return linattn__call_many(&c, &q, NULL, NULL, NULL, &out, context);
}

LINATTN_API linattn_status linattn_causal_many(void *const *states, size_t count, linattn_view q,
                                               linattn_view k, linattn_view v, linattn_output out,
                                               size_t n, const linattn_context *context)
{
    linattn__crowd c;
    linattn__gather(&c, states, count, n, LINATTN__KEYS | LINATTN__QUERIES, linattn__run_causal);
    return linattn__call_many(&c, &q, &k, &v, NULL, &out, context);
}

/* ---- Merging --------------------------------------------------------------------------------- */

#if LINATTN__HAS_RECURRENT
LINATTN__COLD static LINATTN__NOINLINE int linattn__merge_rule(const linattn__span *dst,
                                                               const linattn__span *src, int rule);
LINATTN__COLD static int linattn__imported(const void *state, const linattn__shape *s);
#endif

/* Do two states of one config have the same projection? It has more numbers than what is merged. */
LINATTN__WARM static LINATTN__NOINLINE int linattn__same_shared(void *a, const void *b,
                                                                const linattn__shape *s)
{
    const float *x = linattn__shared(a), *y = linattn__shared((void *)(uintptr_t)b);
    uint32_t differ = 0;
    size_t i;
    for (i = 0; i < s->shared_floats; i++)
        differ |= linattn__to_bits(x[i]) ^ linattn__to_bits(y[i]);
    return differ == 0;
}

#if LINATTN__HAS_COMPENSATED
/* The past of two states: sums as any others. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__merge_past(const linattn__span *dst,
                                                                const linattn__span *src)
{
    linattn__span to = *dst, from = *src;
    to.z += to.past;
    to.e += to.past;
    to.s += to.past;
    from.z += to.past;
    from.e += to.past;
    from.s += to.past;
    LINATTN__COMMON(merge)(&to, &from);
}
#endif

#if LINATTN__HAS_HALF
/* Sums in 16 bits, each 16 of a row as the floats of a head of one feature. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__merge_halves(const linattn__span *dst,
                                                                  const linattn__span *src)
{
    const size_t panels = (dst->dv + 15) / 16;
    float sums[2][16], z[2][16] = {{0.0f}}, e[2][16] = {{0.0f}};
    linattn__span to = *dst, from = *src;
    size_t row, i;
    to.m = from.m = 1;
    to.dv = from.dv = 16;
    to.z = z[0];
    to.e = e[0];
    to.s = sums[0];
    from.z = z[1];
    from.e = e[1];
    from.s = sums[1];
    for (row = 0; row < panels * dst->m; row++) {
        e[0][0] = dst->e[row % dst->m];
        e[1][0] = src->e[row % dst->m];
        for (i = 0; i < 16; i++) {
            linattn__read_half(dst->s, 16 * row + i, dst->element, &sums[0][i]);
            linattn__read_half(src->s, 16 * row + i, dst->element, &sums[1][i]);
        }
        LINATTN__COMMON(merge)(&to, &from);
        for (i = 0; i < 16; i++)
            linattn__write_half(dst->s, 16 * row + i, dst->element, &sums[0][i]);
    }
}
#endif

/* One head: dst += src. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__merge_sums(linattn__span *dst,
                                                                const linattn__span *src)
{
#if LINATTN__HAS_HALF
    const size_t dv = dst->dv;
    if (dst->element) {
        linattn__merge_halves(dst, src);
        dst->dv = 0; /* z and exponents are left */
    }
    LINATTN__COMMON(merge)(dst, src);
    dst->dv = dv;
#else
    LINATTN__COMMON(merge)(dst, src);
#endif
}

LINATTN__ALONE LINATTN_API linattn_status linattn_merge(void *dst, const void *src)
{
    linattn__shape s;
    linattn__work w;
    linattn__span other;
    linattn__environment environment;
    size_t head;
    linattn_status status = linattn__read_state(dst, &s);
    if (status == LINATTN_OK) status = linattn__read_state(src, &s);
    if (status != LINATTN_OK) return status;
    if (s.window || (s.rule && s.rule != LINATTN_RULE_GATED && s.rule != LINATTN_RULE_MLSTM))
        return LINATTN_ERROR_UNSUPPORTED;
#if LINATTN__HAS_RECURRENT
    if (s.rule && linattn__imported(src, &s)) return LINATTN_ERROR_UNSUPPORTED;
#endif
    if (!linattn__same_config(dst, src) || !linattn__same_shared(dst, src, &s))
        return LINATTN_ERROR_STATE;
    if (!linattn__disjoint(dst, s.state_bytes, src, s.state_bytes)) return LINATTN_ERROR_OVERLAP;
    environment = linattn__enter();
    linattn__start(&w, &s, linattn__seen(dst), dst);
    other = w.span;
    other.seen = linattn__seen(src);
    linattn__use_state(&other, &s, (void *)(uintptr_t)src);
    for (head = 0; head < s.kv_heads; head++) {
#if LINATTN__HAS_RECURRENT
        if (!s.rule || !linattn__merge_rule(&w.span, &other, s.rule))
#endif
            linattn__merge_sums(&w.span, &other);
#if LINATTN__HAS_COMPENSATED
        if (w.span.past && !s.rule) linattn__merge_past(&w.span, &other);
#endif
        linattn__move(&w.span, 1);
        linattn__move(&other, 1);
    }
    linattn__leave(environment);
    linattn__set_tokens(dst, linattn__seen(dst) + linattn__seen(src));
#if LINATTN__HAS_COMPENSATED
    linattn__set_masked(dst, linattn__masked_before(dst) + linattn__masked_before(src));
#endif
    return LINATTN_OK;
}

/* Operands of a verb with a workspace. */
LINATTN__COLD static linattn_status
linattn__read_all(const linattn__shape *s, const linattn_context *context, int verb,
                  const linattn_view *q, size_t n_q, const linattn_view *k, const linattn_view *v,
                  size_t n_k, const linattn_output *out, void *workspace, size_t bytes, size_t need,
                  linattn__operands *x)
{
    linattn_status status;
    if (linattn__cannot_thread(context)) return LINATTN_ERROR_NULL;
    status = linattn__read_operands(s, verb, 1, q, n_q, k, v, n_k, out, x);
    if (status != LINATTN_OK) return status;
    if (!workspace) return LINATTN_ERROR_NULL;
    if (need == 0) return LINATTN_ERROR_SIZE;
    if (bytes < need) return LINATTN_ERROR_WORKSPACE;
    return linattn__operands_apart(x, verb, workspace, need) ? LINATTN_OK : LINATTN_ERROR_OVERLAP;
}

/* The state of a call without one, whose window is that of a causal run, twice as long. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__measure_again(linattn__shape *s)
{
    linattn__measure_state(s, s->window ? 2 * s->window - 1 : 0);
}

/* Bytes for bidirectional, 0 if they overflow. */
static size_t linattn__bidirectional_bytes(linattn__shape *s)
{
    if (s->window) linattn__measure_again(s);
    return s->state_bytes ? s->state_bytes + LINATTN__ALIGNMENT : 0;
}

/* Reads and checks a call, as linattn__open_any does, and makes its state. */
static LINATTN__NOINLINE linattn_status linattn__open_bidirectional(
    const linattn_config *config, const linattn_view *q, size_t n_q, const linattn_view *k,
    const linattn_view *v, size_t n_k, const linattn_output *out, void *workspace,
    size_t workspace_bytes, const linattn_context *context, linattn__work *w)
{
    linattn__shape s;
    linattn__header h;
    linattn__operands x;
    void *state;
    linattn_status status = linattn__check_config(config, &s);
    if (status != LINATTN_OK) return status;
    if (s.rule || LINATTN__ELEMENT(&s)) return LINATTN_ERROR_UNSUPPORTED;
    status =
        linattn__read_all(&s, context, LINATTN__KEYS | LINATTN__QUERIES, q, n_q, k, v, n_k, out,
                          workspace, workspace_bytes, linattn__bidirectional_bytes(&s), &x);
    if (status != LINATTN_OK) return status;
    if (s.window && n_q != n_k) return LINATTN_ERROR_UNSUPPORTED;
    if (n_q == 0) return LINATTN_OK;
    if (s.window >= n_k) s.window = 0; /* which it then sees all through */
    linattn__measure_again(&s);
    if (!linattn__projection_apart(config, &s, workspace, workspace_bytes) ||
        !linattn__projection_apart(config, &s, x.out.data, x.out.bytes))
        return LINATTN_ERROR_OVERLAP;
    state = linattn__align(workspace);
    w->environment = linattn__enter();
    linattn__make_state(config, &s, &h, state);
    linattn__start(w, &s, linattn__seen(state), state);
    linattn__use_query(w, &x);
    linattn__use_keys(w, &x);
    return LINATTN_OK;
}

LINATTN__ALONE LINATTN_API linattn_status
linattn_bidirectional(const linattn_config *config, linattn_view q, size_t n_q, linattn_view k,
                      linattn_view v, size_t n_k, linattn_output out, void *workspace,
                      size_t workspace_bytes, const linattn_context *context)
{
    linattn__work w;
    linattn__span *const s = &w.span;
    float *z;
    const linattn_status status = linattn__open_bidirectional(
        config, &q, n_q, &k, &v, n_k, &out, workspace, workspace_bytes, context, &w);
    if (status != LINATTN_OK || n_q == 0) return status;
#if LINATTN__HAS_WINDOW
    if (s->window) {
        s->lag = s->window - 1;
        s->window += s->lag;
        s->n = n_k + s->lag;
        linattn__do_band(&w, context);
        linattn__leave(w.environment);
        return LINATTN_OK;
    }
#endif
    z = s->z;
    if (n_k) {
        s->q = NULL;
        linattn__do_update(&w, context);
        s->seen = n_k;
        s->q = q.data;
    }
    s->z = z; /* a single key has moved them */
    s->e = z + linattn__round16(s->m);
    s->s = s->e + linattn__round16(s->m);
    s->k = NULL;
    s->n = n_q;
    linattn__do_query(&w, context);
    linattn__leave(w.environment);
    return LINATTN_OK;
}

#if LINATTN__HAS_RECURRENT
/* ---- Recurrences ----------------------------------------------------------------------------- */

/* A state of a rule other than the sum has between z, exponents and S of each head:
     kept[m]       by which factor each row has decayed since the state was empty, for merges
     credit[m]     by what its sums were multiplied since they were last freed of what is almost
                   denormal
     scalars[16]   below
     corrected[dv] zero between calls: what a token's read takes from its value, where m is large */
#define LINATTN__EXPONENT 0      /* mLSTM: S is stored times 2^-exponent; -inf: no token yet */
#define LINATTN__DRIFT 1         /* what 1 of then, in f16 the largest gate since, is kept as */
#define LINATTN__KEPT_FACTOR 2   /* by which all has decayed: this times */
#define LINATTN__KEPT_EXPONENT 3 /* 2^ this */
#define LINATTN__CREDIT 4        /* as credit and kept, of decays that all rows share */
#define LINATTN__KEPT 5
#define LINATTN__IMPORTED 6
#define LINATTN__KEPT_LOW 7         /* of KEPT_FACTOR, with a past */
#define LINATTN__OWED 8             /* 0, or S is what is stored times this, 1 to 64: decays that */
#define LINATTN__OWED_MOST 64.0f    /* all rows share go there, and into S as it leaves that */
#define LINATTN__OWED_MLSTM 8.0f    /* mLSTM, where its factors, around 1, have gone beyond that */
#define LINATTN__ROWS 9             /* not 0: rows owe decays of their own, where sums have no */
#define LINATTN__ROWS_MOST 65536.0f /* denominators: in place of low parts, 0 or 1 to this; where */
#define LINATTN__ROWS_COLUMNS 64    /* values have so many: shorter ones save less than rows cost */
#define LINATTN__SPENT 3.5527137e-15f /* 2^-48: when credit is below, rows are flushed at 2^-78, */
#define LINATTN__FLUSHED 3.3087225e-24f /* so that nothing between is denormal; 16 rows at once, */
#define LINATTN__FAST 2.4414062e-4f     /* but for those that decay by less than 2^-12 */

static size_t linattn__rule_floats(const linattn__shape *s)
{
    return linattn__rule_floats_of(s->m, s->dv) + linattn__moving_floats(s);
}

/* From the first number of a head. */
static float *linattn__scalars(float *z, const linattn__shape *s)
{
    return z + 4 * linattn__round16(s->m);
}

LINATTN__COLD static void linattn__clear_rule(float *head, size_t m16)
{
    float *const scalars = head + 4 * m16;
    size_t i;
    for (i = 0; i < 2 * m16; i++) head[2 * m16 + i] = 1.0f;
    scalars[LINATTN__EXPONENT] = -LINATTN__INF;
    scalars[LINATTN__DRIFT] = scalars[LINATTN__KEPT_FACTOR] = 1.0f;
    scalars[LINATTN__CREDIT] = scalars[LINATTN__KEPT] = 1.0f;
}

LINATTN__INLINE float linattn__owed(const float *scalars)
{
    return scalars[LINATTN__OWED] == 0.0f ? 1.0f : scalars[LINATTN__OWED];
}

/* And what row f does besides; low: what z of both signs has in place of exponents. */
LINATTN__INLINE float linattn__row_owed(const float *scalars, const float *low, size_t f)
{
    return scalars[LINATTN__ROWS] == 0.0f || low[f] == 0.0f ? 1.0f : low[f];
}

/* Imported sums may be small: they are to be looked at before they decay. */
LINATTN__COLD static void linattn__import_rule(const linattn__shape *s, float *head)
{
    const size_t m16 = linattn__round16(s->m);
    float *const scalars = linattn__scalars(head, s);
    size_t i;
    for (i = 0; i < m16; i++) head[3 * m16 + i] = LINATTN__SPENT;
    scalars[LINATTN__CREDIT] = 1.0f;
    scalars[LINATTN__EXPONENT] = scalars[LINATTN__OWED] = scalars[LINATTN__ROWS] = 0.0f;
    scalars[LINATTN__DRIFT] = scalars[LINATTN__IMPORTED] = 1.0f;
}

/* A gate of a call: that of token t and head h is at[t * token + h * head]. */
typedef struct linattn__gate {
    const float *at; /* NULL: none */
    size_t token, head, sequence;
#if LINATTN__HAS_HALF
    size_t dim;
    int element;
#endif
} linattn__gate;

#define LINATTN__DECAY 0
#define LINATTN__BETA 1
#define LINATTN__READ 2
#define LINATTN__WRITE 3
#define LINATTN__BONUS 4
#define LINATTN__INPUT 5
#define LINATTN__GATES 6

typedef struct linattn__gating {
    linattn__gate gate[LINATTN__GATES];
    int count, given[LINATTN__GATES]; /* those that are not NULL */
    int per_feature, logs;            /* of the decay */
#if LINATTN__HAS_HALF
    size_t wide; /* floats that 16-bit gates of a token and head become */
#endif
} linattn__gating;

/* Some heads and columns of a call. */
typedef struct linattn__recurrence {
    const linattn__span *span; /* of all heads */
    const linattn__gating *gates;
    int rule;
    size_t key_group;      /* states that read each head of q and k */
    size_t head, head_end; /* key/value heads */
    size_t begin, end;     /* columns, a multiple of 16 first */
    float *own;            /* not NULL: private copies of what comes before `corrected` */
    const struct linattn__ahead *next; /* not NULL: what tokens bring that come after these, */
    size_t next_begin, next_end;       /* those of these numbers */
} linattn__recurrence;

/* What the tokens of a head bring: token t of an operand takes `lines` cache lines from
   at[t * token], in bytes. */
typedef struct linattn__ahead {
    const char *at[4 + LINATTN__GATES];
    size_t token[4 + LINATTN__GATES], lines[4 + LINATTN__GATES];
    size_t all; /* lines of a token */
    int count;
} linattn__ahead;

LINATTN__COLD static void linattn__add_ahead(linattn__ahead *to, const float *at, size_t token,
                                             size_t dim, int element)
{
    const size_t bytes = LINATTN__IS_HALF(element) ? 2 : sizeof *at;
    if (!token) return;
    to->at[to->count] = (const char *)at;
    to->token[to->count] = token * bytes;
    to->lines[to->count] = (dim * bytes + 63) / 64;
    to->all += to->lines[to->count++];
}

/* Of a head, or what is told instead. Not where all code is scalar. */
LINATTN__UNUSED LINATTN__COLD static void linattn__list_ahead(const linattn__recurrence *x,
                                                              size_t head, linattn__ahead *to)
{
    const linattn__span *const s = x->span;
    const linattn__gating *const g = x->gates;
    const size_t key = head / x->key_group, first = head * s->group;
    int i;
    if (x->next) {
        *to = *x->next;
        return;
    }
    to->count = 0;
    to->all = 0;
    linattn__add_ahead(to, LINATTN__ON(s, s->k, key * s->k_head, K), s->k_token, s->d,
                       LINATTN__TYPE_OF(s, K));
    linattn__add_ahead(to, LINATTN__ON(s, s->v, head * s->v_head, V), s->v_token, s->dv,
                       LINATTN__TYPE_OF(s, V));
    if (s->q) {
        const size_t q = x->key_group > 1 ? key : first;
        linattn__add_ahead(to, LINATTN__ON(s, s->q, q * s->q_head, Q), s->q_token, s->d,
                           LINATTN__TYPE_OF(s, Q));
        linattn__add_ahead(to, s->out + first * s->out_head, s->out_token, s->dv, LINATTN_F32);
    }
    for (i = 0; g && i < g->count; i++) {
        const int which = g->given[i], rows = which == LINATTN__READ || which == LINATTN__WRITE;
        const int many = rows || (which == LINATTN__DECAY && g->per_feature);
        const linattn__gate *const gate = g->gate + which;
        const int element = LINATTN__ELEMENT(gate);
        const float *const at =
            linattn__beyond(gate->at, (rows ? key : head) * gate->head, element);
        linattn__add_ahead(to, at, gate->token, many ? s->m : 1, element);
    }
}

/* Lines [begin, end) of a token's. */
LINATTN__UNUSED static void linattn__share_ahead(const linattn__ahead *all, size_t begin,
                                                 size_t end, linattn__ahead *to)
{
    int i;
    to->count = 0;
    for (i = 0; i < all->count && end > 0; i++) {
        const size_t lines = all->lines[i], last = end < lines ? end : lines;
        if (begin < last) {
            to->at[to->count] = all->at[i] + 64 * begin;
            to->token[to->count] = all->token[i];
            to->lines[to->count++] = last - begin;
        }
        begin = begin > lines ? begin - lines : 0;
        end -= last;
    }
}

/* Fetches what tokens [t, end) bring. */
LINATTN__UNUSED static LINATTN__NOINLINE void linattn__fetch_lines(const linattn__ahead *o,
                                                                   size_t t, size_t end)
{
    const int into_l1 = linattn__near();
    int i;
    LINATTN__EFFECT();
    for (i = 0; i < o->count; i++) {
        const char *token = o->at[i] + t * o->token[i];
        size_t left;
        for (left = end - t; left > 0; left--, token += o->token[i]) {
            const char *at = token;
            size_t lines = o->lines[i];
            do {
                linattn__fetch((const float *)(const void *)at, into_l1);
                at += 64;
            } while (--lines > 0);
        }
    }
}

typedef void linattn__recurrent_kernel(const linattn__recurrence *x);
LINATTN__DECLARE_COMMON(linattn__recurrent_kernel, recurrent)
#if LINATTN__HAS_COMPENSATED
LINATTN__DECLARE_COMMON(linattn__span_kernel, rule_fold)
#endif

/* What a rule needs and takes. */
static linattn_status linattn__check_gates(int rule, int norm, const linattn_gates *g)
{
    const int delta = rule == LINATTN_RULE_DELTA || rule == LINATTN_RULE_GATED_DELTA;
    const int decays = rule != LINATTN_RULE_SUM && rule != LINATTN_RULE_DELTA;
    const int general = rule == LINATTN_RULE_GENERAL, mlstm = rule == LINATTN_RULE_MLSTM;
    if (!g)
        return rule == LINATTN_RULE_SUM ? LINATTN_OK
               : decays                 ? LINATTN_ERROR_DECAY
                                        : LINATTN_ERROR_BETA;
    if (decays != (g->decay.data != NULL) || (mlstm && g->decay_per_feature))
        return LINATTN_ERROR_DECAY;
    if (delta != (g->beta.data != NULL)) return LINATTN_ERROR_BETA;
    if (general != (g->read.data != NULL) || general != (g->write.data != NULL))
        return LINATTN_ERROR_READ_WRITE;
    if (g->bonus.data && (rule != LINATTN_RULE_GATED || norm == LINATTN_NORM_SUM))
        return LINATTN_ERROR_BONUS;
    if (mlstm != (g->input.data != NULL)) return LINATTN_ERROR_INPUT_GATE;
    return LINATTN_OK;
}

/* No gates yet. */
LINATTN__INLINE void linattn__start_gates(const linattn_gates *g, linattn__gating *to)
{
    int i;
    for (i = 0; i < LINATTN__GATES; i++) to->gate[i].at = NULL;
    to->count = 0;
#if LINATTN__HAS_HALF
    to->wide = 0;
#endif
    to->per_feature = g->decay_per_feature != 0;
    to->logs = g->decay_log != 0;
}

/* What memory the given gates take goes to e, one after the other. */
static LINATTN__NOINLINE linattn_status linattn__read_gate(linattn__gating *to, int which,
                                                           const linattn_view *view,
                                                           size_t sequences, size_t n, size_t heads,
                                                           size_t dim, linattn__extent *e)
{
    linattn__gate *const gate = to->gate + which;
    linattn__extent *const extent = e + to->count;
    const linattn_status status = linattn__read_view(extent, view, sequences, n, heads, dim);
    gate->at = view->data;
#if LINATTN__HAS_HALF
    gate->dim = dim;
#endif
    to->given[to->count++] = which;
    gate->token = extent->stride[LINATTN__TOKEN];
    gate->head = heads > 1 ? extent->stride[LINATTN__HEAD] : 0; /* all heads may share one */
    gate->sequence = extent->stride[LINATTN__SEQUENCE];
#if LINATTN__HAS_HALF
    gate->element = extent->element;
    if (extent->element != LINATTN_F32) to->wide += dim;
#endif
    return status;
}

/* The gates of a call for `sequences` sequences. What they are has been checked. */
static LINATTN__NOINLINE linattn_status linattn__read_gates(const linattn__shape *s,
                                                            const linattn_gates *g,
                                                            size_t sequences, size_t n,
                                                            linattn__extent *e, linattn__gating *to)
{
    const size_t kv = s->kv_heads, some = n ? 1 : 0; /* without tokens nothing is read */
    linattn_status status = LINATTN_OK;
    linattn__start_gates(g, to);
    if (g->decay.data)
        status = linattn__read_gate(to, LINATTN__DECAY, &g->decay, g->decay_fixed ? 1 : sequences,
                                    g->decay_fixed ? some : n, kv, to->per_feature ? s->d : 1, e);
    if (status == LINATTN_OK && g->beta.data)
        status = linattn__read_gate(to, LINATTN__BETA, &g->beta, sequences, n,
                                    g->beta_shared ? 1 : kv, 1, e);
    if (status == LINATTN_OK && g->read.data)
        status = linattn__read_gate(to, LINATTN__READ, &g->read, sequences, n,
                                    linattn__key_heads(s), s->d, e);
    if (status == LINATTN_OK && g->write.data)
        status = linattn__read_gate(to, LINATTN__WRITE, &g->write, sequences, n,
                                    linattn__key_heads(s), s->d, e);
    if (status == LINATTN_OK && g->bonus.data)
        status = linattn__read_gate(to, LINATTN__BONUS, &g->bonus, 1, some, kv, s->d, e);
    if (status == LINATTN_OK && g->input.data)
        status = linattn__read_gate(to, LINATTN__INPUT, &g->input, sequences, n, kv, 1, e);
#if LINATTN__HAS_HALF
    if (status == LINATTN_OK && to->wide > 0 &&
        (s->group + 1) * s->d + s->dv + to->wide > LINATTN__WIDE)
        status = LINATTN_ERROR_ELEMENT;
#endif
    return status;
}

#if LINATTN__HAS_HALF
/* The gates of so many heads, the first of whose keys is `key`, for `tokens` tokens from t, made
   floats in scratch where they are not. */
static void linattn__gates_from(const linattn__gating *all, size_t head, size_t heads, size_t key,
                                size_t t, size_t tokens, float *scratch, linattn__gating *g)
{
    int i;
    *g = *all;
    for (i = 0; i < g->count; i++) {
        const int which = g->given[i];
        linattn__gate *const gate = g->gate + which;
        const size_t h = which == LINATTN__READ || which == LINATTN__WRITE ? key : head;
        const size_t token = gate->token, rows = gate->head ? heads : 1; /* all may share one */
        gate->at = linattn__beyond(gate->at, t * gate->token + h * gate->head, gate->element);
        linattn__as_floats(&gate->at, &gate->token, &gate->head, token ? tokens : 1, rows,
                           gate->dim, gate->element, &scratch);
        if (!token) gate->token = 0; /* one for all */
        if (rows < heads) gate->head = 0;
    }
}

/* The span and gates of some tokens and heads, as floats. */
static LINATTN__NOINLINE void linattn__widen_rule(const linattn__recurrence *x, size_t head,
                                                  size_t heads, size_t t, size_t count,
                                                  float *scratch, linattn__span *s,
                                                  linattn__gating *gates)
{
    const linattn__span *const all = x->span;
    const size_t key = head / x->key_group;
    *s = *all;
    s->q_head = s->k_head = 0;
    linattn__move_any(s, head);
    s->q_head = all->q_head;
    s->k_head = all->k_head;
    if (s->q) s->q = LINATTN__ON(s, s->q, key * s->group * s->q_head, Q);
    if (s->k) s->k = LINATTN__ON(s, s->k, key * s->k_head, K);
    s->heads = heads;
    linattn__cut(s, t, count);
    scratch = linattn__widen_span(s, scratch);
    if (x->gates) linattn__gates_from(x->gates, head, heads, key, t, count, scratch, gates);
}

/* Calls the kernel for as many tokens of a head, or heads of one token, as there is room for. What
   comes after them it fetches. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__widened_rule(const linattn__recurrence *x)
{
    float memory[LINATTN__WIDE + LINATTN__ALIGNMENT / sizeof(float)];
    float *const scratch = (float *)linattn__align(memory);
    const linattn__span *const all = x->span;
    const size_t floats = linattn__wide_floats(all) + (x->gates ? x->gates->wide : 0);
    const size_t most = LINATTN__WIDE / floats, n = all->n, last = x->head_end;
    const size_t turn = last - x->head > 1 ? linattn__turn(all, LINATTN__TURN) : n;
    const size_t heads = n > 1 || x->key_group > 1 ? 1 : most;
    const int fetches = LINATTN__FETCHES(all);
    linattn__recurrence own = *x;
    linattn__gating gates;
    linattn__ahead next;
    linattn__span s;
    size_t h, begin, t, count;
    own.span = &s;
    own.key_group = 1;
    own.head = 0;
    if (x->gates) own.gates = &gates;
    for (begin = 0; begin < n; begin += turn)
        for (h = x->head; h < last; h += own.head_end) {
            const size_t end = n - begin < turn ? n : begin + turn;
            own.head_end = last - h < heads ? last - h : heads;
            for (t = begin; t < end; t += count) {
                count = end - t < most ? end - t : most;
                linattn__widen_rule(x, h, own.head_end, t, count, scratch, &s, &gates);
                if (fetches) {
                    const int stays = t + count < end, more = h + 1 < last;
                    linattn__list_ahead(x, stays ? h : more ? h + 1 : x->head, &next);
                    own.next = &next;
                    own.next_begin = stays || !more ? t + count : begin;
                    own.next_end = stays || more ? end : n;
                    s.fetch = 1;
                }
                LINATTN__COMMON(recurrent)(&own);
            }
        }
}
#endif

LINATTN__INLINE void linattn__recur(const linattn__recurrence *x)
{
#if LINATTN__HAS_HALF
    if (x->span->elements || (x->gates && x->gates->wide)) {
        linattn__widened_rule(x);
        return;
    }
#endif
    LINATTN__COMMON(recurrent)(x);
}

/* Columns of the heads that do not share out evenly, and whole heads of the others: as
   linattn__causal_job. */
typedef struct linattn__rule_work {
    linattn__recurrence all;
    size_t jobs, whole, own_floats, head_floats;
    float *spare;
} linattn__rule_work;

LINATTN__COLD static void linattn__rule_job(void *arg, size_t index)
{
    const linattn__rule_work *w = (const linattn__rule_work *)arg;
    linattn__recurrence x = w->all;
    size_t head;
    linattn__share(w->whole, 1, index, w->jobs, &x.head, &x.head_end);
    if (x.head < x.head_end) linattn__recur(&x);
    linattn__share(w->all.end, 16, index, w->jobs, &x.begin, &x.end);
    for (head = w->whole; head < w->all.head_end && x.begin < x.end; head++) {
        float own[LINATTN__PRIVATE_FLOATS];
        x.own = index == 0 ? w->spare + (head - w->whole) * w->own_floats : own;
        linattn__copy(x.own, w->all.span->z + head * w->head_floats, w->own_floats * sizeof(float));
        x.head = head;
        x.head_end = head + 1;
        linattn__recur(&x);
    }
}

LINATTN__COLD static LINATTN__NOINLINE void linattn__rule_threads(const linattn__recurrence *all,
                                                                  const linattn_context *context)
{
    /* with a past heads are not split: it moves with the tokens, too */
    const size_t floats = 4 * linattn__round16(all->span->m) + 16;
    const size_t own = LINATTN__PAST(all->span) ? LINATTN__PRIVATE_FLOATS + 1 : floats;
    float spare[LINATTN__PRIVATE_FLOATS];
    linattn__rule_work w;
    size_t i;
    w.all = *all;
    w.own_floats = own;
    w.head_floats = all->span->head_floats;
    w.spare = spare;
    w.whole = linattn__whole_heads(all->span, own, context, &w.jobs);
    linattn__run_jobs(linattn__rule_job, &w, w.jobs, context);
    for (i = w.whole; i < all->head_end && all->span->k; i++)
        linattn__copy(all->span->z + i * w.head_floats, spare + (i - w.whole) * own,
                      own * sizeof(float));
}

/* Are operands to be fetched ahead? Where they come from memory, and rows of heads take turns, or
   so many dense ones are read at once, for so long a token, or for columns in several goes, that
   hardware loses track of them: a tenth of the time and more at (64,128), with rows of gates from
   (96,64) on; others would lose 2 to 5 %. On Zen 3 from (64,64) on, which gains up to a sixth. With
   decays for each feature operands are weighed first, which takes them as fast as they come: a
   sixth at (64,64) from beyond L3, and a tenth lost at (32,32) from within. Heads of less than
   (32,32) that take turns within L3 would lose a sixth, too. */
static int linattn__rule_fetches(const linattn__span *s, const linattn__gating *g)
{
    size_t rows = 4, floats, least;
    int beyond;
    if (!s->k) return 0; /* nor are there strides of keys */
    floats = s->k_token + s->v_token + (s->q ? s->q_token + s->out_token : 0);
    if (floats == 0 || s->n <= LINATTN__FETCH_FLOATS / 4 / (floats + 1)) return 0;
    beyond = s->n > LINATTN__FAR_FLOATS / (floats + 1);
    if (s->k_token > s->d) return beyond || s->m * s->dv >= 1024;
    if (g && g->per_feature) rows++;
    if (g && g->gate[LINATTN__READ].at) rows += 2;
    least = linattn__contended() ? 4096 : (rows > 4 || s->dv > 64 ? 30720 : 49152) / rows;
    if (g && g->per_feature && beyond) least = 1024;
    return s->m * s->dv >= least;
}

static LINATTN__NOINLINE void linattn__rule_tokens(linattn__work *w, const linattn__gating *gates,
                                                   const linattn_context *context)
{
    const linattn__header *const h = linattn__header_of(w);
    linattn__recurrence x;
    const linattn__span *const s = &w->span;
    w->span.fetch = linattn__rule_fetches(s, gates);
    x.span = &w->span;
    x.gates = gates;
    x.rule = (int)h->rule;
    x.key_group = h->key_heads ? h->kv_heads / h->key_heads : 1;
    x.head = x.begin = 0;
    x.head_end = w->span.heads;
    x.end = w->span.dv;
    x.own = NULL;
    x.next = NULL;
    if (context && context->parallel_for && context->threads > 1)
        linattn__rule_threads(&x, context);
    else
        linattn__recur(&x);
}

#if LINATTN__HAS_COMPENSATED
/* One run, with the gates of its tokens. */
LINATTN__COLD static void linattn__rule_run(linattn__work *w, const linattn_context *context)
{
    linattn__gating own = *w->gating;
    int i;
    for (i = 0; i < own.count; i++) {
        linattn__gate *const gate = own.gate + own.given[i];
#if LINATTN__HAS_HALF
        gate->at = linattn__beyond(gate->at, (size_t)(w->span.seen - w->first) * gate->token,
                                   gate->element);
#else
        gate->at += (size_t)(w->span.seen - w->first) * gate->token;
#endif
    }
    linattn__rule_tokens(w, &own, context);
}
#endif

static LINATTN__NOINLINE void linattn__do_recurrent(linattn__work *w, const linattn__gating *gates,
                                                    const linattn_context *context)
{
#if LINATTN__HAS_COMPENSATED
    if (w->span.past && gates) {
        w->fold = LINATTN__COMMON(rule_fold);
        w->gating = gates;
        linattn__folded_runs(w, linattn__rule_run, context);
        return;
    }
#endif
    linattn__rule_tokens(w, gates, context);
}

/* Do the gates lie apart from a block that is written? */
static int linattn__gates_apart(const linattn__gating *g, const linattn__extent *e,
                                const void *block, size_t bytes)
{
    int i;
    for (i = 0; i < g->count; i++)
        if (!linattn__apart(e + i, block, bytes)) return 0;
    return 1;
}

static int linattn__gates_clear(const linattn__gating *g, const linattn__extent *e,
                                const linattn__extent *out)
{
    int i;
    for (i = 0; i < g->count; i++)
        if (!linattn__clear_of(out, e + i)) return 0;
    return 1;
}

/* q and out both without data: only the state moves. */
LINATTN__INLINE int linattn__rule_verb(const linattn_view *q, const linattn_output *out)
{
    return q->data || out->data ? LINATTN__KEYS | LINATTN__QUERIES : LINATTN__KEYS;
}

/* Reads and checks a call, as linattn__open_any does. */
LINATTN__COLD static LINATTN__NOINLINE linattn_status linattn__open_recurrent(
    void *state, const linattn_view *q, const linattn_view *k, const linattn_view *v,
    const linattn_gates *gates, const linattn_output *out, size_t n, const linattn_context *context,
    linattn__work *w, linattn__gating *gating)
{
    const int verb = linattn__rule_verb(q, out);
    linattn__shape s;
    linattn__operands x;
    linattn__extent e[LINATTN__GATES];
    linattn_status status = linattn__read_state(state, &s);
    if (status == LINATTN_OK) status = linattn__check_gates(s.rule, s.norm, gates);
    if (status == LINATTN_OK) status = linattn__read_operands(&s, verb, 1, q, n, k, v, n, out, &x);
    if (status == LINATTN_OK) status = linattn__read_gates(&s, gates, 1, n, e, gating);
    if (status != LINATTN_OK) return status;
    if (linattn__cannot_thread(context)) return LINATTN_ERROR_NULL;
    if (!linattn__operands_apart(&x, verb, state, s.state_bytes) ||
        !linattn__gates_apart(gating, e, state, s.state_bytes))
        return LINATTN_ERROR_OVERLAP;
    if ((verb & LINATTN__QUERIES) && !linattn__gates_clear(gating, e, &x.out))
        return LINATTN_ERROR_OVERLAP;
    if (n > 0) linattn__begin(w, &s, &x, verb, state);
    return LINATTN_OK;
}

#if !LINATTN__TO_BE_SMALL
/* A call whose gates are read. */
typedef struct linattn__usual {
    linattn__gating *gating;
    size_t n;
    linattn__place written[2];
} linattn__usual;

/* Takes a gate as linattn__open_usual does operands, if nothing is written to where it lies. */
static LINATTN__NOINLINE int linattn__usual_gate(const linattn__usual *x, int which,
                                                 const linattn_view *view, size_t heads, size_t dim)
{
    linattn__gating *const to = x->gating;
    linattn__gate *const gate = to->gate + which;
    const size_t n = x->n;
    linattn__place at;
    size_t head;
    if (view->element != LINATTN_F32 || (uintptr_t)view->data - 1 > UINTPTR_MAX / 2 ||
        view->stride_head >= LINATTN__USUAL || (n > 1 && view->stride_token >= LINATTN__USUAL))
        return 0;
    head = linattn__usual_rows(&at, view->data, view->stride_head, heads - 1, dim);
    gate->at = view->data;
    gate->token = 0;
    if (n > 1) gate->token = linattn__usual_block(&at, n, view->stride_token, head, heads, dim);
    gate->head = heads > 1 ? head : 0;
#if LINATTN__HAS_HALF
    gate->dim = dim;
    gate->element = LINATTN_F32;
#endif
    to->given[to->count++] = which;
    return linattn__places_apart(at, x->written[0]) && linattn__places_apart(at, x->written[1]);
}

/* As linattn__read_gates. */
LINATTN__INLINE int linattn__usual_gates(const linattn__header *h, const linattn_gates *g,
                                         linattn__usual *x)
{
    const size_t n = x->n, kv = h->kv_heads, d = h->d;
    linattn__start_gates(g, x->gating);
    if (g->decay_fixed) x->n = 1;
    if (g->decay.data &&
        !linattn__usual_gate(x, LINATTN__DECAY, &g->decay, kv, g->decay_per_feature ? d : 1))
        return 0;
    x->n = n;
    if (g->beta.data &&
        !linattn__usual_gate(x, LINATTN__BETA, &g->beta, g->beta_shared ? 1 : kv, 1))
        return 0;
    if (g->read.data && !linattn__usual_gate(x, LINATTN__READ, &g->read, kv, d)) return 0;
    if (g->write.data && !linattn__usual_gate(x, LINATTN__WRITE, &g->write, kv, d)) return 0;
    if (g->input.data && !linattn__usual_gate(x, LINATTN__INPUT, &g->input, kv, 1)) return 0;
    x->n = 1; /* a bonus is one for all tokens */
    return !g->bonus.data || linattn__usual_gate(x, LINATTN__BONUS, &g->bonus, kv, d);
}

/* As linattn__open_usual. */
static LINATTN__NOINLINE int
linattn__usual_recurrent(void *state, linattn__work *w, const linattn_view *q,
                         const linattn_view *k, const linattn_view *v, const linattn_output *out,
                         size_t n, const linattn_gates *gates, const linattn_context *context,
                         linattn__gating *gating)
{
    const linattn__header *const h = (const linattn__header *)state;
    const int verb = linattn__rule_verb(q, out) | LINATTN__RULES;
    linattn__usual x;
    if (!linattn__open_usual(state, w, q, k, v, out, n, verb, context, x.written)) return 0;
    x.gating = gating;
    x.n = n;
    if (linattn__check_gates((int)h->rule, (int)h->norm, gates) == LINATTN_OK &&
        linattn__usual_gates(h, gates, &x))
        return 1;
    linattn__leave(w->environment);
    return 0;
}
#endif

/* The rule without gates: what the other verbs do. */
LINATTN__COLD static LINATTN__NOINLINE linattn_status linattn__recurrent_sums(
    void *state, const linattn_view *q, const linattn_view *k, const linattn_view *v,
    const linattn_gates *gates, const linattn_output *out, size_t n, const linattn_context *context)
{
    const linattn_status status = linattn__check_gates(LINATTN_RULE_SUM, LINATTN_NORM_SUM, gates);
    if (status != LINATTN_OK) return status;
    if (!q->data && !out->data) return linattn_update(state, *k, *v, n, context);
    return linattn_causal(state, *q, *k, *v, *out, n, context);
}

LINATTN_API linattn_status linattn_recurrent(void *state, linattn_view q, linattn_view k,
                                             linattn_view v, const linattn_gates *gates,
                                             linattn_output out, size_t n,
                                             const linattn_context *context)
{
    linattn__work w;
    linattn__gating gating;
#if !LINATTN__TO_BE_SMALL
    if (!linattn__usual_recurrent(state, &w, &q, &k, &v, &out, n, gates, context, &gating))
#endif
    {
        linattn_status status = linattn__find_header(state);
        if (status != LINATTN_OK) return status;
        if (((const linattn__header *)state)->rule == LINATTN_RULE_SUM)
            return linattn__recurrent_sums(state, &q, &k, &v, gates, &out, n, context);
        status = linattn__open_recurrent(state, &q, &k, &v, gates, &out, n, context, &w, &gating);
        if (status != LINATTN_OK || n == 0) return status;
    }
    if (context) context = linattn__worth(context, &w.span, 1);
    linattn__do_recurrent(&w, &gating, context);
    linattn__leave(w.environment);
    linattn__set_tokens(state, w.span.seen + n);
    return LINATTN_OK;
}

/* One of many states, with gates of its own. */
static void linattn__run_rule(const linattn__crowd *c, linattn__work *w, size_t index)
{
    linattn__gating own = *c->gating;
    int i;
    for (i = 0; i < own.count; i++) {
        linattn__gate *const gate = own.gate + own.given[i];
#if LINATTN__HAS_HALF
        gate->at = linattn__beyond(gate->at, index * gate->sequence, gate->element);
#else
        gate->at += index * gate->sequence;
#endif
    }
    linattn__do_recurrent(w, &own, NULL);
}

/* What linattn__open_many does not look at. Here nothing has been entered yet. */
static linattn_status linattn__open_many_gates(linattn__crowd *c, const linattn__shape *s,
                                               const linattn_gates *gates,
                                               const linattn__extent *out)
{
    linattn__extent e[LINATTN__GATES];
    size_t i;
    int g;
    linattn_status status = linattn__check_gates(s->rule, s->norm, gates);
    if (status == LINATTN_OK) status = linattn__read_gates(s, gates, c->count, c->n, e, c->gating);
    if (status != LINATTN_OK) return status;
    if ((c->verb & LINATTN__QUERIES) && !linattn__gates_clear(c->gating, e, out))
        return LINATTN_ERROR_OVERLAP;
    for (i = 0; i < c->count; i++)
        for (g = 0; g < c->gating->count; g++)
            if (!linattn__state_apart(e + g, c->states[i], s->state_bytes))
                return LINATTN_ERROR_OVERLAP;
    return LINATTN_OK;
}

LINATTN_API linattn_status linattn_recurrent_many(void *const *states, size_t count, linattn_view q,
                                                  linattn_view k, linattn_view v,
                                                  const linattn_gates *gates, linattn_output out,
                                                  size_t n, const linattn_context *context)
{
    linattn__crowd c;
    linattn__gating gating;
    linattn_status status;
    if (count == 0) return LINATTN_OK;
    if (!states) return LINATTN_ERROR_NULL;
    status = linattn__find_header(states[0]);
    if (status != LINATTN_OK) return status;
    if (((const linattn__header *)states[0])->rule == LINATTN_RULE_SUM) {
        status = linattn__check_gates(LINATTN_RULE_SUM, LINATTN_NORM_SUM, gates);
        if (status != LINATTN_OK) return status;
        return q.data || out.data ? linattn_causal_many(states, count, q, k, v, out, n, context)
                                  : linattn_update_many(states, count, k, v, n, context);
    }
    linattn__gather(&c, states, count, n, linattn__rule_verb(&q, &out), linattn__run_rule);
    c.gating = &gating;
    return linattn__call_many(&c, &q, &k, &v, gates, &out, context);
}

/* *x * factor 2^n, flushed; *x plus that of another. */
static void linattn__decay(float *x, float factor, float n)
{
    *x = *x * factor;
    if (n != 0.0f) linattn__saturating_ldexp(x, n);
    *x = linattn__flush(*x);
}

static void linattn__merge_decayed(float *x, const float *other, float factor, float n,
                                   float n_other)
{
    float term = *other;
    linattn__decay(x, factor, n);
    linattn__decay(&term, 1.0f, n_other);
    *x = *x + term;
}

/* Was any of its heads imported into? */
LINATTN__COLD static int linattn__imported(const void *state, const linattn__shape *s)
{
    size_t head;
    for (head = 0; head < s->kv_heads; head++) {
        float *const at = linattn__head((void *)(uintptr_t)state, s, head);
        if (linattn__scalars(at, s)[LINATTN__IMPORTED] == 1.0f) return 1;
    }
    return 0;
}

#if LINATTN__HAS_COMPENSATED
/* hi + lo, times a factor of two floats, as the kernels' la_times. */
static void linattn__decay_pair(float *pair, const float *by)
{
    const float y = pair[0] * by[0], error = linattn__fma(pair[0], by[0], -y);
    const float rest = linattn__fma(pair[1], by[0], linattn__fma(pair[0], by[1], error));
    const float sum = y + rest;
    pair[1] = (y - sum) + rest;
    pair[0] = linattn__flush(sum);
    if (pair[0] == 0.0f) pair[1] = 0.0f;
}

/* The factor of mLSTM that all has decayed by, times one of two floats. */
static LINATTN__NOINLINE void linattn__decay_kept(float *scalars, const float *by,
                                                  const float *by_low)
{
    float pair[2], factor[2];
    factor[0] = *by;
    factor[1] = *by_low;
    pair[0] = scalars[LINATTN__KEPT_FACTOR];
    pair[1] = scalars[LINATTN__KEPT_LOW];
    linattn__decay_pair(pair, factor);
    scalars[LINATTN__KEPT_FACTOR] = pair[0];
    scalars[LINATTN__KEPT_LOW] = pair[1];
}

/* Both parts *= 2^n. */
static LINATTN__NOINLINE void linattn__scale_pair(float *pair, const float *n)
{
    linattn__saturating_ldexp(pair, *n);
    linattn__saturating_ldexp(pair + 1, *n);
}

/* Of row f: what it has decayed by since it was folded; and what its past is to be multiplied by,
   which differs where exponents have moved. */
static LINATTN__NOINLINE void linattn__decayed(const linattn__span *s, size_t f, float *decayed,
                                               float *by)
{
    const size_t m16 = linattn__round16(s->m);
    const float *const since = s->z + s->past + 2 * m16 + f;
    float shift, lowered;
    decayed[0] = by[0] = since[0];
    decayed[1] = by[1] = since[m16];
    if (!LINATTN__IS_EXP(s->params->map)) return;
    lowered = -(s->s - m16)[f];
    linattn__scale_pair(decayed, &lowered);
    shift = linattn__past_shift(s->s + s->past + f - m16, s->e + f);
    by[0] = linattn__flush(by[0] * shift);
    by[1] = linattn__flush(by[1] * shift);
}

/* The exponential map, row f before it is folded: kept follows, and what it is multiplied by is
   made relative to the exponent of its sums. */
static void linattn__settle_past(const linattn__span *s, size_t f)
{
    const size_t m16 = linattn__round16(s->m);
    float *const past = s->z + s->past + f, *const kept = s->z + 2 * m16 + f;
    float decayed[2], by[2], own[2];
    linattn__decayed(s, f, decayed, by);
    own[0] = *kept;
    own[1] = past[m16];
    linattn__decay_pair(own, decayed);
    *kept = own[0];
    past[m16] = own[1];
    past[2 * m16] = by[0];
    past[3 * m16] = by[1];
    s->s[s->past + f - m16] = s->e[f];
    (s->s - m16)[f] = 0.0f;
}

/* *z of row f, plus that of its past. */
static LINATTN__NOINLINE void linattn__add_past(const linattn__span *s, size_t past, size_t f,
                                                float *z)
{
    const size_t m16 = linattn__round16(s->m);
    const float shift = linattn__past_shift(s->s + past + f - m16, s->e + f);
    volatile float y = s->z[past + f] * s->z[past + 2 * m16 + f]; /* as in linattn__product */
    y = y * shift;
    *z = linattn__flush(*z + y);
}

/* May the exponent of row f's past, if it has one, not be lowered by as much? */
LINATTN__COLD static int linattn__past_is_lowest(const linattn__span *s, size_t past, size_t f,
                                                 float up)
{
    const float e = (s->s + past - linattn__round16(s->m))[f];
    return e > LINATTN__LOWEST && e - up < -2097152.0f;
}

/* Row f was lowered, which made it 2^up times as large, or is gone: then factor is 0. */
static LINATTN__NOINLINE void linattn__lower_past(const linattn__span *s, size_t past, size_t f,
                                                  float factor, float up)
{
    const size_t m16 = linattn__round16(s->m);
    float *const since = s->z + past + 2 * m16 + f, *const e = s->s + past + f - m16;
    size_t c;
    if (factor == 0.0f) {
        for (c = 0; c < s->dv; c++) s->s[past + (c / 16 * s->m + f) * 16 + c % 16] = 0.0f;
        s->z[past + f] = 0.0f;
        *e = -LINATTN__INF;
        return;
    }
    since[0] = since[0] * factor;
    since[m16] = since[m16] * factor;
    *e = *e - up;
    (s->s - m16)[f] = (s->s - m16)[f] + up;
}
#endif

/* The exponential map under decays: a row whose z has become small is brought back to what new
   keys are near, and one that is gone starts anew, as does one of which this token's decay, that of
   row f0 on or where step is 0 of all rows, leaves nothing: 0 or, of logarithms, what has e^x = 0.
   Without decays, NULL, no row is. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__lower(const linattn__span *s, size_t past,
                                                           size_t f0, size_t f1, const float *decay,
                                                           size_t step, int logs)
{
    /* 2^-64, 2^-40: sums of few tokens, beside a past, are not to be flushed */
    float least = past ? 9.094947018e-13f : 5.421010862e-20f;
    size_t f, c, i;
    if (LINATTN__ELEMENT(s) == LINATTN_F16) least = 3.7252903e-9f; /* what f16 still holds well */
    for (f = f0; f < f1; f++) {
        const float by = decay ? decay[(f - f0) * step] : 1.0f;
        const int reset = logs ? by < LINATTN__EXP_LOW : by == 0.0f;
        float z = reset ? 0.0f : s->z[f], up, factor;
        if (!(z < least) || !(s->e[f] > LINATTN__LOWEST)) continue;
#if LINATTN__HAS_COMPENSATED
        if (past && !reset) linattn__add_past(s, past, f, &z);
        if (!(z < least)) continue;
#endif
        up = -24.0f - linattn__exponent_of(linattn__to_bits(z));
        if (z > 0.0f && s->e[f] - up < -2097152.0f) continue;
#if LINATTN__HAS_COMPENSATED
        if (past && z > 0.0f && linattn__past_is_lowest(s, past, f, up)) continue;
#endif
        factor = z > 0.0f ? linattn__pow2((int)up) : 0.0f;
        s->z[f] = s->z[f] * factor;
        s->e[f] = z > 0.0f ? s->e[f] - up : -LINATTN__INF;
#if LINATTN__HAS_HALF
        if (s->element) {
            const float factors[2] = {factor, 1.0f};
            linattn__rescale_halves(s, f, factors);
            continue;
        }
#endif
        for (c = s->column_begin; c < s->column_end; c += 16)
            for (i = 0; i < 16; i++) {
                float *const at = s->s + c * s->m + f * 16 + i;
                *at = *at * factor;
            }
#if LINATTN__HAS_COMPENSATED
        if (past) linattn__lower_past(s, past, f, factor, up);
#else
        (void)past;
#endif
    }
}

/* Keeps the factor that all has decayed by near 1. Within range, whatever the gates. */
static void linattn__normalise_kept(float *scalars)
{
    float *const factor = scalars + LINATTN__KEPT_FACTOR;
    float *const exponent = scalars + LINATTN__KEPT_EXPONENT;
    float n;
    if (*factor > 9.5367432e-7f && *factor < 1048576.0f) return;
    n = linattn__exponent_of(linattn__to_bits(*factor));
    *factor = *factor * linattn__pow2((int)-n / 2);
    *factor = *factor * linattn__pow2((int)-n - (int)-n / 2);
#if LINATTN__HAS_COMPENSATED
    scalars[LINATTN__KEPT_LOW] = scalars[LINATTN__KEPT_LOW] * linattn__pow2((int)-n / 2);
    scalars[LINATTN__KEPT_LOW] = scalars[LINATTN__KEPT_LOW] * linattn__pow2((int)-n - (int)-n / 2);
#endif
    *exponent = *exponent + n;
    if (*exponent < LINATTN__LOWEST) *exponent = LINATTN__LOWEST;
    if (*exponent > -LINATTN__LOWEST) *exponent = -LINATTN__LOWEST;
}

/* mLSTM: dst decays by all of src's decays, both become relative to the larger exponent, and are
   added. */
LINATTN__COLD static void linattn__merge_mlstm(const linattn__span *dst, const linattn__span *src)
{
    const size_t m16 = linattn__round16(dst->m), panels = (dst->dv + 15) / 16;
    float *const to = dst->z + 4 * m16;
    const float *const from = src->z + 4 * m16;
    const float kept = from[LINATTN__KEPT_FACTOR];
    float e_dst = to[LINATTN__EXPONENT], e_src = from[LINATTN__EXPONENT], e;
    size_t i;
    e_dst = e_dst + from[LINATTN__KEPT_EXPONENT];
    if (!(e_dst > -2097152.0f)) e_dst = -LINATTN__INF; /* nothing is left */
    e = e_dst > e_src ? e_dst : e_src;
    if (e > LINATTN__LOWEST) {
        const float n_dst = e_dst > LINATTN__LOWEST ? e_dst - e : LINATTN__LOWEST;
        const float n_src = e_src > LINATTN__LOWEST ? e_src - e : LINATTN__LOWEST;
        for (i = 0; i < dst->m; i++)
            linattn__merge_decayed(dst->z + i, src->z + i, kept, n_dst, n_src);
        for (i = 0; i < dst->m * panels * 16; i++) {
            float x, y;
            if (i / (16 * dst->m) * 16 + i % 16 >= dst->dv) continue; /* stays zero */
            linattn__get_sum(dst->s, i, LINATTN__ELEMENT(dst), &x);
            linattn__get_sum(src->s, i, LINATTN__ELEMENT(dst), &y);
            x = x * linattn__owed(to);
            y = y * linattn__owed(from);
            linattn__merge_decayed(&x, &y, kept, n_dst, n_src);
            linattn__set_sum(dst->s, i, LINATTN__ELEMENT(dst), &x);
        }
        to[LINATTN__EXPONENT] = e;
        to[LINATTN__DRIFT] = 1.0f;
        to[LINATTN__OWED] = 0.0f;
    }
    to[LINATTN__KEPT_FACTOR] = to[LINATTN__KEPT_FACTOR] * kept;
    to[LINATTN__KEPT_EXPONENT] = to[LINATTN__KEPT_EXPONENT] + from[LINATTN__KEPT_EXPONENT];
    linattn__normalise_kept(to);
}

#if LINATTN__HAS_COMPENSATED
/* *past by a factor of two floats, and what that loses added to *lost. */
static float linattn__decay_past(const float *past, const float *by, float *lost)
{
    const float y = *past * by[0];
    if (by[0] != 1.0f && y < 1.9721523e-31f && y > -1.9721523e-31f) return 0.0f;
    *lost = *lost + linattn__fma(*past, by[1], linattn__fma(*past, by[0], -y));
    return y;
}

/* What the sums of a row of dst and src are multiplied by, and their pasts. */
typedef struct linattn__merging {
    float all[2], theirs[2], by[2], by_src[2];
    float e; /* the exponent that they become relative to */
} linattn__merging;

/* One number, and its past. */
static void linattn__merge_folded(float *dst, const float *src, size_t past,
                                  const linattn__merging *x)
{
    float lost = linattn__fma(*dst, x->all[0], *src * x->theirs[0]);
    const float a = linattn__decay_past(dst + past, x->by, &lost);
    const float b = linattn__decay_past(src + past, x->by_src, &lost);
    const float sum = a + b, part = sum - a;
    lost = lost + ((a - (sum - part)) + (b - part));
    dst[past] = sum;
    if (!(lost - lost == 0.0f)) lost = 0.0f;
    *dst = linattn__flush(lost);
}

/* Both become relative to the larger one of two exponents. */
static void linattn__merge_exponents(linattn__merging *x, const float *e_dst, const float *e_src)
{
    float n_dst = LINATTN__LOWEST, n_src = LINATTN__LOWEST;
    x->e = *e_src;
    if (*e_dst > *e_src) x->e = *e_dst;
    if (*e_dst > LINATTN__LOWEST) n_dst = *e_dst - x->e;
    if (*e_src > LINATTN__LOWEST) n_src = *e_src - x->e;
    linattn__scale_pair(x->all, &n_dst);
    linattn__scale_pair(x->by, &n_dst);
    linattn__scale_pair(x->theirs, &n_src);
    linattn__scale_pair(x->by_src, &n_src);
}

/* Row f of GATED. decayed, lately: of dst and of src, since they were folded. */
static void linattn__merge_kept(linattn__merging *x, const linattn__span *dst,
                                const linattn__span *src, size_t f, float *decayed,
                                const float *lately)
{
    const size_t m16 = linattn__round16(dst->m), past = dst->past;
    float *const kept = dst->z + 2 * m16 + f, *const kept_low = dst->z + past + m16 + f;
    float own[2];
    x->all[0] = src->z[2 * m16 + f];
    x->all[1] = src->z[past + m16 + f];
    linattn__decay_pair(x->all, lately);
    linattn__decay_pair(decayed, x->all);
    own[0] = *kept;
    own[1] = *kept_low;
    linattn__decay_pair(own, decayed);
    *kept = own[0];
    *kept_low = own[1];
    kept[m16] = LINATTN__SPENT; /* the credit */
}

/* GATED and MLSTM with compensated sums: dst is folded into its past, and src is added; where one
   of them is empty the other one stays as it is. */
LINATTN__COLD static void linattn__merge_pasts(const linattn__span *dst, const linattn__span *src,
                                               int rule)
{
    const size_t m16 = linattn__round16(dst->m), panels = (dst->dv + 15) / 16, past = dst->past;
    float *const since = dst->z + past + 2 * m16, *const to = dst->z + 4 * m16;
    const float *const from = src->z + 4 * m16;
    const int exponents = LINATTN__IS_EXP(dst->params->map);
    const int empty = dst->seen == 0 && to[LINATTN__IMPORTED] == 0.0f;
    float e_dst = to[LINATTN__EXPONENT] + from[LINATTN__KEPT_EXPONENT];
    size_t f, c, i;
    if (empty) linattn__copy(dst->z, src->z, dst->head_floats * sizeof(float));
    if (empty || src->seen == 0) return;
    if (!(e_dst > -2097152.0f)) e_dst = -LINATTN__INF; /* nothing is left */
    for (f = 0; f < dst->m; f++) {
        linattn__merging x = {{0.0f, 0.0f}, {1.0f, 0.0f}, {0.0f, 0.0f}, {0.0f, 0.0f}, 0.0f};
        float decayed[2], lately[2];
        linattn__decayed(dst, f, decayed, x.by);
        linattn__decayed(src, f, lately, x.by_src);
        x.all[0] = from[LINATTN__KEPT_FACTOR];
        x.all[1] = from[LINATTN__KEPT_LOW];
        if (rule == LINATTN_RULE_GATED) linattn__merge_kept(&x, dst, src, f, decayed, lately);
        linattn__decay_pair(x.by, x.all);
        if (exponents) {
            e_dst = dst->e[f];
            if (x.all[0] == 0.0f) e_dst = -LINATTN__INF;
            linattn__merge_exponents(&x, &e_dst, src->e + f);
            dst->e[f] = dst->s[past + f - m16] = x.e;
            (dst->s - m16)[f] = 0.0f;
        } else if (rule == LINATTN_RULE_MLSTM) {
            linattn__merge_exponents(&x, &e_dst, from + LINATTN__EXPONENT);
        } else {
            dst->e[f] = linattn__flush(linattn__fma(dst->e[f], x.all[0], src->e[f]));
        }
        since[f] = 1.0f;
        since[m16 + f] = 0.0f;
        linattn__merge_folded(dst->z + f, src->z + f, past, &x);
        for (c = 0; c < panels; c++)
            for (i = 0; i < 16 && c * 16 + i < dst->dv; i++) { /* what lies beyond stays zero */
                const size_t at = (c * dst->m + f) * 16 + i;
                linattn__merge_folded(dst->s + at, src->s + at, past, &x);
            }
    }
    if (rule == LINATTN_RULE_GATED) return;
    if (e_dst < from[LINATTN__EXPONENT]) e_dst = from[LINATTN__EXPONENT];
    to[LINATTN__EXPONENT] = e_dst;
    to[LINATTN__DRIFT] = 1.0f;
    linattn__decay_kept(to, from + LINATTN__KEPT_FACTOR, from + LINATTN__KEPT_LOW);
    to[LINATTN__KEPT_EXPONENT] = to[LINATTN__KEPT_EXPONENT] + from[LINATTN__KEPT_EXPONENT];
    linattn__normalise_kept(to);
}
#endif

/* A rule's part of a merge: GATED lets dst decay, MLSTM, and GATED with a past, do it all. Returns
   whether it has. */
LINATTN__COLD static LINATTN__NOINLINE int linattn__merge_rule(const linattn__span *dst,
                                                               const linattn__span *src, int rule)
{
    const size_t m16 = linattn__round16(dst->m), panels = (dst->dv + 15) / 16;
    float *const kept = dst->z + 2 * m16, *const credit = kept + m16, *const to = credit + m16;
    const float *const by = src->z + 2 * m16;
    const float *const from = by + 2 * m16;
    const float all = from[LINATTN__KEPT], owed = linattn__owed(to) / linattn__owed(from);
    size_t f, c, i;
#if LINATTN__HAS_COMPENSATED
    if (dst->past) {
        linattn__merge_pasts(dst, src, rule);
        return 1;
    }
#endif
    if (rule == LINATTN_RULE_MLSTM) {
        linattn__merge_mlstm(dst, src);
        return 1;
    }
    for (f = 0; f < dst->m; f++) {
        const float row = linattn__row_owed(to, dst->e, f) / linattn__row_owed(from, src->e, f);
        const float factor = by[f] * all, paid = factor * owed * row;
        kept[f] = linattn__flush(kept[f] * by[f]);
        credit[f] = LINATTN__SPENT;
        if (factor == 1.0f && paid == 1.0f) continue;
        dst->z[f] = linattn__flush(dst->z[f] * factor);
        if (!LINATTN__IS_EXP(dst->params->map)) dst->e[f] = linattn__flush(dst->e[f] * factor);
        for (c = 0; c < panels; c++)
            for (i = 0; i < 16 && c * 16 + i < dst->dv; i++) { /* what lies beyond stays zero */
                const size_t at = (c * dst->m + f) * 16 + i;
                float x;
                linattn__get_sum(dst->s, at, LINATTN__ELEMENT(dst), &x);
                x = linattn__flush(x * paid);
                linattn__set_sum(dst->s, at, LINATTN__ELEMENT(dst), &x);
            }
    }
    to[LINATTN__KEPT] = linattn__flush(to[LINATTN__KEPT] * all);
    for (f = 0; to[LINATTN__ROWS] != 0.0f && f < dst->m; f++) dst->e[f] = 0.0f;
    to[LINATTN__OWED] = from[LINATTN__OWED]; /* by both, as do rows once low parts are added */
    to[LINATTN__ROWS] = from[LINATTN__ROWS];
    return 0;
}
#endif

/* ---- Sums as plain numbers ------------------------------------------------------------------- */

/* Where the numbers of a head lie in its state, and what makes them plain: of row f
   by 2^(exponent_f + bias), of all rows by `factor`. */
typedef struct linattn__plain {
    linattn__shape s;
    linattn__params p;
    float *z, *e, *sums;
    float factor, bias;
    const float *owing; /* scalars, where sums may owe decays */
    int exponents;      /* of the rows, in e */
    size_t past;        /* of the span */
} linattn__plain;

/* Reads and checks a call, as linattn__open_any does. Within enter and leave where there is no
   error. */
LINATTN__COLD static linattn_status linattn__open_plain(const void *state, size_t head,
                                                        const float *sums, const float *z,
                                                        linattn__plain *x,
                                                        linattn__environment *environment)
{
    void *const at = (void *)(uintptr_t)state;
    size_t bytes;
    linattn_status status = linattn__read_state(state, &x->s);
    if (status != LINATTN_OK) return status;
    if (x->s.window) return LINATTN_ERROR_UNSUPPORTED;
    if (head >= x->s.kv_heads) return LINATTN_ERROR_SIZE;
    if (!sums) return LINATTN_ERROR_NULL;
    bytes = x->s.m * x->s.dv * sizeof(float);
    if (linattn__times(x->s.m, x->s.dv) == SIZE_MAX || (uintptr_t)sums > UINTPTR_MAX - bytes)
        return LINATTN_ERROR_SIZE;
    if (!linattn__disjoint(sums, bytes, state, x->s.state_bytes)) return LINATTN_ERROR_OVERLAP;
    if (z && (!linattn__disjoint(z, x->s.m * sizeof(float), state, x->s.state_bytes) ||
              !linattn__disjoint(z, x->s.m * sizeof(float), sums, bytes)))
        return LINATTN_ERROR_OVERLAP;
    *environment = linattn__enter();
    linattn__read_params(&x->s, &x->p);
    x->z = linattn__head(at, &x->s, head);
    x->e = x->z + linattn__round16(x->s.m);
    x->sums = x->e + linattn__round16(x->s.m);
#if LINATTN__HAS_COMPENSATED
    x->past = x->s.precision ? x->s.head_floats / 2 : 0;
#else
    x->past = 0;
#endif
    x->exponents = linattn__has_exponents(&x->s);
    x->factor = x->exponents ? x->p.rest_root : 1.0f;
    if (x->s.map == LINATTN_MAP_IDENTITY) x->factor = 1.0f / x->p.root;
    x->bias = x->exponents ? LINATTN__BIAS : 0.0f;
    x->owing = NULL;
#if LINATTN__HAS_RECURRENT
    if (x->s.rule) {
        x->sums += linattn__rule_floats(&x->s);
        if (!LINATTN__ELEMENT(&x->s) && !x->past) x->owing = linattn__scalars(x->z, &x->s);
        if (x->s.rule == LINATTN_RULE_MLSTM)
            x->bias = linattn__scalars(x->z, &x->s)[LINATTN__EXPONENT];
        if (!(x->bias >= LINATTN__LOWEST)) x->bias = 0.0f; /* empty */
    }
#endif
    return LINATTN_OK;
}

/* Element (f, c) of S, in its panel; and of the plain ones. */
LINATTN__INLINE size_t linattn__panel_index(const linattn__plain *x, size_t f, size_t c)
{
    return (c / 16 * x->s.m + f) * 16 + c % 16;
}

LINATTN__INLINE size_t linattn__plain_index(const linattn__plain *x, size_t f, size_t c,
                                            int transposed)
{
    return transposed ? c * x->s.m + f : f * x->s.dv + c;
}

/* The plain number of row f that lies at `at`, with what its past has, which is multiplied by
   `since`. low: what a z of both signs adds. */
LINATTN__COLD static void linattn__export_one(const linattn__plain *x, size_t f, const float *at,
                                              const float *low, float since, float *to)
{
    float y = *at, power = x->bias;
    if (x->exponents) power = x->e[f] > LINATTN__LOWEST ? x->e[f] + x->bias : 0.0f;
    if (low) y = y + *low;
    y = y * x->factor;
    if (x->past) {
        volatile float recent = y, before = at[x->past] * since; /* as in linattn__product */
        y = recent + before;
    }
    if (power != 0.0f) linattn__saturating_ldexp(&y, power);
    *to = y;
}

/* Writes row f as plain numbers. */
LINATTN__COLD static void linattn__export_row(const linattn__plain *x, size_t f, int transposed,
                                              float *sums, float *z)
{
    int has_low = LINATTN__IS_SIGNED(x->p.map);
    float since = x->factor, owed = 1.0f;
    size_t c;
#if LINATTN__HAS_RECURRENT
    if (x->owing) {
        owed = linattn__owed(x->owing) * linattn__row_owed(x->owing, x->e, f);
        if (x->owing[LINATTN__ROWS] != 0.0f) has_low = 0;
    }
#endif
#if LINATTN__HAS_COMPENSATED
    const size_t m16 = linattn__round16(x->s.m);
    if (x->past && x->s.rule) since = since * x->z[x->past + 2 * m16 + f];
    if (x->past && x->exponents)
        since = since * linattn__past_shift(x->sums + x->past + f - m16, x->e + f);
#endif
    for (c = 0; c < x->s.dv; c++) {
        const size_t i = linattn__panel_index(x, f, c);
        const float *at = x->sums + i;
        float own;
        if (owed != 1.0f) {
            own = *at * owed;
            at = &own;
        }
#if LINATTN__HAS_HALF
        if (x->s.element) {
            linattn__read_half(x->sums, i, x->s.element, &own);
            if (LINATTN__RAISES(x->s.element, x->p.map)) own = own * LINATTN__LOWERED;
            at = &own;
        }
#endif
        linattn__export_one(x, f, at, NULL, since,
                            sums + linattn__plain_index(x, f, c, transposed));
    }
    if (z) linattn__export_one(x, f, x->z + f, has_low ? x->e + f : NULL, since, z + f);
}

LINATTN__ALONE LINATTN_API linattn_status linattn_state_export(const void *state, size_t head,
                                                               int transposed, float *sums,
                                                               float *z)
{
    linattn__plain x;
    linattn__environment environment;
    size_t f;
    const linattn_status status = linattn__open_plain(state, head, sums, z, &x, &environment);
    if (status != LINATTN_OK) return status;
    for (f = 0; f < x.s.m; f++) linattn__export_row(&x, f, transposed, sums, z);
    linattn__leave(environment);
    return LINATTN_OK;
}

/* The exponent that a row is kept relative to: that of z, as if of one key, or of the largest
   sum; -inf where all is zero. */
LINATTN__COLD static float linattn__import_exponent(const linattn__plain *x, size_t f,
                                                    int transposed, const float *sums,
                                                    const float *z)
{
    const uint32_t at_z = z ? linattn__to_bits(z[f]) & 0x7fffffffu : 0;
    uint32_t largest = at_z;
    size_t c;
    for (c = 0; c < x->s.dv && !(at_z >> 23); c++) {
        const float at = sums[linattn__plain_index(x, f, c, transposed)];
        const uint32_t size = linattn__to_bits(at) & 0x7fffffffu;
        if (size > largest) largest = size;
    }
    return largest >> 23 ? linattn__exponent_of(largest) : -LINATTN__INF;
}

#if LINATTN__HAS_RECURRENT && LINATTN__HAS_HALF
/* And what all of a head of mLSTM in f16 is kept relative to, in place of the largest gate so far:
   its largest number. */
LINATTN__COLD static float linattn__import_gate(const linattn__plain *x, const float *sums,
                                                const float *z)
{
    const size_t count = x->s.m * x->s.dv;
    uint32_t largest = 0;
    size_t i;
    for (i = 0; i < count + (z ? x->s.m : 0); i++) {
        const uint32_t bits = linattn__to_bits(i < count ? sums[i] : z[i - count]) & 0x7fffffffu;
        if (bits > largest && bits < 0x7f800000u) largest = bits;
    }
    return largest >> 23 ? linattn__exponent_of(largest) : 0.0f;
}
#endif

LINATTN__ALONE LINATTN_API linattn_status linattn_state_import(void *state, size_t head,
                                                               int transposed, const float *sums,
                                                               const float *z)
{
    linattn__plain x;
    linattn__environment environment;
    float gate = 0.0f; /* of mLSTM in f16 */
    size_t f, c;
    const linattn_status status = linattn__open_plain(state, head, sums, z, &x, &environment);
    if (status != LINATTN_OK) return status;
    x.factor = 1.0f / x.factor;
#if LINATTN__HAS_RECURRENT
    if (x.s.rule) linattn__import_rule(&x.s, x.z);
    if (x.s.rule) x.bias = 0.0f;
#if LINATTN__HAS_HALF
    if (x.s.rule == LINATTN_RULE_MLSTM && x.s.element == LINATTN_F16) {
        gate = linattn__import_gate(&x, sums, z);
        linattn__scalars(x.z, &x.s)[LINATTN__EXPONENT] = gate;
    }
#endif
#endif
    if (x.exponents) x.bias = LINATTN__BIAS;
    for (c = 0; c < x.past; c++) x.z[x.past + c] = 0.0f;
    for (f = 0; x.past && x.exponents && f < linattn__round16(x.s.m); f++) {
        x.sums[x.past + f - linattn__round16(x.s.m)] = -LINATTN__INF;
        if (x.s.rule) (x.sums - linattn__round16(x.s.m))[f] = 0.0f;
    }
    for (f = 0; x.past && x.s.rule && f < linattn__round16(x.s.m); f++)
        x.z[x.past + 2 * linattn__round16(x.s.m) + f] = 1.0f;
    for (f = 0; f < x.s.m; f++) {
        float power = -gate;
        if (x.exponents) {
            x.e[f] = linattn__import_exponent(&x, f, transposed, sums, z);
            power = x.e[f] > LINATTN__LOWEST ? -x.e[f] - x.bias : 0.0f;
        } else {
            x.e[f] = 0.0f;
        }
        for (c = 0; c < x.s.dv; c++) {
            float y = sums[linattn__plain_index(&x, f, c, transposed)];
            if (power != 0.0f) linattn__saturating_ldexp(&y, power);
            y = y * x.factor;
            if (LINATTN__RAISES(LINATTN__ELEMENT(&x.s), x.p.map)) y = y * LINATTN__RAISED;
            linattn__set_sum(x.sums, linattn__panel_index(&x, f, c), LINATTN__ELEMENT(&x.s), &y);
        }
        x.z[f] = z ? z[f] : 0.0f;
        if (power != 0.0f) linattn__saturating_ldexp(x.z + f, power);
        x.z[f] = x.z[f] * x.factor;
        /* under a decay z tells what a row holds: as if of one key */
        if (!z && x.s.rule && x.exponents && x.e[f] > LINATTN__LOWEST) x.z[f] = 9.5367432e-7f;
    }
    linattn__leave(environment);
    return LINATTN_OK;
}

#if LINATTN__HAS_WINDOW
/* ---- Windows --------------------------------------------------------------------------------- */

/* A window of `window` keys, for the tokens of sub-block u of BAND tokens, is the sum of
   - the `middle` sub-blocks before u that all of them see whole: as a state, see below;
   - of the `left` sub-blocks before these, and of u itself, the keys that each token sees: one by
     one, from the scores phi(q).phi(k_j). phi(k_j) stand as columns beside those of S, as if their
     values had been the unit vectors: so they share the exponents of S, and one read-out of all
     columns gives both the sum and the scores.
   Where all keys one by one, m + dv products each, take no more than adding to the middle and
   reading it, 2 m dv, and the scores of 16 tokens have room, there is no middle.
   The middle needs no subtraction either: sub-blocks come in rounds of `middle`, slot i holds the
   sum of sub-blocks i and above of the last round, until sub-block i of this round is done and
   takes it; `prefix` sums this round's.
   Exponents of the sum are those of the middle or, where a key that a token sees exceeds these by
   more than the headroom, a multiple of LEVEL that depends on the largest such key alone: they are
   made afresh where keys that the window has left behind had raised them. phi(k_j) below KEY_MIN
   are 0, so that they are whether or not they were rescaled. */
#define LINATTN__BAND 32
#define LINATTN__SCORES (LINATTN__FEATURES + 16) /* of a token */
#define LINATTN__LEVEL 32.0f
#define LINATTN__KEY_MIN 4.7019774e-38f /* 2^-124 */

typedef struct linattn__band {
    size_t middle, left, ring; /* tokens; sub-blocks: summed, single, and kept as they came */
    size_t part_floats;        /* of z, exponents and S */
    size_t floats;             /* of a head */
    size_t columns;            /* beside S */
} linattn__band;

/* Where the parts of a head lie: the sum that is read, with the single keys beside S; its exponents
   before single keys moved them; parts; prefix; spare, a state for single tokens; the values of
   the single keys in panels, and whether some are not finite; the last tokens, their keys as they
   came or mapped. */
typedef struct linattn__band_parts {
    float *sum, *exponents, *parts, *prefix, *spare, *panels, *keys, *values, *odd;
} linattn__band_parts;

static void linattn__band_layout(const linattn__span *s, float *head, linattn__band_parts *x)
{
    const linattn__band *b = s->band;
    const size_t m16 = (s->m + 15) / 16 * 16;
    x->sum = head;
    x->exponents = x->sum + b->part_floats + b->columns * s->m;
    x->parts = x->exponents + m16;
    x->prefix = x->parts + b->middle * b->part_floats;
    x->spare = x->prefix + (b->middle ? b->part_floats : 0); /* there is no prefix then */
    x->panels = x->spare + b->part_floats;
    x->odd = x->panels + (s->dv + 15) / 16 * 16 * b->columns;
    x->keys = x->odd + 16;
    x->values = x->keys + b->ring * LINATTN__BAND * s->d;
}

/* Are keys kept as phi(k)? Sub-blocks are summed, and keys become columns again, long after they
   came. Exponents move meanwhile, and other features are more than coordinates. */
LINATTN__INLINE int linattn__keeps_phi(const linattn__params *p)
{
    return p->source == LINATTN__DIRECT && !LINATTN__IS_EXP(p->map) && !LINATTN__IS_SIGNED(p->map);
}

/* Where token i, counted from the first of all, is kept. */
LINATTN__INLINE size_t linattn__kept(const linattn__span *s, uint64_t i)
{
    return (size_t)(i / LINATTN__BAND % s->band->ring * LINATTN__BAND + i % LINATTN__BAND);
}

/* The keys of a call's tokens from t on, as they are kept. */
LINATTN__INLINE const float *linattn__kept_keys(const linattn__span *s,
                                                const linattn__band_parts *b, size_t t)
{
    return b->keys + linattn__kept(s, s->seen + t) * s->d;
}

/* The tokens of the left sub-blocks that token i may see: [*first, returned). */
static uint64_t linattn__left_keys(const linattn__span *s, uint64_t i, uint64_t *first)
{
    const linattn__band *band = s->band;
    const uint64_t block = i / LINATTN__BAND;
    const uint64_t end = block > band->middle ? (block - band->middle) * LINATTN__BAND : 0;
    *first = i + 1 > s->window ? i + 1 - s->window : 0;
    if (*first > end) *first = end;
    return end;
}

/* The column of the first key that token i sees. */
static size_t linattn__first_column(const linattn__span *s, uint64_t i)
{
    const linattn__band *band = s->band;
    uint64_t first;
    const uint64_t end = linattn__left_keys(s, i, &first), begin = i - i % LINATTN__BAND;
    const size_t left = band->left * LINATTN__BAND;
    if (first < end) return left - (size_t)(end - first);
    if (begin + s->window < i + 1) return left + (size_t)(i + 1 - s->window - begin);
    return left;
}

LINATTN__DECLARE_ONE(linattn__span_kernel, band)

/* What a window of that many keys takes, in parts and tokens. */
LINATTN__COLD static void linattn__measure_band(size_t d, size_t m, size_t dv, size_t part_floats,
                                                size_t window, linattn__band *b)
{
    const size_t whole = window / LINATTN__BAND, dv16 = linattn__round16(dv);
    size_t keys = whole > 1 ? (whole - 1) * LINATTN__BAND : 0; /* of the middle */
    size_t floats, token = linattn__times(LINATTN__BAND, d + dv);
    if (window <= LINATTN__SCORES - 15 && keys * ((uint64_t)m + dv) <= 2 * (uint64_t)m * dv)
        keys = 0;
    b->middle = keys / LINATTN__BAND;
    b->left = (window - keys + LINATTN__BAND - 2) / LINATTN__BAND;
    if (b->left == 0) b->left = 1;
    b->ring = b->left + b->middle + 1;
    b->columns = (b->left + 1) * LINATTN__BAND;
    b->part_floats = part_floats;
    /* parts, sum, prefix, spare */
    floats = linattn__times(b->middle + (b->middle ? 3 : 2), b->part_floats);
    floats = linattn__plus(floats, linattn__times(b->columns, linattn__plus(m, dv16)));
    floats = linattn__plus(floats, linattn__round16(m) + 16);
    floats = linattn__plus(floats, linattn__times(b->ring, token));
    b->floats = floats == SIZE_MAX ? SIZE_MAX : linattn__round16(floats);
}

static size_t linattn__band_floats(const linattn__shape *s, size_t window)
{
    linattn__band b;
    linattn__measure_band(s->d, s->m, s->dv, linattn__sums_floats(s), window, &b);
    return b.floats;
}

/* Are the exponents of a head's parts valid? */
LINATTN__COLD static int linattn__band_valid(const linattn__shape *s, float *head)
{
    const size_t m16 = linattn__round16(s->m);
    linattn__band band;
    linattn__span span;
    linattn__band_parts b;
    size_t i;
    linattn__measure_band(s->d, s->m, s->dv, linattn__sums_floats(s), s->window, &band);
    span.band = &band;
    span.m = s->m;
    span.d = s->d;
    span.dv = s->dv;
    linattn__band_layout(&span, head, &b);
    for (i = 0; i <= band.middle; i++) /* the last one is the prefix */
        if (!linattn__exponents_valid(b.parts + i * band.part_floats + m16, m16)) return 0;
    return linattn__exponents_valid(b.exponents, m16);
}

/* Heads. */
static void linattn__band_job(void *arg, size_t index)
{
    const linattn__work *w = (const linattn__work *)arg;
    size_t head, end;
    linattn__share(w->span.heads, 1, index, w->jobs, &head, &end);
    linattn__run_heads(w, head, end);
}

static LINATTN__NOINLINE void linattn__do_band(linattn__work *w, const linattn_context *context)
{
    const linattn__span *s = &w->span;
    const size_t sums = 2 * linattn__round16(s->m) + s->m * linattn__round16(s->dv);
    linattn__band band;
    linattn__measure_band(s->d, s->m, s->dv, sums, s->window, &band);
    w->span.band = &band;
    linattn__use_kernel(w, LINATTN__ONE(band));
    w->jobs = linattn__threads(context, w->span.heads);
    if (w->jobs > 1)
        linattn__run_jobs(linattn__band_job, w, w->jobs, context);
    else
        linattn__heads_alone(w);
}
#endif

#if LINATTN__HAS_FEATURES
/* ---- Features -------------------------------------------------------------------------------- */

/* For a key or query x' so large that its projection might overflow: the factor that x is
   multiplied by to keep it near 1, and *power, what x' then is still to be multiplied by. NaN and
   inf may do as they like. */
LINATTN__COLD static float linattn__tame(const float *x, size_t d, float root, float *power)
{
    const int root_power = (int)(linattn__to_bits(root) >> 23) - 127;
    float most = 0.0f;
    int n;
    size_t i;
    for (i = 0; i < d; i++) {
        const float size = linattn__from_bits(linattn__to_bits(x[i]) & 0x7fffffffu);
        if (size > most && size <= LINATTN__FLT_MAX) most = size;
    }
    n = (int)(linattn__to_bits(most) >> 23) - 127;
    n = n < -125 ? -125 : n > 125 ? 125 : n;
    *power = (float)(n + root_power);
    return linattn__pow2(-n) * (root * linattn__pow2(-root_power));
}
#define LINATTN__LOWER 192 /* monomials of low degrees that are kept, in floats */
#define LINATTN__FEW 18    /* most coordinates where some of them are products */

/* C(n + k - 1, k): monomials of degree k <= 8 in n variables, SIZE_MAX if that is too large. */
static size_t linattn__monomials(size_t n, size_t k)
{
    const unsigned half = 4 * sizeof(size_t) - 2; /* bits: of factors that none is too large with */
    size_t count = 1, i;
    for (i = 0; i < k; i++) {
        if ((count | (n + i)) >> half && count > SIZE_MAX / 8 / (n + i)) return SIZE_MAX;
        count *= n + i;
        count = i < 2 ? count >> i : count / (i + 1); /* each step asks: few divisions */
    }
    return count;
}

/* The monomials in the order of the state: by degree; in one degree by their indices, which do not
   fall, in lexicographic order. So those of degree p are, for each i in turn, x_i times the ones of
   degree p - 1 from leading index i on, which are the last ones of their list. Lists up to degree
   `base` are made for each token; a chunk of features is cut into segments, each a product of some
   coordinates times a part of a list. */
typedef struct linattn__segment {
    uint32_t from;     /* in the lists */
    uint16_t length;   /* features */
    uint8_t prefix;    /* coordinates in the product */
    uint8_t unchanged; /* so many are those of the segment before */
    uint16_t index[8]; /* which */
} linattn__segment;

typedef struct linattn__recipe {
    size_t d, base;
    uint32_t list[9], size[9];      /* of degree p <= base; list 0 is 1 */
    uint8_t first[9][LINATTN__FEW]; /* where leading indices begin in lists of degrees above 1 */
    size_t count, begin, end;       /* segments; what they take of all lists */
    linattn__segment segment[LINATTN__FEATURES];
} linattn__recipe;

/* Where in its list the leading index i begins. */
LINATTN__INLINE size_t linattn__leading(const linattn__recipe *r, size_t degree, size_t i)
{
    return degree > 1 ? r->first[degree][i] : degree * i;
}

/* The first s->prefix coordinates of the monomial at feature `rank` of a degree. Returns where
   among those that share them it stands; *leading is the last one. */
LINATTN__COLD static size_t linattn__descend(size_t d, size_t degree, size_t rank,
                                             linattn__segment *s, size_t *leading)
{
    size_t i = 0, level;
    for (level = 0; level < s->prefix; level++) {
        size_t skip = linattn__monomials(d - i, degree - level - 1);
        for (; rank >= skip; skip = linattn__monomials(d - i, degree - level - 1)) {
            rank -= skip;
            i++;
        }
        s->index[level] = (uint16_t)i;
    }
    *leading = i;
    return rank;
}

/* The degree of the monomial at feature *rank of all, which becomes its rank there. */
static size_t linattn__degree_of(size_t d, size_t *rank)
{
    size_t p;
    for (p = 0; *rank >= linattn__monomials(d, p); p++) *rank -= linattn__monomials(d, p);
    return p;
}

/* The largest degree whose monomials are kept in lists: one below the last, or less. */
static size_t linattn__base(size_t d, size_t degree)
{
    size_t base = 1;
    while (base + 1 < degree && linattn__monomials(d + 1, base + 1) <= LINATTN__LOWER) base++;
    return base;
}

/* The segment at feature `rank` of a degree. Returns how many features follow to the end of its
   list. */
LINATTN__COLD static size_t linattn__locate(const linattn__recipe *r, size_t degree, size_t rank,
                                            linattn__segment *s)
{
    const size_t low = degree < r->base ? degree : r->base;
    size_t i;
    s->prefix = (uint8_t)(degree - low);
    rank = linattn__descend(r->d, degree, rank, s, &i);
    rank += linattn__leading(r, low, i);
    s->from = (uint32_t)(r->list[low] + rank);
    return r->size[low] - rank;
}

/* The next product of as many coordinates, indices not falling. Returns 0 after the last. */
LINATTN__COLD static int linattn__advance(size_t d, linattn__segment *s)
{
    size_t level = s->prefix, i;
    while (level > 0 && (size_t)s->index[level - 1] + 1 == d) level--;
    if (level == 0) return 0;
    s->unchanged = (uint8_t)(level - 1);
    s->index[level - 1]++;
    for (i = level; i < s->prefix; i++) s->index[i] = s->index[level - 1];
    return 1;
}

/* The lists: those of degree p with leading index i are as many as those of degree p - 1 from i on.
   */
LINATTN__COLD static void linattn__plan_lists(linattn__recipe *r, size_t degree)
{
    size_t p, i, at = 0;
    r->base = linattn__base(r->d, degree);
    for (p = 0; p <= r->base; p++) {
        r->list[p] = (uint32_t)at;
        r->size[p] = (uint32_t)linattn__monomials(r->d, p);
        at += r->size[p];
    }
    for (p = 2; p <= r->base; p++)
        for (i = 0, at = 0; i < r->d; i++) {
            r->first[p][i] = (uint8_t)at;
            at += r->size[p - 1] - linattn__leading(r, p - 1, i);
        }
}

/* The recipe of features [f0, f1) of the monomials up to `degree`. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__plan(linattn__recipe *r, size_t d,
                                                          size_t degree, size_t f0, size_t f1)
{
    size_t p, rank = f0, left;
    linattn__segment s;
    r->d = d;
    linattn__plan_lists(r, degree);
    p = linattn__degree_of(d, &rank);
    r->count = r->end = 0;
    r->begin = SIZE_MAX;
    s.unchanged = 0;
    left = linattn__locate(r, p, rank, &s);
    while (f0 < f1) {
        linattn__segment *const to = r->segment + r->count++;
        size_t i;
        s.length = (uint16_t)(left < f1 - f0 ? left : f1 - f0);
        to->from = s.from; /* one by one: as a vector it would wait for all of them to be written */
        to->length = s.length;
        to->prefix = s.prefix;
        to->unchanged = s.unchanged;
        for (i = 0; i < s.prefix; i++) to->index[i] = s.index[i];
        if (s.from < r->begin) r->begin = s.from;
        if (s.from + s.length > r->end) r->end = s.from + s.length;
        f0 += s.length;
        if (f0 == f1) break;
        if (linattn__advance(d, &s)) {
            const size_t first = linattn__leading(r, r->base, s.index[s.prefix - 1]);
            s.from = (uint32_t)(r->list[r->base] + first);
            left = r->size[r->base] - first;
        } else {
            s.unchanged = 0;
            left = linattn__locate(r, ++p, 0, &s);
        }
    }
}

/* The features of a map, and what they are made from. */
static linattn_status linattn__read_features(linattn__shape *s)
{
    if (s->map == LINATTN_MAP_TAYLOR || s->map == LINATTN_MAP_EXPDEF) {
        s->source = LINATTN__MONOMIALS;
        s->features = 0;
        if (s->degree == 0) s->degree = 2;
        if (s->degree > 8) return linattn__refuse(s, LINATTN__REFUSED_DEGREE, LINATTN_ERROR_CONFIG);
        s->m = linattn__monomials(s->d + 1, s->degree);
        if (s->m > LINATTN__MAX_FLOATS)
            return linattn__refuse(s, LINATTN__REFUSED_LARGE_DEGREE, LINATTN_ERROR_SIZE);
        s->shared_floats = linattn__round16(s->m);
        return LINATTN_OK;
    }
    s->source = LINATTN__PROJECTED;
    s->degree = 0;
    if (s->features == 0) s->features = 4 * s->d;
    if (s->features > LINATTN__MAX_FEATURES)
        return linattn__refuse(s, LINATTN__REFUSED_FEATURES, LINATTN_ERROR_SIZE);
    s->m = s->map == LINATTN_MAP_FAVOR_HYPERBOLIC ? 2 * s->features : s->features;
    s->shared_floats = linattn__times(linattn__round16(s->m), s->d);
    return LINATTN_OK;
}

/* Stores a number, or says whether it is the one stored. */
static int linattn__put(float *at, float value, int write)
{
    if (write) *at = value;
    return linattn__to_bits(*at) == linattn__to_bits(value);
}

/* `d` numbers of the projection, with the other sign if `minus`, go 16 apart, or are compared with
   what is there. Those so small that their products might be denormal count as 0. As many as a
   projection has, in each call of linattn_bidirectional. */
LINATTN__WARM static LINATTN__NOINLINE int linattn__put_row(const float *row, size_t d, int minus,
                                                            float *to, int write)
{
    const uint32_t least = linattn__to_bits(1e-18f), sign = minus ? 0x80000000u : 0;
    uint32_t differ = 0;
    size_t i;
    for (i = 0; i < d; i++) {
        uint32_t x = linattn__to_bits(row[i]);
        x = (x & 0x7fffffffu) < least ? 0 : x ^ sign;
        if (write) to[i * 16] = linattn__from_bits(x);
        differ |= x ^ linattn__to_bits(to[i * 16]);
    }
    return differ == 0;
}

/* The projection in panels [m / 16][d][16], the second half of the hyperbolic form with the other
   sign. Returns 0 where, not writing, a number differs. */
LINATTN__COLD static int linattn__put_projection(const linattn_config *c, const linattn__shape *s,
                                                 float *shared, int write)
{
    size_t f, i;
    int same = 1;
    for (f = 0; f < linattn__round16(s->m); f++) {
        float *const to = shared + f / 16 * 16 * s->d + f % 16;
        const float *const row = c->projection + f % s->features * s->d;
        if (f < s->m) same &= linattn__put_row(row, s->d, f >= s->features, to, write);
        for (i = 0; f >= s->m && i < s->d; i++) same &= linattn__put(to + i * 16, 0.0f, write);
    }
    return same;
}

/* w_p of degree p in units of p!: all 1 for Taylor's series; the product of 1 - j / n for j < p. */
static double linattn__degree_weight(const linattn__shape *s, size_t p)
{
    double w = 1.0;
    size_t j;
    for (j = 1; j < p && s->map == LINATTN_MAP_EXPDEF; j++)
        w = w * (1.0 - (double)j / (double)s->degree);
    return w;
}

/* A walk over the monomials in the order of linattn__segment. */
typedef struct linattn__walk {
    size_t degree;       /* of the present one */
    linattn__segment at; /* its indices */
    double w;            /* of the degree */
    double factorials;   /* prod a_i! */
    float weight;        /* sqrt(w / factorials) */
} linattn__walk;

LINATTN__COLD static void linattn__weigh(linattn__walk *x)
{
    const linattn__segment *at = &x->at;
    double factorials = 1.0;
    size_t equal = 1, i;
    for (i = 1; i < at->prefix; i++) {
        equal = at->index[i] == at->index[i - 1] ? equal + 1 : 1;
        factorials = factorials * (double)equal;
    }
    if (factorials != x->factorials) x->weight = (float)linattn__sqrt(x->w / factorials);
    x->factorials = factorials;
}

LINATTN__COLD static void linattn__walk_degree(const linattn__shape *s, size_t degree,
                                               linattn__walk *x)
{
    size_t i;
    x->degree = degree;
    x->at.prefix = (uint8_t)degree;
    for (i = 0; i < degree; i++) x->at.index[i] = 0;
    x->w = linattn__degree_weight(s, degree);
    x->factorials = 0.0;
    linattn__weigh(x);
}

static void linattn__walk_on(const linattn__shape *s, linattn__walk *x)
{
    if (linattn__advance(s->d, &x->at))
        linattn__weigh(x);
    else if (x->degree < s->degree) /* or the last one stays */
        linattn__walk_degree(s, x->degree + 1, x);
}

LINATTN__COLD static int linattn__put_weights(const linattn__shape *s, float *shared, int write)
{
    size_t f;
    int same = 1;
    linattn__walk x;
    linattn__walk_degree(s, 0, &x);
    for (f = 0; f < s->m; f++) {
        same &= linattn__put(shared + f, x.weight, write);
        linattn__walk_on(s, &x);
    }
    for (; f < s->shared_floats; f++) same &= linattn__put(shared + f, 0.0f, write);
    return same;
}

LINATTN__COLD static LINATTN__NOINLINE int
linattn__put_shared(const linattn_config *c, const linattn__shape *s, float *shared, int write)
{
    if (s->source == LINATTN__PROJECTED) return linattn__put_projection(c, s, shared, write);
    if (s->source == LINATTN__MONOMIALS) return linattn__put_weights(s, shared, write);
    return 1;
}
#endif

#if LINATTN__HAS_EXACT
/* ---- Exact attention ------------------------------------------------------------------------- */

#define LINATTN__EXACT_KEYS 64
#define LINATTN__EXACT_LANES 48    /* queries at a time */
#define LINATTN__EXACT_QUERIES 144 /* that share a block of keys and values */
#define LINATTN__EXACT_HEADS 8     /* at most, that go together */
#define LINATTN__EXACT_AHEAD 3     /* blocks that are fetched ahead at most */
#define LINATTN__CHAINS 8          /* that a score is the sum of */

/* Floats of keys and values that stay in L2. */
#define LINATTN__EXACT_NEAR (LINATTN__FETCH_FLOATS / 6)

/* Exact attention for the queries [begin, end) of one key/value head, counted over tokens and the
   heads of the group: query i is token i / group, head i % group. (256 bytes: gcc copies more of
   them by an instruction that takes 15 ns.) */
typedef struct linattn__exact {
    const float *q, *k, *v;
    float *out, *scratch;
    size_t q_token, q_head, k_token, v_token, out_token, out_head;
    size_t group, n_k, d, dv;
    size_t begin, end;
    int q_element, k_element, v_element; /* the pointers are to floats or to these */
    float pre, post; /* the scale, before and after the product q.k, so that neither overflows */
    float cap;       /* 0: none */
    size_t offset;   /* the place of token t is t + offset: */
    size_t ahead;    /* it sees keys below its place + ahead, */
    size_t window;   /* if that is not 0 those above its place - window and */
    size_t sinks;    /* those below sinks, */
    size_t shown;    /* and these keys wherever it stands */
    const float *slopes; /* of the group's heads, or NULL */
    size_t heads;        /* of keys and values, with their queries, that go together */
    size_t q_group, k_head, v_head, out_group; /* from one to the next */
    size_t blocks; /* of heads that are fetched while one is worked on, where queries are few */
} linattn__exact;

#define LINATTN__EXACT_LISTS (LINATTN__EXACT_KEYS * (2 + sizeof(size_t) / sizeof(float)))
#define LINATTN__EXACT_P ((LINATTN__EXACT_KEYS + 8) * LINATTN__EXACT_LANES)

static size_t linattn__exact_floats(size_t d, size_t dv)
{
    return LINATTN__EXACT_LISTS + LINATTN__EXACT_P +
           (LINATTN__EXACT_QUERIES + LINATTN__EXACT_KEYS) * (d + dv);
}

/* Head `head` alone of those of x. */
LINATTN__WARM static LINATTN__NOINLINE void linattn__exact_of(const linattn__exact *x, size_t head,
                                                              linattn__exact *y)
{
    *y = *x;
    y->heads = 1;
    y->q = linattn__beyond(x->q, head * x->q_group, x->q_element);
    if (x->n_k) {
        y->k = linattn__beyond(x->k, head * x->k_head, x->k_element);
        y->v = linattn__beyond(x->v, head * x->v_head, x->v_element);
    }
    if (x->slopes) y->slopes = x->slopes + head * x->group;
    y->out = x->out + head * x->out_group;
}

/* Blocks of keys or values that are fetched while one is worked on lie so many elements on. */
typedef struct linattn__nexts {
    size_t count, at[LINATTN__EXACT_AHEAD];
} linattn__nexts;

/* Scratch of a tile of queries: q, p and o transposed ([row][query]), v for values of 16 bits or
   around masked tokens, k for keys of 16 bits; and which keys it has come to. Lane l's place is
   limit[l] behind that of the first lane, and it sees key i of the list where order[i] < limit[l]
   <= late[i]. Tiles that share a block of keys share all but q, o and what comes last. */
typedef struct linattn__exact_scratch {
    float *q, *p, *o, *v, *k, *order, *late;
    size_t *index;
    size_t i0, lanes;              /* its queries */
    size_t row;                    /* lanes, with those that repeat the last one */
    size_t tile, tiles;            /* of those that share keys, and how many they are */
    size_t share, share_end;       /* its part of the keys of a group, which it fetches */
    size_t ahead;                  /* so many keys later is fetched meanwhile, if not 0; */
    size_t coming, groups;         /* or so many queries, by so many groups of keys */
    linattn__nexts next_k, next_v; /* where they are few */
    size_t place;                  /* of the first */
    size_t at, low, end; /* the next key; those from sinks to `low` and from `end` are not seen */
    size_t first, last;  /* all lanes see keys below `first`; limit of the last lane */
    float maximum[LINATTN__EXACT_LANES], den[LINATTN__EXACT_LANES], limit[LINATTN__EXACT_LANES];
    float slope[LINATTN__EXACT_LANES];
} linattn__exact_scratch;

/* How many of so many keys come before the first whose first component is -inf: nearly always all
   of them. */
LINATTN__INLINE size_t linattn__exact_usual(const float *key, size_t token, size_t count,
                                            int element)
{
    size_t i = 0;
    if (LINATTN__IS_HALF(element))
        while (i < count && !linattn__lowest(key, i * token, element)) i++;
    else
        while (i < count && !linattn__lowest(key, i * token, LINATTN_F32)) i++;
    return i;
}

/* The next keys that are not masked tokens: blocks hold only such keys, so that a masked token
   leaves no trace in the order of the sums. Under a window blocks begin at multiples of their size,
   wherever windows do, as maxima move at their ends. Returns where to go on. */
static LINATTN__NOINLINE size_t linattn__exact_gather(const linattn__exact *x,
                                                      const linattn__exact_scratch *w, size_t j,
                                                      size_t *count)
{
    const size_t token = x->k_token, sinks = x->sinks, low = w->low;
    const int element = x->k_element;
    size_t *const index = w->index, c = 0, i, stop = w->end;
    if (j >= sinks && j < low) j = low;
    if (x->window && stop - j > LINATTN__EXACT_KEYS - j % LINATTN__EXACT_KEYS)
        stop = j + (LINATTN__EXACT_KEYS - j % LINATTN__EXACT_KEYS);
    while (j < stop && c < LINATTN__EXACT_KEYS) {
        /* behind the sinks keys are left out */
        const size_t end = j < low && sinks < stop ? sinks : stop, room = LINATTN__EXACT_KEYS - c;
        const float *const from = linattn__beyond(x->k, j * token, element);
        const size_t most = end - j < room ? end - j : room;
        const size_t usual = linattn__exact_usual(from, token, most, element);
        for (i = 0; i < usual; i++) index[c + i] = j + i;
        j += usual;
        c += usual;
        if (usual < most) { /* one that may be masked */
            const float *const key = linattn__beyond(from, usual * token, element);
            index[c] = j++;
            c += !linattn__masked_row(key, x->d, element);
        }
        if (j >= sinks && j < low) j = low;
    }
    *count = c;
    return j;
}

/* Keys of the list: those in [begin, end) are seen by some lane, those in [plain, edge) by all. */
typedef struct linattn__exact_seen {
    size_t begin, plain, edge, end;
} linattn__exact_seen;

/* Some keys of a block, and some vectors of a tile: not all lanes see those that are `masked`. */
typedef struct linattn__exact_part {
    uint16_t begin, end;
    uint8_t vector, vectors, masked;
} linattn__exact_part;

/* Of the lanes whose limits are `least` to `most`. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__exact_limits(const linattn__exact_scratch *w,
                                                                  float least, float most,
                                                                  linattn__exact_seen *s)
{
    while (s->begin < s->end && w->late[s->begin] < least) s->begin++;
    while (s->begin < s->end && w->order[s->end - 1] >= most) s->end--;
    s->edge = s->end;
    while (s->begin < s->edge && w->order[s->edge - 1] >= least) s->edge--;
    s->plain = s->edge;
    while (s->begin < s->plain && w->late[s->plain - 1] >= most) s->plain--;
}

/* Which lanes see the keys listed. Returns whether any of them does not see all. */
static LINATTN__NOINLINE int linattn__exact_edges(const linattn__exact *x,
                                                  const linattn__exact_scratch *w, size_t count,
                                                  linattn__exact_seen *s)
{
    const size_t *const index = w->index, final = index[count - 1];
    size_t i;
    s->begin = s->plain = 0;
    s->edge = s->end = count;
    if ((final < w->first || final < x->shown) &&
        (!x->window || (index[0] >= x->sinks && index[0] + x->window > w->place + w->last)))
        return 0;
    for (i = 0; i < count; i++) {
        const size_t j = index[i];
        w->order[i] = j >= w->first && j >= x->shown ? (float)(int32_t)(j - w->first) : -1.0f;
        w->late[i] = LINATTN__FLT_MAX;
        if (!x->window || j < x->sinks) continue;
        w->late[i] =
            j + x->window > w->place ? (float)(int32_t)(j + x->window - 1 - w->place) : -1.0f;
    }
    linattn__exact_limits(w, 0.0f, (float)w->last, s);
    return s->plain > 0 || s->edge < count;
}

/* Keys that all lanes see are for the tile, those before and behind them for each of its vectors:
   hull[u] is all that some lane of vector u sees, of which `part` has what comes before, what is
   the tile's, and what comes behind. */
LINATTN__COLD static LINATTN__NOINLINE void
linattn__exact_parts(const linattn__exact_scratch *w, const linattn__exact_seen *seen, size_t lanes,
                     size_t vectors, linattn__exact_part *part, linattn__exact_part *hull)
{
    const float *limit = w->limit;
    size_t u;
    for (u = 0; u < vectors; u++, limit += lanes) {
        linattn__exact_part *const behind = part + vectors + 1 + u;
        linattn__exact_seen some = *seen;
        linattn__exact_limits(w, limit[0], limit[lanes - 1], &some);
        hull->begin = (uint16_t)some.begin;
        hull->end = (uint16_t)some.end;
        hull->vector = (uint8_t)u;
        hull->vectors = 1;
        hull->masked = 1;
        part[u] = *behind = *hull++;
        if (part[u].end > seen->plain) part[u].end = (uint16_t)seen->plain;
        if (behind->begin < seen->edge) behind->begin = (uint16_t)seen->edge;
    }
    part += vectors;
    part->begin = (uint16_t)seen->plain;
    part->end = (uint16_t)seen->edge;
    part->vector = 0;
    part->vectors = (uint8_t)vectors;
    part->masked = 0;
}

/* So many places the tile's first query is ahead of the keys listed. Returns whether scores change,
   by cap or slopes. */
static LINATTN__NOINLINE int linattn__exact_adjusts(const linattn__exact *x,
                                                    const linattn__exact_scratch *w, size_t count,
                                                    float *ahead)
{
    const int32_t place = (int32_t)w->place;
    size_t j;
    for (j = 0; x->slopes && j < LINATTN__EXACT_KEYS; j++)
        ahead[j] = j < count ? (float)(place - (int32_t)w->index[j]) : 0.0f;
    return x->cap > 0.0f || x->slopes;
}

/* Where a tile of queries stands, and nothing gathered; it has `row` lanes. */
static LINATTN__NOINLINE void linattn__exact_begin(const linattn__exact *x,
                                                   linattn__exact_scratch *w, size_t row)
{
    size_t l, t = 0, g = w->i0 % x->group;
    w->row = row;
    w->place = w->i0 / x->group + x->offset;
    w->first = w->place + x->ahead < x->n_k ? w->place + x->ahead : x->n_k;
    for (l = 0; l < row; l++) {
        w->limit[l] = (float)(int32_t)t;
        if (x->slopes) w->slope[l] = x->slopes[g];
        w->maximum[l] = -LINATTN__FLT_MAX;
        w->den[l] = 0.0f;
        if (l + 1 >= w->lanes || ++g < x->group) continue;
        g = 0;
        t++;
    }
    w->last = t;
    for (l = 0; l < row * x->dv; l++) w->o[l] = 0.0f;
}

/* Keys from sinks to `low` are not seen by any of the tiles up to `final`, nor those from `end`. */
static LINATTN__NOINLINE void linattn__exact_range(const linattn__exact *x,
                                                   linattn__exact_scratch *w,
                                                   const linattn__exact_scratch *final)
{
    const size_t seen = final->first + final->last;
    const size_t end = seen > x->shown ? seen : x->shown;
    w->at = 0;
    w->low = x->window && w->place >= x->window ? w->place - x->window + 1 : 0;
    w->end = end < x->n_k ? end : x->n_k;
}

/* Fetches the tile's share of a group of keys, which begins with r, and of their values. */
LINATTN__COLD static LINATTN__NOINLINE void
linattn__exact_fetch(const linattn__exact *x, const linattn__exact_scratch *w, size_t r)
{
    const size_t begin = r + w->share, end = r + w->share_end;
    const float *from = x->k;
    size_t token = x->k_token, dim = x->d, f;
    int element = x->k_element, values;
    LINATTN__EFFECT();
    for (values = 0; values < 2; values++) {
        const size_t line = LINATTN__IS_HALF(element) ? 32 : 16;
        for (r = begin; r < end; r++)
            for (f = 0; f < dim; f += line)
                LINATTN__FETCH(linattn__beyond(from, r * token + f, element));
        from = x->v;
        token = x->v_token;
        dim = x->dv;
        element = x->v_element;
    }
}

/* Query i of the span, counted over tokens and the heads of the group. */
LINATTN__INLINE const float *linattn__exact_query(const linattn__exact *x, size_t i)
{
    size_t at = i * x->q_token;
    if (x->group != 1) at = (i / x->group) * x->q_token + (i % x->group) * x->q_head;
    return linattn__beyond(x->q, at, x->q_element);
}

/* Fetches the share that a group of keys of a tile has in the queries of the tiles that come next,
   and their outputs. */
LINATTN__UNUSED LINATTN__COLD static LINATTN__NOINLINE void
linattn__exact_coming(const linattn__exact *x, const linattn__exact_scratch *w, size_t group)
{
    const size_t pieces = w->tiles * w->groups, piece = group * w->tiles + w->tile;
    const size_t first = w->i0 + (w->tiles - w->tile) * w->lanes;
    const size_t line = LINATTN__IS_HALF(x->q_element) ? 32 : 16;
    size_t i = first + piece * w->coming / pieces, f;
    LINATTN__EFFECT();
    for (; i < first + (piece + 1) * w->coming / pieces; i++) {
        const float *const q = linattn__exact_query(x, i);
        const float *const out = x->out + i / x->group * x->out_token + i % x->group * x->out_head;
        for (f = 0; f < x->d; f += line) LINATTN__FETCH(linattn__beyond(q, f, x->q_element));
        for (f = 0; f < x->dv; f += 16) LINATTN__FETCH(out + f);
    }
}

/* Where what a tile needs lies. */
static LINATTN__NOINLINE void
linattn__exact_layout(const linattn__exact *x, linattn__exact_scratch *w, size_t lanes, size_t tile)
{
    w->index = (size_t *)(void *)x->scratch;
    w->order = x->scratch + LINATTN__EXACT_LISTS - 2 * LINATTN__EXACT_KEYS;
    w->late = w->order + LINATTN__EXACT_KEYS;
    w->p = x->scratch + LINATTN__EXACT_LISTS;
    w->v = w->p + LINATTN__EXACT_P;
    w->k = w->v + LINATTN__EXACT_KEYS * x->dv;
    w->q = w->k + LINATTN__EXACT_KEYS * x->d + tile * lanes * (x->d + x->dv);
    w->o = w->q + lanes * x->d;
    w->next_k.count = w->next_v.count = 0;
}

/* A row of Q, where queries are few: all chains end with it. */
LINATTN__INLINE size_t linattn__few_row(size_t d)
{
    return (d + LINATTN__CHAINS - 1) / LINATTN__CHAINS * LINATTN__CHAINS;
}

/* The same for up to `few` queries of a head. */
static LINATTN__NOINLINE void
linattn__few_layout(const linattn__exact *x, linattn__exact_scratch *w, size_t few, size_t head)
{
    const size_t row = linattn__few_row(x->d);
    linattn__exact_layout(x, w, 0, 0);
    w->v = w->p + few * LINATTN__EXACT_KEYS;
    w->q = w->v + LINATTN__EXACT_KEYS * x->dv + head * few * (row + x->dv);
    w->o = w->q + few * row;
}

/* What is fetched while a block of a head is worked on: that of the next head, or the next block of
   the first one, and x->blocks in all; but none where they may stay in caches near by. Hardware
   loses track of rows of heads that take turns: with fetches 4096 tokens of eight heads of 64 take
   half of the time on Zen 4, on Zen 3 1024 of 128 do .7, and on Intel's Emerald Rapids 16384 of 128
   do .8; their L3 is otherwise the faster without them. Where that was not measured only what is
   farther off is fetched. A head alone may be small where all of them come from beyond L3. */
static LINATTN__NOINLINE void linattn__few_next(const linattn__exact *x, linattn__exact_scratch *w,
                                                size_t head)
{
    const size_t others = x->heads - 1, keys = LINATTN__EXACT_KEYS;
    size_t i, floats = (w->end - w->low) * (x->d + x->dv) * x->heads;
    if (others && linattn__contended())
        floats /= 6;
    else if (others && linattn__intel())
        floats /= 40;
    else if (others && !linattn__halved())
        floats /= 16;
    w->next_k.count = w->next_v.count = 0;
    if (floats < LINATTN__EXACT_NEAR && x->blocks < 2) return;
    for (i = 0; i < x->blocks; i++) {
        const size_t to = (head + i + 1) % x->heads, on = (head + i + 1) / x->heads * keys;
        if (on > w->end - w->at) return;
        w->next_k.at[i] = on * x->k_token + to * x->k_head - head * x->k_head;
        w->next_v.at[i] = on * x->v_token + to * x->v_head - head * x->v_head;
        w->next_k.count = w->next_v.count = i + 1;
    }
}

typedef void linattn__exact_kernel(const linattn__exact *x);
LINATTN__DECLARE(linattn__exact_kernel, softmax)

/* Bytes of one job of exact attention, 0 if they overflow. */
static size_t linattn__exact_bytes(const linattn__shape *s)
{
    return linattn__round16(linattn__exact_floats(s->d, s->dv)) * sizeof(float);
}

static size_t linattn__exact_workspace(const linattn__shape *s, const linattn_context *context)
{
    const size_t jobs = linattn__threads(context, SIZE_MAX);
    const size_t bytes = linattn__times(jobs, linattn__exact_bytes(s));
    return bytes == SIZE_MAX ? 0 : bytes + LINATTN__ALIGNMENT;
}

/* One call of exact attention, shared by its jobs. */
typedef struct linattn__exact_work {
    linattn__exact head; /* for head 0 */
    void (*kernel)(const linattn__exact *x);
    size_t kv_heads, n_q;
    size_t jobs, parts, unit, scratch_floats;
    int causal, columns; /* parts are of columns of the values, not of `unit` queries */
} linattn__exact_work;

/* Parts [part, end) of a head's columns, for all queries. */
static void linattn__exact_columns(const linattn__exact_work *w, linattn__exact *x, size_t part,
                                   size_t end)
{
    size_t from, to, unused;
    linattn__share(x->dv, 16, part, w->parts, &from, &unused);
    linattn__share(x->dv, 16, end - 1, w->parts, &unused, &to);
    if (x->n_k) x->v = linattn__beyond(x->v, from, x->v_element);
    x->out += from;
    x->dv = to - from;
    x->begin = 0;
    x->end = w->n_q * x->group;
    if (from < to) w->kernel(x);
}

/* Heads, and parts of the queries of each, or, where these are one unit, of the columns.
   Later queries of a causal head see more keys: each part takes a piece of the first half and the
   piece that lies opposite in the second. */
LINATTN__COLD static void linattn__exact_job(void *arg, size_t index)
{
    const linattn__exact_work *w = (const linattn__exact_work *)arg;
    const size_t pieces = w->causal && w->parts > 1 ? 2 * w->parts : w->parts;
    linattn__exact x;
    size_t i, end, next;
    linattn__share(w->kv_heads * w->parts, 1, index, w->jobs, &i, &end);
    for (; i < end; i = next) {
        const size_t head = i / w->parts, part = i % w->parts;
        size_t piece;
        linattn__exact_of(&w->head, head, &x);
        x.scratch += index * w->scratch_floats;
        next = i + 1;
        if (w->columns) {
            next = end < (head + 1) * w->parts ? end : (head + 1) * w->parts;
            linattn__exact_columns(w, &x, part, part + (next - i));
            continue;
        }
        if (w->parts == 1 && x.k_head < x.k_token) {
            x.heads = end - i < LINATTN__EXACT_HEADS ? end - i : LINATTN__EXACT_HEADS;
            next = i + x.heads;
        }
        for (piece = part;; piece = pieces - 1 - part) {
            linattn__share(w->n_q * x.group, w->unit, piece, pieces, &x.begin, &x.end);
            if (x.begin < x.end) w->kernel(&x);
            if (piece + w->parts >= pieces) break;
        }
    }
}

/* How the call is cut. Units of queries fill tiles, where they are many. */
static void linattn__exact_cut(linattn__exact_work *w, const linattn_context *context)
{
    const size_t queries = w->n_q * w->head.group, columns = (w->head.dv + 15) / 16;
    size_t units;
    w->unit = queries <= 8 ? 4 : queries < 8 * LINATTN__EXACT_LANES ? 16 : LINATTN__EXACT_LANES;
    units = (queries + w->unit - 1) / w->unit;
    w->jobs = linattn__threads(context, w->kv_heads * (units > 1 ? units : columns));
    w->parts = w->kv_heads % w->jobs == 0 ? 1 : w->jobs;
    w->columns = units == 1 && w->parts > 1;
}

static LINATTN__NOINLINE void
linattn__exact_operands(linattn__exact_work *w, const linattn__shape *s, const linattn__operands *x)
{
    linattn__exact *const e = &w->head;
    const float scale = linattn__root_scale(s);
    e->pre = scale < 1.0f ? scale : 1.0f;
    e->post = scale < 1.0f ? 1.0f : scale;
    e->q = x->q.data;
    e->k = x->k.data;
    e->v = x->v.data;
    e->out = (float *)(uintptr_t)x->out.data;
    e->q_token = x->q.stride[LINATTN__TOKEN];
    e->q_head = x->q.stride[LINATTN__HEAD];
    e->k_token = x->k.stride[LINATTN__TOKEN];
    e->v_token = x->v.stride[LINATTN__TOKEN];
    e->out_token = x->out.stride[LINATTN__TOKEN];
    e->out_head = x->out.stride[LINATTN__HEAD];
    e->group = s->group;
    e->n_k = x->n_k;
    e->d = s->d;
    e->dv = s->dv;
    e->offset = e->window = e->sinks = e->shown = e->blocks = 0;
    e->ahead = e->n_k;
    e->cap = 0.0f;
    e->slopes = NULL;
    w->kv_heads = s->kv_heads;
    w->n_q = x->n_q;
    e->heads = 1;
    e->q_group = x->q.stride[LINATTN__HEAD] * s->group;
    e->k_head = x->k.stride[LINATTN__HEAD];
    e->v_head = x->v.stride[LINATTN__HEAD];
    e->out_group = x->out.stride[LINATTN__HEAD] * s->group;
}

/* Operands of no other verb need to know where LINATTN_NO_HALF is. */
LINATTN__INLINE void linattn__exact_elements(linattn__exact *e, const linattn_view *q,
                                             const linattn_view *k, const linattn_view *v)
{
    e->q_element = (int)q->element;
    e->k_element = (int)k->element;
    e->v_element = (int)v->element;
}

#define LINATTN__MOST_DISTANCE 0x1000000u /* that a float counts to */

/* What depends on where queries and keys stand to one another. */
LINATTN__COLD static linattn_status linattn__check_places(const linattn_config *config,
                                                          const linattn__operands *x, int causal,
                                                          const void *workspace, size_t bytes)
{
    const float *const slopes = config->alibi_slopes;
    const size_t slope_bytes = (config->heads ? config->heads : 1) * sizeof *slopes;
    const size_t n_q = x->n_q, n_k = x->n_k;
    if (n_q > n_k && (causal || config->window || slopes)) return LINATTN_ERROR_UNSUPPORTED;
    if (!slopes) return LINATTN_OK;
    if (n_k > LINATTN__MOST_DISTANCE) return LINATTN_ERROR_SIZE;
    if (!linattn__apart(&x->out, slopes, slope_bytes) ||
        !linattn__disjoint(workspace, bytes, slopes, slope_bytes))
        return LINATTN_ERROR_OVERLAP;
    return LINATTN_OK;
}

/* How many blocks are fetched while one is worked on, where queries are few? On Zen 4 none of what
   L3 holds: hardware keeps up with that, and fetches take up to a fifth more. Keys and values that
   no cache holds come at half of the bandwidth where fetches are dropped and each line is asked for
   once. Asked for in three blocks they take .65 to .85 of the time on Zen 4; what is of 16 bits
   would take up to 1.2. In two where L3 may hold a part of them. */
LINATTN__COLD static size_t linattn__exact_blocks(const linattn__exact_work *w)
{
    const linattn__exact *const e = &w->head;
    const int half = LINATTN__IS_HALF(e->k_element);
    const size_t keys = e->window && e->window < e->n_k ? e->window : e->n_k;
    const size_t floats = w->kv_heads * keys * (e->d + e->dv) / (half ? 2 : 1);
    if (!linattn__drops()) return 1;
    if (floats <= 2 * LINATTN__FETCH_FLOATS) return linattn__contended() ? 1 : 0;
    if (half) return 1;
    return floats / 2 > LINATTN__FAR_FLOATS ? LINATTN__EXACT_AHEAD : 2;
}

static void linattn__exact_places(linattn__exact_work *w, const linattn_config *config, int causal)
{
    linattn__exact *const e = &w->head;
    w->causal = causal != 0;
    if (causal || config->window || config->alibi_slopes) e->offset = e->n_k - w->n_q;
    if (config->window) e->ahead = config->window;
    if (causal) e->ahead = 1;
    e->window = config->window;
    e->sinks = config->sinks;
    if (!causal) e->shown = config->sinks;
    e->cap = config->soft_cap;
    e->slopes = config->alibi_slopes;
}

LINATTN__ALONE LINATTN_API linattn_status
linattn_softmax(const linattn_config *config, linattn_view q, size_t n_q, linattn_view k,
                linattn_view v, size_t n_k, linattn_output out, int causal, void *workspace,
                size_t workspace_bytes, const linattn_context *context)
{
    linattn__shape s;
    linattn__operands x;
    linattn__exact_work w;
    linattn__environment environment;
    size_t need;
    linattn_status status = linattn__read_exact(config, &s);
    if (status != LINATTN_OK) return status;
    need = linattn__exact_workspace(&s, context);
    status = linattn__read_all(&s, context, LINATTN__KEYS | LINATTN__QUERIES | LINATTN__ELEMENTS,
                               &q, n_q, &k, &v, n_k, &out, workspace, workspace_bytes, need, &x);
    if (status == LINATTN_OK) status = linattn__check_places(config, &x, causal, workspace, need);
    if (status != LINATTN_OK || n_q == 0) return status;
    environment = linattn__enter();
    linattn__exact_operands(&w, &s, &x);
    linattn__exact_elements(&w.head, &q, &k, &v);
    linattn__exact_places(&w, config, causal);
    w.head.scratch = (float *)linattn__align(workspace);
    w.head.blocks = linattn__exact_blocks(&w);
    w.kernel = LINATTN__KERNEL(softmax);
    w.scratch_floats = linattn__exact_bytes(&s) / sizeof(float);
    linattn__exact_cut(&w, context);
    linattn__run_jobs(linattn__exact_job, &w, w.jobs, context);
    linattn__leave(environment);
    return LINATTN_OK;
}
#endif

#if LINATTN__HAS_NYSTROM
/* ---- Nystroem -------------------------------------------------------------------------------- */

/* The means of consecutive segments of one head's rows. */
typedef struct linattn__means {
    const float *x;
    size_t token, n, d;
    int element;
    size_t length; /* of a segment; the last may be shorter */
    int keys;      /* masked tokens are left out, and segments that hold nothing else */
    float *mean;   /* [segments][d] */
} linattn__means;

/* w = A^+ bv, A = softmax(scale q k^T) with q, k, bv, w dense rows. */
typedef struct linattn__inverse_of {
    const float *q, *k, *bv;
    float *w;
    double *scratch;
    size_t rows, columns, d, dv; /* rows of q and bv, rows of k and w */
    size_t steps;
    double scale;
#if LINATTN__BOTH
    int set; /* as in linattn__span */
#endif
} linattn__inverse_of;

/* Its scratch. Rows hold `wide` doubles, zero beyond the matrix's columns, and are `row` apart. */
typedef struct linattn__inverse_scratch {
    double *a;           /* A^T [columns] */
    double *e[3], *g[2]; /* [rows] */
    double *q, *k;       /* transposed: [d] */
    double *x, *y;       /* [rows or columns][dv_row] */
    size_t wide, row, dv_row;
#if LINATTN__BOTH
    int set; /* as in linattn__span */
#endif
} linattn__inverse_scratch;

#define LINATTN__STEPS 12      /* of the pseudo-inverse by default */
#define LINATTN__MOST_STEPS 24 /* rounding errors grow 3.25-fold with each: see linattn_nystrom */
#define LINATTN__TINY 2.9387358770557188e-39       /* 2^-128: its doubles are 0 below */
#define LINATTN__CONVERGED 8.67361737988403547e-19 /* |I - AZ|^2: 2^-60 */

/* An odd number of cache lines: rows a power of two apart would share a few sets of L1. */
static size_t linattn__inverse_row(size_t landmarks) { return linattn__round16(landmarks) + 8; }

/* Doubles of scratch for so many landmarks, SIZE_MAX if they overflow. */
static size_t linattn__inverse_doubles(size_t landmarks, size_t d, size_t dv)
{
    const size_t squares = linattn__times(linattn__inverse_row(landmarks), 6 * landmarks + 2 * d);
    return linattn__plus(squares, linattn__times(2 * landmarks, linattn__round16(dv)));
}

static void linattn__inverse_layout(const linattn__inverse_of *x, linattn__inverse_scratch *w)
{
    const size_t landmarks = x->rows > x->columns ? x->rows : x->columns;
    const size_t row = linattn__inverse_row(landmarks), square = landmarks * row;
    w->wide = linattn__round16(landmarks);
    w->row = row;
    w->dv_row = linattn__round16(x->dv);
    w->a = x->scratch;
    w->e[0] = w->a + square;
    w->e[1] = w->e[0] + square;
    w->e[2] = w->e[1] + square;
    w->g[0] = w->e[2] + square;
    w->g[1] = w->g[0] + square;
    w->q = w->g[1] + square;
    w->k = w->q + x->d * row;
    w->x = w->k + x->d * row;
    w->y = w->x + landmarks * w->dv_row;
#if LINATTN__BOTH
    w->set = x->set;
#endif
}

typedef size_t linattn__means_kernel(const linattn__means *x); /* how many it wrote */
typedef void linattn__inverse_kernel(const linattn__inverse_of *x);
LINATTN__DECLARE_COMMON(linattn__means_kernel, means)
LINATTN__DECLARE_ONE(linattn__inverse_kernel, inverse)

/* What a job of nystrom holds for one head, at the start of its part of the workspace. */
typedef struct linattn__nystrom_head {
    size_t columns;  /* landmarks of the keys */
    float *q, *k;    /* landmarks */
    float *bv, *w;   /* B V, A^+ B V */
    float *exact;    /* scratch */
    double *inverse; /* scratch */
} linattn__nystrom_head;

/* Bytes of one job of nystrom, SIZE_MAX if they overflow. */
LINATTN__COLD static size_t linattn__nystrom_bytes(const linattn__shape *s, size_t landmarks)
{
    const size_t d = linattn__round16(s->d), dv = linattn__round16(s->dv);
    size_t floats = linattn__times(2 * landmarks, d + dv);
    if (landmarks > LINATTN_MAX_DIM) return SIZE_MAX;
    floats = linattn__plus(floats, linattn__round16(linattn__exact_floats(s->d, s->dv)) + 32);
    floats =
        linattn__plus(floats, linattn__times(2, linattn__inverse_doubles(landmarks, s->d, s->dv)));
    floats = floats == SIZE_MAX ? floats : linattn__round16(floats);
    return linattn__times(floats, sizeof(float));
}

static size_t linattn__landmarks(const linattn_config *config)
{
    return config->landmarks ? config->landmarks : 64;
}

static size_t linattn__nystrom_workspace(const linattn__shape *s, size_t landmarks,
                                         const linattn_context *context)
{
    const size_t jobs = linattn__threads(context, SIZE_MAX);
    const size_t bytes = linattn__times(jobs, linattn__nystrom_bytes(s, landmarks));
    return bytes == SIZE_MAX ? 0 : bytes + LINATTN__ALIGNMENT;
}

/* One call of nystrom, shared by its jobs. Heads are query heads. */
typedef struct linattn__nystrom_work {
    linattn__exact head; /* for head 0; its keys, values and queries are the whole sequence's */
    linattn__means_kernel *means;
    linattn__exact_kernel *softmax;
    linattn__inverse_kernel *inverse;
    size_t heads, group, n_q, k_head, v_head;
    size_t landmarks, steps;
    size_t jobs, whole; /* heads that are not split over the jobs */
    char *workspace;
    size_t job_bytes;
#if LINATTN__BOTH
    int set; /* as in linattn__span */
#endif
} linattn__nystrom_work;

/* One job's part of the workspace, its header set: all but `columns`. */
static void linattn__nystrom_slot(const linattn__nystrom_work *w, size_t job,
                                  linattn__nystrom_head *h)
{
    const size_t landmarks = w->landmarks, d = w->head.d, dv = w->head.dv;
    char *const slot = w->workspace + job * w->job_bytes;
    linattn__copy(&h->columns, slot, sizeof h->columns);
    h->q = (float *)(void *)(slot + LINATTN__ALIGNMENT);
    h->k = h->q + landmarks * linattn__round16(d);
    h->bv = h->k + landmarks * linattn__round16(d);
    h->w = h->bv + landmarks * linattn__round16(dv);
    h->exact = h->w + landmarks * linattn__round16(dv);
    h->inverse = (double *)(void *)(h->exact + linattn__round16(linattn__exact_floats(d, dv)));
}

/* Tokens of a segment; how many segments there are. */
static size_t linattn__segments(size_t n, size_t landmarks, size_t *count)
{
    const size_t length = n > landmarks ? (n + landmarks - 1) / landmarks : 1;
    *count = (n + length - 1) / length;
    return length;
}

LINATTN__COLD static void linattn__key_landmarks(const linattn__nystrom_work *w, size_t job,
                                                 size_t kv_head)
{
    linattn__nystrom_head h;
    linattn__means m;
    size_t most;
    linattn__nystrom_slot(w, job, &h);
    h.columns = 0;
    if (w->head.n_k) {
        m.x = linattn__beyond(w->head.k, kv_head * w->k_head, w->head.k_element);
        m.element = w->head.k_element;
        m.token = w->head.k_token;
        m.n = w->head.n_k;
        m.d = w->head.d;
        m.length = linattn__segments(m.n, w->landmarks, &most);
        m.keys = 1;
        m.mean = h.k;
        h.columns = w->means(&m);
    }
    linattn__copy(w->workspace + job * w->job_bytes, &h.columns, sizeof h.columns);
}

/* A^+ B V of one head, from the key landmarks that lie in the job's slot. */
LINATTN__COLD static void linattn__nystrom_values(const linattn__nystrom_work *w, size_t job,
                                                  size_t head)
{
    linattn__nystrom_head h;
    linattn__means m;
    linattn__inverse_of i;
    linattn__exact x = w->head;
    linattn__nystrom_slot(w, job, &h);
    if (h.columns == 0) return;
    m.x = linattn__beyond(x.q, head * x.q_head, x.q_element);
    m.element = x.q_element;
    m.token = x.q_token;
    m.n = w->n_q;
    m.d = x.d;
    m.length = linattn__segments(m.n, w->landmarks, &i.rows);
    m.keys = 0;
    m.mean = h.q;
    (void)w->means(&m);
    x.q = h.q;
    x.q_token = x.d;
    x.q_element = LINATTN_F32;
    x.k = linattn__beyond(x.k, head / w->group * w->k_head, x.k_element);
    x.v = linattn__beyond(x.v, head / w->group * w->v_head, x.v_element);
    x.out = h.bv;
    x.out_token = x.dv;
    x.scratch = h.exact;
    x.begin = 0;
    x.end = i.rows;
    w->softmax(&x);
    i.q = h.q;
    i.k = h.k;
    i.bv = h.bv;
    i.w = h.w;
    i.scratch = h.inverse;
    i.columns = h.columns;
#if LINATTN__BOTH
    i.set = w->set;
#endif
    i.d = x.d;
    i.dv = x.dv;
    i.steps = w->steps;
    i.scale = (double)x.pre * (double)x.post;
    w->inverse(&i);
}

/* Queries [begin, end) of a head, with the landmarks and values of slot `from`. */
LINATTN__COLD static void linattn__nystrom_queries(const linattn__nystrom_work *w, size_t job,
                                                   size_t from, size_t head, size_t begin,
                                                   size_t end)
{
    linattn__nystrom_head h, own;
    linattn__exact x = w->head;
    linattn__nystrom_slot(w, from, &h);
    linattn__nystrom_slot(w, job, &own);
    x.q = linattn__beyond(x.q, head * x.q_head, x.q_element);
    x.out += head * x.out_head;
    x.k_element = x.v_element = LINATTN_F32;
    x.k = h.k;
    x.k_token = x.d;
    x.v = h.w;
    x.v_token = x.dv;
    x.n_k = h.columns;
    x.scratch = own.exact;
    x.begin = begin;
    x.end = end;
    if (begin < end) w->softmax(&x);
}

/* Whole heads, then the values of one of the heads that are left over: fewer than jobs. */
LINATTN__COLD static void linattn__nystrom_job(void *arg, size_t index)
{
    const linattn__nystrom_work *w = (const linattn__nystrom_work *)arg;
    const size_t none = w->heads;
    size_t head, end, kv_head = none;
    linattn__share(w->whole, 1, index, w->jobs, &head, &end);
    for (; head < end; head++) {
        if (head / w->group != kv_head) linattn__key_landmarks(w, index, head / w->group);
        kv_head = head / w->group;
        linattn__nystrom_values(w, index, head);
        linattn__nystrom_queries(w, index, index, head, 0, w->n_q);
    }
    head = w->whole + index;
    if (head >= w->heads) return;
    linattn__key_landmarks(w, index, head / w->group);
    linattn__nystrom_values(w, index, head);
}

/* The queries of the heads left over, each in as many parts as there are jobs. */
LINATTN__COLD static void linattn__nystrom_rest(void *arg, size_t index)
{
    const linattn__nystrom_work *w = (const linattn__nystrom_work *)arg;
    size_t i, end, t0, t1;
    linattn__share((w->heads - w->whole) * w->jobs, 1, index, w->jobs, &i, &end);
    for (; i < end; i++) {
        linattn__share(w->n_q, LINATTN__EXACT_LANES, i % w->jobs, w->jobs, &t0, &t1);
        linattn__nystrom_queries(w, index, i / w->jobs, w->whole + i / w->jobs, t0, t1);
    }
}

LINATTN__COLD static void linattn__do_nystrom(linattn__nystrom_work *w,
                                              const linattn_context *context)
{
    const size_t left = w->heads % w->jobs;
    w->whole = w->heads - left;
    linattn__run_jobs(linattn__nystrom_job, w, w->whole ? w->jobs : left, context);
    if (left) linattn__run_jobs(linattn__nystrom_rest, w, w->jobs, context);
}

LINATTN__ALONE LINATTN_API linattn_status
linattn_nystrom(const linattn_config *config, linattn_view q, size_t n_q, linattn_view k,
                linattn_view v, size_t n_k, linattn_output out, int causal, void *workspace,
                size_t workspace_bytes, const linattn_context *context)
{
    linattn__shape s;
    linattn__operands x;
    linattn__exact_work e;
    linattn__nystrom_work w;
    linattn__environment environment;
    linattn_status status = linattn__read_heads(config, &s);
    if (status != LINATTN_OK) return status;
    if (linattn__is_exact(config)) return LINATTN_ERROR_UNSUPPORTED;
    w.landmarks = linattn__landmarks(config);
    status = linattn__read_all(&s, context, LINATTN__KEYS | LINATTN__QUERIES | LINATTN__ELEMENTS,
                               &q, n_q, &k, &v, n_k, &out, workspace, workspace_bytes,
                               linattn__nystrom_workspace(&s, w.landmarks, context), &x);
    if (status != LINATTN_OK) return status;
    if (causal) return LINATTN_ERROR_UNSUPPORTED;
    if (n_q == 0) return LINATTN_OK;
    environment = linattn__enter();
    linattn__exact_operands(&e, &s, &x);
    w.head = e.head;
    linattn__exact_elements(&w.head, &q, &k, &v);
    w.head.group = 1;
    w.head.scratch = NULL;
    w.means = LINATTN__COMMON(means);
    w.softmax = LINATTN__KERNEL(softmax);
    w.inverse = LINATTN__ONE(inverse);
#if LINATTN__BOTH
    w.set = LINATTN__SET();
#endif
    w.heads = s.heads;
    w.group = s.group;
    w.n_q = n_q;
    w.k_head = e.head.k_head;
    w.v_head = e.head.v_head;
    w.steps = config->iterations ? config->iterations : LINATTN__STEPS;
    if (w.steps > LINATTN__MOST_STEPS) w.steps = LINATTN__MOST_STEPS;
    w.workspace = (char *)linattn__align(workspace);
    w.job_bytes = linattn__nystrom_bytes(&s, w.landmarks);
    w.jobs = linattn__threads(context, s.heads * n_q);
    linattn__do_nystrom(&w, context);
    linattn__leave(environment);
    return LINATTN_OK;
}
#endif

/* ---- Workspaces ------------------------------------------------------------------------------ */

LINATTN__ALONE LINATTN_API size_t linattn_workspace_size(const linattn_config *config,
                                                         linattn_workspace verb,
                                                         const linattn_context *context)
{
    linattn__shape s;
    if (linattn__cannot_thread(context)) return 0;
    switch (verb) {
    case LINATTN_WORKSPACE_BIDIRECTIONAL:
        if (linattn__read_config(config, &s) != LINATTN_OK || s.state_bytes == 0) return 0;
        return s.rule || LINATTN__ELEMENT(&s) ? 0 : linattn__bidirectional_bytes(&s);
#if LINATTN__HAS_EXACT
    case LINATTN_WORKSPACE_SOFTMAX:
        if (linattn__read_exact(config, &s) != LINATTN_OK) return 0;
        return linattn__exact_workspace(&s, context);
#endif
#if LINATTN__HAS_NYSTROM
    case LINATTN_WORKSPACE_NYSTROM:
        if (linattn__read_heads(config, &s) != LINATTN_OK || linattn__is_exact(config)) return 0;
        return linattn__nystrom_workspace(&s, linattn__landmarks(config), context);
#endif
    default: return 0;
    }
}

#if LINATTN__HAS_MAPS
/* ---- Maps on arrays -------------------------------------------------------------------------- */

typedef void linattn__map_kernel(const float *x, float *y, size_t n, const linattn__params *p);
typedef void linattn__row_kernel(const linattn__span *s, const float *x, float *y);
LINATTN__DECLARE(linattn__map_kernel, map)
#if LINATTN__HAS_SOFTMAX
LINATTN__DECLARE_COMMON(linattn__row_kernel, map_softmax)
#endif
#if LINATTN__HAS_UNIT
LINATTN__DECLARE_COMMON(linattn__row_kernel, map_unit)
#endif
#if LINATTN__HAS_FEATURES
LINATTN__DECLARE(linattn__span_kernel, map_features)
#endif

static linattn_status linattn__check_arrays(const float *x, size_t n_x, const float *y, size_t n_y)
{
    if (n_x == 0) return LINATTN_OK;
    if (!x || !y) return LINATTN_ERROR_NULL;
    if (n_x > LINATTN__MAX_FLOATS || n_y > LINATTN__MAX_FLOATS) return LINATTN_ERROR_SIZE;
    return (x == y && n_x == n_y) ||
                   linattn__disjoint(x, n_x * sizeof(float), y, n_y * sizeof(float))
               ? LINATTN_OK
               : LINATTN_ERROR_OVERLAP;
}

#if LINATTN__HAS_FEATURES
/* Features of all vectors, some at a time: of projected maps */
static LINATTN__NOINLINE void linattn__map_projected(const linattn__shape *s,
                                                     const float *projection, linattn__span *rows)
{
    const size_t d = s->d < LINATTN__FEATURES ? s->d : LINATTN__FEATURES;
    size_t f, wide = LINATTN__PANELS / d / 16 * 16;
    if (wide > LINATTN__FEATURES) wide = LINATTN__FEATURES;
    rows->shared = projection;
    rows->rows = s->features;
    for (f = 0; f < s->m; f = rows->row_end) {
        rows->row_begin = rows->shared_begin = f;
        rows->row_end = s->m - f < wide ? s->m : f + wide;
        LINATTN__KERNEL(map_features)(rows);
    }
}

/* and of monomials. */
LINATTN__COLD static LINATTN__NOINLINE void linattn__map_monomials(const linattn__shape *s,
                                                                   linattn__span *rows)
{
    float weights[LINATTN__FEATURES];
    linattn__walk x;
    size_t f, i;
    rows->shared = weights;
    linattn__walk_degree(s, 0, &x);
    for (f = 0; f < s->m; f = rows->row_end) {
        const size_t count = s->m - f < LINATTN__FEATURES ? s->m - f : LINATTN__FEATURES;
        rows->row_begin = rows->shared_begin = f;
        rows->row_end = f + count;
        for (i = 0; i < count; i++) {
            weights[i] = x.weight;
            linattn__walk_on(s, &x);
        }
        LINATTN__KERNEL(map_features)(rows);
    }
}
#endif

/* What of a config concerns the map alone, and the arrays. */
LINATTN__COLD static linattn_status linattn__check_map_call(const linattn_config *config,
                                                            const float *x, const float *y,
                                                            size_t n, linattn__shape *s)
{
    linattn_config own;
    linattn_status status;
    size_t total;
    if (!config) return LINATTN_ERROR_NULL;
    own = *config;
    own.heads = own.kv_heads = own.dim_value = 1;
    own.normaliser = LINATTN_NORM_DEFAULT;
    own.epsilon = 0.0f;
    own.window = own.landmarks = own.sinks = 0;
    own.soft_cap = 0.0f;
    own.alibi_slopes = NULL;
    own.rule = LINATTN_RULE_SUM;
    own.key_heads = 0;
    own.precision = LINATTN_PRECISION_PLAIN;
    own.state_type = LINATTN_F32;
    status = linattn__check_config(&own, s);
    if (status != LINATTN_OK) return status;
    total = linattn__times(n, s->m);
    if (total == SIZE_MAX || linattn__times(n, s->d) == SIZE_MAX) return LINATTN_ERROR_SIZE;
    status = linattn__check_arrays(x, n * s->d, y, total);
    if (status != LINATTN_OK || n == 0) return status;
    if ((s->source != LINATTN__DIRECT && x == y) ||
        !linattn__projection_apart(config, s, y, total * sizeof(float)))
        return LINATTN_ERROR_OVERLAP;
    return LINATTN_OK;
}

#if LINATTN__HAS_UNIT || LINATTN__HAS_SOFTMAX
LINATTN__INLINE void linattn__map_rows(linattn__row_kernel *kernel, const linattn__span *row,
                                       const float *x, float *y, size_t n)
{
    for (; n > 0; n--, x += row->m, y += row->m) kernel(row, x, y);
}
#endif

static void linattn__do_map(const linattn__shape *s, const float *projection, int keys,
                            const float *x, float *y, size_t n)
{
    linattn__params p;
    linattn__span row;
    linattn__read_params(s, &p);
    p.root = p.root * p.rest_root; /* of the identity: the map itself is x sqrt(s) */
    row.params = &p;
    row.m = s->m;
    row.d = s->d;
#if LINATTN__BOTH
    row.set = LINATTN__SET();
#endif
    (void)row;
    (void)keys;
    (void)projection;
#if LINATTN__HAS_FEATURES
    if (!linattn__is_direct(s->source)) {
        row.k = x;
        row.k_token = s->d;
        row.out = y;
        row.out_token = s->m;
        row.n = n;
        row.rows = 0;
        if (s->source == LINATTN__PROJECTED)
            linattn__map_projected(s, projection, &row);
        else
            linattn__map_monomials(s, &row);
        return;
    }
#endif
#if LINATTN__HAS_UNIT
    row.lag = keys == 0;
    if (s->source == LINATTN__UNIT) {
        linattn__map_rows(LINATTN__COMMON(map_unit), &row, x, y, n);
        return;
    }
#endif
#if LINATTN__HAS_SOFTMAX
    if (p.softmax && !keys) {
        linattn__map_rows(LINATTN__COMMON(map_softmax), &row, x, y, n);
        return;
    }
#endif
    LINATTN__KERNEL(map)(x, y, n * s->m, &p);
}

LINATTN__ALONE LINATTN_API linattn_status linattn_map(const linattn_config *config, int keys,
                                                      const float *x, float *y, size_t n)
{
    linattn__shape s;
    linattn__environment environment;
    const linattn_status status = linattn__check_map_call(config, x, y, n, &s);
    if (status != LINATTN_OK || n == 0) return status;
    environment = linattn__enter();
    linattn__do_map(&s, config->projection, keys, x, y, n);
    linattn__leave(environment);
    return LINATTN_OK;
}

static linattn_status linattn__map_array(linattn_feature_map map, const float *x, float *y,
                                         size_t n)
{
    linattn__environment environment;
    linattn__params p;
    const linattn_status status = linattn__check_arrays(x, n, y, n);
    if (status != LINATTN_OK || n == 0) return status;
    environment = linattn__enter();
    p.map = (int)map;
    p.root = 1.0f;
    p.floor = map == LINATTN_MAP_RELU ? 0.0f : -LINATTN__INF;
    LINATTN__KERNEL(map)(x, y, n, &p);
    linattn__leave(environment);
    return LINATTN_OK;
}

LINATTN_API linattn_status linattn_exp(const float *x, float *y, size_t n)
{
    return linattn__map_array(LINATTN_MAP_EXP, x, y, n);
}

LINATTN_API linattn_status linattn_elu1(const float *x, float *y, size_t n)
{
    return linattn__map_array(LINATTN_MAP_ELU1, x, y, n);
}

LINATTN_API linattn_status linattn_relu(const float *x, float *y, size_t n)
{
    return linattn__map_array(LINATTN_MAP_RELU, x, y, n);
}
#endif

#ifdef LINATTN__BRIEF
#pragma GCC pop_options
#undef LINATTN__BRIEF
#endif

#if LINATTN__HAS_RANDOM
/* ---- Random features ------------------------------------------------------------------------- */

/* The same bits from every compiler: clang's -ffast-math contracts a product in double and the sum
   it goes into whatever the pragmas say. So products are either exact, as those of two floats or
   with a power of two are, or stored first. */
LINATTN__INLINE double linattn__product(double a, double b)
{
    volatile double product = a * b;
    return product;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t linattn__random_bits(uint64_t *stream)
{
    uint64_t z = *stream += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* c[0] + c[1] x + ... + c[7] x^7 */
static double linattn__polynomial(const double *c, double x)
{
    double sum = c[7];
    int i;
    for (i = 6; i >= 0; i--) sum = linattn__product(sum, x) + c[i];
    return sum;
}

/* -log p for normal p, to 1e-13: p = m 2^e, log m = 2 artanh((m - 1) / (m + 1)), with m around 1 so
   that eight terms of the series do. */
static double linattn__minus_log(double p)
{
    static const double series[8] = {2.0,       2.0 / 3.0,  2.0 / 5.0,  2.0 / 7.0,
                                     2.0 / 9.0, 2.0 / 11.0, 2.0 / 13.0, 2.0 / 15.0};
    union {
        uint64_t u;
        double f;
    } m;
    double s;
    int e;
    m.f = p;
    e = (int)(m.u >> 52) - 1023;
    m.u = (m.u & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    if (m.f > 1.4142135623730951) {
        m.f = 0.5 * m.f;
        e = e + 1;
    }
    s = (m.f - 1.0) / (m.f + 1.0);
    return linattn__product((double)-e, 0.69314718055994531) -
           linattn__product(s, linattn__polynomial(series, linattn__product(s, s)));
}

/* A standard normal number by inversion. p, of 53 bits, is the probability of the tail beyond it,
   below 1/2; the sign is a bit of its own. Wichura 1988, algorithm AS 241 (PPND16): a rational
   function of (1/2 - p)^2 around the centre, of sqrt(-log p) in the tail and far out; 1e-15. */
LINATTN__COLD static double linattn__normal(uint64_t *stream)
{
    static const double centre[2][8] = {
        {3.3871328727963666080e+0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
         1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
         3.3430575583588128105e+4, 2.5090809287301226727e+3},
        {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
         2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4,
         5.2264952788528545610e+3}};
    static const double tail[2][8] = {
        {1.42343711074968357734e+0, 4.63033784615654529590e+0, 5.76949722146069140550e+0,
         3.64784832476320460504e+0, 1.27045825245236838258e+0, 2.41780725177450611770e-1,
         2.27238449892691845833e-2, 7.74545014278341407640e-4},
        {1.0, 2.05319162663775882187e+0, 1.67638483018380384940e+0, 6.89767334985100004550e-1,
         1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
         1.05075007164441684324e-9}};
    static const double far_tail[2][8] = {
        {6.65790464350110377720e+0, 5.46378491116411436990e+0, 1.78482653991729133580e+0,
         2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
         2.71155556874348757815e-5, 2.01033439929228813265e-7},
        {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
         7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
         2.04426310338993978564e-15}};
    const double unit = 5.5511151231257827e-17; /* 2^-54 */
    const uint64_t bits = linattn__random_bits(stream);
    const double p = (double)(int64_t)((bits >> 12 << 1) + 1) * unit, q = 0.5 - p; /* both exact */
    const double(*c)[8] = centre;
    double r, x = q;
    if (q <= 0.425) {
        r = 0.180625 - linattn__product(q, q);
    } else {
        x = 1.0;
        r = linattn__sqrt(linattn__minus_log(p));
        if (r <= 5.0) {
            c = tail;
            r = r - 1.6;
        } else {
            c = far_tail;
            r = r - 5.0;
        }
    }
    if (bits & 1) x = -x;
    return x * linattn__polynomial(c[0], r) / linattn__polynomial(c[1], r);
}

static void linattn__normal_row(uint64_t *stream, float *x, size_t dim)
{
    size_t i;
    for (i = 0; i < dim; i++) x[i] = (float)linattn__normal(stream);
}

/* The norm of a row that linattn__normal_row would write. */
static double linattn__normal_norm(uint64_t *stream, size_t dim)
{
    double sum = 0.0;
    size_t i;
    for (i = 0; i < dim; i++) {
        const double x = (double)(float)linattn__normal(stream);
        sum = sum + x * x;
    }
    return linattn__sqrt(sum);
}

/* a.b in double. Eight partial sums, so that this may be vectorised. */
static double linattn__dot(const float *a, const float *b, size_t n)
{
    double sum[8] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    size_t i, lane;
    for (i = 0; i + 8 <= n; i += 8) {
        LINATTN__UNROLL
        for (lane = 0; lane < 8; lane++)
            sum[lane] = sum[lane] + (double)a[i + lane] * (double)b[i + lane];
    }
    for (lane = 0; i + lane < n; lane++)
        sum[lane] = sum[lane] + (double)a[i + lane] * (double)b[i + lane];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

#define LINATTN__BATCH 32 /* rows that are projected out together, and columns of these */
#define LINATTN__COLUMNS 64

/* x -= sum_j factor[j] row_j, in double within a few columns. */
static void linattn__subtract(float *x, const float *rows, const float *factor, size_t count,
                              size_t dim)
{
    double sum[LINATTN__COLUMNS];
    size_t first, i, j;
    for (first = 0; first < dim; first += LINATTN__COLUMNS) {
        const size_t n = dim - first < LINATTN__COLUMNS ? dim - first : LINATTN__COLUMNS;
        for (i = 0; i < n; i++) sum[i] = (double)x[first + i];
        for (j = 0; j < count; j++) {
            const float *row = rows + j * dim + first;
            const double by = (double)factor[j];
            for (i = 0; i < n; i++) sum[i] = sum[i] - by * (double)row[i];
        }
        for (i = 0; i < n; i++) x[first + i] = (float)sum[i];
    }
}

/* Takes from x its projections on `count` orthonormal rows. Gram-Schmidt, modified between batches
   and classical within. */
LINATTN__COLD static void linattn__project_out(float *x, const float *rows, size_t count,
                                               size_t dim)
{
    float factor[LINATTN__BATCH];
    size_t first, j;
    for (first = 0; first < count; first += LINATTN__BATCH) {
        const size_t n = count - first < LINATTN__BATCH ? count - first : LINATTN__BATCH;
        const float *batch = rows + first * dim;
        for (j = 0; j < n; j++) factor[j] = (float)linattn__dot(batch + j * dim, x, dim);
        linattn__subtract(x, batch, factor, n, dim);
    }
}

static void linattn__scale_row(float *x, size_t dim, double factor)
{
    size_t i;
    for (i = 0; i < dim; i++) x[i] = (float)((double)x[i] * factor);
}

/* A unit row at x, orthogonal to the `count` rows before it and else uniform: Gram-Schmidt of a
   Gaussian row, twice, as the first time leaves rounding errors in proportion to what it took away.
   Where that is nearly all, as for one row in a thousand at most, another row is drawn: length and
   direction of what is left are independent, so that the directions stay uniform. */
static void linattn__orthonormal_row(uint64_t *stream, float *x, const float *rows, size_t count,
                                     size_t dim)
{
    double square;
    do {
        linattn__normal_row(stream, x, dim);
        linattn__project_out(x, rows, count, dim);
        square = linattn__dot(x, x, dim);
    } while (square < 1e-6);
    linattn__scale_row(x, dim, 1.0 / linattn__sqrt(square));
    linattn__project_out(x, rows, count, dim);
    linattn__scale_row(x, dim, 1.0 / linattn__sqrt(linattn__dot(x, x, dim)));
}

/* Within enter and leave, and not inlined, so that its arithmetic stays between them. Norms come
   from a stream of their own, for directions and norms of more features to begin with these. */
LINATTN__COLD static LINATTN__NOINLINE void
linattn__make_projection(uint64_t seed, int kind, size_t features, size_t dim, float *w)
{
    const double root = linattn__sqrt((double)dim);
    uint64_t rows = linattn__random_bits(&seed), norms = ~rows;
    size_t first, i;
    norms = linattn__random_bits(&norms);
    if (kind == LINATTN_RANDOM_INDEPENDENT) {
        for (i = 0; i < features; i++) linattn__normal_row(&rows, w + i * dim, dim);
        return;
    }
    for (first = 0; first < features; first += dim) {
        const size_t n = features - first < dim ? features - first : dim;
        float *const block = w + first * dim;
        for (i = 0; i < n; i++) linattn__orthonormal_row(&rows, block + i * dim, block, i, dim);
        for (i = 0; i < n; i++) {
            double norm = root;
            if (kind == LINATTN_RANDOM_ORTHOGONAL) norm = linattn__normal_norm(&norms, dim);
            linattn__scale_row(block + i * dim, dim, norm);
        }
    }
}

LINATTN__ALONE LINATTN_API linattn_status linattn_random_features(uint64_t seed,
                                                                  linattn_random_kind kind,
                                                                  size_t features, size_t dim,
                                                                  float *projection)
{
    linattn__environment environment;
    size_t total;
    if (!projection) return LINATTN_ERROR_NULL;
    if (features == 0 || features > LINATTN__MAX_FEATURES) return LINATTN_ERROR_SIZE;
    if (dim == 0 || dim > LINATTN_MAX_DIM) return LINATTN_ERROR_SIZE;
    total = linattn__times(features, dim);
    if (total == SIZE_MAX) return LINATTN_ERROR_SIZE;
    if ((uintptr_t)projection > UINTPTR_MAX - total * sizeof(float)) return LINATTN_ERROR_SIZE;
    if ((unsigned)kind >= (unsigned)LINATTN_RANDOM_COUNT) return LINATTN_ERROR_CONFIG;
    environment = linattn__enter();
    linattn__make_projection(seed, (int)kind, features, dim, projection);
    linattn__leave(environment);
    return LINATTN_OK;
}
#endif

/* ==== The kernels, once per instruction set =================================================== */

#if LINATTN__BOTH
/* What the shared text calls, of each set: see LA_OF. What is cold AVX-512 has from AVX2. Declared
   here, where clang's attributes are not in force. */
#define LINATTN__DECLARE_LIST(type, name, last, parameters)                                        \
    LINATTN__UNUSED static type(*const linattn__##name##_of[])                                     \
        parameters = {linattn__##name##_scalar, linattn__##name##_avx2, linattn__##name##_##last};
#define LINATTN__DECLARE_COLD(type, name, parameters)                                              \
    static type linattn__##name##_scalar parameters;                                               \
    static type linattn__##name##_avx2 parameters;                                                 \
    LINATTN__DECLARE_LIST(type, name, avx2, parameters)
#define LINATTN__DECLARE_EACH(type, name, parameters)                                              \
    static type linattn__##name##_scalar parameters;                                               \
    static type linattn__##name##_avx2 parameters;                                                 \
    static type linattn__##name##_avx512 parameters;                                               \
    LINATTN__DECLARE_LIST(type, name, avx512, parameters)
/* What is hot in AVX-512, for the cold functions that it has in common with AVX2. */
#define LINATTN__DECLARE_HOT(type, name, parameters)                                               \
    static type linattn__##name##_avx512 parameters;
LINATTN__DECLARE_COLD(void, end_rows, (const linattn__span *, const float *, float *, size_t))
LINATTN__DECLARE_COLD(void, shrink, (const linattn__span *, float *, float *, float))
LINATTN__DECLARE_EACH(void, peak,
                      (const linattn__span *, const float *, size_t, size_t, size_t, size_t,
                       float *))
LINATTN__DECLARE_EACH(void, invert, (const float *, float, float *, size_t))
LINATTN__DECLARE_HOT(void, sum_of, (float *, const float *, const float *, size_t))
#if LINATTN__HAS_SIGNED
LINATTN__DECLARE_COLD(void, cancel, (const float *, const float *, float, float *, size_t))
#endif
LINATTN__DECLARE_COLD(void, factor,
                      (const linattn__span *, const float *, const float *, const float *,
                       const float *, uint64_t, float *, float *))
#if LINATTN__HAS_PREFILL
struct linattn__scratch_scalar;
struct linattn__chunk_scalar;
struct linattn__rows_scalar;
struct linattn__tile_scalar;
LINATTN__DECLARE_EACH(void, stage,
                      (const linattn__span *, struct linattn__scratch_scalar *,
                       const struct linattn__chunk_scalar *, int))
LINATTN__DECLARE_EACH(size_t, run,
                      (const linattn__span *, size_t, size_t, const struct linattn__rows_scalar *,
                       size_t, size_t))
LINATTN__DECLARE_EACH(void, read_tiles, (const struct linattn__tile_scalar *))
LINATTN__DECLARE_EACH(void, causal_tiles, (const struct linattn__tile_scalar *))
/* Scalar code has none: see LA_VECTOR. */
static void linattn__tile_fetch_avx2(const struct linattn__tile_scalar *, size_t, size_t, size_t,
                                     unsigned);
static void linattn__edge_begin_avx2(const struct linattn__tile_scalar *, float *, float *, size_t,
                                     size_t, size_t, unsigned);
static void linattn__edge_end_avx2(const struct linattn__tile_scalar *, const float *, size_t,
                                   size_t, size_t, unsigned);
LINATTN__DECLARE_EACH(void, keys,
                      (const linattn__span *, float *, const struct linattn__chunk_scalar *))
LINATTN__DECLARE_EACH(void, update_vectors,
                      (const linattn__span *, const float *, const struct linattn__chunk_scalar *,
                       size_t, size_t))
LINATTN__DECLARE_EACH(void, outer_wide, (const linattn__outer *, size_t))
LINATTN__DECLARE_EACH(void, outer_single, (const linattn__outer *, size_t))
#endif
#if LINATTN__HAS_UNIT
LINATTN__DECLARE_EACH(void, unit,
                      (const linattn__span *, const float *, size_t, size_t, size_t, size_t,
                       float *, size_t))
#endif
#if LINATTN__HAS_EXP
static linattn__part_kernel linattn__step_chunk_avx512;
#endif
static linattn__part_kernel linattn__step_both_avx512, linattn__step_query_avx512;
#if LINATTN__HAS_PREFILL
LINATTN__DECLARE_HOT(void, step_twice,
                     (const linattn__span *, struct linattn__head_scalar *,
                      struct linattn__token_scalar *, size_t, size_t))
#endif
#if LINATTN__HAS_COMPENSATED
LINATTN__DECLARE_EACH(void, step_read,
                      (const struct linattn__head_scalar *, const struct linattn__token_scalar *,
                       size_t, size_t))
LINATTN__DECLARE_COLD(void, past_weights,
                      (const linattn__span *, float *, float *, size_t, size_t, size_t))
#endif
#if LINATTN__HAS_HALF
struct linattn__half_avx2;
LINATTN__DECLARE_HOT(void, half_token, (struct linattn__half_avx2 *, size_t))
LINATTN__DECLARE_HOT(void, half_copy, (const struct linattn__half_avx2 *, size_t, int))
#endif
#if LINATTN__HAS_RECURRENT
struct linattn__rule_scalar;
LINATTN__DECLARE_HOT(void, rule_map,
                     (struct linattn__rule_scalar *, const float *, size_t, float *, int))
LINATTN__DECLARE_HOT(int, rule_decay_rows,
                     (const struct linattn__rule_scalar *, size_t, size_t, float *, float *))
LINATTN__DECLARE_HOT(int, rule_due_rows,
                     (const struct linattn__rule_scalar *, size_t, size_t, float *, float *))
LINATTN__DECLARE_HOT(void, rule_weigh_rows, (const struct linattn__rule_scalar *, size_t, size_t))
LINATTN__DECLARE_HOT(void, rule_reads, (struct linattn__rule_scalar *))
LINATTN__DECLARE_HOT(void, rule_normalise, (struct linattn__rule_scalar *, int, int))
LINATTN__DECLARE_HOT(void, rule_flush_rows,
                     (float *, size_t, size_t, const float *, size_t, const uint16_t *, size_t,
                      size_t, int))
LINATTN__DECLARE_HOT(void, rule_lanes,
                     (const float *, const float *, const float *, size_t, float *))
LINATTN__DECLARE_HOT(void, rule_columns, (const struct linattn__rule_scalar *))
struct linattn__once_avx2;
LINATTN__DECLARE_HOT(int, once_columns, (const struct linattn__once_avx2 *))
LINATTN__DECLARE_HOT(int, once_pairs, (const struct linattn__once_avx2 *))
#endif
#if LINATTN__HAS_WINDOW
LINATTN__DECLARE_LIST(void, merge, avx2, (const linattn__span *, const linattn__span *))
LINATTN__DECLARE_COLD(void, part_middle,
                      (const linattn__span *, const linattn__band_parts *, float *, uint64_t))
LINATTN__DECLARE_EACH(void, put_columns,
                      (const linattn__span *, float *, const struct linattn__chunk_scalar *,
                       size_t))
LINATTN__DECLARE_COLD(void, put_values,
                      (const linattn__span *, const linattn__band_parts *, const float *, size_t,
                       size_t, size_t, size_t))
LINATTN__DECLARE_COLD(int, all_finite, (const float *, size_t, size_t, size_t))
LINATTN__DECLARE_HOT(void, keep_keys, (const linattn__span *, const float *, size_t, float *))
LINATTN__DECLARE_COLD(void, band_keep,
                      (const linattn__span *, const linattn__band_parts *, size_t, size_t, size_t,
                       int))
LINATTN__DECLARE_EACH(size_t, band_settle,
                      (const linattn__span *, linattn__span *, const linattn__band_parts *,
                       const struct linattn__chunk_scalar *, uint64_t, int))
LINATTN__DECLARE_EACH(int, band_mask,
                      (const linattn__span *, struct linattn__scratch_scalar *, float *, size_t,
                       size_t, size_t, size_t))
#endif
#if LINATTN__HAS_FEATURES
struct linattn__projection_scalar;
LINATTN__DECLARE_EACH(void, multiply,
                      (const linattn__span *, const float *, size_t, size_t, size_t, size_t,
                       float *, size_t))
LINATTN__DECLARE_COLD(int, measure,
                      (const linattn__span *, struct linattn__projection_scalar *, const float *,
                       size_t, size_t))
LINATTN__DECLARE_COLD(void, scale_rows,
                      (struct linattn__projection_scalar *, const float *, size_t, size_t, size_t,
                       size_t))
LINATTN__DECLARE_COLD(void, both_signs,
                      (const float *, size_t, size_t, float *, size_t, float *, size_t))
#endif
#if LINATTN__HAS_NYSTROM
LINATTN__DECLARE_EACH(void, product,
                      (const double *, size_t, const double *, size_t, double *, size_t, size_t,
                       size_t, int))
LINATTN__DECLARE_COLD(void, softmax_columns, (double *, size_t, size_t, size_t, size_t))
LINATTN__DECLARE_COLD(double, norms, (const double *, size_t, size_t, size_t))
LINATTN__DECLARE_COLD(void, residual, (double *, size_t, size_t, size_t, double))
LINATTN__DECLARE_COLD(void, polynomials,
                      (double *, double *, const double *, size_t, size_t, size_t))
#endif
#endif

/* Each inclusion is one instruction set. gcc takes the target from a pragma, clang from an
   attribute on every function; the arithmetic options above stay in force. */
#if LINATTN__HAS_SCALAR
#if LINATTN__GNU && LINATTN__COUNT > 1 && defined(__OPTIMIZE__) && !defined(__FAST_MATH__)
#define LINATTN__MINIMAL /* beside others it is there to be small */
#pragma push_macro("LINATTN__INLINE")
#pragma push_macro("LINATTN__UNROLL")
#undef LINATTN__INLINE
#undef LINATTN__UNROLL
#ifdef __clang__
#define LINATTN__UNROLL _Pragma("clang loop unroll(disable)")
#else
#define LINATTN__UNROLL
#endif
#define LINATTN__INLINE static inline __attribute__((unused))
#ifdef __clang__
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC optimize("Os", "ira-region=one", "no-expensive-optimizations")
#pragma GCC optimize("no-schedule-insns2", "no-tree-slp-vectorize", "no-gcse", "no-tree-pta")
#endif
#endif
#define LINATTN__ISA LINATTN__ISA_SCALAR
#include "linattn_simd.h"
#undef LINATTN__ISA
#ifdef LINATTN__MINIMAL
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#pragma pop_macro("LINATTN__UNROLL")
#pragma pop_macro("LINATTN__INLINE")
#undef LINATTN__MINIMAL
#endif
#endif

#if LINATTN__HAS_FUSED
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("fma"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("fma")
#endif
#define LINATTN__ISA LINATTN__ISA_SCALAR
#define LA_FUSED
#include "linattn_simd.h"
#undef LA_FUSED
#undef LINATTN__ISA
#if defined(__clang__)
#pragma clang attribute pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

#if LINATTN__HAS_NEON
#define LINATTN__ISA LINATTN__ISA_NEON
#include "linattn_simd.h"
#undef LINATTN__ISA
#endif

#if LINATTN__HAS_SSE2
#define LINATTN__ISA LINATTN__ISA_SSE2
#include "linattn_simd.h"
#undef LINATTN__ISA
#endif

#if LINATTN__HAS_SIMD128
#define LINATTN__ISA LINATTN__ISA_SIMD128
#include "linattn_simd.h"
#undef LINATTN__ISA
#endif

#if LINATTN__HAS_RELAXED
#define LINATTN__ISA LINATTN__ISA_RELAXED
#include "linattn_simd.h"
#undef LINATTN__ISA
#endif

#if defined(__GNUC__) && __GNUC__ >= 7 && !defined(__clang__)
#pragma GCC push_options
/* -O3 alone: a sixtieth of the code, and nothing to speed where loops are vectors. */
#pragma GCC optimize("no-split-loops")
/* Loops of intrinsics are vectors already: a fortieth of the time that compiling takes. */
#pragma GCC optimize("no-tree-slp-vectorize", "no-tree-loop-vectorize")
/* What a loop leaves behind is not computed anew from its count, which takes multiplications. */
#pragma GCC optimize("no-tree-scev-cprop")
#define LINATTN__SPARED /* sections may leave out more */
#if defined(__x86_64__) && !defined(__AVX__)
/* Below -O2 it does not clear the upper halves of registers where kernels end: what follows, here
   or in the program, then waits for them, under mLSTM for two thirds of the time. */
#pragma GCC optimize("expensive-optimizations")
#endif
#if __GNUC__ >= 9 /* which can be told the most bytes that it may skip */
/* Decoded instructions are kept in lines of 64 bytes, which bind loops of few: one token under a
   rule takes .8 to .9 of the time, update .93, and the code a hundredth more. */
#pragma GCC optimize("align-loops=64:49", "align-functions=1")
#endif
#endif

#if LINATTN__HAS_AVX2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#define LINATTN__ISA LINATTN__ISA_AVX2
#include "linattn_simd.h"
#undef LINATTN__ISA
#if defined(__clang__)
#pragma clang attribute pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

#if LINATTN__HAS_AVX512
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx2,fma,f16c"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma,f16c")
#endif
#define LINATTN__ISA LINATTN__ISA_AVX512
#include "linattn_simd.h"
#undef LINATTN__ISA
#if defined(__clang__)
#pragma clang attribute pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

#ifdef LINATTN__SPARED
#pragma GCC pop_options
#undef LINATTN__SPARED
#endif

#if defined(LINATTN__FLOAT_CONTROL)
#pragma float_control(pop)
#elif defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#pragma GCC pop_options
#elif defined(_MSC_VER) && !defined(__clang__)
#pragma warning(pop)
#pragma float_control(pop)
#if defined(_M_FP_FAST) || defined(_M_FP_CONTRACT) || (_MSC_VER < 1930 && defined(_M_FP_PRECISE))
#pragma fp_contract(on) /* there is no push: the default of the compiler and its flags */
#endif
#endif

/* Internal names end here. LINATTN__IMPLEMENTED stays, so that a second inclusion adds nothing. */
#undef LINATTN__ALIGNMENT
#undef LINATTN__ALONE
#undef LINATTN__ANY_TYPE
#undef LINATTN__ARM64
#undef LINATTN__AVX2_FMA
#undef LINATTN__BAND
#undef LINATTN__BATCH
#undef LINATTN__BETA
#undef LINATTN__BIAS
#undef LINATTN__BONUS
#undef LINATTN__BOTH
#undef LINATTN__CAN_SSE2
#undef LINATTN__BY_FLAGS
#undef LINATTN__CHAINS
#undef LINATTN__CHOSEN_FMA
#undef LINATTN__COLD
#undef LINATTN__COLUMNS
#undef LINATTN__COMMON
#undef LINATTN__CONTENDED
#undef LINATTN__CONVERGED
#undef LINATTN__COUNT
#undef LINATTN__CREDIT
#undef LINATTN__CROWD
#undef LINATTN__CROWDED
#undef LINATTN__C_LINKAGE
#undef LINATTN__DECAY
#undef LINATTN__DECLARE
#undef LINATTN__DECLARE_COLD
#undef LINATTN__DECLARE_COMMON
#undef LINATTN__DECLARE_EACH
#undef LINATTN__DECLARE_HOT
#undef LINATTN__DECLARE_LIST
#undef LINATTN__DECLARE_ONE
#undef LINATTN__DIRECT
#undef LINATTN__DOUBLE_FMA
#undef LINATTN__DRIFT
#undef LINATTN__EFFECT
#undef LINATTN__ELEMENT
#undef LINATTN__ELEMENTS
#undef LINATTN__EXACT_AHEAD
#undef LINATTN__EXACT_HEADS
#undef LINATTN__EXACT_KEYS
#undef LINATTN__EXACT_LANES
#undef LINATTN__EXACT_LISTS
#undef LINATTN__EXACT_NEAR
#undef LINATTN__EXACT_P
#undef LINATTN__EXACT_QUERIES
#undef LINATTN__EXPDEF
#undef LINATTN__EXPONENT
#undef LINATTN__EXP_HIGH
#undef LINATTN__EXP_LOW
#undef LINATTN__FAST
#undef LINATTN__FAR_FLOATS
#undef LINATTN__FAVOR
#undef LINATTN__FEATURES
#undef LINATTN__FETCH
#undef LINATTN__FETCHES
#undef LINATTN__FETCH_FLOATS
#undef LINATTN__FETCH_NEAR
#undef LINATTN__FEW
#undef LINATTN__FLOAT_CONTROL
#undef LINATTN__FLT_MAX
#undef LINATTN__FLT_MIN
#undef LINATTN__FLUSHED
#undef LINATTN__FMA
#undef LINATTN__FOLD
#undef LINATTN__FUSED
#undef LINATTN__GATES
#undef LINATTN__GNU
#undef LINATTN__HALVED
#undef LINATTN__HARDWARE_FMA
#undef LINATTN__HAS_AVX2
#undef LINATTN__HAS_AVX512
#undef LINATTN__HAS_COMPENSATED
#undef LINATTN__HAS_ELU1
#undef LINATTN__HAS_EXACT
#undef LINATTN__HAS_EXP
#undef LINATTN__HAS_FEATURES
#undef LINATTN__HAS_FLOOR
#undef LINATTN__HAS_FUSED
#undef LINATTN__HAS_HALF
#undef LINATTN__HAS_IDENTITY
#undef LINATTN__HAS_MAPS
#undef LINATTN__HAS_MAP_EXP
#undef LINATTN__HAS_NEON
#undef LINATTN__HAS_NYSTROM
#undef LINATTN__HAS_PREFILL
#undef LINATTN__HAS_RANDOM
#undef LINATTN__HAS_RECURRENT
#undef LINATTN__HAS_RELAXED
#undef LINATTN__HAS_RELU
#undef LINATTN__HAS_SCALAR
#undef LINATTN__HAS_SIGNED
#undef LINATTN__HAS_SIMD128
#undef LINATTN__HAS_SSE2
#undef LINATTN__HAS_SOFTMAX
#undef LINATTN__HAS_UNIT
#undef LINATTN__HAS_WINDOW
#undef LINATTN__HEAD
#undef LINATTN__HEADER_BYTES
#undef LINATTN__HEADER_FLOATS
#undef LINATTN__HEADROOM
#undef LINATTN__HOT
#undef LINATTN__IMPORTED
#undef LINATTN__INF
#undef LINATTN__INLINE
#undef LINATTN__INPUT
#undef LINATTN__INTEL
#undef LINATTN__IN_FLOAT
#undef LINATTN__ISA_AVX2
#undef LINATTN__ISA_AVX512
#undef LINATTN__ISA_NEON
#undef LINATTN__ISA_RELAXED
#undef LINATTN__ISA_SCALAR
#undef LINATTN__ISA_SIMD128
#undef LINATTN__ISA_SSE2
#undef LINATTN__IS_ELU1
#undef LINATTN__IS_EXP
#undef LINATTN__IS_HALF
#undef LINATTN__IS_SIGNED
#undef LINATTN__K
#undef LINATTN__KEPT
#undef LINATTN__KEPT_EXPONENT
#undef LINATTN__KEPT_FACTOR
#undef LINATTN__KEPT_LOW
#undef LINATTN__KERNEL
#undef LINATTN__KERNEL_OF
#undef LINATTN__KEYS
#undef LINATTN__KEY_MIN
#undef LINATTN__LEVEL
#undef LINATTN__LINED
#undef LINATTN__LN2
#undef LINATTN__LOG2E
#undef LINATTN__LOWER
#undef LINATTN__LOWERED
#undef LINATTN__LOWEST
#undef LINATTN__MAGIC
#undef LINATTN__MAPS
#undef LINATTN__MAP_POSITIVE
#undef LINATTN__MAP_POWER
#undef LINATTN__MARKS
#undef LINATTN__MAX_FEATURES
#undef LINATTN__MAX_FLOATS
#undef LINATTN__MAX_PROJECTION
#undef LINATTN__MAX_WINDOW
#undef LINATTN__MONOMIALS
#undef LINATTN__MOST_DISTANCE
#undef LINATTN__MOST_STEPS
#undef LINATTN__MSVC
#undef LINATTN__NEAR
#undef LINATTN__NOINLINE
#undef LINATTN__NO_BLOCKS
#undef LINATTN__ON
#undef LINATTN__ON_AVX2
#undef LINATTN__ON_AVX512
#undef LINATTN__ON_FUSED
#undef LINATTN__ON_NEON
#undef LINATTN__ON_RELAXED
#undef LINATTN__ON_SCALAR
#undef LINATTN__ON_SIMD128
#undef LINATTN__ON_SSE2
#undef LINATTN__ONE
#undef LINATTN__OPAQUE
#undef LINATTN__OPENING
#undef LINATTN__OWED
#undef LINATTN__OWED_MLSTM
#undef LINATTN__OWED_MOST
#undef LINATTN__PANELS
#undef LINATTN__PAST
#undef LINATTN__PRIVATE_FLOATS
#undef LINATTN__PROJECTED
#undef LINATTN__Q
#undef LINATTN__QUERIES
#undef LINATTN__RAISED
#undef LINATTN__RAISES
#undef LINATTN__READ
#undef LINATTN__ROLLED
#undef LINATTN__ROWS
#undef LINATTN__ROWS_COLUMNS
#undef LINATTN__ROWS_MOST
#undef LINATTN__RULES
#undef LINATTN__RULE_MAPS
#undef LINATTN__RUN_STEP
#undef LINATTN__SATURATION
#undef LINATTN__SCORES
#undef LINATTN__SEQUENCE
#undef LINATTN__SET
#undef LINATTN__TAKES_AVX2
#undef LINATTN__TAKES_VECTORS
#undef LINATTN__TAKE_UPDATE
#undef LINATTN__SHARED
#undef LINATTN__SHARE_FLOATS
#undef LINATTN__SMALL
#undef LINATTN__SOME_MAPS
#undef LINATTN__SPENT
#undef LINATTN__STATE_VERSION
#undef LINATTN__STEPS
#undef LINATTN__TAYLOR
#undef LINATTN__TINY
#undef LINATTN__TOKEN
#undef LINATTN__TO_BE_SMALL
#undef LINATTN__TURN
#undef LINATTN__TYPE
#undef LINATTN__TYPE_OF
#undef LINATTN__UNIT
#undef LINATTN__UNROLL
#undef LINATTN__UNUSED
#undef LINATTN__USUAL
#undef LINATTN__V
#undef LINATTN__WARM
#undef LINATTN__WIDE
#undef LINATTN__WIDENED
#undef LINATTN__WRITE
#undef LINATTN__X64
#undef linattn__get_sum
#undef linattn__set_sum

#endif /* LINATTN_IMPLEMENTATION */
