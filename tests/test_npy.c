#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "files.h"
#include "image/npy.h"
#include "support_corpus.h"
#include "support_scratch.h"

/* A version 1.0 file in memory, exactly as long as it says. */
static unsigned char *compose(const char *header, const void *data, size_t bytes, size_t *size)
{
    const size_t length = strlen(header);
    *size = 10 + length + bytes;
    unsigned char *file = malloc(*size);
    assert_non_null(file);
    static const unsigned char lead[8] = { 0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0 };
    memcpy(file, lead, sizeof lead);
    file[8] = (unsigned char)(length & 255);
    file[9] = (unsigned char)(length >> 8);
    for (size_t i = 0; i < length; i++)
        file[10 + i] = (unsigned char)header[i];
    if (bytes)
        memcpy(file + 10 + length, data, bytes);
    return file;
}

#define HEAD(descr, shape)                                                                         \
    "{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }  \n"

static void check_refused(const char *header, size_t bytes, const char *words)
{
    static const char zeros[64];
    size_t size;
    unsigned char *file = compose(header, zeros, bytes, &size);
    struct wf_npy a;
    struct wf_err err = { 0 };
    assert_false(wf_npy_parse(&a, "a.npy", file, size, &err));
    assert_int_equal(err.code, WF_ERR_INPUT);
    if (!strstr(err.text, words) || !strstr(err.text, "'a.npy': "))
        fail_msg("\"%s\" does not say \"%s\" for %s", err.text, words, header);
    free(file);
}

static void lies__are_refused_with_words(void **state)
{
    static const struct {
        const char *header;
        size_t bytes;
        const char *words;
    } lies[] = {
        { HEAD("<f4", "(2, 2)"), 15, "shape takes 16 bytes, the file has 15: it is cut short" },
        { HEAD("<f4", "(2, 2)"), 17, "1 bytes follow the array's 16: save one array per file" },
        { HEAD("<f4", "(-2, 2)"), 16, "extent 0 of the header's shape is not a whole number" },
        { HEAD("<f4", "(2, x)"), 16, "extent 1" },
        { HEAD("<f4", "(4294967296, 4294967296)"), 16, "overflows" },
        { HEAD("<f8", "(2305843009213693952,)"), 16, "overflows" },
        { HEAD("<f4", "(99999999999999999999,)"), 16, "extent 0" },
        { HEAD("<f4", "(9000000000000000,)"), 16, "cut short" },
        { HEAD("<f4", "(1, 1, 1, 1, 2, 2)"), 16, "more than 5 axes" },
        { HEAD("<f4", "[2, 2]"), 16, "'shape' is not a tuple" },
        { HEAD("<f4", "(2 2)"), 16, "'shape' is not a tuple" },
        { HEAD("<c8", "(2,)"), 16, "type '<c8': save them with .astype('float32')" },
        { HEAD("|O", "(2,)"), 16, "type '|O'" },
        { HEAD("<u8", "(2,)"), 16, "type '<u8'" },
        { HEAD("f4", "(4,)"), 16, "type 'f4'" },
        { HEAD("=f4", "(4,)"), 16, "type '=f4'" },
        { HEAD("|f4", "(4,)"), 16, "type '|f4'" },
        { HEAD("", "(4,)"), 16, "type ''" },
        { HEAD("<\x1b[2J", "(4,)"), 16, "type '<?[2J'" },
        { "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (4,)}", 16,
          "array of records" },
        { "{'descr': 4, 'fortran_order': False, 'shape': (4,)}", 16, "'descr' is not text" },
        { "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}", 16,
          "Fortran order: save it with numpy.ascontiguousarray()" },
        { "{'descr': '<f4', 'fortran_order': 0, 'shape': (4,)}", 16, "neither True nor False" },
        { "{'descr': '<f4', 'fortran_order': False}", 16,
          "needs 'descr', 'fortran_order' and 'shape'" },
        { HEAD("<f4", "(4,)") "x", 16, "nothing after them" },
        { "{'descr': '<f4', 'descr': '<f4'}", 16, "key twice or one too many" },
        { "{'descr': '<f4', 'x': 1}", 16, "key twice or one too many" },
        { "{'descr': '<f4' 'shape': (4,)}", 16, "damaged" },
        { "{'descr", 16, "damaged" },
        { "{'descr': '<f4", 16, "'descr' is not text" },
        { "{'descr': '<f4', ", 16, "damaged" },
        { "{'shape': (4, ", 16, "extent 1" },
        { "(4,)", 16, "not a dictionary" },
        { "", 16, "not a dictionary" },
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++)
        check_refused(lies[i].header, lies[i].bytes, lies[i].words);
}

