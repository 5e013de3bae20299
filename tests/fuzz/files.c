/* libFuzzer target: files with any bytes, as arrays of NumPy, as models and vocabularies of RWKV
   and as sounds. They are read, or refused in one line. */
#include "program.h"

#define PROGRAM "files"
#include "../../examples/rwkv_model.h"
#include "../../examples/rwkv_vocabulary.h"
#include "../../examples/wav.h"

static struct {
    const char *path;
    npy_layout layout;
} given;

static void read_model(void)
{
    rwkv_model model = rwkv_read(given.path);
    rwkv_free(&model);
}

/* An array that is taken has the bytes that its shape says, and comes back from what is written. */
static void read_array(void)
{
    enum { LONGEST_HEADER = 256 };
    npy_array array = npy_read(given.path, &given.layout);
    char header[LONGEST_HEADER];
    size_t bytes, sum = 0;
    if (array.rank < given.layout.fewest_axes || array.rank > given.layout.most_axes) abort();
    if (!npy_bytes(array.shape, array.rank, &bytes)) abort();
    if (array.half) bytes /= 2;
    for (size_t i = 0; i < bytes; i++) sum += ((const unsigned char *)array.data)[i];
    if (sum > 255 * bytes) abort();
    if (npy_print_header(&array, header) % 64 != 0) abort();
    free(array.data);
}

/* Each word is found again. */
static void read_vocabulary(void)
{
    enum { TOKENS = 300, LONGEST = 60 };
    rwkv_vocabulary v = rwkv_read_vocabulary(given.path, TOKENS);
    for (const rwkv_word *word = v.sorted; word < v.sorted + v.count; word++) {
        char text[LONGEST + 1] = "";
        size_t tokens[LONGEST];
        if (word->length <= LONGEST) memcpy(text, word->bytes, word->length);
        if (strlen(text) != word->length) continue; /* a prompt ends at a zero byte */
        if (rwkv_tokens_of(&v, text, tokens) != 1 || tokens[0] != word->token) abort();
    }
    rwkv_free_vocabulary(&v);
}

static void read_sound(void)
{
    wav_clip clip = wav_read(given.path);
    if (clip.rate < WAV_LEAST_RATE || clip.rate > WAV_MOST_RATE) abort();
    for (size_t i = 0; i < clip.samples; i++)
        if (!(clip.data[i] >= -1e6f && clip.data[i] <= 1e6f)) abort();
    free(clip.data);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    static const npy_layout layouts[] = {{1, 4, "up to four axes", NULL, 0},
                                         {2, 3, "two or three axes", NULL, 1}};
    static void (*const readers[])(void) = {read_array, read_model, read_sound, read_vocabulary};
    if (size == 0) return 0;
    given.path = "file";
    given.layout = layouts[bytes[0] % 2];
    write_file(given.path, bytes + 1, size - 1);
    run_program(readers[bytes[0] / 2 % 4]);
    return 0;
}
