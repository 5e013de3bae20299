/* wav.h: WAV files as the example programs read them: 16-bit integers or 32-bit floats, mono or
   stereo.  SPDX: MIT */
#ifndef WAV_H
#define WAV_H

#include "files.h"

enum { WAV_LEAST_RATE = 8000, WAV_MOST_RATE = 192000 };

/* Mono: the mean of the channels. Full scale is 1. */
typedef struct wav_clip {
    const char *path;
    size_t rate, samples;
    float *data; /* to be freed */
} wav_clip;

/* ---- Chunks --------------------------------------------------------------------------------- */

enum { WAV_CHUNK_HEADER = 8, WAV_FORM_HEADER = 12 };

/* Where the body of a chunk is; 0 where there is none, as the form's header comes first. */
typedef struct wav_chunk {
    size_t at, bytes;
} wav_chunk;

static inline unsigned wav_u16(const unsigned char *b) { return b[0] | (unsigned)b[1] << 8; }

static inline uint32_t wav_u32(const unsigned char *b)
{
    return wav_u16(b) | (uint32_t)wav_u16(b + 2) << 16;
}

static inline void wav_seek(const input_file *in, size_t at)
{
    if (fseeko(in->stream, (off_t)at, SEEK_SET) != 0) {
        fail("%s: cannot be read: %s", in->path, strerror(errno));
    }
}

/* Returns where the last chunk ends. What a file has behind that does not belong to it. */
static inline size_t wav_read_form(const input_file *in)
{
    unsigned char b[WAV_FORM_HEADER];
    if (in->bytes < sizeof b || fread(b, 1, sizeof b, in->stream) != sizeof b ||
        memcmp(b, "RIFF", 4) != 0 || memcmp(b + 8, "WAVE", 4) != 0) {
        fail("%s: not a WAV file, its first bytes are not RIFF....WAVE", in->path);
    }
    uint64_t end = (uint64_t)wav_u32(b + 4) + WAV_CHUNK_HEADER;
    if (end < sizeof b || end > in->bytes) {
        fail("%s: truncated or damaged, its header says %" PRIu64 " bytes, it has %zu", in->path,
             end, in->bytes);
    }
    return (size_t)end;
}

static inline void wav_note_chunk(const input_file *in, wav_chunk *chunk, wav_chunk found,
                                  const char *name)
{
    if (chunk->at) {
        fail("%s: has two chunks '%s', expected one", in->path, name);
    }
    *chunk = found;
}

/* Chunks come in any order, and most are of no interest. One of an odd size has a byte of padding
   behind it, which some programs leave out at the end of the file. */
static inline void wav_find_chunks(const input_file *in, wav_chunk *format, wav_chunk *data)
{
    size_t end = wav_read_form(in);
    for (size_t at = WAV_FORM_HEADER; at < end;) {
        unsigned char b[WAV_CHUNK_HEADER];
        if (end - at < sizeof b) {
            fail("%s: damaged, %zu bytes behind its last chunk", in->path, end - at);
        }
        wav_seek(in, at);
        read_bytes(in, b, sizeof b, "chunks");
        wav_chunk chunk = {at + sizeof b, wav_u32(b + 4)};
        if (chunk.bytes > end - chunk.at) {
            fail("%s: truncated or damaged, a chunk '%.4s' of %zu bytes where %zu are left",
                 in->path, (const char *)b, chunk.bytes, end - chunk.at);
        }
        if (memcmp(b, "fmt ", 4) == 0) {
            wav_note_chunk(in, format, chunk, "fmt ");
        } else if (memcmp(b, "data", 4) == 0) {
            wav_note_chunk(in, data, chunk, "data");
        }
        at = chunk.at + chunk.bytes;
        at += chunk.bytes % 2 && at < end;
    }
    if (!format->at || !data->at) {
        fail("%s: has no chunk '%s'", in->path, format->at ? "data" : "fmt ");
    }
}

/* ---- The format ----------------------------------------------------------------------------- */

enum { WAV_PCM = 1, WAV_FLOAT = 3, WAV_EXTENSIBLE = 0xfffe };

typedef struct wav_format {
    unsigned kind, channels, bits, frame_bytes;
    uint32_t rate;
} wav_format;

