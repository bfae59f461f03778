#include "image/npy.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/raster_format.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a big-endian machine has to swap bytes");

/* numpy writes 128 bytes; only arrays of records, which we refuse, need a long header. */
enum { HEADER_MAX = 65536 };

static const struct {
    const char *code, *name;
    enum wf_sample sample;
} kinds[] = {
    { "f2", "float16", WF_SAMPLE_F16 }, { "f4", "float32", WF_SAMPLE_F32 },
    { "f8", "float64", WF_SAMPLE_F64 }, { "b1", "bool", WF_SAMPLE_U8 },
    { "i1", "int8", WF_SAMPLE_I8 },     { "u1", "uint8", WF_SAMPLE_U8 },
    { "i2", "int16", WF_SAMPLE_I16 },   { "u2", "uint16", WF_SAMPLE_U16 },
    { "i4", "int32", WF_SAMPLE_I32 },   { "u4", "uint32", WF_SAMPLE_U32 },
    { "i8", "int64", WF_SAMPLE_I64 },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* "'file': <what>" */
__attribute__((format(printf, 3, 4))) static bool refuse(const struct wf_npy *a, struct wf_err *err,
                                                         const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return wf_err_set(err, WF_ERR_INPUT, "'%s': %s", a->file.name, what);
}

/* --- the header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } ---
 * A Python literal, of which exactly these three keys and these kinds of value are known here. The
 * text ends with a zero, so looking at *at is always allowed; each function moves past what it
 * read, or says no. */

static void skip_space(const char **at)
{
    while (**at == ' ' || **at == '\t' || **at == '\n')
        ++*at;
}

static bool skip(const char **at, char c)
{
    skip_space(at);
    if (**at != c)
        return false;
    ++*at;
    return true;
}

static bool skip_word(const char **at, const char *word)
{
    skip_space(at);
    if (strncmp(*at, word, strlen(word)) != 0)
        return false;
    *at += strlen(word);
    return true;
}

/* A quoted text without escapes, cut to the room that is there. */
static bool read_text(const char **at, char *text, size_t room)
{
    skip_space(at);
    const char quote = **at;
    if (quote != '\'' && quote != '"')
        return false;
    const char *begin = ++*at;
    while (**at && **at != quote && **at != '\\')
        ++*at;
    if (**at != quote)
        return false;
    (void)snprintf(text, room, "%.*s", (int)(*at - begin), begin);
    ++*at;
    return true;
}

static bool read_whole(const char **at, int64_t *value)
{
    skip_space(at);
    if (**at < '0' || **at > '9')
        return false;
    for (*value = 0; **at >= '0' && **at <= '9'; ++*at)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, **at - '0', value))
            return false;
    if (**at == 'L') /* as Python 2 wrote it */
        ++*at;
    return true;
}

static bool read_descr(struct wf_npy *a, const char **at, struct wf_err *err)
{
    char text[24];
    skip_space(at);
    if (**at == '[')
        return refuse(a, err, "an array of records: save one plain array");
    if (!read_text(at, text, sizeof text))
        return refuse(a, err, "the header's 'descr' is not text: write the file again");
    const char order = text[0];
    int k = 0;
    while (k < KINDS && strcmp(text + (order != '\0'), kinds[k].code) != 0)
        k++;
    if (k == KINDS || !strchr("<>|", order) ||
        (order == '|' && wf_sample_size(kinds[k].sample) > 1)) {
        /* Only what may be printed: the text comes from the file. */
        for (char *c = text; *c; c++)
            if (*c < ' ' || *c > '~')
                *c = '?';
        return refuse(a, err,
                      "cannot read elements of type '%s': save them with .astype('float32') or "
                      ".astype('int64')",
                      text);
    }
    a->sample = kinds[k].sample;
    a->type = kinds[k].name;
    a->swapped = order == '>' && wf_sample_size(a->sample) > 1;
    return true;
}

