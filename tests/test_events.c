/* Event files, held against published checksums and against bytes that TensorBoard 2.21 wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "files.h"
#include "report/events.h"
#include "support_scratch.h"

static void crc__is_that_of_rfc_3720(void **state)
{
    unsigned char data[32];
    memset(data, 0, sizeof data);
    assert_int_equal(wf_crc32c(0, data, 32), 0x8A9136AAu);
    memset(data, 0xFF, sizeof data);
    assert_int_equal(wf_crc32c(0, data, 32), 0x62A8AB43u);
    for (unsigned char i = 0; i < 32; i++)
        data[i] = i;
    assert_int_equal(wf_crc32c(0, data, 32), 0x46DD794Eu);
    for (unsigned char i = 0; i < 32; i++)
        data[i] = (unsigned char)(31 - i);
    assert_int_equal(wf_crc32c(0, data, 32), 0x113FDB5Cu);
    assert_int_equal(wf_crc32c(0, "123456789", 9), 0xE3069283u);
    assert_int_equal(wf_crc32c(0, "", 0), 0);
}

static void crc__goes_on_where_it_stopped(void **state)
{
    assert_int_equal(wf_crc32c(wf_crc32c(0, "1234", 4), "56789", 5), 0xE3069283u);
}

/* tensorboard.summary.writer.record_writer.RecordWriter, with
 *     Event(wall_time=1700000000.5, file_version="brain.Event:2")
 *     Event(wall_time=1700000001.25, step=300, summary=... tag="train/loss", simple_value=0.25) */
static const unsigned char theirs[] = {
    0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xa3, 0x7f, 0x4b, 0x22, 0x09, 0x00, 0x00,
    0x20, 0x40, 0xfc, 0x54, 0xd9, 0x41, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e, 0x2e, 0x45,
    0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32, 0x2b, 0x35, 0x31, 0x10, 0x21, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x01, 0x7b, 0xec, 0xf6, 0x09, 0x00, 0x00, 0x50, 0x40, 0xfc, 0x54, 0xd9,
    0x41, 0x10, 0xac, 0x02, 0x2a, 0x13, 0x0a, 0x11, 0x0a, 0x0a, 0x74, 0x72, 0x61, 0x69, 0x6e,
    0x2f, 0x6c, 0x6f, 0x73, 0x73, 0x15, 0x00, 0x00, 0x80, 0x3e, 0xd7, 0x75, 0x84, 0x82,
};

static void file__has_the_bytes_of_tensorboard(void **state)
{
    struct wf_events e = { 0 };
    wf_events_begin(&e, 1700000000.5);
    wf_events_scalar(&e, 1700000001.25, 300, "train/loss", 0.25);
    struct wf_err err = { 0 };
    assert_true(wf_events_write(&e, "events.out.tfevents.1", &err));
    wf_events_release(&e);
    size_t size;
    unsigned char *const file = slurp("events.out.tfevents.1", &size);
    assert_non_null(file);
    assert_int_equal(size, sizeof theirs);
    assert_memory_equal(file, theirs, size);
    free(file);
}

static void record__of_a_long_tag_has_two_byte_lengths(void **state)
{
    char tag[301];
    memset(tag, 'x', 300);
    tag[300] = '\0';
    struct wf_events e = { 0 };
    wf_events_scalar(&e, 0, 1, tag, 1);
    /* event: 9 time, 2 step, key; value: 1 + 2 + 300 tag, 5 number = 308; summary: 1 + 2 + 308 */
    const size_t event = 9 + 2 + 1 + 2 + 311;
    assert_int_equal(e.file.size, 8 + 4 + event + 4);
    assert_int_equal((unsigned char)e.file.data[0], event & 255);
    assert_int_equal(e.file.data[1], event >> 8);
    const unsigned char heads[] = { 0x2a, 0xb7, 0x02, 0x0a, 0xb4, 0x02, 0x0a, 0xac, 0x02, 'x' };
    assert_memory_equal(e.file.data + 12 + 11, heads, sizeof heads);
    wf_events_release(&e);
}

static void file__that_cannot_be_written_is_an_error(void **state)
{
    struct wf_events e = { 0 };
    wf_events_begin(&e, 0);
    struct wf_err err = { 0 };
    assert_false(wf_events_write(&e, "no/such/folder/events", &err));
    assert_non_null(strstr(err.text, "no/such/folder/events"));
    wf_events_release(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc__is_that_of_rfc_3720),
        cmocka_unit_test(crc__goes_on_where_it_stopped),
        cmocka_unit_test(file__has_the_bytes_of_tensorboard),
        cmocka_unit_test(record__of_a_long_tag_has_two_byte_lengths),
        cmocka_unit_test(file__that_cannot_be_written_is_an_error),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
