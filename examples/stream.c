/* stream: what is new in a sound, told hop by hop and on time.  SPDX: MIT

       cc -O3 examples/stream.c -o stream && ./stream examples/data/stream.wav

   Reads a WAV file in hops of 10 ms, as a sound card would hand them over. The energies of 16 bands
   make a vector of length one for each hop. One state of four heads remembers these vectors, and
   forgets them within 0.3, 1, 10 and 60 seconds: the rule is GATED_DELTA, which writes what the
   memory did not know yet, with a fixed decay for each head. What a memory answers to a hop is
   compared with that hop: 1 - similarity is how novel it is. A hop is written 0.2 s late, so that a
   sound is not known at once by its own beginning.

   What a program with a deadline asks: after the first hop there is no allocation, no lock and no
   system call but what the program itself prints or waits for. All that the stream is, memories,
   filters and the hops that are still to be written, is one block without pointers: a copy between
   two hops saves it, and any thread may go on with it. Every instruction set gives the same bits.

   Needs the headers beside it, linattn.h and a POSIX C library, nothing else. Where pthreads are a
   library of their own (glibc before 2.34), add -pthread. The bands are plain C, and the last bits
   of that are the compiler's: -march=native, say, may fuse multiply and add. */

#define PROGRAM "stream"
#include "npy.h"
#include "wav.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#define LINATTN_IMPLEMENTATION
#include "../linattn.h"

static const char help[] =
    "usage: stream CLIP.wav [options]\n"
    "\n"
    "Tells how novel each hop of 10 ms is against what is remembered of those before: 0 is known,\n"
    "1 is new. CLIP.wav: 16-bit integers or 32-bit floats, mono or stereo, 8 to 192 kHz. On a\n"
    "terminal a meter shows it; at the end a table tells how long the hops took.\n"
    "\n"
    "  --out F        write the novelty of each hop against the best of the memories: .npy,\n"
    "                 float32, shape (hops). Files change only when all has succeeded\n"
    "  --memories F   write it against each of the four memories: shape (hops, 4)\n"
    "  --times F      write the seconds that each hop took, and those of linattn_recurrent in it:\n"
    "                 shape (hops, 2)\n"
    "  --hops N       end after N hops (default: with the clip); a clip that is shorter begins\n"
    "                 again\n"
    "  --isa NAME     " ISA_NAMES ", all;\n"
    "                 same bytes. all: one after another, which is not for --times, --save and\n"
    "                 --realtime\n"
    "  --realtime     wait until each hop would have been recorded\n"
    "  --handoff      two threads take the hops in turn; same bytes\n"
    "  --save F       another thread takes copies of the stream while it runs; write the last one\n"
    "  --resume F     go on where a copy of --save was taken, with the same clip: others, and\n"
    "                 copies from before their clip was noted, are refused\n"
    "  --quiet        no meter and no table\n"
    "  --help, -h     print this\n"
    "\n"
    "Exit status: 0; 1 where instruction sets differ; 2 after one line on stderr: no output file\n"
    "is left then.\n";

enum {
    OPTION_OUT,
    OPTION_MEMORIES,
    OPTION_TIMES,
    OPTION_HOPS,
    OPTION_ISA,
    OPTION_SAVE,
    OPTION_RESUME,
    OPTION_REALTIME, /* from here on without a value */
    OPTION_HANDOFF,
    OPTION_QUIET,
    OPTION_HELP,
    OPTION_COUNT
};
static const char *const option_names[OPTION_COUNT] = {
    "--out",    "--memories", "--times",   "--hops",  "--isa", "--save",
    "--resume", "--realtime", "--handoff", "--quiet", "--help"};

enum { HOPS_PER_SECOND = 100, BANDS = 16, MEMORIES = 4, LATE = 20 };

static const float memory_seconds[MEMORIES] = {0.3f, 1, 10, 60};

/* ---- A stream: plain bytes ------------------------------------------------------------------- */

