#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ckpt/safetensors.h"
#include "files.h"
#include "support_corpus.h"
#include "support_scratch.h"

/* A file in memory that is exactly as long as it says. */
static unsigned char *compose(const char *header, size_t header_bytes, size_t data_bytes,
                              size_t *size)
{
    *size = 8 + header_bytes + data_bytes;
    unsigned char *file = malloc(*size);
    assert_non_null(file);
    const uint64_t length = header_bytes;
    memcpy(file, &length, 8);
    memcpy(file + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++)
        file[8 + header_bytes + i] = (unsigned char)i;
    return file;
}

static void check_refused(const char *header, size_t data_bytes, const char *words)
{
    size_t size;
    unsigned char *file = compose(header, strlen(header), data_bytes, &size);
    struct wf_err err = { 0 };
    assert_null(wf_safetensors_parse("m.safetensors", file, size, &err));
    assert_int_equal(err.code, WF_ERR_INPUT);
    if (!strstr(err.text, words) || !strstr(err.text, "'m.safetensors'"))
        fail_msg("\"%s\" does not say \"%s\" for %s", err.text, words, header);
    free(file);
}

#define T(fields) "{\"w\":{" fields "}}"
#define F32_4 "\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]"
#define U8_AT(name, a, b)                                                                          \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #a "," #b "]}"

static void lies__about_a_tensor_name_it_and_the_fix(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        const char *words;
    } lies[] = {
        { T(F32_4), 15, "tensor 'w': its data ends at byte 16 of 15: the file is cut short" },
        { T(F32_4), 17, "1 bytes follow the last tensor" },
        { T("\"dtype\":\"F31\",\"shape\":[4],\"data_offsets\":[0,16]"), 16,
          "tensor 'w': unknown dtype 'F31': save it as F32" },
        { T("\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0,16]"), 16,
          "tensor 'w': 4 elements of F64 do not take the 16 bytes" },
        { T("\"dtype\":\"F32\",\"shape\":[-2,-2],\"data_offsets\":[0,16]"), 16,
          "tensor 'w': extent 0 of its shape is not a whole number" },
        { T("\"dtype\":\"F32\",\"shape\":[2,2.5],\"data_offsets\":[0,16]"), 16, "extent 1" },
        { T("\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]"), 16, "shape is not a list" },
        { T("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,16]"), 16,
          "tensor 'w': the product of its shape overflows" },
        { T("\"dtype\":\"F64\",\"shape\":[4294967296,268435456],\"data_offsets\":[0,16]"), 16,
          "overflows" },
        { T("\"dtype\":\"F32\",\"shape\":[1e300],\"data_offsets\":[0,16]"), 16, "extent 0" },
        { T("\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]"), 16, "data_offsets" },
        { T("\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-16,0]"), 16, "data_offsets" },
        { T("\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]"), 16, "data_offsets" },
        { T("\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,9e15]"), 16, "cut short" },
        { T("\"shape\":[4],\"data_offsets\":[0,16]"), 16, "needs dtype, shape and data_offsets" },
        { T(F32_4 ",\"x\":1"), 16, "nothing else" },
        { T(F32_4 ",\"shape\":[4]"), 16, "each once" },
        { "{\"w\":3}", 0, "tensor 'w': needs dtype" },
        { "{" U8_AT("a", 0, 4) "," U8_AT("b", 2, 6) "}", 6,
          "tensor 'b': its data starts at byte 2, "
          "the one before ends at 4: tensors may not "
          "overlap" },
        { "{" U8_AT("a", 0, 4) "," U8_AT("b", 6, 10) "}", 10, "may not leave gaps" },
        { "{" U8_AT("a", 0, 4) "," U8_AT("a", 4, 8) "}", 8, "tensor 'a': the name is there twice" },
        { "{" U8_AT("a\\u001b[2J", 0, 4) "}", 4, "control character" },
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++)
        check_refused(lies[i].header, lies[i].data, lies[i].words);
}

