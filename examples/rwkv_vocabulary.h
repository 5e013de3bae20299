/* rwkv_vocabulary.h: text to tokens and back. Tokens are bytes, or those of the "world" vocabulary
   file of RWKV.  SPDX: MIT

   That file has a line for each token: its index, a literal of Python, str or bytes, and the number
   of bytes that the literal stands for, str in UTF-8:

       10000 'hello' 5
       10001 b'\xe4\xb8' 2 */
#ifndef RWKV_VOCABULARY_H
#define RWKV_VOCABULARY_H

#include "files.h"

typedef struct rwkv_word {
    const unsigned char *bytes;
    size_t length; /* 0: there is no such token */
    size_t token;
} rwkv_word;

typedef struct rwkv_vocabulary {
    unsigned char *text; /* of all words */
    rwkv_word *word;     /* by token, `size` of them */
    rwkv_word *sorted;   /* those there are, by their bytes: a trie whose nodes are ranges */
    size_t size, count;
} rwkv_vocabulary;

/* ---- The file -------------------------------------------------------------------------------- */

/* Where it is being read: in one line. */
typedef struct rwkv_reader {
    const char *path, *at;
    size_t line;
    unsigned char *to; /* the next word's bytes */
} rwkv_reader;

static inline void rwkv_fail_line(const rwkv_reader *r, const char *why)
{
    fail("%s: line %zu: %s", r->path, r->line, why);
}

static inline void rwkv_put_code_point(rwkv_reader *r, uint32_t c)
{
    if (c >= 0x110000 || (c >= 0xd800 && c < 0xe000)) {
        rwkv_fail_line(r, "an escape that is no character");
    }
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; /* bytes behind the first */
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    *r->to++ = (unsigned char)(first[more] | c >> 6 * more);
    while (more-- > 0) {
        *r->to++ = (unsigned char)(0x80 | (c >> 6 * more & 0x3f));
    }
}

static inline uint32_t rwkv_read_hexadecimal(rwkv_reader *r, int digits)
{
    uint32_t x = 0;
    for (; digits > 0; digits--, r->at++) {
        char c = *r->at, lower = (char)(c | 0x20);
        if (!(c >= '0' && c <= '9') && !(lower >= 'a' && lower <= 'f')) {
            rwkv_fail_line(r, "an escape with too few hexadecimal digits");
        }
        x = x << 4 | (uint32_t)(c <= '9' ? c - '0' : lower - 'a' + 10);
    }
    return x;
}

/* Behind the backslash: what Python's repr writes. */
static inline void rwkv_read_escape(rwkv_reader *r, int is_bytes)
{
    static const char names[] = "\\'\"ntr", meanings[] = "\\'\"\n\t\r";
    char c = *r->at;
    const char *name = c ? strchr(names, c) : NULL;
    r->at += c != '\0';
    if (name) {
        *r->to++ = (unsigned char)meanings[name - names];
    } else if (c == 'x' && is_bytes) {
        *r->to++ = (unsigned char)rwkv_read_hexadecimal(r, 2);
    } else if (c == 'x' || ((c == 'u' || c == 'U') && !is_bytes)) {
        rwkv_put_code_point(r, rwkv_read_hexadecimal(r, c == 'x' ? 2 : c == 'u' ? 4 : 8));
    } else {
        rwkv_fail_line(r, "an unknown escape");
    }
}

/* Never longer than it is in the file. */
static inline size_t rwkv_read_literal(rwkv_reader *r)
{
    const unsigned char *begin = r->to;
    int is_bytes = *r->at == 'b';
    r->at += is_bytes;
    char quote = *r->at;
    if (quote != '\'' && quote != '"') {
        rwkv_fail_line(r, "expected an index and a quoted string");
    }
    for (r->at++; *r->at != quote;) {
        char c = *r->at;
        if (c == '\0' || c == '\n') {
            rwkv_fail_line(r, "a string without an end");
        }
        r->at++;
        if (c == '\\') {
            rwkv_read_escape(r, is_bytes);
        } else {
            *r->to++ = (unsigned char)c;
        }
    }
    r->at++;
    return (size_t)(r->to - begin);
}

static inline void rwkv_read_line(rwkv_reader *r, rwkv_vocabulary *v)
{
    size_t token, length = 0;
    if (!read_size(&r->at, &token) || *r->at++ != ' ') {
        rwkv_fail_line(r, "expected an index and a quoted string");
    }
    if (token >= v->size || v->word[token].length) {
        rwkv_fail_line(r, token >= v->size ? "the model has no token of this index"
                                           : "a second token of this index");
    }
    const unsigned char *bytes = r->to;
    size_t read = rwkv_read_literal(r);
    if (*r->at++ != ' ' || !read_size(&r->at, &length)) {
        rwkv_fail_line(r, "expected a length behind the string");
    }
    r->at += *r->at == '\r';
    if (*r->at != '\n' && *r->at != '\0') {
        rwkv_fail_line(r, "something behind the length");
    }
    r->at += *r->at == '\n';
    if (read != length || length < 1) {
        rwkv_fail_line(r, length < 1 ? "a token without bytes" : "the string has another length");
    }
    v->word[token] = (rwkv_word){bytes, length, token};
}