typedef struct stream {
    /* of linattn's, which counts the hops, too */
    unsigned char state[LINATTN_RULE_STATE_BYTES(MEMORIES, BANDS, BANDS)];
    float first[BANDS], second[BANDS]; /* what the filters hold */
    float waiting[LATE][BANDS];        /* the latest hops, to be written */
    uint32_t noise, rate;              /* samples per second */
} stream;

/* All that does not change while it runs. */
typedef struct constants {
    float g[BANDS], width[BANDS], loop[BANDS]; /* of the filters */
    float gain;                                /* of energies */
    float decay[MEMORIES], beta;
} constants;

static linattn_config config_of_memories(void)
{
    linattn_config config = {0};
    config.rule = LINATTN_RULE_GATED_DELTA;
    config.map = LINATTN_MAP_IDENTITY;
    config.key_heads = 1; /* all memories are asked for the same hop */
    config.kv_heads = MEMORIES;
    config.dim_key = BANDS;
    return config;
}

static void begin_stream(stream *s, uint32_t rate)
{
    const linattn_config config = config_of_memories();
    memset(s, 0, sizeof *s);
    s->rate = rate;
    require(linattn_state_init(&config, s->state, sizeof s->state), "the memories");
}

/* ---- Bands ----------------------------------------------------------------------------------- */

/* log x, x normal and positive, to 1e-7: the series of 2 artanh((m - 1) / (m + 1)) for the
   mantissa. The C library's own needs -lm, and has other bits elsewhere. */
static float logarithm(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 23) - 127;
    bits = (bits & 0x7fffff) | 0x3f800000;
    memcpy(&x, &bits, sizeof x);
    if (x > 1.4142135f) {
        x /= 2;
        exponent++;
    }
    float y = (x - 1) / (x + 1), z = y * y;
    float series = 1 + z * (1 / 3.0f + z * (1 / 5.0f + z * (1 / 7.0f + z / 9)));
    return (float)exponent * 0.69314718f + 2 * y * series;
}

/* From 60 Hz to 16 kHz or near the highest frequency that there can be, at equal ratios. g is
   pi f / rate where that is small: the trapezoidal rule bends the highest bands down a little. */
static void make_bands(constants *c, uint32_t rate)
{
    const float pi = 3.14159265f, bend = 3, faintest = 1e-6f;
    float low = pi * 60 / (float)rate, high = pi * 16000 / (float)rate;
    float ratio = logarithm((high < bend ? high : bend) / low) / (BANDS - 1);
    for (int i = 0; i < BANDS; i++) {
        c->g[i] = logarithm(low) + ratio * (float)i;
    }
    require(linattn_exp(c->g, c->g, BANDS), "the bands");
    for (int i = 0; i < BANDS; i++) { /* neighbours meet at half of the energy */
        c->width[i] = c->g[i] + ratio;
        c->loop[i] = 1 / (1 + c->g[i] * c->width[i]);
    }
    c->gain = ratio * ratio / faintest;
}

/* State-variable filters of second order, by the trapezoidal rule: accurate in floats at low
   frequencies, too. Noise of -180 dB keeps them from denormal numbers, which are slow. */
static void filter(const constants *c, stream *s, const float *samples, size_t n,
                   float energy[BANDS])
{
    float first[BANDS], second[BANDS], sum[BANDS] = {0};
    memcpy(first, s->first, sizeof first);
    memcpy(second, s->second, sizeof second);
    for (size_t t = 0; t < n; t++) {
        s->noise = s->noise * 1664525 + 1013904223; /* Numerical Recipes' generator */
        float x = samples[t] + ((float)(s->noise >> 8) * 0x1p-23f - 1) * 1e-9f;
        for (int i = 0; i < BANDS; i++) {
            float high = (x - c->width[i] * first[i] - second[i]) * c->loop[i];
            float band = c->g[i] * high + first[i];
            float low = c->g[i] * band + second[i];
            first[i] = c->g[i] * high + band;
            second[i] = c->g[i] * band + low;
            sum[i] += band * band;
        }
    }
    memcpy(s->first, first, sizeof first);
    memcpy(s->second, second, sizeof second);
    for (int i = 0; i < BANDS; i++) {
        energy[i] = sum[i] * c->gain / (float)n;
    }
}

