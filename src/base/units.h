/* Human-readable numbers with a unit. */
#pragma once

#include <stdint.h>

#include "base/arena.h"

const char *wf_text_bytes(struct wf_arena *arena, double bytes);     /* "1.50 GiB" */
const char *wf_text_count(struct wf_arena *arena, int64_t count);    /* "31,037,698" */
const char *wf_text_seconds(struct wf_arena *arena, double seconds); /* "12.3 ms" */
const char *wf_text_flops(struct wf_arena *arena, double flops);     /* "276 GFLOP" */
const char *wf_text_ranks(struct wf_arena *arena, int ranks);        /* "1 rank", "4 ranks" */
/* The axes as people outside see them: "64 x 3 x 3 x 3". */
const char *wf_text_extents(struct wf_arena *arena, int count, const int64_t extents[]);
