#include "plan/figures_inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "ops/op.h"

enum {
    LINKS = 8,
    THREADS = 16, /* numbers of threads that were measured */
    WORD = 64,
    TEXT = 256,
};

const char wf_load_copy[] = "copy", wf_load_update[] = "update";

struct wf_figures {
    char device[WORD], machine[TEXT];
    double peak[3];
    struct {
        char name[WORD];
        struct wf_figures_link link;
    } links[LINKS];
    int n_links;
    struct {
        int threads;
        double between, beside;
    } steps[THREADS];
    int n_steps;
    struct wf_figures_row *rows; /* by kind */
    size_t n_rows, room;
    struct wf_figures_kind *kinds;
    size_t n_kinds;
};

/* --- loads --- */

const char *wf_load_type(enum wf_dtype dtype, bool tf32)
{
    return tf32 && dtype == WF_F32 ? "tf32" : wf_dtype_name(dtype);
}

void wf_load_set(struct wf_load *load, const double at[WF_LOAD_AXES])
{
    for (int a = 0; a < WF_LOAD_AXES; a++)
        load->log[a] = (float)log2(fmax(at[a], 1e-6));
}

/* --- making a table --- */

struct wf_figures *wf_figures_new(const char *device, const char *machine, const double peak[3])
{
    struct wf_figures *const f = wf_take_zeroed(1, sizeof *f);
    (void)snprintf(f->device, sizeof f->device, "%s", device);
    (void)snprintf(f->machine, sizeof f->machine, "%s", machine);
    memcpy(f->peak, peak, sizeof f->peak);
    return f;
}

void wf_figures_free(struct wf_figures *figures)
{
    if (!figures)
        return;
    free(figures->rows);
    free(figures->kinds);
    free(figures);
}

void wf_figures_add(struct wf_figures *f, int threads, const struct wf_load *load, double seconds)
{
    WF_GROW(f->rows, f->room, f->n_rows);
    f->rows[f->n_rows++] = (struct wf_figures_row){
        .load = *load,
        .threads = threads,
        .seconds = fmax(seconds, 1e-9),
    };
    wf_figures_place(load, f->rows[f->n_rows - 1].at);
}

void wf_figures_add_step(struct wf_figures *f, int threads, double between, double beside)
{
    int at = 0;
    while (at < f->n_steps && f->steps[at].threads != threads)
        at++;
    if (at == THREADS)
        return;
    f->steps[at].threads = threads;
    f->steps[at].between = between;
    f->steps[at].beside = beside;
    f->n_steps = at == f->n_steps ? at + 1 : f->n_steps;
}

void wf_figures_add_link(struct wf_figures *f, const char *transport,
                         const struct wf_figures_link *link)
{
    if (f->n_links == LINKS)
        return;
    (void)snprintf(f->links[f->n_links].name, WORD, "%s", transport);
    f->links[f->n_links++].link = *link;
}

static int by_name(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "");
}

static int by_kind(const struct wf_figures_row *a, const struct wf_figures_row *b)
{
    int by = by_name(a->load.name, b->load.name);
    by = by ? by : by_name(a->load.type, b->load.type);
    by = by ? by : by_name(a->load.fused, b->load.fused);
    return by ? by : a->threads - b->threads;
}

static int by_load(const struct wf_figures_row *a, const struct wf_figures_row *b)
{
    const int by = by_kind(a, b);
    for (int i = 0; !by && i < WF_LOAD_AXES; i++)
        if (a->load.log[i] != b->load.log[i])
            return a->load.log[i] < b->load.log[i] ? -1 : 1;
    return by;
}