/* The shape of the spectrum: how far each band is above the mean of all, in logarithms, as a vector
   of length one. It fades to zero with sounds of less than -60 dB. */
static void make_feature(const float energy[BANDS], float feature[BANDS])
{
    const linattn_config unit = {.dim_key = BANDS, .map = LINATTN_MAP_UNIT};
    float mean = 0, above[BANDS];
    for (int i = 0; i < BANDS; i++) {
        above[i] = logarithm(1 + energy[i]);
        mean += above[i] / BANDS;
    }
    for (int i = 0; i < BANDS; i++) {
        above[i] = above[i] > mean ? above[i] - mean : 0;
    }
    require(linattn_map(&unit, 1, above, feature, 1), "the feature");
}

/* ---- A hop ----------------------------------------------------------------------------------- */

static constants make_constants(uint32_t rate)
{
    constants c = {.beta = 1};
    make_bands(&c, rate);
    for (int i = 0; i < MEMORIES; i++) {
        c.decay[i] = -1 / (HOPS_PER_SECOND * memory_seconds[i]);
    }
    require(linattn_exp(c.decay, c.decay, MEMORIES), "the decay");
    return c;
}

/* 1 - similarity, which is 2 a.b / (|a|^2 + |b|^2): 1 for a = b, and 0 for a memory that is empty.
   Nothing is as remembered nothing. */
static float novelty_of(const float hop[BANDS], const float remembered[BANDS])
{
    const float nothing = 0.01f;
    float product = nothing, squares = nothing;
    for (int i = 0; i < BANDS; i++) {
        product += 2 * hop[i] * remembered[i];
        squares += hop[i] * hop[i] + remembered[i] * remembered[i];
    }
    return product < 0 ? 1 : product < squares ? 1 - product / squares : 0;
}

/* Writes what has waited, asks for this hop, and lets it wait in turn. */
static float move_memories(const constants *c, stream *s, const float feature[BANDS],
                           float remembered[MEMORIES][BANDS])
{
    float *oldest = s->waiting[linattn_state_tokens(s->state) % LATE];
    float values[MEMORIES][BANDS];
    linattn_gates gates = {0};
    gates.decay = linattn_rows(c->decay);
    gates.decay_fixed = 1;
    gates.beta = linattn_rows(&c->beta);
    gates.beta_shared = 1;
    for (int i = 0; i < MEMORIES; i++) {
        memcpy(values[i], oldest, sizeof values[i]);
    }
    double begin = seconds_now();
    require(linattn_recurrent(s->state, linattn_rows(feature), linattn_rows(oldest),
                              linattn_rows(values[0]), &gates, linattn_output_rows(remembered[0]),
                              1, NULL),
            "the memories");
    float seconds = (float)(seconds_now() - begin);
    memcpy(oldest, feature, sizeof s->waiting[0]);
    return seconds;
}

/* Returns the seconds of linattn_recurrent. */
static float take_hop(const constants *c, stream *s, const float *samples, size_t n,
                      float novelty[MEMORIES])
{
    float energy[BANDS], feature[BANDS], remembered[MEMORIES][BANDS];
    filter(c, s, samples, n, energy);
    make_feature(energy, feature);
    float seconds = move_memories(c, s, feature, remembered);
    for (int i = 0; i < MEMORIES; i++) {
        novelty[i] = novelty_of(feature, remembered[i]);
    }
    return seconds;
}

/* ---- Copies while it runs -------------------------------------------------------------------- */

enum { KIND_LENGTH = 16 };
static const char saved_kind[KIND_LENGTH + 1] = "linattn stream 2"; /* with the version */

/* What a file of --save has. Version 1 was the stream and its hash alone. */
typedef struct saved {
    char kind[KIND_LENGTH];
    uint64_t samples, clip_checksum; /* what else it needs to go on with is in the clip */
    stream stream;
    uint64_t hash; /* of all before */
} saved;

