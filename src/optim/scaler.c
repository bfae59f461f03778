#include "optim/scaler.h"

enum { INTERVAL = 2000 };

/* Powers of two, so that scaling changes no bit of a number that does not overflow. */
static const double start = 65'536, least = 1.0 / 16'384, most = 16'777'216.0 * 16'777'216.0;

struct wf_scaler wf_scaler_init(bool dynamic)
{
    return (
        struct wf_scaler){ .dynamic = dynamic, .scale = dynamic ? start : 1, .interval = INTERVAL };
}

void wf_scaler_update(struct wf_scaler *s, bool finite)
{
    if (!s->dynamic)
        return;
    s->streak = finite ? s->streak + 1 : 0;
    if (!finite)
        s->scale = s->scale > least ? s->scale / 2 : least;
    if (s->streak < s->interval)
        return;
    s->streak = 0;
    s->scale = s->scale < most ? s->scale * 2 : most;
}
