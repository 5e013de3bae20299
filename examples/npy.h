/* npy.h: NumPy's .npy files of little-endian float32, or float16, in C order.  SPDX: MIT */
#ifndef NPY_H
#define NPY_H

#include "files.h"

#include <sys/mman.h>

enum { NPY_MOST_AXES = 4 };

/* Dense: the last axis is contiguous. */
typedef struct npy_array {
    const char *path;
    float *data; /* to be freed, by npy_free where it may be mapped */
    size_t rank, shape[NPY_MOST_AXES];
    int half;      /* data points to numbers of float16 */
    void *mapping; /* NULL: allocated */
    size_t mapped_bytes;
} npy_array;

/* A part of the first axis. */
typedef struct npy_part {
    size_t of, first, count;
} npy_part;

/* How many axes a file may have, what they are, and whether float16 is taken beside float32. With a
   part, a file of float32 whose first axis has just `of` elements is not read: those of the part
   are mapped, and `data` begins with them. */
typedef struct npy_layout {
    size_t fewest_axes, most_axes;
    const char *axes;
    const npy_part *part;
    int takes_half;
} npy_layout;

/* The bytes of a dense array of floats; 0 where that overflows. */
static inline int npy_bytes(const size_t *shape, size_t rank, size_t *bytes)
{
    size_t most = SIZE_MAX / sizeof(float), product = 1;
    int empty = 0;
    for (size_t i = 0; i < rank; i++) {
        empty |= shape[i] == 0;
        if (shape[i] > most / product) {
            return 0;
        }
        product *= shape[i] ? shape[i] : 1;
    }
    *bytes = empty ? 0 : product * sizeof(float);
    return 1;
}

typedef struct npy_sizes {
    char text[24 * NPY_MOST_AXES];
} npy_sizes;

/* Like "64, 256"; with letters, one of them for each size of 0, which may be any. */
static inline npy_sizes npy_print_sizes(const size_t *sizes, size_t rank, const char *letters)
{
    npy_sizes s = {""};
    for (size_t i = 0, used = 0; i < rank; i++) {
        char *at = s.text + used;
        size_t room = sizeof s.text - used;
        const char *before = i ? ", " : "";
        used += (size_t)(letters && !sizes[i] ? snprintf(at, room, "%s%c", before, letters[i])
                                              : snprintf(at, room, "%s%zu", before, sizes[i]));
    }
    return s;
}

/* ---- The header ----------------------------------------------------------------------------- */

/* What it says: a Python dictionary like
   {'descr': '<f4', 'fortran_order': False, 'shape': (512, 4, 64), } and padding. */
typedef struct npy_header {
    const char *path, *begin, *at;
    const npy_layout *layout;
    int has_descr, has_order, has_shape, half;
    size_t rank, shape[NPY_MOST_AXES];
} npy_header;

static inline void npy_skip_blanks(npy_header *h) { h->at += strspn(h->at, " \t\r\n"); }

static inline int npy_accept(npy_header *h, char c)
{
    npy_skip_blanks(h);
    int accepted = *h->at == c;
    h->at += accepted;
    return accepted;
}

static inline void npy_fail(const npy_header *h, const char *expected)
{
    fail("%s: malformed .npy header at its character %td, expected %s", h->path,
         h->at - h->begin + 1, expected);
}

static inline void npy_expect(npy_header *h, char c, const char *name)
{
    if (!npy_accept(h, c)) {
        npy_fail(h, name);
    }
}

static inline void npy_parse_string(npy_header *h, char text[32])
{
    npy_skip_blanks(h);
    char quote = *h->at;
    size_t length = quote == '\'' || quote == '"' ? strcspn(h->at + 1, "'\"\\") : 32;
    if (length >= 32 || h->at[1 + length] != quote) {
        npy_fail(h, "a short quoted string");
    }
    memcpy(text, h->at + 1, length);
    text[length] = '\0';
    h->at += length + 2;
}

static inline const char *npy_dtypes(const npy_layout *layout)
{
    return layout->takes_half ? "'<f4' (little-endian float32) or '<f2' (float16)"
                              : "'<f4' (little-endian float32)";
}

static inline void npy_parse_descr(npy_header *h)
{
    char descr[32];
    if (h->has_descr++) {
        npy_fail(h, "'descr' only once");
    }
    if (npy_accept(h, '[')) { /* a list of fields */
        fail("%s: a structured dtype is not supported, expected %s", h->path,
             npy_dtypes(h->layout));
    }
    npy_parse_string(h, descr);
    h->half = strcmp(descr, "<f2") == 0;
    if (strcmp(descr, "<f4") != 0 && !(h->half && h->layout->takes_half)) {
        fail("%s: dtype '%s', expected %s", h->path, descr, npy_dtypes(h->layout));
    }
}