/* FNV-1a: a slip of the disk does not go unnoticed. */
static uint64_t hash_of(const saved *file)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < offsetof(saved, hash); i++) {
        hash = (hash ^ ((const unsigned char *)file)[i]) * 0x100000001b3;
    }
    return hash;
}

/* A file of a stream of this clip, which is still to come. */
static void begin_saved(saved *file, const wav_clip *clip)
{
    memset(file, 0, sizeof *file);
    memcpy(file->kind, saved_kind, sizeof file->kind);
    file->samples = clip->samples;
    file->clip_checksum = crc32_of(clip->data, clip->samples * sizeof *clip->data);
}

static void write_saved(output_file *file, const void *content)
{
    write_bytes(file, content, sizeof(saved));
}

static void check_clip(const saved *file, const char *path, const wav_clip *clip)
{
    saved same;
    if (file->stream.rate != clip->rate) {
        fail("%s: of a clip of %" PRIu32 " samples per second, this one has %zu", path,
             file->stream.rate, clip->rate);
    }
    begin_saved(&same, clip);
    if (file->samples != same.samples) {
        fail("%s: of a clip of %" PRIu64 " samples, this one has %zu", path, file->samples,
             clip->samples);
    }
    if (file->clip_checksum != same.clip_checksum) {
        fail("%s: of another clip than %s, with as many samples", path, clip->path);
    }
}

static void read_saved(stream *s, const char *path, const wav_clip *clip)
{
    saved file;
    const linattn_config config = config_of_memories();
    input_file in = open_input(path);
    if (in.bytes == sizeof(stream) + sizeof file.hash) {
        fail("%s: of an earlier version of this program, which did not note the clip: begin again",
             path);
    }
    if (in.bytes != sizeof file) {
        fail("%s: %zu bytes, expected %zu, which --save writes", path, in.bytes, sizeof file);
    }
    read_bytes(&in, &file, sizeof file, "state");
    fclose(in.stream);
    *s = file.stream;
    if (memcmp(file.kind, saved_kind, sizeof file.kind) != 0 || file.hash != hash_of(&file) ||
        linattn_state_check(&config, s->state, sizeof s->state) != LINATTN_OK) {
        fail("%s: damaged, or not a file of this version's --save", path);
    }
    check_clip(&file, path, clip);
}

/* The stream looks at one number between two hops, and copies itself where that asks for it. It
   never waits; the thread that asks does. */
typedef struct keeper {
    pthread_t thread;
    atomic_int is_asked, is_closed;
    stream copy; /* the stream's to write while it is asked, the keeper's to read otherwise */
    saved last;
    size_t copies;
} keeper;

static void copy_if_asked(keeper *k, const stream *s)
{
    if (atomic_load_explicit(&k->is_asked, memory_order_acquire)) {
        memcpy(&k->copy, s, sizeof k->copy);
        atomic_store_explicit(&k->is_asked, 0, memory_order_release);
    }
}

/* A program might write each copy to the disk. This one keeps the last. */
static void *keep_copies(void *user)
{
    const struct timespec millisecond = {0, 1000000};
    keeper *k = user;
    for (int closed = 0; !closed;) {
        nanosleep(&millisecond, NULL);
        closed = atomic_load(&k->is_closed);
        if (!atomic_load_explicit(&k->is_asked, memory_order_acquire)) {
            memcpy(&k->last.stream, &k->copy, sizeof k->copy);
            k->copies++;
            atomic_store_explicit(&k->is_asked, !closed, memory_order_release);
        }
    }
    k->last.hash = hash_of(&k->last);
    return NULL;
}

/* ---- A run ----------------------------------------------------------------------------------- */

typedef struct hop_seconds {
    float whole, recurrent;
} hop_seconds;

typedef struct run {
    const wav_clip *clip;
    constants constants;
    stream beginning, *stream;
    size_t clip_hops, hops;
    float (*novelty)[MEMORIES]; /* of each hop */
    hop_seconds *times;
    uint64_t earlier; /* hops before the beginning */
    int has_meter, is_paced;
    double begin;
    long preempted;
    keeper *keeper;       /* NULL: none */
    pthread_mutex_t lock; /* of --handoff, over: */
    pthread_cond_t moved;
    size_t next;
} run;