static bool read_shape(struct wf_npy *a, const char **at, struct wf_err *err)
{
    if (!skip(at, '('))
        return refuse(a, err, "the header's 'shape' is not a tuple: write the file again");
    a->rank = 0;
    a->count = 1;
    while (!skip(at, ')')) {
        int64_t extent;
        if (!read_whole(at, &extent))
            return refuse(a, err,
                          "extent %d of the header's shape is not a whole number from 0: write the "
                          "file again",
                          a->rank);
        if (a->rank == WF_NPY_RANK)
            return refuse(a, err,
                          "more than %d axes: give [N, C, *spatial], save it with .reshape()",
                          WF_NPY_RANK);
        a->shape[a->rank++] = extent;
        if (__builtin_mul_overflow(a->count, extent, &a->count))
            return refuse(a, err,
                          "the product of the header's shape overflows: write the file again");
        skip_space(at);
        if (!skip(at, ',') && **at != ')')
            return refuse(a, err, "the header's 'shape' is not a tuple: write the file again");
    }
    return true;
}

/* Both orders are one where at most one axis is longer than one. */
static bool order_matters(const struct wf_npy *a)
{
    int longer = 0;
    for (int i = 0; i < a->rank; i++)
        longer += a->shape[i] > 1;
    return longer > 1 && a->count > 0;
}

static bool read_dict(struct wf_npy *a, const char *at, struct wf_err *err)
{
    bool descr = false, order = false, shape = false, fortran = false;
    if (!skip(&at, '{'))
        return refuse(a, err, "the header is not a dictionary: write the file again");
    while (!skip(&at, '}')) {
        char key[24];
        if (!read_text(&at, key, sizeof key) || !skip(&at, ':'))
            return refuse(a, err, "the header is damaged: write the file again");
        if (!descr && strcmp(key, "descr") == 0) {
            descr = true;
            if (!read_descr(a, &at, err))
                return false;
        } else if (!order && strcmp(key, "fortran_order") == 0) {
            order = true;
            fortran = skip_word(&at, "True");
            if (!fortran && !skip_word(&at, "False"))
                return refuse(a, err,
                              "the header's 'fortran_order' is neither True nor False: write "
                              "the file again");
        } else if (!shape && strcmp(key, "shape") == 0) {
            shape = true;
            if (!read_shape(a, &at, err))
                return false;
        } else {
            return refuse(a, err,
                          "the header has a key twice or one too many: write the file again");
        }
        skip_space(&at);
        if (!skip(&at, ',') && *at != '}')
            return refuse(a, err, "the header is damaged: write the file again");
    }
    skip_space(&at);
    if (!descr || !order || !shape || *at)
        return refuse(a, err,
                      "the header needs 'descr', 'fortran_order' and 'shape' and nothing "
                      "after them: write the file again");
    if (fortran && order_matters(a))
        return refuse(a, err,
                      "the array is in Fortran order: save it with numpy.ascontiguousarray()");
    return true;
}

/* Reads the fixed part: gives the header's length and leaves its place in a->data. */
static bool read_prefix(struct wf_npy *a, uint32_t *length, struct wf_err *err)
{
    unsigned char head[12] = { 0 };
    const size_t have = a->file.size < sizeof head ? (size_t)a->file.size : sizeof head;
    if (!wf_infile_read(&a->file, 0, head, have, err))
        return false;
    if (have < 10 || memcmp(head, "\x93NUMPY", 6) != 0)
        return refuse(a, err, "not a .npy file: save it with numpy.save()");
    const int major = head[6], minor = head[7];
    if (major < 1 || major > 3 || minor != 0)
        return refuse(a, err,
                      "version %d.%d of the format, known are 1.0, 2.0 and 3.0: save it with "
                      "numpy.save()",
                      major, minor);
    a->data = major == 1 ? 10 : 12;
    *length = (uint32_t)head[8] | (uint32_t)head[9] << 8;
    if (major > 1)
        *length |= (uint32_t)head[10] << 16 | (uint32_t)head[11] << 24;
    if (a->data > a->file.size || *length > a->file.size - a->data)
        return refuse(a, err,
                      "a header of %" PRIu32 " bytes does not fit a file of %" PRIu64
                      " bytes: it is cut short, copy it again",
                      *length, a->file.size);
    if (*length > HEADER_MAX)
        return refuse(a, err,
                      "a header of %" PRIu32 " bytes, at most %d are read: save a plain array",
                      *length, HEADER_MAX);
    return true;
}

