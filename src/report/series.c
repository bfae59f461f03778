#include "report/series.h"

#include <math.h>

enum { STRETCHES = 360 }; /* of a long series, two points each */

static bool drawable(double y)
{
    return fabs(y) < 1e100; /* false for NaN; and differences stay finite */
}

struct wf_series wf_series_of(struct wf_arena *arena, const struct wf_log_table *table, int column)
{
    struct wf_series s = { .x = wf_arena_array(arena, table->n + 1, double),
                           .y = wf_arena_array(arena, table->n + 1, double),
                           .n = table->n };
    for (size_t i = 0; i < s.n; i++) {
        s.x[i] = (double)table->rows[i].step;
        s.y[i] = drawable(table->rows[i].at[column]) ? table->rows[i].at[column] : (double)NAN;
    }
    return s;
}

void wf_series_smooth(struct wf_series *s)
{
    const double keep = 1 - 1 / fmax(1, (double)s->n / 40);
    double sum = 0, weight = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (isnan(s->y[i]))
            continue;
        sum = keep * sum + s->y[i];
        weight = keep * weight + 1;
        s->y[i] = sum / weight;
    }
}

/* In place: a stretch of a long series has two points or more, so that none is overwritten unread. */
void wf_series_decimate(struct wf_series *s)
{
    if (s->n <= 2 * STRETCHES)
        return;
    size_t count = 0;
    for (size_t k = 0; k < STRETCHES; k++) {
        const size_t from = s->n * k / STRETCHES, to = s->n * (k + 1) / STRETCHES;
        size_t least = from, most = from;
        for (size_t i = from; i < to; i++) {
            least = isnan(s->y[least]) || s->y[i] < s->y[least] ? i : least;
            most = isnan(s->y[most]) || s->y[i] > s->y[most] ? i : most;
        }
        const size_t at[2] = { least < most ? least : most, least < most ? most : least };
        const double x[2] = { s->x[at[0]], s->x[at[1]] }, y[2] = { s->y[at[0]], s->y[at[1]] };
        for (int i = 0; i < (at[0] == at[1] ? 1 : 2); i++) {
            s->x[count] = x[i];
            s->y[count++] = y[i];
        }
    }
    s->n = count;
}