static float best_of(const float novelty[MEMORIES])
{
    float best = novelty[0];
    for (int i = 1; i < MEMORIES; i++) {
        best = novelty[i] < best ? novelty[i] : best;
    }
    return best;
}

static void show_meter(const run *u, size_t hop)
{
    enum { WIDTH = 16 };
    static const char bar[] = "################";
    const float *novelty = u->novelty[hop];
    float best = best_of(novelty);
    printf("\r%7.2f s  %4.2f |%-*.*s|", (double)(u->earlier + hop + 1) / HOPS_PER_SECOND,
           (double)best, WIDTH, (int)(best * WIDTH + 0.5f), bar);
    for (int i = 0; i < MEMORIES; i++) {
        printf("  %g s %4.2f", (double)memory_seconds[i], (double)novelty[i]);
    }
    fflush(stdout);
}

/* Until a hop has been recorded. */
static void wait_for_hop(const run *u, size_t hop)
{
    double left = u->begin + (double)(hop + 1) / HOPS_PER_SECOND - seconds_now();
    if (left > 0) {
        const struct timespec rest = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
        nanosleep(&rest, NULL);
    }
}

static void run_hop(run *u, size_t hop)
{
    enum { SHOWN = 5 }; /* 20 times a second */
    uint64_t rate = u->clip->rate, at = (u->earlier + hop) % u->clip_hops;
    size_t from = (size_t)(at * rate / HOPS_PER_SECOND);
    size_t to = (size_t)((at + 1) * rate / HOPS_PER_SECOND);
    if (u->is_paced) {
        wait_for_hop(u, hop);
    }
    double begin = seconds_now();
    u->times[hop].recurrent =
        take_hop(&u->constants, u->stream, u->clip->data + from, to - from, u->novelty[hop]);
    if (u->keeper) {
        copy_if_asked(u->keeper, u->stream);
    }
    u->times[hop].whole = (float)(seconds_now() - begin);
    if (u->has_meter && hop % SHOWN == 0) {
        show_meter(u, hop);
    }
}

/* A turn waits for the hop before. Sound cards' threads are woken by the system; these wake one
   another, by a lock that is no part of the hop. */
static void take_turns(run *u, size_t first)
{
    for (size_t hop = first; hop < u->hops; hop += 2) {
        pthread_mutex_lock(&u->lock);
        while (u->next != hop) {
            pthread_cond_wait(&u->moved, &u->lock);
        }
        pthread_mutex_unlock(&u->lock);
        run_hop(u, hop);
        pthread_mutex_lock(&u->lock);
        u->next = hop + 1;
        pthread_cond_signal(&u->moved);
        pthread_mutex_unlock(&u->lock);
    }
}

static void *take_odd_hops(void *user)
{
    take_turns(user, 1);
    return NULL;
}

static void start_thread(pthread_t *thread, void *(*work)(void *), void *user)
{
    int reason = pthread_create(thread, NULL, work, user);
    if (reason != 0) {
        fail("a thread cannot be started: %s", strerror(reason));
    }
}

static void run_on_two_threads(run *u)
{
    pthread_t other;
    u->next = 0;
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->moved, NULL);
    start_thread(&other, take_odd_hops, u);
    take_turns(u, 0);
    pthread_join(other, NULL);
    pthread_cond_destroy(&u->moved);
    pthread_mutex_destroy(&u->lock);
}

/* Of all threads, so far. */
static long count_preemptions(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
}

static void run_hops(run *u, int on_two_threads)
{
    u->preempted = -count_preemptions();
    u->begin = seconds_now();
    if (on_two_threads) {
        run_on_two_threads(u);
    } else {
        for (size_t hop = 0; hop < u->hops; hop++) {
            run_hop(u, hop);
        }
    }
    u->preempted += count_preemptions();
}