static void check_head(const char *head, size_t size, const char *words)
{
    unsigned char *file = malloc(size ? size : 1);
    assert_non_null(file);
    memcpy(file, head, size);
    struct wf_npy a;
    struct wf_err err = { 0 };
    assert_false(wf_npy_parse(&a, "a.npy", file, size, &err));
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    free(file);
}

static void lies__of_the_first_bytes_are_refused(void **state)
{
    check_head("", 0, "not a .npy file: save it with numpy.save()");
    check_head("\x93NUMPY\1\0\0", 9, "not a .npy file");
    check_head("\x92NUMPY\1\0\2\0{}", 12, "not a .npy file");
    check_head("\x93NUMPY\0\0\2\0{}", 12, "version 0.0");
    check_head("\x93NUMPY\4\0\2\0\0\0{}", 14, "version 4.0");
    check_head("\x93NUMPY\1\1\2\0{}", 12, "version 1.1");
    check_head("\x93NUMPY\1\0\3\0{}", 12, "a header of 3 bytes does not fit a file of 12 bytes");
    check_head("\x93NUMPY\2\0\3\0\0", 11, "does not fit");
    check_head("\x93NUMPY\2\0\xff\xff\xff\xff{}", 14, "a header of 4294967295 bytes does not fit");
    check_head("\x93NUMPY\1\0\2\0{\0", 12, "zero byte");
    /* 73,728 bytes, which the file has. */
    static const unsigned char big[80000] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0x00, 0x20, 1, 0
    };
    struct wf_err err = { 0 };
    struct wf_npy a;
    assert_false(wf_npy_parse(&a, "a.npy", big, sizeof big, &err));
    assert_non_null(strstr(err.text, "at most 65536 are read"));
}

static void a_good_file__cut_anywhere_is_refused(void **state)
{
    const float data[4] = { 1, 2, 3, 4 };
    size_t whole;
    unsigned char *file = compose(HEAD("<f4", "(2, 2)"), data, sizeof data, &whole);
    for (size_t size = 0; size <= whole; size++) {
        unsigned char *cut = malloc(size ? size : 1);
        assert_non_null(cut);
        memcpy(cut, file, size);
        struct wf_npy a;
        const bool ok = wf_npy_parse(&a, "a.npy", cut, size, NULL);
        assert_int_equal(ok, size == whole);
        if (ok)
            wf_npy_close(&a);
        free(cut);
    }
    free(file);
}

static bool reads(const char *path, struct wf_err *err)
{
    struct wf_npy a;
    if (!wf_npy_open(&a, path, err))
        return false;
    wf_npy_close(&a);
    return true;
}

static void corpus__good_is_read_and_lies_are_not(void **state)
{
    support_check_corpus(WF_TEST_SOURCE_DIR "/fuzz/corpus/npy", reads, 20, 35);
}

/* All of a small file that must be good, as `as`. */
static bool read_all(const char *header, const void *data, size_t bytes, enum wf_dtype as,
                     void *dst, struct wf_err *err)
{
    size_t size;
    unsigned char *file = compose(header, data, bytes, &size);
    struct wf_npy a;
    struct wf_err why = { 0 };
    if (!wf_npy_parse(&a, "a.npy", file, size, &why))
        fail_msg("%s", why.text);
    const bool ok = wf_npy_read(&a, 0, a.count, as, dst, err);
    wf_npy_close(&a);
    free(file);
    return ok;
}

