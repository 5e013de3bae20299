/* libFuzzer target: any command line of attend, over small files, one of which the bytes may
   damage. Whatever happens, the old outputs or the new ones are there, and nothing beside them. */
#include "program.h"

#define main attend_main
#include "../../examples/attend.c"
#undef main

#include <dirent.h>

enum { MOST_ARGUMENTS = 24, TOKENS = 5 };

static struct {
    int count;
    char *arguments[MOST_ARGUMENTS + 1];
    char text[MOST_ARGUMENTS][80];
} line;

/* ---- Files ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t rank, shape[3];
} arrays[] = {
    {"q.npy", 3, {TOKENS, 4, 3}},     {"k.npy", 3, {TOKENS, 2, 3}},
    {"v.npy", 3, {TOKENS, 2, 2}},     {"q2.npy", 3, {TOKENS, 2, 3}},
    {"x.npy", 2, {TOKENS, 3, 0}},     {"many.npy", 3, {2 * TOKENS, 4, 3}},
    {"wide.npy", 3, {TOKENS, 2, 20}}, {"none.npy", 3, {0, 2, 3}},
    {"heads.npy", 2, {TOKENS, 2, 0}}, {"row.npy", 2, {1, 2, 0}},
    {"rows.npy", 2, {7, 3, 0}},       {"bonus.npy", 2, {2, 3, 0}},
    {"sums.npy", 3, {2, 3, 2}},       {"one.npy", 2, {TOKENS, 1, 0}},
};

static void make_array(size_t i)
{
    float data[1024];
    uint64_t state = i;
    npy_array a = {.data = data, .rank = arrays[i].rank};
    output_file file = {.path = arrays[i].name};
    memcpy(a.shape, arrays[i].shape, sizeof arrays[i].shape);
    for (size_t j = 0; j < sizeof data / sizeof *data; j++) data[j] = -random_float(&state);
    file.stream = fopen(arrays[i].name, "wb");
    npy_write(&file, &a);
    fclose(file.stream);
}

static void make_arrays(void)
{
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) make_array(i);
}

/* ---- Command lines -------------------------------------------------------------------------- */

static const char *const words[] = {
    "q.npy",
    "k.npy",
    "v.npy",
    "q2.npy",
    "x.npy",
    "many.npy",
    "wide.npy",
    "none.npy",
    "heads.npy",
    "row.npy",
    "rows.npy",
    "bonus.npy",
    "sums.npy",
    "one.npy",
    "damaged",
    "out",
    "state",
    "sums",
    ".",
    "nowhere/x",
    "/dev/null",
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "9",
    "64",
    "256",
    "65536",
    "1000000",
    "1,2,3",
    "0.5",
    "1e-30",
    "3e38",
    "1e39",
    "-1",
    "nan",
    "18446744073709551615",
    "18446744073709551616",
    "linear",
    "softmax",
    "nystrom",
    "elu1",
    "identity",
    "relu",
    "exp",
    "favor",
    "favor-simple",
    "favor-hyperbolic",
    "taylor",
    "expdef",
    "unit",
    "sum",
    "feature",
    "length",
    "none",
    "gated",
    "delta",
    "gated-delta",
    "general",
    "mlstm",
    "log",
    "factor",
    "auto",
    "scalar",
    "avx2",
    "avx512",
    "neon",
    "--",
    "",
    "compensated",
    "f16",
    "bf16",
};

/* In the order that the seeds were made for: new ones go to the end. */
static const unsigned char numbered[] = {
    OPTION_DIR,
    OPTION_Q,
    OPTION_K,
    OPTION_V,
    OPTION_OUT,
    OPTION_ATTENTION,
    OPTION_MAP,
    OPTION_NORM,
    OPTION_SCALE,
    OPTION_EPS,
    OPTION_ISA,
    OPTION_SPLIT,
    OPTION_THREADS,
    OPTION_STATE_IN,
    OPTION_STATE_OUT,
    OPTION_WINDOW,
    OPTION_IMPORT_STATE,
    OPTION_EXPORT_STATE,
    OPTION_RULE,
    OPTION_DECAY_IS,
    OPTION_GATES + GATE_DECAY,
    OPTION_GATES + GATE_BETA,
    OPTION_GATES + GATE_READ,
    OPTION_GATES + GATE_WRITE,
    OPTION_GATES + GATE_BONUS,
    OPTION_GATES + GATE_INPUT,
    OPTION_FEATURES,
    OPTION_SEED,
    OPTION_ORTHOGONAL,
    OPTION_PROJECTION,
    OPTION_DEGREE,
    OPTION_LANDMARKS,
    OPTION_ITERATIONS,
    OPTION_CAUSAL,
    OPTION_COMPARE,
    OPTION_HELP,
    OPTION_PRECISION,
    OPTION_SINKS,
    OPTION_SOFT_CAP,
    OPTION_ALIBI,
    OPTION_STATE_TYPE,
};
_Static_assert(sizeof numbered == OPTION_COUNT, "number every option");

typedef struct reader {
    const unsigned char *at;
    size_t left;
} reader;

static unsigned next_byte(reader *r)
{
    if (!r->left) return 0;
    r->left--;
    return *r->at++;
}

static void add_argument(const char *text)
{
    if (line.count == MOST_ARGUMENTS) return;
    snprintf(line.text[line.count], sizeof line.text[0], "%s", text);
    line.arguments[line.count] = line.text[line.count];
    line.arguments[++line.count] = NULL;
}