static void run_stream(run *u, const options *given)
{
    memcpy(u->stream, &u->beginning, sizeof u->beginning);
    if (u->keeper) {
        atomic_init(&u->keeper->is_asked, 1);
        start_thread(&u->keeper->thread, keep_copies, u->keeper);
    }
    run_hops(u, given->text[OPTION_HANDOFF] != NULL);
    if (u->keeper) {
        atomic_store(&u->keeper->is_closed, 1);
        pthread_join(u->keeper->thread, NULL);
    }
    if (u->has_meter) {
        printf("\n");
    }
}

/* ---- Times ----------------------------------------------------------------------------------- */

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median, 99.99th percentile (by nearest rank) and the worst. Sorts. */
static void print_times(float *seconds, size_t n)
{
    size_t rank = n - n / 10000;
    qsort(seconds, n, sizeof *seconds, compare_floats);
    printf(" %8.2f %7.2f %8.2f", 1e6 * (double)seconds[(n - 1) / 2],
           1e6 * (double)seconds[rank - 1], 1e6 * (double)seconds[n - 1]);
}

static void print_title(const run *u)
{
    printf("\n%zu hops, microseconds with the readings of the clock; preempted: how often the\n"
           "system took the processor away\n\n"
           "                   whole hop                linattn_recurrent\n"
           "           median 99.99 %%    worst   median 99.99 %%    worst  preempted\n",
           u->hops);
}

static void print_row(const run *u, const char *differs)
{
    float *sorted = allocate(u->hops * sizeof *sorted);
    printf("%-8s", linattn_isa_name(linattn_isa_active()));
    for (size_t hop = 0; hop < u->hops; hop++) {
        sorted[hop] = u->times[hop].whole;
    }
    print_times(sorted, u->hops);
    for (size_t hop = 0; hop < u->hops; hop++) {
        sorted[hop] = u->times[hop].recurrent;
    }
    print_times(sorted, u->hops);
    printf("  %9ld%s\n", u->preempted, differs);
    free(sorted);
}

/* Every instruction set in turn, or the one that is selected. Returns 1 if the bits differ. */
static int run_all(run *u, const options *given, int all)
{
    size_t bytes = u->hops * sizeof *u->novelty;
    float(*expected)[MEMORIES] = all ? allocate(bytes) : NULL;
    int differ = 0, runs = 0, quiet = given->text[OPTION_QUIET] != NULL;
    for (int isa = LINATTN_ISA_SCALAR; isa < LINATTN_ISA_COUNT; isa++) {
        if (all ? linattn_isa_select((linattn_isa)isa) != LINATTN_OK
                : isa != (int)linattn_isa_active()) {
            continue;
        }
        run_stream(u, given);
        int differs = runs > 0 && memcmp(expected, u->novelty, bytes) != 0;
        if (all && runs == 0) {
            memcpy(expected, u->novelty, bytes);
        }
        if (!quiet) {
            if (runs == 0) {
                print_title(u);
            }
            print_row(u, !all ? "" : differs ? "  THE BITS DIFFER" : "  the same bits");
        }
        differ |= differs;
        runs++;
    }
    free(expected);
    return differ;
}

/* ---- Main ------------------------------------------------------------------------------------ */

/* The outputs that are asked for; `best` is of the four memories. */
typedef struct results {
    npy_array best, memories, times;
} results;

static void check_conflicts(const options *given)
{
    static const int single[] = {OPTION_TIMES, OPTION_SAVE, OPTION_REALTIME};
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++) {
        if (given->text[single[i]]) {
            fail("--isa all and %s exclude each other", option_names[single[i]]);
        }
    }
}

/* All memory is written to once: the first time costs more. */
static void *allocate_touched(size_t count, size_t size)
{
    if (count > SIZE_MAX / size) {
        fail("out of memory: --hops is too large");
    }
    void *memory = allocate(count * size);
    memset(memory, 0, count * size);
    return memory;
}