static void elements__of_every_type_are_converted(void **state)
{
    static const struct {
        const char *header;
        unsigned char bytes[16]; /* 1 and -3, or 1 and 200, by hand */
        size_t size;
        int second;
    } kinds[] = {
        { HEAD("<f2", "(2,)"), { 0x00, 0x3c, 0x00, 0xc2 }, 4, -3 },
        { HEAD(">f2", "(2,)"), { 0x3c, 0x00, 0xc2, 0x00 }, 4, -3 },
        { HEAD("<f4", "(2,)"), { 0, 0, 0x80, 0x3f, 0, 0, 0x40, 0xc0 }, 8, -3 },
        { HEAD(">f4", "(2,)"), { 0x3f, 0x80, 0, 0, 0xc0, 0x40, 0, 0 }, 8, -3 },
        { HEAD("<f8", "(2,)"),
          { 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0x08, 0xc0 },
          16,
          -3 },
        { HEAD(">f8", "(2,)"), { 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xc0, 0x08 }, 16, -3 },
        { HEAD("|b1", "(2,)"), { 1, 0 }, 2, 0 },
        { HEAD("|u1", "(2,)"), { 1, 200 }, 2, 200 },
        { HEAD("<u1", "(2,)"), { 1, 200 }, 2, 200 },
        { HEAD("|i1", "(2,)"), { 1, 0xfd }, 2, -3 },
        { HEAD("<i2", "(2,)"), { 1, 0, 0xfd, 0xff }, 4, -3 },
        { HEAD(">i2", "(2,)"), { 0, 1, 0xff, 0xfd }, 4, -3 },
        { HEAD("<u2", "(2,)"), { 1, 0, 0xfd, 0xff }, 4, 65533 },
        { HEAD("<i4", "(2,)"), { 1, 0, 0, 0, 0xfd, 0xff, 0xff, 0xff }, 8, -3 },
        { HEAD("<u4", "(2,)"), { 1, 0, 0, 0, 0, 0, 0, 0x40 }, 8, 1 << 30 },
        { HEAD("<i8", "(2,)"),
          { 1, 0, 0, 0, 0, 0, 0, 0, 0xfd, 255, 255, 255, 255, 255, 255, 255 },
          16,
          -3 },
        { HEAD(">i8", "(2,)"),
          { 0, 0, 0, 0, 0, 0, 0, 1, 255, 255, 255, 255, 255, 255, 255, 0xfd },
          16,
          -3 },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        float real[2];
        assert_true(read_all(kinds[i].header, kinds[i].bytes, kinds[i].size, WF_F32, real, NULL));
        assert_true(real[0] == 1 && real[1] == (float)kinds[i].second);
        int32_t whole[2];
        int64_t wide[2];
        struct wf_err err = { 0 };
        const bool ok =
            read_all(kinds[i].header, kinds[i].bytes, kinds[i].size, WF_I32, whole, &err);
        if (kinds[i].header[12] == 'f') {
            assert_false(ok);
            assert_non_null(
                strstr(err.text, "where whole numbers are needed: save it with .astype('int64')"));
            continue;
        }
        assert_true(ok && whole[0] == 1 && whole[1] == kinds[i].second);
        assert_true(read_all(kinds[i].header, kinds[i].bytes, kinds[i].size, WF_I64, wide, NULL));
        assert_true(wide[0] == 1 && wide[1] == kinds[i].second);
    }
}

