/* files.h: files as the example programs read and write them. Inputs have a known size; outputs
   change all together, once everything has been written, or not at all.  SPDX: MIT */
#ifndef FILES_H
#define FILES_H

#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Inputs --------------------------------------------------------------------------------- */

/* A file whose size is known before anything is allocated for it. */
typedef struct input_file {
    const char *path;
    FILE *stream;
    size_t bytes;
} input_file;

static inline input_file open_input(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0) {
        fail("%s: cannot be opened: %s", path, strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) {
        fail("%s: not a regular file", path);
    }
    if ((uintmax_t)about.st_size > SIZE_MAX) {
        fail("%s: too large", path);
    }
    input_file in = {path, fopen(path, "rb"), (size_t)about.st_size};
    if (!in.stream) {
        fail("%s: cannot be opened: %s", path, strerror(errno));
    }
    return in;
}

static inline void read_bytes(const input_file *in, void *to, size_t bytes, const char *what)
{
    if (fread(to, 1, bytes, in->stream) != bytes) {
        if (ferror(in->stream)) {
            fail("%s: cannot be read: %s", in->path, strerror(errno));
        }
        fail("%s: truncated, it ends within its %s", in->path, what);
    }
}

/* ---- Checksums ------------------------------------------------------------------------------ */

/* CRC-32 as in zlib and PNG (ISO/IEC 13239): any damage within four bytes shows. */
static inline uint32_t crc32_of(const void *content, size_t bytes)
{
    const uint32_t polynomial = 0xedb88320;
    const unsigned char *at = content;
    uint32_t table[256], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) {
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? polynomial : 0);
        }
    }
    for (size_t i = 0; i < bytes; i++) {
        crc = crc >> 8 ^ table[(crc ^ at[i]) & 255];
    }
    return ~crc;
}

/* ---- Outputs -------------------------------------------------------------------------------- */

/* add_output() for each file finds out, before the work begins, what would be in its way;
   publish_outputs() at the end has each written under a temporary name beside its target, and when
   all are on the disk, gives them their names. An existing file keeps its mode, and its owner where
   that is allowed. Symbolic links are followed. What cannot be renamed (a device, a pipe, what
   standard output leads to) is written directly, after the temporaries. */
typedef struct output_file output_file;
typedef void write_function(output_file *file, const void *content);

struct output_file {
    const char *path; /* as it was given */
    char *target;     /* where the links lead; NULL: is written directly */
    write_function *write;
    const void *content;
    FILE *stream;
    char *temporary, *older; /* names that exist just now: the new content, the old one */
    struct stat about, folder;
    int exists;
};

enum { MAX_OUTPUTS = 8 };
static output_file program_outputs[MAX_OUTPUTS];
static size_t program_output_count;

static inline void write_bytes(const output_file *file, const void *from, size_t bytes)
{
    if (fwrite(from, 1, bytes, file->stream) != bytes) {
        fail("%s: cannot be written: %s", file->path, strerror(errno));
    }
}

/* The part of a path behind its folder. */
static inline const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* `name` in the folder of `path`, unless it is an absolute path itself; to be freed. */
static inline char *beside(const char *path, const char *name)
{
    int length = *name == '/' ? 0 : (int)(last_name(path) - path);
    size_t size = (size_t)length + strlen(name) + 1;
    char *joined = allocate(size);
    snprintf(joined, size, "%.*s%s", length, path, name);
    return joined;
}

/* Where a chain of symbolic links ends, be there a file or not; to be freed. */
static inline char *follow_links(const char *path)
{
    enum { LONGEST_CHAIN = 40, LONGEST_PATH = 4096 };
    char *at = beside("", path), to[LONGEST_PATH];
    struct stat about;
    for (int i = 0; i < LONGEST_CHAIN && lstat(at, &about) == 0 && S_ISLNK(about.st_mode); i++) {
        ssize_t length = readlink(at, to, sizeof to - 1);
        if (length < 0) {
            fail("%s: cannot be read: %s", path, strerror(errno));
        }
        to[length] = '\0';
        char *next = beside(at, to);
        free(at);
        at = next;
    }
    return at;
}

