/*
 * What a network of several domains makes of their validation images: reconstructions as pictures, codes as points
 * of a plane. The network for it has the weights of the one that trains, on the same ranks, and runs in its memory.
 *
 * Each element of a code is counted by one rank, and the sum over ranks is the whole, on every rank. So are the
 * rows of batches that are images of their own, which only ranks that load them know.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "train/pictures.h"
#include "train/preview.h"
#include "train/projection.h"

enum {
    IMAGES = 3,  /* that are shown of a domain */
    CODES = 128, /* of each kind and domain, about */
    KINDS = 2,   /* shared and private */
};

struct viewer {
    struct wf_training *t;
    struct wf_comm *comm;
    const struct wf_network *net;
    struct wf_plan *plan;
    struct wf_run *run;
    struct wf_loader **loaders; /* of each domain, or NULL */
    struct wf_host *images;
    bool stopped;
    int64_t batches, rows; /* rows: of all batches, in a batch's order */
    float *is_image;       /* [domain][row]: 1, or 0 for one that only fills its batch */
    int64_t channels[KINDS];
    float *codes[KINDS]; /* [domain][row][channel] */
};

/* --- running it --- */

static struct wf_loader *make_loader(const struct viewer *v, int domain, struct wf_err *err)
{
    const struct wf_training *const t = v->t;
    const struct wf_target *const target = domain ? &t->targets.at[domain - 1] : NULL;
    struct wf_loader_options options = wf_feed_valid_loader(&t->feed, v->net);
    options.threads = 0;
    if ((target ? target->valid : t->feed.parts[WF_PART_VALID]) == 0)
        options.part = WF_PART_TRAIN;
    return wf_loader_new(target ? target->dataset : t->feed.dataset, &options, err);
}

/* Collective. As many batches as the domain with the most of them has, of those that are wanted. */
static bool count_batches(struct viewer *v, struct wf_err *err)
{
    const int ranks = wf_comm_size(v->comm);
    int64_t *const most = wf_take_zeroed((size_t)ranks, sizeof *most);
    int64_t *const mine = &most[wf_comm_rank(v->comm)];
    for (int k = 0; k < v->net->domains; k++)
        if (v->loaders[k])
            *mine = wf_max(*mine, wf_loader_batches(v->loaders[k]));
    const bool ok = wf_comm_sum(v->comm, most, (size_t)ranks, WF_I64, err);
    for (int i = 0; i < ranks; i++)
        v->batches = wf_max(v->batches, most[i]);
    free(most);
    v->batches = wf_min(v->batches, wf_ceil_div(CODES, v->net->image->shape.at[WF_N]));
    v->rows = v->batches * v->net->image->shape.at[WF_N];
    return ok;
}

/* Collective. */
static bool begin(struct viewer *v, struct wf_run *lender, struct wf_context *context,
                  struct wf_err *err)
{
    const struct wf_targets *const targets = &v->t->targets;
    v->plan = wf_plan_new_on(targets->global, wf_comm_rank(v->comm), context, err);
    if (!wf_comm_agree(v->comm, v->plan != NULL, err))
        return false;
    v->run = wf_run_new_beside(lender, v->plan, false, err);
    if (!v->run)
        return false;
    v->loaders = wf_take_zeroed((size_t)v->net->domains, sizeof *v->loaders);
    v->images = wf_take_zeroed((size_t)v->net->domains, sizeof *v->images);
    bool ok = true;
    for (int k = 0; ok && k < v->net->domains; k++)
        if (wf_run_view(v->run, v->net->images[k]).data) {
            v->loaders[k] = make_loader(v, k, err);
            ok = v->loaders[k] != NULL;
        }
    if (!wf_comm_agree(v->comm, ok, err) || !count_batches(v, err))
        return false;
    v->is_image = wf_take_zeroed((size_t)(v->net->domains * v->rows), sizeof *v->is_image);
    for (int i = 0; i < KINDS; i++) {
        v->channels[i] = targets->views[0].codes[i]->shape.at[WF_C];
        v->codes[i] = wf_take_zeroed((size_t)(v->net->domains * v->rows * v->channels[i]),
                                     sizeof *v->codes[i]);
    }
    return true;
}

static void release(struct viewer *v)
{
    for (int k = 0; v->loaders && k < v->net->domains; k++) {
        wf_loader_free(v->loaders[k]);
        wf_host_release(&v->images[k]);
    }
    free(v->loaders);
    free(v->images);
    free(v->is_image);
    for (int i = 0; i < KINDS; i++)
        free(v->codes[i]);
    wf_run_free(v->run);
    wf_plan_free(v->plan);
}

