#include "base/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const char *scaled(struct wf_arena *arena, double value, double step,
                          const char *const units[], int count)
{
    int unit = 0;
    while (unit + 1 < count && fabs(value) >= step * 0.9995) {
        value /= step;
        unit++;
    }
    const int digits = unit == 0 || fabs(value) >= 100 ? 0 : fabs(value) >= 10 ? 1 : 2;
    return wf_arena_printf(arena, "%.*f %s", digits, value, units[unit]);
}

const char *wf_text_bytes(struct wf_arena *arena, double bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    return scaled(arena, bytes, 1024, units, 6);
}

const char *wf_text_flops(struct wf_arena *arena, double flops)
{
    static const char *const units[] = { "FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP" };
    return scaled(arena, flops, 1000, units, 6);
}

const char *wf_text_seconds(struct wf_arena *arena, double seconds)
{
    if (seconds >= 60)
        return wf_arena_printf(arena, "%.0f s", seconds);
    static const char *const units[] = { "ns", "us", "ms", "s" };
    return scaled(arena, seconds * 1e9, 1000, units, 4);
}

const char *wf_text_count(struct wf_arena *arena, int64_t count)
{
    char plain[32], out[48];
    const int n = snprintf(plain, sizeof plain, "%" PRId64, count < 0 ? -count : count);
    char *to = out;
    if (count < 0)
        *to++ = '-';
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            *to++ = ',';
        *to++ = plain[i];
    }
    *to = '\0';
    return wf_arena_copy(arena, out);
}

const char *wf_text_ranks(struct wf_arena *arena, int ranks)
{
    return wf_arena_printf(arena, "%d rank%s", ranks, ranks == 1 ? "" : "s");
}

const char *wf_text_extents(struct wf_arena *arena, int count, const int64_t extents[])
{
    const char *text = count > 0 ? wf_arena_printf(arena, "%" PRId64, extents[0]) : "scalar";
    for (int i = 1; i < count; i++)
        text = wf_arena_printf(arena, "%s x %" PRId64, text, extents[i]);
    return text;
}