static inline int same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Two outputs to one place, by whatever names. Devices, say /dev/null, take any number. */
static inline int same_output(const output_file *a, const output_file *b)
{
    if (a->exists && b->exists) {
        return same_file(&a->about, &b->about) && !S_ISCHR(a->about.st_mode);
    }
    return !a->exists && !b->exists && same_file(&a->folder, &b->folder) &&
           strcmp(last_name(a->target), last_name(b->target)) == 0;
}

/* Follows the links of a path to a regular file, or to none as yet. */
static inline void find_target(output_file *file)
{
    struct stat end;
    file->target = follow_links(file->path);
    if (file->exists && (lstat(file->target, &end) != 0 || !same_file(&end, &file->about))) {
        free(file->target); /* a link whose text tells nothing: /proc/self/fd/3 to a deleted file */
        file->target = NULL;
        return;
    }
    char *folder = beside(file->target, ".");
    if (*last_name(file->target) == '\0') {
        fail("%s: is a folder's name, expected a file", file->path);
    }
    if (stat(folder, &file->folder) != 0 || access(folder, W_OK | X_OK) != 0 ||
        (file->exists && access(file->target, W_OK) != 0)) {
        fail("%s: cannot be created: %s", file->path, strerror(errno));
    }
    free(folder);
}

/* Fails if the path cannot be written, as far as can be told by now. `content` is what `write` will
   be called with. */
static inline void add_output(const char *path, write_function *write, const void *content)
{
    struct stat printed;
    output_file *file = &program_outputs[program_output_count];
    *file = (output_file){.path = path, .write = write, .content = content};
    file->exists = stat(path, &file->about) == 0;
    if (!file->exists && errno != ENOENT) {
        fail("%s: cannot be created: %s", path, strerror(errno));
    }
    if (file->exists && S_ISDIR(file->about.st_mode)) {
        fail("%s: is a directory, expected a file", path);
    }
    if (file->exists && fstat(STDOUT_FILENO, &printed) == 0 && same_file(&printed, &file->about)) {
        file->stream = stdout; /* which may be in the midst of a file */
    } else if (!file->exists || S_ISREG(file->about.st_mode)) {
        find_target(file);
    }
    for (size_t i = 0; i < program_output_count; i++) {
        if (same_output(&program_outputs[i], file)) {
            fail("%s and %s are the same file", program_outputs[i].path, path);
        }
    }
    program_output_count++;
}

/* What is printed when all files have been written and none has its name yet: if that fails, they
   stay as they were. */
static inline void add_printed(write_function *write, const void *content)
{
    program_outputs[program_output_count++] = (output_file){
        .path = "standard output", .write = write, .content = content, .stream = stdout};
}

/* Whatever happens, no file of another name stays behind. */
static inline void remove_temporaries(void)
{
    for (size_t i = 0; i < program_output_count; i++) {
        if (program_outputs[i].temporary) {
            remove(program_outputs[i].temporary);
        }
        if (program_outputs[i].older) {
            remove(program_outputs[i].older);
        }
    }
}

/* A file beside the target: a new one, open for writing, or with no descriptor another name for the
   target. Its own name is short, as the target's may be the longest that there can be. NULL, and
   errno, if that fails; to be freed. */
static inline char *make_beside(const output_file *file, int *descriptor)
{
    enum { TRIES = 1000 };
    const mode_t owner = S_IRUSR | S_IWUSR, all = owner | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;
    for (int i = 0; i < TRIES; i++) {
        char name[32];
        snprintf(name, sizeof name, "." PROGRAM "%d.tmp", i);
        char *path = beside(file->target, name);
        if (descriptor) { /* nobody else may read it before it has the mode of what it replaces */
            *descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL, file->exists ? owner : all);
        }
        if (descriptor ? *descriptor >= 0 : link(file->target, path) == 0) {
            return path;
        }
        int reason = errno;
        free(path);
        errno = reason;
        if (reason != EEXIST) {
            break;
        }
    }
    return NULL;
}

