/*
 * Invariants of an open file, on which wf_safetensors_read() relies:
 *   I1  8 + header length <= file size, and the data section is the rest
 *   I2  a tensor's end - begin is exactly its count times its element's size
 *   I3  tensors, sorted by begin, touch: each begins where the one before ended, the first at 0, and
 *       the last ends where the file ends (so none overlaps and none reaches past the file)
 *   I4  names are unique, valid UTF-8, without control characters
 */
#include "ckpt/safetensors.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/memory.h"
#include "ckpt/safetensors_format.h"

struct pair {
    const char *key, *value;
};

struct wf_safetensors {
    struct wf_infile file;
    struct wf_arena arena;
    uint64_t data, data_bytes; /* where the data starts in the file, and its length */
    struct wf_safetensor *tensors;
    const struct wf_safetensor **by_name;
    int64_t count;
    struct pair *metadata;
    int64_t n_metadata;
};

static const struct {
    const char *name;
    int bits;
    enum wf_dtype dtype; /* WF_DTYPES: known of, not read */
} kinds[] = {
    { "F32", 32, WF_F32 },
    { "BF16", 16, WF_BF16 },
    { "F16", 16, WF_F16 },
    { "F64", 64, WF_F64 },
    { "I32", 32, WF_I32 },
    { "I64", 64, WF_I64 },
    { "U8", 8, WF_U8 },
    { "BOOL", 8, WF_DTYPES },
    { "I8", 8, WF_DTYPES },
    { "I16", 16, WF_DTYPES },
    { "U16", 16, WF_DTYPES },
    { "U32", 32, WF_DTYPES },
    { "U64", 64, WF_DTYPES },
    { "C64", 64, WF_DTYPES },
    { "F8_E5M2", 8, WF_DTYPES },
    { "F8_E4M3", 8, WF_DTYPES },
    { "F8_E8M0", 8, WF_DTYPES },
    { "F8_E5M2FNUZ", 8, WF_DTYPES },
    { "F8_E4M3FNUZ", 8, WF_DTYPES },
    { "F6_E2M3", 6, WF_DTYPES },
    { "F6_E3M2", 6, WF_DTYPES },
    { "F4", 4, WF_DTYPES },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* "'file': tensor 'name': <what>"; `tensor` may be NULL. */
__attribute__((format(printf, 4, 5))) static bool refuse(const struct wf_safetensors *s,
                                                         const char *tensor, struct wf_err *err,
                                                         const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!tensor)
        return wf_err_set(err, WF_ERR_INPUT, "'%s': %s", s->file.name, what);
    return wf_err_set(err, WF_ERR_INPUT, "'%s': tensor '%.200s': %s", s->file.name, tensor, what);
}

/* What is wrong with the text in ways that cJSON would let pass, or NULL. A header nests three
 * deep: itself, a tensor, its shape; a parser that recurses must not be led deeper. */
static const char *scan(const unsigned char *text, size_t size)
{
    if (size == 0 || text[0] != '{')
        return "does not start with '{'";
    if (!wf_utf8_is_valid(text, size))
        return "is not valid UTF-8";
    bool quoted = false;
    int depth = 0;
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = text[i];
        if (c < 0x20 && (quoted || (c != '\n' && c != '\r' && c != '\t')))
            return "has a control character in it";
        if (c == '"')
            quoted = !quoted;
        else if (quoted && c == '\\' && size - i > 6 && memcmp(text + i, "\\u0000", 6) == 0)
            return "has a zero character in a name";
        else if (quoted && c == '\\')
            i++;
        else if (!quoted && (c == '{' || c == '[') && ++depth > 3)
            return "nests deeper than the format does";
        else if (!quoted && (c == '}' || c == ']'))
            depth--;
    }
    return NULL;
}

