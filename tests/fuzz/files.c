/* libFuzzer target: files with any bytes, as arrays of NumPy and as models of RWKV. They are read,
   or refused in one line. */
#include "program.h"

#define PROGRAM "files"
#include "../../examples/rwkv_model.h"

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
    for (size_t i = 0; i < bytes; i++) sum += ((const unsigned char *)array.data)[i];
    if (sum > 255 * bytes) abort();
    if (npy_print_header(&array, header) % 64 != 0) abort();
    free(array.data);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    static const npy_layout layouts[] = {{1, 4, "up to four axes", NULL},
                                         {2, 3, "two or three axes", NULL}};
    if (size == 0) return 0;
    given.path = "file";
    given.layout = layouts[bytes[0] % 2];
    write_file(given.path, bytes + 1, size - 1);
    run_program(bytes[0] % 4 < 2 ? read_array : read_model);
    return 0;
}