static void lies__of_the_header_are_refused(void **state)
{
    static const struct {
        const char *header, *words;
    } lies[] = {
        { "", "does not start with '{'" },
        { " {}", "does not start with '{'" },
        { "[]", "does not start with '{'" },
        { "{\"a\":[[[[1]]]]}", "nests deeper" },
        { "{\"\xff\":1}", "not valid UTF-8" },
        { "{\"\xed\xa0\x80\":1}", "not valid UTF-8" }, /* a surrogate */
        { "{\"\xc0\x80\":1}", "not valid UTF-8" },     /* a long form of zero */
        { "{\"a\xe4\xb8", "not valid UTF-8" },         /* cut in a character */
        { "{\"a\x01\":1}", "control character" },
        { "{\"a\\u0000b\":1}", "zero character" },
        { "{\"a\":", "not valid JSON at byte" },
        { "{\"a", "not valid JSON" },
        { "{\"a\\", "not valid JSON" },
        { "{\"a\\u12", "not valid JSON" },
        { "{}x", "not valid JSON at byte 2" },
        { "{} {}", "not valid JSON at byte 3" },
        { "{\"__metadata__\":[]}", "__metadata__ is not an object" },
        { "{\"__metadata__\":{\"a\":1}}", "__metadata__ 'a' is not text" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", "__metadata__ is there twice" },
        { "{\"__metadata__\":{\"a\":\"1\",\"a\":\"1\"}}", "key twice" },
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++)
        check_refused(lies[i].header, 0, lies[i].words);
}

static void lies__of_the_length_are_refused_before_it_is_used(void **state)
{
    static const uint64_t lengths[] = { 17, 100'000'001, UINT64_MAX, UINT64_MAX - 7,
                                        (uint64_t)1 << 63 };
    for (int i = 0; i < 5; i++) {
        size_t size;
        unsigned char *file = compose("{}              ", 16, 0, &size);
        memcpy(file, &lengths[i], 8);
        struct wf_err err = { 0 };
        assert_null(wf_safetensors_parse("m", file, size, &err));
        assert_non_null(strstr(err.text, "does not fit a file of 24 bytes"));
        free(file);
    }
    for (size_t size = 0; size < 8; size++) {
        struct wf_err err = { 0 };
        assert_null(wf_safetensors_parse("m", "\0\0\0\0\0\0\0", size, &err));
        assert_non_null(strstr(err.text, "too few"));
    }
}

static void other_files__are_recognised(void **state)
{
    struct wf_err err = { 0 };
    assert_null(wf_safetensors_parse("m.pt", "PK\3\4\0\0\0\0\0\0\x08\x08", 12, &err));
    assert_non_null(strstr(err.text, "safetensors.torch.save_file"));
    err = (struct wf_err){ 0 };
    assert_null(wf_safetensors_parse("m", "version https://git-lfs", 23, &err));
    assert_non_null(strstr(err.text, "git lfs pull"));
    err = (struct wf_err){ 0 };
    assert_null(wf_safetensors_open("no-such-file.safetensors", &err));
    assert_non_null(strstr(err.text, "cannot open 'no-such-file.safetensors'"));
    err = (struct wf_err){ 0 };
    assert_null(wf_safetensors_open(".", &err));
    assert_non_null(strstr(err.text, "not a regular file"));
}

static void a_good_file__cut_anywhere_is_refused(void **state)
{
    const char *header =
        "{" U8_AT("a", 0, 4) ",\"__metadata__\":{\"k\":\"v\"}," U8_AT("b", 4, 8) "}";
    size_t whole;
    unsigned char *file = compose(header, strlen(header), 8, &whole);
    struct wf_safetensors *s = wf_safetensors_parse("m", file, whole, NULL);
    assert_non_null(s);
    wf_safetensors_free(s);
    for (size_t size = 0; size < whole; size++) {
        unsigned char *cut = malloc(size ? size : 1);
        assert_non_null(cut);
        memcpy(cut, file, size);
        struct wf_err err = { 0 };
        assert_null(wf_safetensors_parse("m", cut, size, &err));
        assert_int_equal(err.code, WF_ERR_INPUT);
        free(cut);
    }
    free(file);
}

static bool reads(const char *path, struct wf_err *err)
{
    struct wf_safetensors *const s = wf_safetensors_open(path, err);
    wf_safetensors_free(s);
    return s != NULL;
}

static void corpus__good_is_read_and_lies_are_not(void **state)
{
    support_check_corpus(WF_TEST_SOURCE_DIR "/fuzz/corpus/safetensors", reads, 5, 40);
}

static const void *give_floats(void *user, struct wf_err *err)
{
    (void)err;
    static const float values[3] = { 5, 6, 7 };
    ++*(int *)user;
    return values;
}

static const float WEIGHT[6] = { 1, -2, 0.5f, INFINITY, 1e-40f, 3 };
static const uint8_t MASK[5] = { 1, 2, 3, 4, 255 };
static const int64_t STEP = INT64_MIN;

static void write_round(void)
{
    int requested = 0;
    struct wf_safetensors_writer *w = wf_safetensors_begin();
    wf_safetensors_add_metadata(w, "config", "{\"base\": 64}\n\t\"\\é");
    char name[] = "enc0.weight";
    int64_t shape[] = { 1, 2, 3 };
    wf_safetensors_add(
        w,
        &(struct wf_safetensors_item){
            .name = "mask", .dtype = WF_U8, .rank = 1, .shape = (int64_t[]){ 5 }, .data = MASK });
    wf_safetensors_add(
        w, &(struct wf_safetensors_item){
               .name = name, .dtype = WF_F32, .rank = 3, .shape = shape, .data = WEIGHT });
    wf_safetensors_add(w, &(struct wf_safetensors_item){ .name = "bias \"q\"\\é",
                                                         .dtype = WF_F32,
                                                         .rank = 1,
                                                         .shape = (int64_t[]){ 3 },
                                                         .give = give_floats,
                                                         .user = &requested });
    wf_safetensors_add(
        w, &(struct wf_safetensors_item){ .name = "step", .dtype = WF_I64, .data = &STEP });
    wf_safetensors_add(
        w, &(struct wf_safetensors_item){
               .name = "none", .dtype = WF_F32, .rank = 2, .shape = (int64_t[]){ 0, 4 } });
    memset(name, 'x', 4); /* name and shape were copied */
    memset(shape, 0, sizeof shape);
    struct wf_err err = { 0 };
    if (!wf_safetensors_finish(w, "round.safetensors", &err))
        fail_msg("%s", err.text);
    wf_safetensors_writer_free(w);
    assert_int_equal(requested, 1);
}

static void round_trip__keeps_names_shapes_bytes_and_metadata(void **state)
{
    write_round();
    struct wf_err err = { 0 };
    struct wf_safetensors *s = wf_safetensors_open("round.safetensors", &err);
    if (!s)
        fail_msg("%s", err.text);
    assert_int_equal(wf_safetensors_count(s), 5);
    assert_string_equal(wf_safetensors_metadata(s, "config"), "{\"base\": 64}\n\t\"\\é");
    assert_null(wf_safetensors_metadata(s, "format"));
    /* Wider types first, then as they were added. */
    assert_string_equal(wf_safetensors_at(s, 0)->name, "step");
    assert_string_equal(wf_safetensors_at(s, 4)->name, "mask");
    float back[6];
    const struct wf_safetensor *t =
        wf_safetensors_want(s, "enc0.weight", 3, (int64_t[]){ 1, 2, 3 }, &err);
    assert_non_null(t);
    assert_int_equal(t->begin % 4, 0);
    assert_true(wf_safetensors_read(s, t, WF_F32, back, &err));
    assert_memory_equal(back, WEIGHT, sizeof WEIGHT);
    assert_true(
        wf_safetensors_read(s, wf_safetensors_find(s, "bias \"q\"\\é"), WF_F32, back, &err));
    assert_true(back[0] == 5 && back[2] == 7);
    int64_t wide_back;
    t = wf_safetensors_want(s, "step", 0, NULL, &err);
    assert_non_null(t);
    assert_true(wf_safetensors_read(s, t, WF_I64, &wide_back, &err));
    assert_true(wide_back == STEP);
    uint8_t bytes_back[5];
    assert_true(wf_safetensors_read(s, wf_safetensors_find(s, "mask"), WF_U8, bytes_back, &err));
    assert_memory_equal(bytes_back, MASK, sizeof MASK);
    assert_int_equal(wf_safetensors_find(s, "none")->count, 0);
    wf_safetensors_free(s);
}

static void written__bytes_are_padded_and_without_gaps(void **state)
{
    write_round();
    size_t size = 0;
    unsigned char *file = slurp("round.safetensors", &size);
    assert_non_null(file);
    uint64_t length;
    memcpy(&length, file, 8);
    assert_int_equal(length % 8, 0);
    assert_int_equal(size, 8 + length + 8 + 24 + 12 + 5);
    free(file);
}

static void want__says_what_is_missing_or_other(void **state)
{
    const char *header = "{" U8_AT("enc0.bias", 0, 4) "}";
    size_t size;
    unsigned char *file = compose(header, strlen(header), 4, &size);
    struct wf_safetensors *s = wf_safetensors_parse("m.safetensors", file, size, NULL);
    struct wf_err err = { 0 };
    assert_null(wf_safetensors_want(s, "dec0.bias", 1, (int64_t[]){ 4 }, &err));
    assert_string_equal(err.text,
                        "'m.safetensors': tensor 'dec0.bias': is not in the file, which has 1 "
                        "tensors, the first 'enc0.bias': give the file of the same network");
    err = (struct wf_err){ 0 };
    assert_null(wf_safetensors_want(s, "enc0.bias", 2, (int64_t[]){ 8, 3 }, &err));
    assert_non_null(
        strstr(err.text, "tensor 'enc0.bias': has shape [4], the network wants [8, 3]"));
    assert_null(wf_safetensors_want(s, "enc0.bias", 1, (int64_t[]){ 5 }, NULL));
    wf_safetensors_free(s);
    free(file);
}

/* A file with one tensor "x" of `count` elements at `data`. */
static struct wf_safetensors *one_tensor(enum wf_dtype dtype, int64_t count, const void *data)
{
    struct wf_safetensors_writer *w = wf_safetensors_begin();
    wf_safetensors_add(w,
                       &(struct wf_safetensors_item){
                           .name = "x", .dtype = dtype, .rank = 1, .shape = &count, .data = data });
    struct wf_err err = { 0 };
    if (!wf_safetensors_finish(w, "one.safetensors", &err))
        fail_msg("%s", err.text);
    wf_safetensors_writer_free(w);
    struct wf_safetensors *s = wf_safetensors_open("one.safetensors", &err);
    assert_non_null(s);
    return s;
}

static void read__widens_every_floating_type_to_f32(void **state)
{
    enum { COUNT = 20000 }; /* more than a chunk */
    static const enum wf_dtype types[] = { WF_BF16, WF_F16, WF_F64 };
    for (int i = 0; i < 3; i++) {
        double *data = calloc(COUNT, sizeof *data);
        float *back = calloc(COUNT, sizeof *back);
        assert_true(data && back);
        for (int64_t k = 0; k < COUNT; k++)
            wf_dtype_put(types[i], data, k, (double)(k % 256) - 128);
        wf_dtype_put(types[i], data, 5, -(double)INFINITY);
        struct wf_safetensors *s = one_tensor(types[i], COUNT, data);
        assert_true(wf_safetensors_read(s, wf_safetensors_at(s, 0), WF_F32, back, NULL));
        for (int64_t k = 0; k < COUNT; k++)
            assert_true(k == 5 ? isinf(back[k]) && back[k] < 0 : back[k] == (float)(k % 256) - 128);
        wf_safetensors_free(s);
        free(data);
        free(back);
    }
}

static void read__refuses_what_would_change_the_values(void **state)
{
    float back[2];
    struct wf_err err = { 0 };
    struct wf_safetensors *s = one_tensor(WF_F64, 1, (const double[]){ 1e300 });
    assert_false(wf_safetensors_read(s, wf_safetensors_at(s, 0), WF_F32, back, &err));
    assert_non_null(strstr(err.text, "tensor 'x': has a F64 value past the range of F32"));
    wf_safetensors_free(s);
    err = (struct wf_err){ 0 };
    s = one_tensor(WF_I64, 1, (const int64_t[]){ 3 });
    assert_false(wf_safetensors_read(s, wf_safetensors_at(s, 0), WF_F32, back, &err));
    assert_non_null(strstr(err.text, "tensor 'x': dtype I64 where f32 is needed"));
    wf_safetensors_free(s);
    const char *header = T("\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]");
    size_t size;
    unsigned char *file = compose(header, strlen(header), 4, &size);
    s = wf_safetensors_parse("m", file, size, NULL);
    assert_non_null(s);
    err = (struct wf_err){ 0 };
    assert_false(wf_safetensors_read(s, wf_safetensors_at(s, 0), WF_F32, back, &err));
    assert_non_null(
        strstr(err.text, "tensor 'w': dtype F8_E4M3 cannot be read here: save it as F32"));
    wf_safetensors_free(s);
    free(file);
}

static void read__notices_a_file_that_became_shorter(void **state)
{
    float data[4] = { 1, 2, 3, 4 };
    struct wf_safetensors *s = one_tensor(WF_F32, 4, data);
    assert_int_equal(truncate("one.safetensors", 40), 0);
    struct wf_err err = { 0 };
    assert_false(wf_safetensors_read(s, wf_safetensors_at(s, 0), WF_F32, data, &err));
    assert_non_null(strstr(err.text, "became shorter"));
    wf_safetensors_free(s);
}

static void writer__refuses_names_that_no_reader_takes(void **state)
{
    static const char *const names[][2] = {
        { "a", "a" }, { "__metadata__", "b" }, { "\xff", "b" }, { "a\n", "b" }
    };
    for (int i = 0; i < 4; i++) {
        struct wf_safetensors_writer *w = wf_safetensors_begin();
        for (int k = 0; k < 2; k++)
            wf_safetensors_add(w, &(struct wf_safetensors_item){
                                      .name = names[i][k], .dtype = WF_U8, .data = "x" });
        struct wf_err err = { 0 };
        assert_false(wf_safetensors_finish(w, "names.safetensors", &err));
        assert_non_null(strstr(err.text, "writing 'names.safetensors': tensor "));
        assert_non_null(strstr(err.text, "rename"));
        wf_safetensors_writer_free(w);
    }
    assert_int_not_equal(access("names.safetensors", F_OK), 0);
}

static const void *give_nothing(void *user, struct wf_err *err)
{
    (void)user;
    (void)wf_err_set(err, WF_ERR_FAILED, "the device is gone");
    return NULL;
}

/* Writes a large tensor where an old file is; how it fails is the caller's. */
static void check_old_file_stays(const void *(*give)(void *, struct wf_err *), const char *words)
{
    const float old = 42;
    wf_safetensors_free(one_tensor(WF_F32, 1, &old));
    float *data = calloc(100000, sizeof *data);
    assert_non_null(data);
    struct wf_safetensors_writer *w = wf_safetensors_begin();
    wf_safetensors_add(w, &(struct wf_safetensors_item){ .name = "x",
                                                         .dtype = WF_F32,
                                                         .rank = 1,
                                                         .shape = (int64_t[]){ 100000 },
                                                         .data = give ? NULL : data,
                                                         .give = give });
    struct wf_err err = { 0 };
    if (!give)
        limit_files(5000);
    const bool ok = wf_safetensors_finish(w, "one.safetensors", &err);
    limit_files(0);
    assert_false(ok);
    if (!strstr(err.text, words))
        fail_msg("%s", err.text);
    assert_int_equal(err.code, WF_ERR_FAILED);
    wf_safetensors_writer_free(w);
    free(data);
    assert_int_equal(count_files(".", ".partial"), 0);
    struct wf_safetensors *s = wf_safetensors_open("one.safetensors", &err);
    assert_non_null(s);
    float back = 0;
    assert_true(wf_safetensors_read(s, wf_safetensors_at(s, 0), WF_F32, &back, NULL));
    assert_true(back == old);
    wf_safetensors_free(s);
}

static void a_failing_write__leaves_the_old_file_and_nothing_else(void **state)
{
    check_old_file_stays(NULL, "tensor 'x': cannot write '");
    check_old_file_stays(NULL, "File too large");
    check_old_file_stays(give_nothing, "tensor 'x': the device is gone");
}

static void writing__where_one_cannot_says_so(void **state)
{
    struct wf_safetensors_writer *w = wf_safetensors_begin();
    struct wf_err err = { 0 };
    assert_false(wf_safetensors_finish(w, "no/such/folder/m.safetensors", &err));
    assert_non_null(strstr(err.text, "cannot write 'no/such/folder/m.safetensors': No such file"));
    err = (struct wf_err){ 0 };
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_false(wf_safetensors_finish(w, "folder", &err));
    assert_non_null(strstr(err.text, "not a regular file"));
    /* A link is not followed: it is replaced, the file behind it stays. */
    assert_int_equal(symlink("behind.safetensors", "link.safetensors"), 0);
    FILE *old = fopen("behind.safetensors", "w");
    assert_true(old && fclose(old) == 0);
    assert_true(wf_safetensors_finish(w, "link.safetensors", NULL));
    struct stat info;
    assert_true(lstat("link.safetensors", &info) == 0 && S_ISREG(info.st_mode));
    assert_true(stat("behind.safetensors", &info) == 0 && info.st_size == 0);
    struct wf_safetensors *s = wf_safetensors_open("link.safetensors", NULL);
    assert_non_null(s);
    assert_int_equal(wf_safetensors_count(s), 0);
    wf_safetensors_free(s);
    wf_safetensors_writer_free(w);
    assert_int_equal(count_files(".", ".partial"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lies__about_a_tensor_name_it_and_the_fix),
        cmocka_unit_test(lies__of_the_header_are_refused),
        cmocka_unit_test(lies__of_the_length_are_refused_before_it_is_used),
        cmocka_unit_test(other_files__are_recognised),
        cmocka_unit_test(a_good_file__cut_anywhere_is_refused),
        cmocka_unit_test(corpus__good_is_read_and_lies_are_not),
        cmocka_unit_test(round_trip__keeps_names_shapes_bytes_and_metadata),
        cmocka_unit_test(written__bytes_are_padded_and_without_gaps),
        cmocka_unit_test(want__says_what_is_missing_or_other),
        cmocka_unit_test(read__widens_every_floating_type_to_f32),
        cmocka_unit_test(read__refuses_what_would_change_the_values),
        cmocka_unit_test(read__notices_a_file_that_became_shorter),
        cmocka_unit_test(writer__refuses_names_that_no_reader_takes),
        cmocka_unit_test(a_failing_write__leaves_the_old_file_and_nothing_else),
        cmocka_unit_test(writing__where_one_cannot_says_so),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