static void elements__that_would_change_are_refused_by_number(void **state)
{
    float real[3];
    int32_t whole[3];
    struct wf_err err = { 0 };
    const double huge[] = { 1, (double)INFINITY, 1e39 };
    assert_false(read_all(HEAD("<f8", "(3,)"), huge, sizeof huge, WF_F32, real, &err));
    assert_non_null(strstr(err.text, "element 2 of type float64"));
    const int64_t exact[] = { INT64_C(1) << 60, 16777216, -16777216 };
    assert_true(read_all(HEAD("<i8", "(3,)"), exact, sizeof exact, WF_F32, real, NULL));
    assert_true(real[0] == 0x1p60f && real[1] == 16777216);
    const int64_t odd[] = { 0, 16777217, INT64_MAX };
    err = (struct wf_err){ 0 };
    assert_false(read_all(HEAD("<i8", "(3,)"), odd, sizeof odd, WF_F32, real, &err));
    assert_non_null(strstr(err.text, "element 1 of type int64 has no exact value in f32"));
    assert_false(
        read_all(HEAD("<i8", "(3,)"), (int64_t[]){ 0, INT64_MIN, 0 }, 24, WF_F32, real, NULL));
    const uint32_t wide[] = { 0, 0x7fffffff, 0x80000000 };
    err = (struct wf_err){ 0 };
    assert_false(read_all(HEAD("<u4", "(3,)"), wide, sizeof wide, WF_I32, whole, &err));
    assert_non_null(strstr(err.text, "element 2 of type uint32"));
    const float nan[] = { NAN, INFINITY, 0 };
    assert_true(read_all(HEAD("<f4", "(3,)"), nan, sizeof nan, WF_F32, real, NULL));
    assert_true(isnan(real[0]) && isinf(real[1]));
}

static void headers__may_be_written_in_other_ways(void **state)
{
    const float data[4] = { 1, 2, 3, 4 };
    static const char *const headers[] = {
        "{\"shape\":(2,2),\"fortran_order\":False,\"descr\":\"<f4\"}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 2L)}\n",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 4, 1), }",
        "{ 'descr' :\t'<f4' , 'fortran_order' : False , 'shape' : ( 4 , ) , } \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 1, 2, 1)}",
    };
    for (int i = 0; i < 5; i++) {
        float back[4];
        assert_true(read_all(headers[i], data, sizeof data, WF_F32, back, NULL));
        assert_memory_equal(back, data, sizeof data);
    }
}

static void round_trip__keeps_shape_and_bytes(void **state)
{
    static const enum wf_dtype types[] = { WF_F32, WF_F16, WF_F64, WF_I32, WF_I64, WF_U8 };
    static const int64_t shape[] = { 2, 3, 1, 5, 7 };
    for (int i = 0; i < 6; i++)
        for (int rank = 0; rank <= 5; rank++) {
            double data[210] = { 0 };
            int64_t count = 1;
            for (int a = 0; a < rank; a++)
                count *= shape[a];
            for (int64_t k = 0; k < count; k++)
                wf_dtype_put(types[i], data, k, (double)(k % 256));
            struct wf_err err = { 0 };
            if (!wf_npy_write("round.npy", types[i], rank, shape, data, &err))
                fail_msg("%s", err.text);
            struct wf_npy a;
            if (!wf_npy_open(&a, "round.npy", &err))
                fail_msg("%s", err.text);
            assert_int_equal(a.data % 64, 0);
            assert_int_equal(a.rank, rank);
            assert_int_equal(a.count, count);
            assert_memory_equal(a.shape, shape, (size_t)rank * sizeof *shape);
            assert_int_equal(wf_sample_is_whole(a.sample), types[i] >= WF_I32);
            float back[210];
            assert_true(wf_npy_read(&a, 0, count, WF_F32, back, &err));
            for (int64_t k = 0; k < count; k++)
                assert_true(back[k] == (float)(k % 256));
            wf_npy_close(&a);
        }
}

static void header__is_byte_for_byte_numpys(void **state)
{
    const float data[3] = { 0 };
    assert_true(wf_npy_write("head.npy", WF_F32, 1, (const int64_t[]){ 3 }, data, NULL));
    size_t size = 0;
    unsigned char *file = slurp("head.npy", &size);
    assert_non_null(file);
    assert_int_equal(size, 128 + 12);
    const char *text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
    assert_memory_equal(file, "\x93NUMPY\1\0\x76\0", 10);
    assert_memory_equal(file + 10, text, strlen(text));
    for (size_t i = 10 + strlen(text); i < 127; i++)
        assert_int_equal(file[i], ' ');
    assert_int_equal(file[127], '\n');
    free(file);
}