static bool check_file(struct wf_npy *a, struct wf_err *err)
{
    uint32_t length = 0;
    if (!read_prefix(a, &length, err))
        return false;
    char *text = calloc(1, (size_t)length + 1);
    if (!text)
        return wf_err_set(err, WF_ERR_FIT, "'%s': no memory for its header", a->file.name);
    bool ok = wf_infile_read(&a->file, a->data, text, length, err);
    if (ok && memchr(text, '\0', length))
        ok = refuse(a, err, "the header has a zero byte in it: write the file again");
    ok = ok && read_dict(a, text, err);
    free(text);
    if (!ok)
        return false;
    a->data += length;
    const uint64_t has = a->file.size - a->data;
    int64_t bytes;
    if (__builtin_mul_overflow(a->count, wf_sample_size(a->sample), &bytes))
        return refuse(a, err, "the product of the header's shape overflows: write the file again");
    if ((uint64_t)bytes > has)
        return refuse(a, err,
                      "the header's shape takes %" PRId64 " bytes, the file has %" PRIu64
                      ": it is cut short, copy it again",
                      bytes, has);
    if ((uint64_t)bytes < has)
        return refuse(a, err,
                      "%" PRIu64 " bytes follow the array's %" PRId64 ": save one array per file",
                      has - (uint64_t)bytes, bytes);
    return true;
}

bool wf_npy_open(struct wf_npy *a, const char *path, struct wf_err *err)
{
    *a = (struct wf_npy){ 0 };
    if (!wf_infile_open(&a->file, path, err))
        return false;
    if (check_file(a, err))
        return true;
    wf_npy_close(a);
    return false;
}

bool wf_npy_parse(struct wf_npy *a, const char *name, const void *bytes, size_t size,
                  struct wf_err *err)
{
    *a = (struct wf_npy){ 0 };
    wf_infile_memory(&a->file, name, bytes, size);
    if (check_file(a, err))
        return true;
    wf_npy_close(a);
    return false;
}

void wf_npy_close(struct wf_npy *a)
{
    wf_infile_close(&a->file);
}

bool wf_npy_read(const struct wf_npy *a, int64_t first, int64_t count, enum wf_dtype as, void *dst,
                 struct wf_err *err)
{
    const bool bytes = as == WF_U8 && a->sample == WF_SAMPLE_U8;
    const bool real = as == WF_F32 || as == WF_F64;
    WF_BUG_ON(!real && as != WF_I32 && as != WF_I64 && !bytes, "as %s", wf_dtype_name(as));
    WF_BUG_ON(first < 0 || count < 0 || first > a->count || count > a->count - first,
              "%" PRId64 " from %" PRId64 " of %" PRId64, count, first, a->count);
    if (!real && !wf_sample_is_whole(a->sample))
        return refuse(a, err, "%s where whole numbers are needed: save it with .astype('int64')",
                      a->type);
    const size_t size = wf_sample_size(a->sample), wide = wf_dtype_size(as);
    const uint64_t from = a->data + (uint64_t)first * size;
    const bool same = a->sample == (as == WF_F64 ? WF_SAMPLE_F64 : WF_SAMPLE_F32) && real;
    if (bytes || (same && !a->swapped))
        return wf_infile_read(&a->file, from, dst, (size_t)count * size, err);
    double chunk[8192]; /* of any type: double is aligned for all */
    const int64_t most = (int64_t)(sizeof chunk / size);
    for (int64_t done = 0; done < count;) {
        const size_t now = (size_t)(count - done < most ? count - done : most);
        if (!wf_infile_read(&a->file, from + (uint64_t)done * size, chunk, now * size, err))
            return false;
        if (a->swapped)
            wf_sample_swap(chunk, now, size);
        const size_t well =
            wf_sample_convert(a->sample, chunk, now, as, (char *)dst + (size_t)done * wide);
        if (well < now)
            return refuse(a, err,
                          "element %" PRId64 " of type %s has no exact value in %s: save it with "
                          ".astype('%s')",
                          first + done + (int64_t)well, a->type, wf_dtype_name(as),
                          as == WF_F32   ? "float32"
                          : as == WF_F64 ? "float64"
                                         : "int32");
        done += (int64_t)now;
    }
    return true;
}