/* Of the file that will be replaced; owner and group too, where that is allowed. */
static inline int keep_mode(const output_file *file)
{
    int descriptor = fileno(file->stream);
    mode_t mode = file->about.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
    int kept = !file->exists || fchmod(descriptor, mode) == 0;
    if (file->exists && kept && fchown(descriptor, file->about.st_uid, file->about.st_gid) != 0) {
        errno = 0; /* it belongs to who runs this, like a new file */
    }
    return kept;
}

/* Some file systems have no fsync; a disk that is full may tell nobody earlier. */
static inline int is_on_disk(FILE *stream)
{
    return fflush(stream) == 0 &&
           (fsync(fileno(stream)) == 0 || errno == EINVAL || errno == ENOSYS);
}

static inline void write_temporary(output_file *file)
{
    int descriptor;
    file->temporary = make_beside(file, &descriptor);
    file->stream = file->temporary ? fdopen(descriptor, "wb") : NULL;
    if (!file->stream || !keep_mode(file)) {
        fail("%s: cannot be created: %s", file->path, strerror(errno));
    }
    file->write(file, file->content);
    int written = is_on_disk(file->stream);
    int reason = errno;
    if (fclose(file->stream) != 0 || !written) {
        fail("%s: cannot be written: %s", file->path, strerror(written ? errno : reason));
    }
}

static inline void write_directly(output_file *file)
{
    int printed = file->stream == stdout;
    if (!printed && !(file->stream = fopen(file->path, "wb"))) {
        fail("%s: cannot be created: %s", file->path, strerror(errno));
    }
    file->write(file, file->content);
    if ((printed ? fflush(stdout) || ferror(stdout) : fclose(file->stream)) != 0) {
        fail("%s: cannot be written: %s", file->path, strerror(errno));
    }
}

/* Undoes the first `count` renamings. */
static inline void take_names_back(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        output_file *file = &program_outputs[i];
        if (file->older) {
            rename(file->older, file->target);
            free(file->older);
            file->older = NULL;
        } else if (file->target && !file->exists) {
            remove(file->target);
        }
    }
}

/* A later one may fail, on a folder where others' files cannot be replaced, say. */
static inline void give_names(void)
{
    for (size_t i = 0; i < program_output_count; i++) {
        output_file *file = &program_outputs[i];
        if (!file->target) {
            continue;
        }
        if (file->exists && i + 1 < program_output_count) {
            file->older = make_beside(file, NULL); /* NULL on file systems without links */
        }
        if (rename(file->temporary, file->target) != 0) {
            int reason = errno;
            take_names_back(i);
            fail("%s: cannot be created: %s", file->path, strerror(reason));
        }
        free(file->temporary);
        file->temporary = NULL;
    }
}

/* Writes all that were added. If it fails, no file has changed: only of what is written directly
   some may have gone out. */
static inline void publish_outputs(void)
{
    atexit(remove_temporaries);
    signal(SIGPIPE, SIG_IGN); /* a reader that went away, or a limit: failures like any other */
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < program_output_count; i++) {
        if (program_outputs[i].target) {
            write_temporary(&program_outputs[i]);
        }
    }
    for (size_t i = 0; i < program_output_count; i++) {
        if (!program_outputs[i].target) {
            write_directly(&program_outputs[i]);
        }
    }
    give_names();
    remove_temporaries();
    for (size_t i = 0; i < program_output_count; i++) {
        free(program_outputs[i].older);
        free(program_outputs[i].target);
    }
    program_output_count = 0;
}

#endif