/* A JSON number is a double: whole up to 2^53, far past any file. */
static bool whole(const cJSON *item, int64_t *value)
{
    if (!cJSON_IsNumber(item))
        return false;
    const double v = cJSON_GetNumberValue(item);
    if (!(v >= 0 && v <= 0x1p53) || v != floor(v))
        return false;
    *value = (int64_t)v;
    return true;
}

static bool read_shape(struct wf_safetensors *s, struct wf_safetensor *t, const cJSON *list,
                       struct wf_err *err)
{
    if (!cJSON_IsArray(list))
        return refuse(s, t->name, err, "its shape is not a list: write the file again");
    t->rank = cJSON_GetArraySize(list);
    int64_t *shape = wf_arena_array(&s->arena, t->rank, int64_t);
    t->shape = shape;
    t->count = 1;
    int axis = 0;
    for (const cJSON *at = list->child; at; at = at->next, axis++) {
        if (!whole(at, &shape[axis]))
            return refuse(
                s, t->name, err,
                "extent %d of its shape is not a whole number from 0: write the file again", axis);
        if (__builtin_mul_overflow(t->count, shape[axis], &t->count))
            return refuse(s, t->name, err,
                          "the product of its shape overflows: write the file again");
    }
    return true;
}

static bool read_offsets(struct wf_safetensors *s, struct wf_safetensor *t, const cJSON *list,
                         struct wf_err *err)
{
    int64_t begin, end;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 2 || !whole(list->child, &begin) ||
        !whole(list->child->next, &end) || begin > end)
        return refuse(
            s, t->name, err,
            "its data_offsets are not two whole numbers [begin, end]: write the file again");
    t->begin = (uint64_t)begin;
    t->end = (uint64_t)end;
    if (t->end > s->data_bytes)
        return refuse(s, t->name, err,
                      "its data ends at byte %" PRIu64 " of %" PRIu64
                      ": the file is cut short, copy it again",
                      t->end, s->data_bytes);
    return true;
}

/* I2 */
static bool check_size(struct wf_safetensors *s, struct wf_safetensor *t, const char *kind,
                       struct wf_err *err)
{
    int k = 0;
    while (k < KINDS && strcmp(kinds[k].name, kind) != 0)
        k++;
    if (k == KINDS)
        return refuse(s, t->name, err, "unknown dtype '%.40s': save it as F32", kind);
    t->kind = kinds[k].name;
    t->dtype = kinds[k].dtype;
    int64_t bits;
    if (__builtin_mul_overflow(t->count, kinds[k].bits, &bits))
        return refuse(s, t->name, err, "the product of its shape overflows: write the file again");
    if (bits % 8 != 0 || (uint64_t)(bits / 8) != t->end - t->begin)
        return refuse(s, t->name, err,
                      "%" PRId64 " elements of %s do not take the %" PRIu64
                      " bytes of its data_offsets: write the file again",
                      t->count, t->kind, t->end - t->begin);
    return true;
}

static bool read_tensor(struct wf_safetensors *s, struct wf_safetensor *t, const cJSON *entry,
                        struct wf_err *err)
{
    if (wf_text_has_control(entry->string))
        return refuse(s, NULL, err,
                      "a tensor's name has a control character in it: rename the tensor");
    t->name = wf_arena_copy(&s->arena, entry->string);
    const cJSON *dtype = NULL, *shape = NULL, *offsets = NULL;
    int fields = 0;
    for (const cJSON *at = cJSON_IsObject(entry) ? entry->child : NULL; at; at = at->next) {
        fields++;
        if (strcmp(at->string, "dtype") == 0 && cJSON_IsString(at))
            dtype = at;
        else if (strcmp(at->string, "shape") == 0)
            shape = at;
        else if (strcmp(at->string, "data_offsets") == 0)
            offsets = at;
    }
    /* Three fields and all three found: none is there twice, and no other. */
    if (!dtype || !shape || !offsets || fields != 3)
        return refuse(s, t->name, err,
                      "needs dtype, shape and data_offsets, each once and nothing else: write the "
                      "file again");
    return read_shape(s, t, shape, err) && read_offsets(s, t, offsets, err) &&
           check_size(s, t, dtype->valuestring, err);
}