static int by_seconds(const void *a, const void *b)
{
    const struct wf_figures_row *const x = a, *const y = b;
    const int by = by_load(x, y);
    return by ? by : (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

void wf_figures_seal(struct wf_figures *f)
{
    size_t kept = 0, room = 0;
    if (f->n_rows > 0)
        qsort(f->rows, f->n_rows, sizeof *f->rows, by_seconds);
    for (size_t i = 0; i < f->n_rows; i++) /* the least seconds come first */
        if (kept == 0 || by_load(&f->rows[kept - 1], &f->rows[i]) != 0)
            f->rows[kept++] = f->rows[i];
    f->n_rows = kept;
    free(f->kinds);
    f->kinds = NULL;
    f->n_kinds = 0;
    for (size_t i = 0; i < f->n_rows; i++) {
        if (i == 0 || by_kind(&f->rows[i - 1], &f->rows[i]) != 0) {
            WF_GROW(f->kinds, room, f->n_kinds);
            f->kinds[f->n_kinds++] = (struct wf_figures_kind){ .first = &f->rows[i] };
        }
        f->kinds[f->n_kinds - 1].count++;
    }
    for (size_t i = 0; i < f->n_kinds; i++)
        wf_figures_fit(&f->kinds[i], f->peak);
}

int wf_figures_add_older(struct wf_figures *f, const struct wf_figures *older)
{
    const size_t measured = f->n_rows;
    size_t at = 0;
    for (size_t i = 0; i < older->n_rows; i++) { /* both in order */
        const struct wf_figures_row *const row = &older->rows[i];
        while (at < measured && by_load(&f->rows[at], row) < 0)
            at++;
        if (at == measured || by_load(&f->rows[at], row) != 0)
            wf_figures_add(f, row->threads, &row->load, row->seconds);
    }
    for (int i = 0; i < older->n_steps; i++)
        wf_figures_add_step(f, older->steps[i].threads, older->steps[i].between,
                            older->steps[i].beside);
    struct wf_figures_link known;
    for (int i = 0; i < older->n_links; i++)
        if (!wf_figures_link(f, older->links[i].name, &known))
            wf_figures_add_link(f, older->links[i].name, &older->links[i].link);
    const int added = (int)(f->n_rows - measured);
    wf_figures_seal(f);
    return added;
}

const char *wf_figures_device(const struct wf_figures *figures)
{
    return figures->device;
}

const char *wf_figures_machine(const struct wf_figures *figures)
{
    return figures->machine;
}

const struct wf_figures_kind *wf_figures_kinds(const struct wf_figures *figures, size_t *count)
{
    *count = figures->n_kinds;
    return figures->kinds;
}

const double *wf_figures_peak(const struct wf_figures *figures)
{
    return figures->peak;
}

int wf_figures_count(const struct wf_figures *figures)
{
    return (int)figures->n_rows;
}

/* --- asking it --- */

/* Types with the same kernels, or nearly so: where one was not measured the other counts. */
static const char *stand_in(const char *type)
{
    const char *const f16 = wf_load_type(WF_F16, false), *const bf16 = wf_load_type(WF_BF16, false);
    if (type == wf_load_type(WF_F32, true))
        return wf_load_type(WF_F32, false);
    return type == f16 ? bf16 : type == bf16 ? f16 : type;
}

/* Of the load's kind: its type before one that stands in, the same fused input before none, and of the numbers of
 * threads that were measured the nearest. NULL: there is none. */
static const struct wf_figures_kind *find_kind(const struct wf_figures *f, int threads,
                                               const struct wf_load *load)
{
    const struct wf_figures_kind *best = NULL;
    const char *const other = stand_in(load->type);
    double least = 0;
    for (size_t i = 0; i < f->n_kinds; i++) {
        const struct wf_figures_row *const r = f->kinds[i].first;
        const bool same = r->load.type == load->type;
        if (r->load.name != load->name || (!same && r->load.type != other))
            continue;
        const double off = fabs(log2((double)r->threads / threads)) +
                           (r->load.fused == load->fused ? 0 : 100) + (same ? 0 : 1000);
        if (!best || off < least) {
            best = &f->kinds[i];
            least = off;
        }
    }
    return best;
}

double wf_figures_seconds(const struct wf_figures *f, int threads, const struct wf_load *load,
                          bool *known)
{
    const struct wf_figures_kind *const kind = find_kind(f, threads > 0 ? threads : 1, load);
    if (known)
        *known = kind && kind->first->load.type == load->type;
    if (!kind) /* arithmetic and traffic alone */
        return f->peak[2] + fmax(load->flops / f->peak[0], load->bytes / f->peak[1]);
    const double share = (double)kind->first->threads / (threads > 0 ? threads : 1);
    return share * wf_figures_kind_seconds(kind, load);
}

double wf_figures_step(const struct wf_figures *f, int threads, int kernels)
{
    int best = -1;
    for (int i = 0; i < f->n_steps; i++)
        if (best < 0 || abs(f->steps[i].threads - threads) < abs(f->steps[best].threads - threads))
            best = i;
    return best < 0 ? 0 : f->steps[best].beside + kernels * f->steps[best].between;
}

bool wf_figures_link(const struct wf_figures *f, const char *transport,
                     struct wf_figures_link *link)
{
    for (int i = 0; i < f->n_links; i++)
        if (strcmp(f->links[i].name, transport) == 0) {
            *link = f->links[i].link;
            return true;
        }
    return false;
}

void wf_figures_thin(struct wf_figures *f, double tolerance)
{
    const double short_seconds = 100 * f->peak[2]; /* of a step they are a small part */
    struct wf_arena arena = { 0 };
    size_t kept = 0;
    bool *const unused = wf_arena_array(&arena, f->n_rows + 1, bool);
    for (size_t i = 0; i < f->n_kinds; i++)
        wf_figures_thin_kind(&(struct wf_figures_thin){ .kind = &f->kinds[i],
                                                        .peak = f->peak,
                                                        .tolerance = tolerance,
                                                        .short_seconds = short_seconds },
                             &unused[f->kinds[i].first - f->rows]);
    for (size_t i = 0; i < f->n_rows; i++)
        if (!unused[i])
            f->rows[kept++] = f->rows[i];
    f->n_rows = kept;
    wf_arena_release(&arena);
    wf_figures_seal(f);
}

/* --- as text --- */

static void add_load(struct wf_buffer *b, const struct wf_load *load)
{
    wf_buffer_printf(b, "%s %s %s", load->name, load->type, load->fused ? load->fused : "-");
    for (int a = 0; a < WF_LOAD_AXES; a++)
        wf_buffer_printf(b, " %.4g", exp2((double)load->log[a]));
    wf_buffer_printf(b, " %.4g", load->bytes);
}

const char *wf_load_print(struct wf_arena *arena, const struct wf_load *load)
{
    struct wf_buffer b = { 0 };
    add_load(&b, load);
    const char *const text = wf_arena_copy(arena, b.data);
    wf_buffer_release(&b);
    return text;
}

char *wf_figures_print(struct wf_arena *arena, const struct wf_figures *f)
{
    struct wf_buffer b = { 0 };
    wf_buffer_printf(&b, "widefield figures 1\ndevice %s\nmachine %s\npeak %.4g %.4g %.4g\n",
                     f->device, f->machine, f->peak[0], f->peak[1], f->peak[2]);
    for (int i = 0; i < f->n_links; i++)
        wf_buffer_printf(&b, "link %s %.4g %.4g\n", f->links[i].name,
                         f->links[i].link.bytes_per_second, f->links[i].link.seconds);
    for (int i = 0; i < f->n_steps; i++)
        wf_buffer_printf(&b, "step %d %.4g %.4g\n", f->steps[i].threads, f->steps[i].between,
                         f->steps[i].beside);
    for (size_t i = 0; i < f->n_rows; i++) {
        const struct wf_figures_row *const r = &f->rows[i];
        wf_buffer_printf(&b, "kernel %d ", r->threads);
        add_load(&b, &r->load);
        wf_buffer_printf(&b, " %.4g\n", r->seconds);
    }
    char *const text = wf_arena_copy(arena, b.data);
    wf_buffer_release(&b);
    return text;
}

/* The name as everyone points to it; NULL: a program of another version knew it. */
static const char *known_name(const char *name)
{
    const struct wf_op *const op = wf_op_find(name);
    if (op)
        return op->name;
    return strcmp(name, wf_load_copy) == 0     ? wf_load_copy
           : strcmp(name, wf_load_update) == 0 ? wf_load_update
                                               : NULL;
}

static const char *known_type(const char *type)
{
    enum wf_dtype dtype;
    if (wf_dtype_parse(type, &dtype))
        return wf_dtype_name(dtype);
    return strcmp(type, "tf32") == 0 ? wf_load_type(WF_F32, true) : NULL;
}

static bool read_kernel(struct wf_figures *f, const char *line)
{
    char name[WORD], type[WORD], fused[WORD];
    int threads, at = 0;
    double axes[WF_LOAD_AXES], bytes, seconds;
    if (sscanf(line, "kernel %d %63s %63s %63s%n", &threads, name, type, fused, &at) !=
            4 || // NOLINT(cert-err34-c)
        threads < 1)
        return false;
    char *end = NULL;
    const char *p = line + at;
    double numbers[WF_LOAD_AXES + 2];
    for (int i = 0; i < WF_LOAD_AXES + 2; i++, p = end) {
        numbers[i] = strtod(p, &end);
        if (end == p || !(numbers[i] >= 0 && numbers[i] < 1e30))
            return false;
    }
    memcpy(axes, numbers, sizeof axes);
    bytes = numbers[WF_LOAD_AXES];
    seconds = numbers[WF_LOAD_AXES + 1];
    struct wf_load load = { .name = known_name(name), .type = known_type(type), .bytes = bytes };
    const bool plain = strcmp(fused, "-") == 0;
    load.fused = plain ? NULL : known_name(fused);
    load.flops = axes[WF_LOAD_PIXELS] * axes[WF_LOAD_EACH];
    wf_load_set(&load, axes);
    if (load.name && load.type && (plain || load.fused))
        wf_figures_add(f, threads, &load, seconds);
    return true;
}

static bool read_line(struct wf_figures *f, const char *line)
{
    double a, b;
    int threads;
    char word[WORD];
    if (strncmp(line, "kernel ", 7) == 0)
        return read_kernel(f, line);
    if (sscanf(line, "device %63s", word) == 1) {
        (void)snprintf(f->device, sizeof f->device, "%s", word);
        return true;
    }
    if (strncmp(line, "machine ", 8) == 0) {
        (void)snprintf(f->machine, sizeof f->machine, "%.255s", line + 8);
        return true;
    }
    if (sscanf(line, "link %63s %lf %lf", word, &a, &b) == 3 && a > 0 &&
        b >= 0) { // NOLINT(cert-err34-c)
        wf_figures_add_link(f, word, &(struct wf_figures_link){ a, b });
        return true;
    }
    if (sscanf(line, "step %d %lf %lf", &threads, &a, &b) == 3 &&
        threads > 0) { // NOLINT(cert-err34-c)
        wf_figures_add_step(f, threads, a, b);
        return true;
    }
    return sscanf(line, "peak %lf %lf %lf", &f->peak[0], &f->peak[1], &f->peak[2]) ==
               3 && // NOLINT(cert-err34-c)
           f->peak[0] > 0 &&
           f->peak[1] > 0 && f->peak[2] >= 0;
}

struct wf_figures *wf_figures_parse(const char *text, const char *from, struct wf_err *err)
{
    const double peak[3] = { 1e9, 1e9, 0 };
    struct wf_figures *const f = wf_figures_new("", "", peak);
    char line[2 * TEXT];
    int number = 0;
    for (const char *p = text; *p;) {
        const size_t n = strcspn(p, "\n");
        const size_t length = n < sizeof line ? n : sizeof line - 1;
        memcpy(line, p, length);
        line[length] = '\0';
        p += n + (p[n] == '\n');
        const bool head = number++ == 0;
        if (head ? strcmp(line, "widefield figures 1") == 0 : *line == '\0' || read_line(f, line))
            continue;
        (void)wf_err_set(err, WF_ERR_INPUT,
                         "'%s', line %d: '%.40s' is no figure of a machine: remove the file, and "
                         "make it anew with 'widefield check --calibrate'",
                         from, number, line);
        wf_figures_free(f);
        return NULL;
    }
    wf_figures_seal(f);
    return f;
}