static inline void rwkv_read_lines(const char *path, rwkv_vocabulary *v)
{
    input_file in = open_input(path);
    if (in.bytes > SIZE_MAX - 1) {
        fail("%s: too large", path);
    }
    char *content = allocate(in.bytes + 1);
    read_bytes(&in, content, in.bytes, "lines");
    fclose(in.stream);
    content[in.bytes] = '\0';
    v->text = allocate(in.bytes);
    rwkv_reader r = {path, content, 0, v->text};
    while (*r.at) {
        r.line++;
        rwkv_read_line(&r, v);
    }
    if (r.at != content + in.bytes) {
        fail("%s: line %zu: a zero byte", path, r.line + 1);
    }
    free(content);
}

/* ---- Words ----------------------------------------------------------------------------------- */

static inline int rwkv_compare_words(const void *a, const void *b)
{
    const rwkv_word *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->length < y->length ? x->length : y->length);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

static inline void rwkv_sort_words(const char *path, rwkv_vocabulary *v)
{
    for (size_t i = 0; i < v->size; i++) {
        if (v->word[i].length) {
            v->sorted[v->count++] = v->word[i];
        }
    }
    if (v->count == 0) {
        fail("%s: no token", path);
    }
    qsort(v->sorted, v->count, sizeof *v->sorted, rwkv_compare_words);
    for (size_t i = 1; i < v->count; i++) {
        if (rwkv_compare_words(&v->sorted[i - 1], &v->sorted[i]) == 0) {
            fail("%s: tokens %zu and %zu are the same string", path, v->sorted[i - 1].token,
                 v->sorted[i].token);
        }
    }
}

static inline void rwkv_make_bytes(rwkv_vocabulary *v)
{
    v->text = allocate(v->size);
    for (size_t i = 0; i < v->size; i++) {
        v->text[i] = (unsigned char)i;
        v->word[i] = (rwkv_word){v->text + i, 1, i};
    }
}

/* For a model of `size` tokens; path NULL: the 256 bytes. */
static inline rwkv_vocabulary rwkv_read_vocabulary(const char *path, size_t size)
{
    rwkv_vocabulary v = {.size = size};
    if (!path && size != 256) {
        fail("the model has %zu tokens, so that they are not bytes: give their --vocab", size);
    }
    if (size > SIZE_MAX / sizeof *v.word) {
        fail("a vocabulary of %zu tokens is too large", size);
    }
    v.word = allocate(size * sizeof *v.word);
    v.sorted = allocate(size * sizeof *v.sorted);
    memset(v.word, 0, size * sizeof *v.word);
    if (path) {
        rwkv_read_lines(path, &v);
    } else {
        rwkv_make_bytes(&v);
    }
    rwkv_sort_words(path ? path : "bytes", &v);
    return v;
}

static inline void rwkv_free_vocabulary(rwkv_vocabulary *v)
{
    free(v->text);
    free(v->word);
    free(v->sorted);
}

/* ---- Text to tokens -------------------------------------------------------------------------- */

/* The first of the sorted words from `low` to `high` - 1, all of more than `depth` bytes and alike
   up to there, whose byte behind these is `c` or larger. */
static inline size_t rwkv_first_word(const rwkv_vocabulary *v, size_t low, size_t high,
                                     size_t depth, int c)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (v->sorted[middle].bytes[depth] < c) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The longest word that the text begins with, or NULL: goes down the trie byte by byte. A word that
   ends comes first among those that begin with it. */
static inline const rwkv_word *rwkv_longest_word(const rwkv_vocabulary *v,
                                                 const unsigned char *text, size_t length)
{
    const rwkv_word *longest = NULL;
    size_t low = 0, high = v->count;
    for (size_t depth = 0; depth < length && low < high; depth++) {
        low = rwkv_first_word(v, low, high, depth, text[depth]);
        high = rwkv_first_word(v, low, high, depth, text[depth] + 1);
        if (low < high && v->sorted[low].length == depth + 1) {
            longest = &v->sorted[low++];
        }
    }
    return longest;
}

/* At most a token for each byte of the text; returns how many. */
static inline size_t rwkv_tokens_of(const rwkv_vocabulary *v, const char *text, size_t *tokens)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t count = 0, left = strlen(text);
    while (left) {
        const rwkv_word *word = rwkv_longest_word(v, at, left);
        if (!word) {
            fail("--prompt: no token of the vocabulary begins at its byte %zu",
                 strlen(text) - left + 1);
        }
        tokens[count++] = word->token;
        at += word->length;
        left -= word->length;
    }
    return count;
}

#endif