static void make_run(run *u, const wav_clip *clip, const options *given)
{
    u->clip = clip;
    u->clip_hops = (size_t)((uint64_t)clip->samples * HOPS_PER_SECOND / clip->rate);
    if (u->clip_hops == 0) {
        fail("%s: %zu samples, expected at least a hop of 10 ms", clip->path, clip->samples);
    }
    u->hops = (size_t)whole_option(given, OPTION_HOPS, 1, SIZE_MAX, u->clip_hops);
    u->constants = make_constants((uint32_t)clip->rate);
    if (given->text[OPTION_RESUME]) {
        read_saved(&u->beginning, given->text[OPTION_RESUME], clip);
    } else {
        begin_stream(&u->beginning, (uint32_t)clip->rate);
    }
    u->earlier = linattn_state_tokens(u->beginning.state);
    u->stream = allocate_touched(1, sizeof *u->stream);
    u->novelty = allocate_touched(u->hops, sizeof *u->novelty);
    u->times = allocate_touched(u->hops, sizeof *u->times);
    u->keeper = given->text[OPTION_SAVE] ? allocate_touched(1, sizeof *u->keeper) : NULL;
    if (u->keeper) {
        begin_saved(&u->keeper->last, clip);
    }
    u->has_meter = !given->text[OPTION_QUIET] && isatty(STDOUT_FILENO);
    u->is_paced = given->text[OPTION_REALTIME] != NULL;
}

static void add_outputs(run *u, const options *given, results *r)
{
    r->best = (npy_array){.rank = 1, .shape = {u->hops}};
    r->memories = (npy_array){.data = u->novelty[0], .rank = 2, .shape = {u->hops, MEMORIES}};
    r->times = (npy_array){.data = &u->times[0].whole, .rank = 2, .shape = {u->hops, 2}};
    if (given->text[OPTION_OUT]) {
        r->best.data = allocate_touched(u->hops, sizeof(float));
        add_output(given->text[OPTION_OUT], npy_write, &r->best);
    }
    if (given->text[OPTION_MEMORIES]) {
        add_output(given->text[OPTION_MEMORIES], npy_write, &r->memories);
    }
    if (given->text[OPTION_TIMES]) {
        add_output(given->text[OPTION_TIMES], npy_write, &r->times);
    }
    if (u->keeper) {
        add_output(given->text[OPTION_SAVE], write_saved, &u->keeper->last);
    }
}

static void print_end(const run *u)
{
    if (u->keeper) {
        const stream *last = &u->keeper->last.stream;
        printf("\n%zu copies were taken, the last after hop %" PRIu64 "\n", u->keeper->copies,
               linattn_state_tokens(last->state));
    }
    finish_printing();
}

int main(int argc, char **argv)
{
    options given = {option_names, OPTION_COUNT, OPTION_REALTIME, help, {NULL}};
    int has_clip = begins_with_file(argc, argv);
    read_options(&given, argc - has_clip, argv + has_clip);
    if (!has_clip) {
        fail("the clip is missing: give its file first, stream CLIP.wav (see --help)");
    }
    const char *names[LINATTN_ISA_COUNT + 1];
    int all = isa_option(&given, OPTION_ISA, "all", names) == LINATTN_ISA_COUNT;
    if (all) {
        check_conflicts(&given);
    } else {
        select_isa(&given, OPTION_ISA);
    }
    wav_clip clip = wav_read(argv[1]);
    static run u;
    results r;
    make_run(&u, &clip, &given);
    add_outputs(&u, &given, &r);
    if (!given.text[OPTION_QUIET]) {
        printf("%s: %zu Hz, hops of 10 ms, %d bands, %d memories\n", clip.path, clip.rate, BANDS,
               MEMORIES);
    }
    int differ = run_all(&u, &given, all);
    for (size_t hop = 0; r.best.data && hop < u.hops; hop++) {
        r.best.data[hop] = best_of(u.novelty[hop]);
    }
    if (!given.text[OPTION_QUIET]) {
        print_end(&u);
    }
    publish_outputs();
    free(r.best.data);
    free(u.keeper);
    free(u.times);
    free(u.novelty);
    free(u.stream);
    free(clip.data);
    return differ;
}