static bool read_metadata(struct wf_safetensors *s, const cJSON *object, struct wf_err *err)
{
    if (!cJSON_IsObject(object))
        return refuse(s, NULL, err,
                      WF_SAFETENSORS_METADATA " is not an object: write the file again");
    s->metadata = wf_arena_array(&s->arena, cJSON_GetArraySize(object), struct pair);
    for (const cJSON *at = object->child; at; at = at->next) {
        if (!cJSON_IsString(at))
            return refuse(s, NULL, err,
                          WF_SAFETENSORS_METADATA " '%.80s' is not text: store numbers as text",
                          wf_text_has_control(at->string) ? "?" : at->string);
        s->metadata[s->n_metadata++] = (struct pair){ wf_arena_copy(&s->arena, at->string),
                                                      wf_arena_copy(&s->arena, at->valuestring) };
    }
    return true;
}

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(((const struct pair *)a)->key, ((const struct pair *)b)->key);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct wf_safetensor *const *)a)->name,
                  (*(const struct wf_safetensor *const *)b)->name);
}

static int compare_offsets(const void *a, const void *b)
{
    const struct wf_safetensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* I3 and I4 */
static bool check_all(struct wf_safetensors *s, struct wf_err *err)
{
    if (s->count > 1)
        qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, compare_offsets);
    uint64_t end = 0;
    for (int64_t i = 0; i < s->count; end = s->tensors[i++].end)
        if (s->tensors[i].begin != end)
            return refuse(s, s->tensors[i].name, err,
                          "its data starts at byte %" PRIu64 ", the one before ends at %" PRIu64
                          ": tensors may not %s, write the file again",
                          s->tensors[i].begin, end,
                          s->tensors[i].begin < end ? "overlap" : "leave gaps");
    if (end != s->data_bytes)
        return refuse(s, NULL, err,
                      "%" PRIu64
                      " bytes follow the last tensor: the header belongs to another file, "
                      "write the file again",
                      s->data_bytes - end);
    s->by_name = wf_arena_array(&s->arena, s->count, const struct wf_safetensor *);
    for (int64_t i = 0; i < s->count; i++)
        s->by_name[i] = &s->tensors[i];
    if (s->count > 1)
        qsort(s->by_name, (size_t)s->count, sizeof(struct wf_safetensor *), compare_names);
    for (int64_t i = 1; i < s->count; i++)
        if (strcmp(s->by_name[i - 1]->name, s->by_name[i]->name) == 0)
            return refuse(s, s->by_name[i]->name, err,
                          "the name is there twice: rename one of them");
    if (s->n_metadata > 1)
        qsort(s->metadata, (size_t)s->n_metadata, sizeof *s->metadata, compare_pairs);
    for (int64_t i = 1; i < s->n_metadata; i++)
        if (strcmp(s->metadata[i - 1].key, s->metadata[i].key) == 0)
            return refuse(s, NULL, err,
                          WF_SAFETENSORS_METADATA " has a key twice: write the file again");
    return true;
}

static bool read_entries(struct wf_safetensors *s, const cJSON *root, struct wf_err *err)
{
    s->tensors = wf_arena_array(&s->arena, cJSON_GetArraySize(root), struct wf_safetensor);
    bool metadata = false;
    for (const cJSON *entry = root->child; entry; entry = entry->next) {
        if (strcmp(entry->string, WF_SAFETENSORS_METADATA) != 0) {
            if (!read_tensor(s, &s->tensors[s->count++], entry, err))
                return false;
            continue;
        }
        if (metadata)
            return refuse(s, NULL, err,
                          WF_SAFETENSORS_METADATA " is there twice: write the file again");
        metadata = true;
        if (!read_metadata(s, entry, err))
            return false;
    }
    return check_all(s, err);
}