static void runs__can_be_read_and_written_in_pieces(void **state)
{
    enum { COUNT = 30000 }; /* more than a chunk */
    struct wf_npy_writer w;
    struct wf_err err = { 0 };
    bool ok = wf_npy_begin(&w, "pieces.npy", WF_I64, 2, (const int64_t[]){ 3, 10000 }, &err);
    for (int64_t row = 0; ok && row < 3; row++) {
        int64_t line[10000];
        for (int64_t i = 0; i < 10000; i++)
            line[i] = row * 10000 + i;
        ok = wf_npy_put(&w, line, 10000, &err);
    }
    assert_true(wf_npy_end(&w, ok, &err));
    struct wf_npy a;
    assert_true(wf_npy_open(&a, "pieces.npy", &err));
    static float back[COUNT];
    assert_true(wf_npy_read(&a, 9998, 15000, WF_F32, back, &err));
    for (int i = 0; i < 15000; i++)
        assert_true(back[i] == (float)(9998 + i));
    assert_true(wf_npy_read(&a, COUNT, 0, WF_F32, back, &err));
    wf_npy_close(&a);
}

static void a_failing_write__leaves_the_old_file_and_nothing_else(void **state)
{
    const float old = 42;
    assert_true(wf_npy_write("old.npy", WF_F32, 0, NULL, &old, NULL));
    static const float data[10000];
    struct wf_err err = { 0 };
    limit_files(5000);
    const bool ok = wf_npy_write("old.npy", WF_F32, 1, (const int64_t[]){ 10000 }, data, &err);
    limit_files(0);
    assert_false(ok);
    assert_non_null(strstr(err.text, "old.npy': File too large"));
    /* And one that its writer gives up half way. */
    struct wf_npy_writer w;
    assert_true(wf_npy_begin(&w, "old.npy", WF_F32, 1, (const int64_t[]){ 10000 }, NULL));
    assert_true(wf_npy_put(&w, data, 10, NULL));
    assert_false(wf_npy_end(&w, false, NULL));
    assert_int_equal(count_files(".", ".partial"), 0);
    struct wf_npy a;
    assert_true(wf_npy_open(&a, "old.npy", NULL));
    float back = 0;
    assert_true(wf_npy_read(&a, 0, 1, WF_F32, &back, NULL));
    assert_true(back == old);
    wf_npy_close(&a);
}

static void writing__what_numpy_has_not_is_refused(void **state)
{
    struct wf_err err = { 0 };
    const uint16_t data = 0;
    assert_false(wf_npy_write("b.npy", WF_BF16, 0, NULL, &data, &err));
    assert_non_null(strstr(err.text, ".npy has no bf16: write f32"));
    assert_int_not_equal(access("b.npy", F_OK), 0);
    err = (struct wf_err){ 0 };
    assert_false(wf_npy_write("no/such/b.npy", WF_U8, 0, NULL, &data, &err));
    assert_non_null(strstr(err.text, "cannot write 'no/such/b.npy'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lies__are_refused_with_words),
        cmocka_unit_test(lies__of_the_first_bytes_are_refused),
        cmocka_unit_test(a_good_file__cut_anywhere_is_refused),
        cmocka_unit_test(corpus__good_is_read_and_lies_are_not),
        cmocka_unit_test(elements__of_every_type_are_converted),
        cmocka_unit_test(elements__that_would_change_are_refused_by_number),
        cmocka_unit_test(headers__may_be_written_in_other_ways),
        cmocka_unit_test(round_trip__keeps_shape_and_bytes),
        cmocka_unit_test(header__is_byte_for_byte_numpys),
        cmocka_unit_test(runs__can_be_read_and_written_in_pieces),
        cmocka_unit_test(a_failing_write__leaves_the_old_file_and_nothing_else),
        cmocka_unit_test(writing__what_numpy_has_not_is_refused),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