/* A word, or bytes as they come; no path that leads out of the folder, and no name of the kind that
   attend gives its temporaries. */
static void add_value(reader *r)
{
    enum { ANY = 250 };
    unsigned which = next_byte(r);
    char text[40];
    size_t length = 0;
    if (which < ANY) {
        add_argument(words[which % (sizeof words / sizeof *words)]);
        return;
    }
    for (unsigned left = next_byte(r) % sizeof text; left && r->left; left--) {
        unsigned c = next_byte(r);
        text[length++] = (char)(c == '/' ? '_' : c);
    }
    text[length] = '\0';
    if (strncmp(text, ".attend", 7) == 0) text[0] = '_';
    add_argument(text);
}

/* Mostly what a complete command line needs, then options. */
static void make_line(reader *r)
{
    unsigned first = next_byte(r);
    line.count = 0;
    add_argument("attend");
    if (first & 1) {
        add_argument("--dir");
        add_argument(".");
    } else if (first & 2) {
        static const char *const same[] = {"--q", "q2.npy", "--k", "k.npy", "--v", "v.npy"};
        for (size_t i = 0; i < sizeof same / sizeof *same; i++) add_argument(same[i]);
    }
    if (first & 4) {
        add_argument("--out");
        add_argument("out");
    }
    while (r->left && line.count < MOST_ARGUMENTS) {
        unsigned which = next_byte(r), given = numbered[which % OPTION_COUNT];
        if (which < 240) add_argument(option_names[given]);
        if (given < OPTION_CAUSAL || which >= 240) add_value(r);
    }
}

static void attend_program(void) { attend_main(line.count, line.arguments); }

/* ---- States --------------------------------------------------------------------------------- */

static struct {
    unsigned char bytes[1 << 15];
    size_t size;
} saved[4];

static const char *const state_options[][4] = {
    {"--map", "exp", "--causal", NULL},
    {"--map", "favor", "--window", "3"},
    {"--rule", "gated", "--decay", "heads.npy"},
    {"--map", "relu", "--state-type", "f16"},
};

/* What attend itself saves. */
static void make_states(void)
{
    static const char *const usual[] = {"attend", "--dir",       ".",     "--out",
                                        "out",    "--state-out", "state", "--causal"};
    for (size_t i = 0; i < sizeof saved / sizeof *saved; i++) {
        line.count = 0;
        for (size_t j = 0; j < sizeof usual / sizeof *usual - (i != 1); j++) add_argument(usual[j]);
        for (size_t j = 0; j < 4 && state_options[i][j]; j++) add_argument(state_options[i][j]);
        run_program(attend_program);
        program_output_count = 0;
        FILE *file = fopen("state", "rb");
        saved[i].size = file ? fread(saved[i].bytes, 1, sizeof saved[i].bytes, file) : 0;
        if (saved[i].size == 0) abort();
        fclose(file);
    }
}

/* One of them, some bytes of which are others, or that ends early; with the checksum that it had,
   or that it would have. */
static void make_damaged(reader *r)
{
    static unsigned char bytes[sizeof saved[0].bytes];
    unsigned which = next_byte(r) % (sizeof saved / sizeof *saved), changes = next_byte(r) % 8;
    size_t size = saved[which].size;
    memcpy(bytes, saved[which].bytes, size);
    for (unsigned left = changes % 4; left; left--) {
        size_t at = next_byte(r);
        at = (at << 8 | next_byte(r)) % saved[which].size;
        bytes[at] = (unsigned char)next_byte(r);
        if (bytes[at] == 1 && at < size) size = at;
    }
    if (changes > 3 && size > STATE_HEADER)
        put_number(bytes + 12, 4, crc32_of(bytes + STATE_HEADER, size - STATE_HEADER));
    write_file("damaged", bytes, size);
}

/* ---- What is left behind -------------------------------------------------------------------- */

static const char old_content[] = "what was there before";

static int is_old(const char *name)
{
    char content[sizeof old_content] = "";
    FILE *file = fopen(name, "rb");
    size_t length = file ? fread(content, 1, sizeof content, file) : 0;
    if (file) fclose(file);
    return length == sizeof content && memcmp(content, old_content, length) == 0;
}

/* An output starts as .npy files do, a state as states. */
static int is_new(const char *name)
{
    char start[8] = "";
    FILE *file = fopen(name, "rb");
    if (!file) return 0;
    size_t length = fread(start, 1, sizeof start, file);
    fclose(file);
    return length == sizeof start &&
           (memcmp(start, "\x93NUMPY", 6) == 0 || memcmp(start, "LINATTN", 7) == 0);
}

static void check_folder(void)
{
    DIR *folder = opendir(".");
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (strncmp(entry->d_name, ".attend", 7) == 0) abort(); /* a temporary */
    closedir(folder);
    if (!is_old("out") && !is_new("out")) abort();
    if (!is_old("state") && !is_new("state")) abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    static int begun;
    reader r = {bytes, size};
    if (!begun++) {
        make_arrays();
        make_states();
    }
    make_arrays();
    write_file("out", old_content, sizeof old_content);
    write_file("state", old_content, sizeof old_content);
    make_damaged(&r);
    make_line(&r);
    run_program(attend_program);
    program_output_count = 0;
    check_folder();
    return 0;
}