static bool read_header(struct wf_safetensors *s, size_t length, struct wf_err *err)
{
    char *text = malloc(length + 1);
    if (!text)
        return wf_err_set(err, WF_ERR_FIT, "'%s': no memory for a header of %zu bytes",
                          s->file.name, length);
    cJSON *root = NULL;
    bool ok = wf_infile_read(&s->file, 8, text, length, err);
    const char *wrong = ok ? scan((const unsigned char *)text, length) : NULL;
    if (wrong)
        ok = refuse(s, NULL, err, "the header %s: this is no safetensors file, or a damaged one",
                    wrong);
    if (ok) {
        text[length] = '\0';
        const char *end = text;
        root = cJSON_ParseWithLengthOpts(text, length + 1, &end, true);
        ok = root ? read_entries(s, root, err)
                  : refuse(s, NULL, err,
                           "the header is not valid JSON at byte %td: the file is damaged, copy it "
                           "again",
                           end - text);
    }
    cJSON_Delete(root);
    free(text);
    return ok;
}

/* Two things that people give by mistake and that say nothing as a header length. */
static const char *mistaken_for(const unsigned char head[8])
{
    if (memcmp(head, "PK\3\4", 4) == 0)
        return "this is a zip file, perhaps a PyTorch .pt: save it with safetensors.torch.save_file";
    if (memcmp(head, "version ", 8) == 0)
        return "this is a Git LFS pointer: run 'git lfs pull'";
    return "this is no safetensors file, or one that was cut short";
}

/* I1 */
static bool check_file(struct wf_safetensors *s, struct wf_err *err)
{
    unsigned char head[8];
    if (s->file.size < sizeof head)
        return refuse(s, NULL, err,
                      "%" PRIu64 " bytes are too few for a safetensors file: copy it again",
                      s->file.size);
    if (!wf_infile_read(&s->file, 0, head, sizeof head, err))
        return false;
    uint64_t length;
    memcpy(&length, head, sizeof length);
    if (length > s->file.size - sizeof head)
        return refuse(s, NULL, err,
                      "a header of %" PRIu64 " bytes does not fit a file of %" PRIu64 " bytes: %s",
                      length, s->file.size, mistaken_for(head));
    if (length > WF_SAFETENSORS_HEADER_MAX)
        return refuse(s, NULL, err,
                      "a header of %" PRIu64 " bytes is past the format's limit of %" PRIu64
                      ": put fewer tensors in a file",
                      length, WF_SAFETENSORS_HEADER_MAX);
    s->data = sizeof head + length;
    s->data_bytes = s->file.size - s->data;
    return read_header(s, (size_t)length, err);
}

static struct wf_safetensors *begin_reader(void)
{
    struct wf_safetensors *s = wf_take_zeroed(1, sizeof *s);
    s->file.fd = -1;
    return s;
}

struct wf_safetensors *wf_safetensors_open(const char *path, struct wf_err *err)
{
    struct wf_safetensors *s = begin_reader();
    if (wf_infile_open(&s->file, path, err) && check_file(s, err))
        return s;
    wf_safetensors_free(s);
    return NULL;
}

struct wf_safetensors *wf_safetensors_parse(const char *name, const void *bytes, size_t size,
                                            struct wf_err *err)
{
    struct wf_safetensors *s = begin_reader();
    wf_infile_memory(&s->file, name, bytes, size);
    if (check_file(s, err))
        return s;
    wf_safetensors_free(s);
    return NULL;
}

void wf_safetensors_free(struct wf_safetensors *s)
{
    if (!s)
        return;
    wf_infile_close(&s->file);
    wf_arena_release(&s->arena);
    free(s);
}

int64_t wf_safetensors_count(const struct wf_safetensors *s)
{
    return s->count;
}

const struct wf_safetensor *wf_safetensors_at(const struct wf_safetensors *s, int64_t index)
{
    WF_BUG_ON(index < 0 || index >= s->count, "tensor %" PRId64 " of %" PRId64, index, s->count);
    return &s->tensors[index];
}