/* Collective. One batch of every domain. */
static bool look(struct viewer *v, int64_t batch, struct wf_err *err)
{
    bool ok = true;
    for (int k = 0; k < v->net->domains; k++) {
        wf_run_map(v->run, v->net->images[k], &v->images[k]);
        if (ok && v->loaders[k]) {
            const int64_t batches = wf_loader_batches(v->loaders[k]);
            wf_loader_seek(v->loaders[k], batch / batches, batch % batches);
            ok = wf_loader_next(v->loaders[k], &v->images[k].view, NULL, err);
        }
        wf_host_put(&v->images[k]);
    }
    return wf_comm_agree(v->comm, ok, err) && wf_run_step(v->run, err);
}

/* --- codes --- */

/* By the rank that owns the row's first pixel. */
static void take_rows(struct viewer *v, int64_t batch)
{
    for (int k = 0; k < v->net->domains; k++) {
        const struct wf_value *const image = v->net->images[k];
        const struct wf_region box = wf_run_owned(v->run, image).box;
        const struct wf_loader *const loader = v->loaders[k];
        if (!loader || batch >= wf_loader_batches(loader) || !wf_run_counts(v->run, image) ||
            box.lo[WF_D] + box.lo[WF_H] + box.lo[WF_W] > 0)
            continue;
        float *const to = v->is_image + k * v->rows + batch * image->shape.at[WF_N];
        for (int64_t n = box.lo[WF_N]; n < box.hi[WF_N]; n++)
            to[n] = !wf_region_is_empty(wf_loader_item(loader, 0, batch, n).counts);
    }
}

static float *code_at(const struct viewer *v, int kind, int domain, int64_t row)
{
    return v->codes[kind] + (domain * v->rows + row) * v->channels[kind];
}

static bool take_codes(struct viewer *v, int64_t batch, struct wf_err *err)
{
    struct wf_host host = { 0 };
    bool ok = true;
    for (int i = 0; ok && i < KINDS * v->net->domains; i++) {
        const int kind = i % KINDS, k = i / KINDS;
        const struct wf_value *const code = v->t->targets.views[k].codes[kind];
        ok = wf_run_get_owned(v->run, code, &host, err);
        if (!ok || !host.view.data || !wf_run_counts(v->run, code))
            continue;
        const struct wf_region box = host.view.box;
        for (int64_t n = box.lo[WF_N]; n < box.hi[WF_N]; n++) {
            float *const to = code_at(v, kind, k, batch * code->shape.at[WF_N] + n);
            for (int64_t c = box.lo[WF_C]; c < box.hi[WF_C]; c++)
                to[c] = (float)wf_view_get(&host.view, n, 0, 0, 0, c);
        }
    }
    wf_host_release(&host);
    return ok;
}

/* Collective. The run is trained and saved: who stops it now has no pictures, and nothing has failed. */
static bool must_stop(struct viewer *v, struct wf_err *err)
{
    const struct wf_training *const t = v->t;
    int64_t requested = t->hooks->stops && t->hooks->stops(t->user);
    const bool ok = wf_comm_sum(v->comm, &requested, 1, WF_I64, err);
    v->stopped = requested > 0;
    return ok;
}

/* Collective. All codes, on every rank, unless it is stopped. */
static bool find_codes(struct viewer *v, struct wf_err *err)
{
    const size_t rows = (size_t)(v->net->domains * v->rows);
    for (int64_t b = 0; b < v->batches; b++) {
        if (!must_stop(v, err))
            return false;
        if (v->stopped)
            return true;
        if (!look(v, b, err) || !wf_comm_agree(v->comm, take_codes(v, b, err), err))
            return false;
        take_rows(v, b);
    }
    bool ok = wf_comm_sum(v->comm, v->is_image, rows, WF_F32, err);
    for (int i = 0; ok && i < KINDS; i++)
        ok = wf_comm_sum(v->comm, v->codes[i], rows * (size_t)v->channels[i], WF_F32, err);
    return ok;
}

/* [[x, y, x, y, ...], ...]: the points of each domain. */
static void add_points(cJSON *event, const char *name, const float *xy, const int64_t counts[],
                       int domains)
{
    struct wf_buffer text = { 0 };
    wf_buffer_text(&text, "[");
    for (int k = 0; k < domains; k++) {
        wf_buffer_text(&text, k ? ",[" : "[");
        for (int64_t i = 0; i < 2 * counts[k]; i++)
            wf_buffer_printf(&text, "%s%.4g", i ? "," : "", (double)*xy++);
        wf_buffer_text(&text, "]");
    }
    wf_buffer_text(&text, "]");
    (void)cJSON_AddRawToObject(event, name, text.data);
    wf_buffer_release(&text);
}