static inline void npy_parse_order(npy_header *h)
{
    if (h->has_order++) {
        npy_fail(h, "'fortran_order' only once");
    }
    npy_skip_blanks(h);
    if (strncmp(h->at, "True", 4) == 0) {
        fail("%s: Fortran order, expected C order", h->path);
    }
    if (strncmp(h->at, "False", 5) != 0) {
        npy_fail(h, "True or False");
    }
    h->at += 5;
}

static inline void npy_parse_shape(npy_header *h)
{
    int comma = 1;
    if (h->has_shape++) {
        npy_fail(h, "'shape' only once");
    }
    npy_expect(h, '(', "'('");
    while (!npy_accept(h, ')')) {
        size_t size;
        npy_skip_blanks(h);
        int leading_zero = h->at[0] == '0' && h->at[1] >= '0' && h->at[1] <= '9';
        if (!comma || leading_zero || !read_size(&h->at, &size)) {
            npy_fail(h, "a tuple of sizes");
        }
        if (h->rank < NPY_MOST_AXES) {
            h->shape[h->rank] = size;
        }
        h->rank++;
        comma = npy_accept(h, ',');
    }
    if (h->rank < h->layout->fewest_axes || h->rank > h->layout->most_axes) {
        fail("%s: shape of %zu dimensions, expected %s", h->path, h->rank, h->layout->axes);
    }
}

static inline void npy_parse_entry(npy_header *h)
{
    char key[32];
    npy_parse_string(h, key);
    npy_expect(h, ':', "':'");
    if (strcmp(key, "descr") == 0) {
        npy_parse_descr(h);
    } else if (strcmp(key, "fortran_order") == 0) {
        npy_parse_order(h);
    } else if (strcmp(key, "shape") == 0) {
        npy_parse_shape(h);
    } else {
        fail("%s: unknown key '%s' in the .npy header", h->path, key);
    }
}

static inline void npy_parse(npy_header *h, size_t length)
{
    h->at = h->begin;
    npy_expect(h, '{', "'{'");
    int comma = 1;
    while (!npy_accept(h, '}')) {
        if (!comma) {
            npy_fail(h, "',' or '}'");
        }
        npy_parse_entry(h);
        comma = npy_accept(h, ',');
    }
    npy_skip_blanks(h);
    if (h->at != h->begin + length) {
        npy_fail(h, "blanks to its end");
    }
    if (!h->has_descr || !h->has_order || !h->has_shape) {
        fail("%s: malformed .npy header, expected descr, fortran_order and shape", h->path);
    }
}

/* Leaves the stream at the data and returns its offset. */
static inline size_t npy_read_header(const input_file *in, const npy_layout *layout, npy_header *h)
{
    enum { LONGEST = 10000 }; /* NumPy's own limit */
    char text[LONGEST + 1];
    unsigned char start[12];
    if (in->bytes < 8 || fread(start, 1, 8, in->stream) != 8 || memcmp(start, "\x93NUMPY", 6)) {
        fail("%s: not a .npy file, its first bytes are not \\x93NUMPY", in->path);
    }
    if (start[6] < 1 || start[6] > 3 || start[7] != 0) {
        fail("%s: .npy version %d.%d, expected 1.0, 2.0 or 3.0", in->path, start[6], start[7]);
    }
    size_t length = 0, offset = start[6] == 1 ? 10 : 12;
    read_bytes(in, start + 8, offset - 8, "header");
    for (size_t i = offset; i-- > 8;) {
        length = length << 8 | start[i];
    }
    if (length > LONGEST) {
        fail("%s: .npy header of %zu bytes, expected at most %d", in->path, length, LONGEST);
    }
    read_bytes(in, text, length, "header");
    text[length] = '\0';
    *h = (npy_header){.path = in->path, .begin = text, .layout = layout};
    npy_parse(h, length);
    h->begin = h->at = NULL;
    return offset + length;
}

/* ---- Reading and writing -------------------------------------------------------------------- */

/* From the byte order of the file to that of the machine, or back. */
static inline void npy_swap_if_big_endian(void *data, size_t count, size_t size)
{
    const uint16_t one = 1;
    unsigned char low, *at = data;
    memcpy(&low, &one, 1);
    for (size_t i = 0; i < count && !low; i++, at += size) {
        for (size_t b = 0; b < size / 2; b++) {
            unsigned char byte = at[b];
            at[b] = at[size - 1 - b];
            at[size - 1 - b] = byte;
        }
    }
}