const struct wf_safetensor *wf_safetensors_find(const struct wf_safetensors *s, const char *name)
{
    const struct wf_safetensor key = { .name = name }, *at = &key;
    const struct wf_safetensor *const *found =
        s->count ? bsearch(&at, s->by_name, (size_t)s->count, sizeof(const struct wf_safetensor *),
                           compare_names)
                 : NULL;
    return found ? *found : NULL;
}

const char *wf_safetensors_metadata(const struct wf_safetensors *s, const char *key)
{
    const struct pair wanted = { .key = key };
    const struct pair *found = s->n_metadata ? bsearch(&wanted, s->metadata, (size_t)s->n_metadata,
                                                       sizeof wanted, compare_pairs)
                                             : NULL;
    return found ? found->value : NULL;
}

/* "[64, 3, 3, 3]" */
static const char *shape_text(char *text, size_t room, int rank, const int64_t *shape)
{
    size_t used = (size_t)snprintf(text, room, "[");
    for (int i = 0; i < rank && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, i ? ", %" PRId64 : "%" PRId64, shape[i]);
    if (used < room)
        (void)snprintf(text + used, room - used, "]");
    return text;
}

const struct wf_safetensor *wf_safetensors_want(const struct wf_safetensors *s, const char *name,
                                                int rank, const int64_t shape[], struct wf_err *err)
{
    const struct wf_safetensor *t = wf_safetensors_find(s, name);
    if (!t) {
        (void)refuse(s, name, err,
                     "is not in the file, which has %" PRId64
                     " tensors%s%.100s%s: give the file of "
                     "the same network",
                     s->count, s->count ? ", the first '" : "", s->count ? s->tensors[0].name : "",
                     s->count ? "'" : "");
        return NULL;
    }
    if (t->rank != rank ||
        (rank > 0 && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) != 0)) {
        char has[160], wants[160];
        (void)refuse(s, name, err,
                     "has shape %s, the network wants %s: give the file of the same network, or "
                     "change its settings",
                     shape_text(has, sizeof has, t->rank, t->shape),
                     shape_text(wants, sizeof wants, rank, shape));
        return NULL;
    }
    return t;
}

/* False where a finite value has no f32. */
static bool widen(float *dst, enum wf_dtype from, const void *src, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double value = wf_dtype_get(from, src, (int64_t)i);
        dst[i] = (float)value;
        if (isinf(dst[i]) && !isinf(value))
            return false;
    }
    return true;
}

bool wf_safetensors_read(const struct wf_safetensors *s, const struct wf_safetensor *t,
                         enum wf_dtype as, void *dst, struct wf_err *err)
{
    if (t->dtype == WF_DTYPES)
        return refuse(s, t->name, err, "dtype %s cannot be read here: save it as F32", t->kind);
    if (as == t->dtype)
        return wf_infile_read(&s->file, s->data + t->begin, dst, (size_t)(t->end - t->begin), err);
    if (as != WF_F32 || (t->dtype != WF_BF16 && t->dtype != WF_F16 && t->dtype != WF_F64))
        return refuse(s, t->name, err, "dtype %s where %s is needed: save it as %s", t->kind,
                      wf_dtype_name(as), wf_dtype_name(as));
    const size_t size = wf_dtype_size(t->dtype);
    double chunk[2048]; /* of any type: double is aligned for all */
    const size_t most = sizeof chunk / size;
    float *to = dst;
    for (uint64_t done = 0, count = (uint64_t)t->count; done < count;) {
        const size_t now = count - done < most ? (size_t)(count - done) : most;
        if (!wf_infile_read(&s->file, s->data + t->begin + done * size, chunk, now * size, err))
            return false;
        if (!widen(to + done, t->dtype, chunk, now))
            return refuse(s, t->name, err, "has a %s value past the range of F32: scale it",
                          t->kind);
        done += now;
    }
    return true;
}
