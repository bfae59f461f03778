/*
 * TensorBoard event files: curves for people who already look at theirs there.
 *
 * A file is a row of records (TFRecord: length, masked CRC-32C of the length, bytes, masked CRC-32C
 * of the bytes), each one `Event` message of TensorFlow's event.proto. We write the few fields that
 * scalars need, by hand.
 *
 *     struct wf_events e = { 0 };
 *     wf_events_begin(&e, started);
 *     wf_events_scalar(&e, now, step, "train/loss", 0.25);
 *     bool ok = wf_events_write(&e, "runs/a/events.out.tfevents.1700000000.widefield", err);
 *     wf_events_release(&e);
 *
 * Times are seconds since 1970. The file appears whole or not at all.
 */
#pragma once

#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

struct wf_events {
    struct wf_buffer file;  /* records so far */
    struct wf_buffer event; /* the one that is being made */
};

/* The record that every file starts with. */
void wf_events_begin(struct wf_events *e, double time);
void wf_events_scalar(struct wf_events *e, double time, int64_t step, const char *tag,
                      double value);
[[nodiscard]] bool wf_events_write(const struct wf_events *e, const char *path, struct wf_err *err);
void wf_events_release(struct wf_events *e);