/* An array without data, which the stream is left at; and how many bytes of it there are. */
static inline npy_array npy_open(const input_file *in, const npy_layout *layout, size_t *offset,
                                 size_t *bytes)
{
    npy_header h;
    const char *path = in->path;
    *offset = npy_read_header(in, layout, &h);
    npy_array a = {.path = path, .rank = h.rank, .half = h.half};
    memcpy(a.shape, h.shape, sizeof a.shape);
    if (!npy_bytes(a.shape, a.rank, bytes)) {
        fail("%s: its shape is too large", path);
    }
    *bytes = a.half ? *bytes / 2 : *bytes;
    if (in->bytes < *offset || in->bytes - *offset != *bytes) {
        fail("%s: %s, %zu bytes of data where its shape needs %zu", path,
             in->bytes - *offset < *bytes ? "truncated" : "bytes behind its end",
             in->bytes - *offset, *bytes);
    }
    return a;
}

/* Maps so many bytes of the file as the data; to write to them does not change it. */
static inline void npy_map(npy_array *a, const input_file *in, size_t offset, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = offset % page;
    if (offset % sizeof(float) != 0) {
        fail("%s: its data begin at byte %zu, expected a multiple of %zu", a->path, offset,
             sizeof(float));
    }
    a->mapped_bytes = before + bytes;
    a->mapping = mmap(NULL, a->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE,
                      fileno(in->stream), (off_t)(offset - before));
    if (a->mapping == MAP_FAILED) {
        fail("%s: cannot be mapped: %s", a->path, strerror(errno));
    }
    a->data = (float *)(void *)((char *)a->mapping + before);
}

/* Rank and shape alone. */
static inline npy_array npy_look(const char *path, const npy_layout *layout)
{
    input_file in = open_input(path);
    size_t offset, bytes;
    npy_array a = npy_open(&in, layout, &offset, &bytes);
    fclose(in.stream);
    return a;
}

static inline npy_array npy_read(const char *path, const npy_layout *layout)
{
    const npy_part *part = layout->part;
    input_file in = open_input(path);
    size_t offset, bytes;
    npy_array a = npy_open(&in, layout, &offset, &bytes);
    int in_part = part && !a.half && part->of == a.shape[0] && part->of > 0;
    size_t row = in_part ? bytes / part->of : 0;
    if (in_part && row * part->count > 0) {
        bytes = row * part->count;
        npy_map(&a, &in, offset + row * part->first, bytes);
    } else {
        bytes = in_part ? 0 : bytes;
        a.data = allocate(bytes);
        read_bytes(&in, a.data, bytes, "data");
    }
    fclose(in.stream);
    npy_swap_if_big_endian(a.data, a.half ? bytes / 2 : bytes / 4, a.half ? 2 : 4);
    return a;
}

static inline void npy_free(npy_array *a)
{
    if (a->mapping) {
        munmap(a->mapping, a->mapped_bytes);
    } else {
        free(a->data);
    }
}

enum { NPY_LONGEST_HEADER = 256 };

/* Writes the header for a shape into 4 blocks of 64 bytes, and returns its length. */
static inline size_t npy_print_header(const npy_array *a, char *header)
{
    enum { START = 10, BLOCK = 64 };
    size_t used = (size_t)sprintf(
        header, "%cNUMPY%c%c%c%c{'descr': '<f4', 'fortran_order': False, 'shape': (%s%s), }", 0x93,
        1, 0, 0, 0, npy_print_sizes(a->shape, a->rank, NULL).text, a->rank == 1 ? "," : "");
    size_t size = (used / BLOCK + 1) * BLOCK;
    memset(header + used, ' ', size - used - 1);
    header[size - 1] = '\n';
    header[8] = (char)(size - START);
    return size;
}

static inline void npy_write_data(output_file *file, const float *data, size_t count)
{
    enum { FLOATS = 4096 };
    float block[FLOATS];
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < FLOATS ? count - at : FLOATS;
        memcpy(block, data + at, n * sizeof(float));
        npy_swap_if_big_endian(block, n, sizeof(float));
        write_bytes(file, block, n * sizeof(float));
    }
}

/* A write_function for a npy_array, whose path does not matter. */
static inline void npy_write(output_file *file, const void *content)
{
    const npy_array *a = content;
    char header[NPY_LONGEST_HEADER];
    size_t bytes = 0;
    npy_bytes(a->shape, a->rank, &bytes);
    write_bytes(file, header, npy_print_header(a, header));
    npy_write_data(file, a->data, bytes / sizeof(float));
}

#endif