static void add_codes(const struct viewer *v, int kind, cJSON *event)
{
    const int64_t channels = v->channels[kind];
    const int domains = v->net->domains;
    struct wf_arena arena = { 0 };
    float *const rows = wf_arena_array(&arena, domains * v->rows * channels, float);
    float *const xy = wf_arena_array(&arena, 2 * domains * v->rows, float);
    int64_t *const counts = wf_arena_array(&arena, domains, int64_t), n = 0;
    double share[2];
    for (int k = 0; k < domains; k++)
        for (int64_t r = 0; r < v->rows; r++) {
            const float *const code = code_at(v, kind, k, r);
            if (v->is_image[k * v->rows + r] == 0)
                continue;
            for (int64_t c = 0; c < channels; c++)
                rows[n * channels + c] = code[c];
            counts[k]++;
            n++;
        }
    wf_project(rows, n, channels, xy, share);
    const char *const name = wf_domain_view_names[kind];
    add_points(event, name, xy, counts, domains);
    cJSON_AddItemToObject(event, wf_arena_printf(&arena, "%s_share", name),
                          cJSON_CreateDoubleArray(share, 2));
    wf_arena_release(&arena);
}

static bool log_codes(const struct viewer *v, struct wf_err *err)
{
    cJSON *const event = wf_journal_event("codes");
    (void)cJSON_AddNumberToObject(event, "epoch", (double)v->t->result.at.epoch);
    for (int i = 0; i < KINDS; i++)
        add_codes(v, i, event);
    return wf_journal_write(v->t->journal, event, err);
}

/* --- reconstructions --- */

struct shown {
    int64_t row;
    const char *prefix; /* of its files */
    cJSON *event;       /* rank 0's */
};

/* Collective. A value as a file, whose name the event gets. */
static bool draw(const struct viewer *v, const struct wf_value *value, const struct shown *s,
                 const char *name, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_preview p = { 0 };
    bool ok = wf_preview_value(&p, v->run, value, s->row, v->comm, err);
    if (ok && s->event) {
        const char *const file = wf_arena_printf(&arena, "%s-%s.png", s->prefix, name);
        (void)cJSON_AddStringToObject(s->event, name, file);
        ok = wf_preview_write_image(&p, wf_run_folder_file(&arena, v->t->folder, file), err);
    }
    wf_preview_release(&p);
    wf_arena_release(&arena);
    return wf_comm_agree(v->comm, ok, err);
}

/* Collective. Input, and the three reconstructions of it. */
static bool show_one(const struct viewer *v, int domain, int64_t row, struct wf_err *err)
{
    const struct wf_domain_views *const views = &v->t->targets.views[domain];
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "samples/domain%d-%d", domain, (int)row);
    struct shown s = { row, prefix, NULL };
    if (wf_comm_rank(v->comm) == 0) {
        s.event = wf_journal_event("reconstruction");
        (void)cJSON_AddNumberToObject(s.event, "domain", domain);
        (void)cJSON_AddNumberToObject(s.event, "epoch", (double)v->t->result.at.epoch);
    }
    bool ok = draw(v, v->net->images[domain], &s, "image", err);
    for (int i = 0; ok && i < 3; i++)
        ok = draw(v, views->rebuilt[i], &s, wf_domain_view_names[i], err);
    if (s.event && ok)
        ok = wf_journal_write(v->t->journal, s.event, err);
    else
        cJSON_Delete(s.event);
    return wf_comm_agree(v->comm, ok, err);
}

/* Collective. */
static bool show_images(struct viewer *v, struct wf_err *err)
{
    const int64_t rows =
        wf_min(wf_min(IMAGES, v->t->settings.train.samples), v->net->image->shape.at[WF_N]);
    bool ok = look(v, 0, err);
    for (int k = 0; ok && k < v->net->domains; k++)
        for (int64_t r = 0; ok && r < rows; r++)
            if (v->is_image[k * v->rows + r] > 0)
                ok = show_one(v, k, r, err);
    return ok;
}

bool wf_pictures_domains(struct wf_training *t, struct wf_run *lender, struct wf_context *context,
                         struct wf_comm *comm, struct wf_err *err)
{
    if (!t->targets.global)
        return true;
    struct viewer v = { .t = t, .comm = comm, .net = &t->targets.net };
    bool ok = begin(&v, lender, context, err) && find_codes(&v, err);
    if (ok && !v.stopped)
        ok = wf_comm_agree(comm, wf_comm_rank(comm) != 0 || log_codes(&v, err), err) &&
             show_images(&v, err);
    release(&v);
    return ok || wf_err_wrap(err, "pictures of the domains");
}