/* What an extensible format really is: the first number of a GUID whose rest is fixed. */
static inline unsigned wav_extended_kind(const input_file *in, const unsigned char *b, size_t bytes)
{
    static const unsigned char rest[14] = {0, 0, 0, 0, 16, 0, 128, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71};
    if (bytes < 40 || wav_u16(b + 16) < 22 || memcmp(b + 26, rest, sizeof rest) != 0) {
        fail("%s: damaged, or an extensible format of an unknown kind", in->path);
    }
    return wav_u16(b + 24);
}

static inline wav_format wav_read_format(const input_file *in, wav_chunk chunk)
{
    unsigned char b[40] = {0};
    if (chunk.bytes < 16) {
        fail("%s: damaged, a chunk 'fmt ' of %zu bytes, expected at least 16", in->path,
             chunk.bytes);
    }
    wav_seek(in, chunk.at);
    read_bytes(in, b, chunk.bytes < sizeof b ? chunk.bytes : sizeof b, "format");
    wav_format f = {wav_u16(b), wav_u16(b + 2), wav_u16(b + 14), wav_u16(b + 12), wav_u32(b + 4)};
    if (f.kind == WAV_EXTENSIBLE) {
        f.kind = wav_extended_kind(in, b, chunk.bytes);
    }
    if (!(f.kind == WAV_PCM && f.bits == 16) && !(f.kind == WAV_FLOAT && f.bits == 32)) {
        fail("%s: samples of format %u and %u bits, expected 16-bit integers (format 1) or 32-bit "
             "floats (format 3)",
             in->path, f.kind, f.bits);
    }
    if (f.channels < 1 || f.channels > 2) {
        fail("%s: %u channels, expected 1 or 2", in->path, f.channels);
    }
    if (f.frame_bytes != f.channels * f.bits / 8) {
        fail("%s: damaged, %u bytes per sample of all channels, expected %u", in->path,
             f.frame_bytes, f.channels * f.bits / 8);
    }
    if (f.rate < WAV_LEAST_RATE || f.rate > WAV_MOST_RATE) {
        fail("%s: %" PRIu32 " samples per second, expected %d to %d", in->path, f.rate,
             WAV_LEAST_RATE, WAV_MOST_RATE);
    }
    return f;
}

/* ---- Samples -------------------------------------------------------------------------------- */

static inline float wav_integer(const unsigned char *b)
{
    int x = (int)wav_u16(b);
    return (float)(x < 32768 ? x : x - 65536) / 32768;
}

/* A float may be anything: beyond 1e6 times full scale it is no sound. Told from its bits, which no
   compiler's flags take for finite. */
static inline float wav_float(const wav_clip *clip, const unsigned char *b, size_t index)
{
    const uint32_t loudest = 0x49742400; /* 1e6 */
    uint32_t bits = wav_u32(b);
    float x;
    if ((bits & 0x7fffffff) > loudest) {
        fail("%s: sample %zu is not a number from -1e6 to 1e6", clip->path, index);
    }
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void wav_convert(const wav_clip *clip, const wav_format *f, const unsigned char *b,
                               size_t first, size_t frames)
{
    for (size_t i = first; i < first + frames; i++) {
        float sum = 0;
        for (unsigned c = 0; c < f->channels; c++, b += f->bits / 8) {
            sum += f->kind == WAV_PCM ? wav_integer(b) : wav_float(clip, b, i);
        }
        clip->data[i] = sum / (float)f->channels;
    }
}

static inline wav_clip wav_read(const char *path)
{
    enum { FRAMES = 1024, MOST_BYTES = 8 };
    unsigned char block[FRAMES * MOST_BYTES];
    wav_chunk format = {0, 0}, data = {0, 0};
    input_file in = open_input(path);
    wav_find_chunks(&in, &format, &data);
    wav_format f = wav_read_format(&in, format);
    wav_clip clip = {path, f.rate, data.bytes / f.frame_bytes, NULL};
    if (data.bytes % f.frame_bytes) {
        fail("%s: truncated or damaged, %zu bytes of data in units of %u", path, data.bytes,
             f.frame_bytes);
    }
    if (clip.samples > SIZE_MAX / sizeof(float)) {
        fail("%s: too large", path);
    }
    clip.data = allocate(clip.samples * sizeof(float));
    wav_seek(&in, data.at);
    for (size_t at = 0, n; at < clip.samples; at += n) {
        n = clip.samples - at < FRAMES ? clip.samples - at : FRAMES;
        read_bytes(&in, block, n * f.frame_bytes, "data");
        wav_convert(&clip, &f, block, at, n);
    }
    fclose(in.stream);
    return clip;
}

#endif
