#include "report/events.h"

#include <assert.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/file.h"

/* Field numbers of event.proto and summary.proto. */
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
};
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void add_little(struct wf_buffer *b, uint64_t value, int bytes)
{
    unsigned char out[8];
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> (8 * i) & 255);
    wf_buffer_add(b, out, (size_t)bytes);
}

static void add_varint(struct wf_buffer *b, uint64_t value)
{
    unsigned char out[10];
    size_t n = 0;
    for (; value >= 128; value >>= 7)
        out[n++] = (unsigned char)((value & 127) | 128);
    out[n++] = (unsigned char)value;
    wf_buffer_add(b, out, n);
}

/* All our field numbers are below 16, so a key is one byte. */
static void add_key(struct wf_buffer *b, int field, int transport)
{
    add_varint(b, (uint64_t)(field << 3 | transport));
}

static void add_bytes(struct wf_buffer *b, int field, const void *data, size_t bytes)
{
    add_key(b, field, WIRE_BYTES);
    add_varint(b, bytes);
    wf_buffer_add(b, data, bytes);
}

static void add_time(struct wf_buffer *b, double time)
{
    uint64_t bits;
    static_assert(sizeof bits == sizeof time);
    memcpy(&bits, &time, sizeof bits);
    add_key(b, EVENT_WALL_TIME, WIRE_64);
    add_little(b, bits, 8);
}

static size_t varint_bytes(uint64_t value)
{
    size_t n = 1;
    for (; value >= 128; value >>= 7)
        n++;
    return n;
}

/* TFRecord's checksum: rotated and shifted, so that a checksum of checksums stays one. */
static uint32_t masked_crc(const void *data, size_t bytes)
{
    const uint32_t crc = wf_crc32c(0, data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Moves the event into the file as a record. */
static void close_record(struct wf_events *e)
{
    const size_t head = e->file.size;
    add_little(&e->file, e->event.size, 8);
    add_little(&e->file, masked_crc(e->file.data + head, 8), 4);
    wf_buffer_add(&e->file, e->event.data, e->event.size);
    add_little(&e->file, masked_crc(e->event.data, e->event.size), 4);
    e->event.size = 0;
}

void wf_events_begin(struct wf_events *e, double time)
{
    static const char version[] = "brain.Event:2";
    add_time(&e->event, time);
    add_bytes(&e->event, EVENT_FILE_VERSION, version, sizeof version - 1);
    close_record(e);
}

void wf_events_scalar(struct wf_events *e, double time, int64_t step, const char *tag, double value)
{
    const float simple = (float)value;
    uint32_t bits;
    static_assert(sizeof bits == sizeof simple);
    memcpy(&bits, &simple, sizeof bits);
    const size_t tag_bytes = strlen(tag);
    const size_t value_bytes = 1 + varint_bytes(tag_bytes) + tag_bytes + 1 + sizeof bits;

    add_time(&e->event, time);
    add_key(&e->event, EVENT_STEP, WIRE_VARINT);
    add_varint(&e->event, (uint64_t)step);
    add_key(&e->event, EVENT_SUMMARY, WIRE_BYTES);
    add_varint(&e->event, 1 + varint_bytes(value_bytes) + value_bytes);
    add_key(&e->event, SUMMARY_VALUE, WIRE_BYTES);
    add_varint(&e->event, value_bytes);
    add_bytes(&e->event, VALUE_TAG, tag, tag_bytes);
    add_key(&e->event, VALUE_SIMPLE, WIRE_32);
    add_little(&e->event, bits, 4);
    close_record(e);
}

bool wf_events_write(const struct wf_events *e, const char *path, struct wf_err *err)
{
    return wf_file_write(path, e->file.data, e->file.size, err);
}

void wf_events_release(struct wf_events *e)
{
    wf_buffer_release(&e->file);
    wf_buffer_release(&e->event);
}
