#include "cli/progress.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

static const double DRAW_SECONDS = 0.1, LINE_SECONDS = 5;
enum { BAR = 24, WIDTH = 200 };

double wf_process_bytes(void)
{
    long pages = 0;
    FILE *const file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    const bool ok = fscanf(file, "%*s %ld", &pages) == 1;
    (void)fclose(file);
    return ok ? (double)pages * (double)sysconf(_SC_PAGESIZE) : 0;
}

void wf_duration_text(double seconds, char *text, size_t room)
{
    const int64_t s = seconds < 0 ? 0 : seconds > 1e9 ? 1000000000 : (int64_t)(seconds + 0.5);
    if (s >= 3600)
        (void)snprintf(text, room, "%" PRId64 "h %02dm", s / 3600, (int)(s / 60 % 60));
    else if (s >= 60)
        (void)snprintf(text, room, "%dm %02ds", (int)(s / 60), (int)(s % 60));
    else
        (void)snprintf(text, room, "%ds", (int)s);
}

void wf_progress_init(struct wf_progress *p, FILE *out, bool terminal, int64_t epochs)
{
    *p = (struct wf_progress){ .bar = { .out = out, .terminal = terminal }, .epochs = epochs };
}

static double steps_left(const struct wf_progress *p, const struct wf_step_report *r)
{
    return (double)(p->epochs - r->at->epoch) * (double)r->batches - (double)r->at->batch;
}

void wf_progress_text(const struct wf_progress *p, const struct wf_step_report *r, double bytes,
                      char *text, size_t room)
{
    char left[32];
    /* By the clock, which validation and checkpoints take as well. */
    const double step = r->elapsed > 0 && p->steps > 0 ? r->elapsed / (double)p->steps : p->seconds;
    wf_duration_text(steps_left(p, r) * step, left, sizeof left);
    char skipped[32] = "";
    if (r->at->skipped > 0)
        (void)snprintf(skipped, sizeof skipped, "  %" PRId64 " skipped", r->at->skipped);
    (void)snprintf(text, room,
                   "epoch %" PRId64 "/%" PRId64 "  step %" PRId64 "/%" PRId64
                   "  loss %.4g  %.3g Mpx/s  %s left  %.2f GiB%s",
                   r->at->epoch + 1, p->epochs, r->at->batch, r->batches, p->loss,
                   p->pixels / p->seconds / 1e6, left, bytes / (1024.0 * 1024 * 1024), skipped);
}

/* Means over about the last 20 of `steps` steps; over all of them while there are fewer. */
static double share_of(int64_t steps)
{
    return steps < 20 ? 1.0 / (double)steps : 0.05;
}

/* The average of the loss restarts with each epoch, so that it ends near the reported mean of a
 * short epoch. */
static void take(struct wf_progress *p, const struct wf_step_report *r)
{
    if (r->at->epoch != p->epoch || p->steps == 0)
        p->losses = 0;
    p->epoch = r->at->epoch;
    if (!r->skipped) {
        p->losses++;
        p->loss += share_of(p->losses) * (r->loss - p->loss);
    }
    p->steps++;
    const double share = share_of(p->steps);
    p->seconds += share * (r->seconds - p->seconds);
    p->pixels += share * (r->pixels - p->pixels);
}

static int columns(FILE *out)
{
    struct winsize size = { 0 };
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool wf_bar_is_due(struct wf_bar *b)
{
    const double now = wf_now(), wait = b->terminal ? DRAW_SECONDS : LINE_SECONDS;
    if (!b->out || (b->shown > 0 && now - b->shown < wait))
        return false;
    b->shown = now;
    return true;
}

/* The bar has what the text leaves of the line. */
static void draw(struct wf_bar *b, double part, const char *text)
{
    /* One column stays free: a terminal that wraps would not be drawn over. */
    const int room = columns(b->out) - 1;
    int width = room - (int)strlen(text) - 3;
    width = width > BAR ? BAR : width;
    const int full = width > 0 ? (int)(width * part) : 0;
    char bar[BAR + 1] = "";
    for (int i = 0; i < width; i++)
        bar[i] = "#-"[i >= full];
    if (width > 3)
        (void)fprintf(b->out, "\r\033[K[%.*s] %s", width, bar, text);
    else
        (void)fprintf(b->out, "\r\033[K%.*s", room, text);
    (void)fflush(b->out);
    b->drawn = true;
}

void wf_bar_show(struct wf_bar *b, double part, const char *text)
{
    if (b->terminal)
        draw(b, part, text);
    else
        (void)fprintf(b->out, "%s\n", text);
}

void wf_bar_clear(struct wf_bar *b)
{
    if (!b->drawn)
        return;
    (void)fputs("\r\033[K", b->out);
    (void)fflush(b->out);
    b->drawn = false;
}

void wf_progress_step(struct wf_progress *p, const struct wf_step_report *r)
{
    take(p, r);
    if (!wf_bar_is_due(&p->bar))
        return;
    char text[WIDTH];
    wf_progress_text(p, r, wf_process_bytes(), text, sizeof text);
    wf_bar_show(&p->bar, r->batches > 0 ? (double)r->at->batch / (double)r->batches : 0, text);
}
