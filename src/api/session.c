/* A session: options, how this process runs, and what can be asked before anything is trained. */
#include "api/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "train/all_ranks.h"
#include "plan/plan_cache.h"
#include "report/explain.h"
#include "train/verify.h"

/* --- the program's network --- */

/* A label is compared with the prediction at its place: a map that lost its border would be compared with
 * labels from elsewhere. */
static bool check_extents(struct wf_graph *g, const struct wf_own *own, const struct wf_value *x,
                          const struct wf_value *logits)
{
    const bool dense = own->model.dense;
    bool same = true;
    for (int a = WF_D; a < WF_C; a++)
        same = same && logits->shape.at[a] == (dense ? x->shape.at[a] : 1);
    return same ||
           wf_err_set(&g->err, WF_ERR_USAGE,
                      "the network function returned extents %s for an image of %s, but there is a "
                      "label for each %s",
                      wf_text_extents(&g->arena, 3, &logits->shape.at[WF_D]),
                      wf_text_extents(&g->arena, 3, &x->shape.at[WF_D]),
                      dense ? "pixel: use convolutions with .same, which keep the extents"
                            : "image: end with wf_global_pool() or wf_flatten()");
}

static struct wf_value *build_own(struct wf_graph *g, const struct wf_model_config *c,
                                  struct wf_value *x)
{
    const struct wf_own *const own = c->own;
    struct wf_value *const logits = own->network(g, x, own->user);
    if (!logits)
        (void)wf_err_set(&g->err, WF_ERR_USAGE, "the network function returned NULL");
    else if (logits->shape.at[WF_C] != c->classes)
        (void)wf_err_set(&g->err, WF_ERR_USAGE,
                         "the network function returned %lld channels, but there are %lld classes",
                         (long long)logits->shape.at[WF_C], (long long)c->classes);
    else if (own->trains && !check_extents(g, own, x, logits))
        return NULL;
    return g->err.code ? NULL : logits;
}

void wf_session_network(struct wf_session *s, wf_network_fn *fn, void *user)
{
    s->own.network = fn;
    s->own.user = user;
}

bool wf_session_settings(struct wf_session *s, const struct wf_own *own, struct wf_options *o,
                         struct wf_settings *settings, struct wf_err *err)
{
    if (!wf_options_settings(o, settings, err))
        return false;
    settings->comm.watch.log = &s->log;
    settings->comm.stop = &s->stop;
    if (own->network) {
        settings->model = &own->model;
        settings->config.own = own;
    }
    return true;
}

/* --- its life --- */

static void copy_setting(struct wf_options *to, const struct wf_setting *s)
{
    struct wf_err err = { 0 };
    if (!s->is_set || s->origin == WF_FROM_DEFAULT)
        return;
    const struct wf_option_source source = { .origin = s->origin,
                                             .where = wf_arena_copy(&to->arena, s->where),
                                             .items = s->texts ? s->texts : &s->text,
                                             .count = s->texts ? s->count : 1,
                                             .is_list = s->texts != NULL };
    const bool ok = wf_options_put(to, s->option->key, &source, &err);
    WF_BUG_ON(!ok, "%s", err.text);
}

/* Those whose keys begin with the section. */
static void copy_section(struct wf_options *to, const struct wf_options *from, const char *section)
{
    for (size_t i = 0; i < from->count; i++)
        if (strncmp(from->settings[i].option->key, section, strlen(section)) == 0)
            copy_setting(to, &from->settings[i]);
    /* An axis of the mesh ends "mesh: auto", which sets them all. */
    copy_setting(to, wf_options_get(from, "mesh.auto"));
}

struct wf_options *wf_options_copy(const struct wf_options *o)
{
    struct wf_options *const copy = wf_options_new();
    if (o)
        copy_section(copy, o, "");
    return copy;
}

void wf_session_place(const struct wf_session *s, struct wf_options *o)
{
    static const char *const sections[] = { "mesh.", "run.", "memory.", "comm." };
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        copy_section(o, s->options, sections[i]);
}

struct wf_session *wf_session_new(const struct wf_options *o, struct wf_err *err)
{
    struct wf_session *const s = wf_take_zeroed(1, sizeof *s);
    s->options = wf_options_copy(o);
    s->log.level = WF_LOG_WARN;
    s->launch.log = &s->log;
    s->own.model = (struct wf_model){ .name = "own",
                                      .what = "the program's network",
                                      .defaults = { .dims = 2, .base = 1, .depth = 1 },
                                      .dims_min = 1,
                                      .dims_max = 3,
                                      .dense = true,
                                      .build = build_own };
    struct wf_watchdog_options watch = wf_options_comm(s->options).watch;
    watch.log = &s->log;
    s->engine = wf_engine_new(&s->launch, &watch, &s->stop, err);
    if (s->engine)
        return s;
    wf_session_free(s);
    return NULL;
}

void wf_session_free(struct wf_session *s)
{
    if (!s)
        return;
    wf_engine_free(s->engine);
    wf_options_free(s->options);
    free(s);
}

int wf_session_rank(const struct wf_session *s)
{
    return s->launch.world ? wf_comm_rank(s->launch.world) : 0;
}

int wf_session_size(const struct wf_session *s)
{
    return s->launch.world ? wf_comm_size(s->launch.world) : 1;
}

void wf_session_stop(struct wf_session *s)
{
    atomic_store(&s->stop.asked, true);
}

void wf_session_on_log(struct wf_session *s, enum wf_log_level level, wf_log_fn *fn, void *user)
{
    s->log = (struct wf_log){ .level = level, .take = fn, .user = user };
}

/* --- questions about a job of this size: asked on the engine's thread --- */

struct question {
    struct wf_session *s;
    int count;
    const int64_t *size;
    bool (*answer)(struct question *q, struct wf_job *job, struct wf_err *err);
    bool verifies;
    int rank;   /* to explain */
    void *info; /* where the answer goes */
    char *text;
};

static bool check_size(const struct question *q, struct wf_err *err)
{
    if (q->count != 0 && (q->count < 3 || q->count > WF_AXES))
        return wf_err_set(err, WF_ERR_USAGE, "%d numbers as size: give N, C and 1 to 3 extents",
                          q->count);
    for (int i = 0; i < q->count; i++)
        if (q->size[i] < 1)
            return wf_err_set(err, WF_ERR_USAGE,
                              "the size has %lld as number %d: N, C and the extents are at least 1",
                              (long long)q->size[i], i + 1);
    return true;
}

static bool ask_job(void *arg, struct wf_err *err)
{
    struct question *const q = arg;
    struct wf_session *const s = q->s;
    struct wf_job_files files = { .count = q->count };
    struct wf_settings settings;
    bool ok = check_size(q, err);
    if (ok && q->count > 0)
        memcpy(files.size, q->size, (size_t)q->count * sizeof *q->size);
    ok = wf_launch_agree(&s->launch,
                         ok && wf_session_settings(s, &s->own, s->options, &settings, err), err);
    if (ok && q->count > 0)
        settings.data.size.count = 0;
    if (ok && q->verifies)
        wf_verify_settle(&settings);
    struct wf_job *const job = ok ? wf_job_new(&s->launch, &settings, &files, err) : NULL;
    ok = job && q->answer(q, job, err);
    wf_job_free(job);
    return ok;
}

static bool answer_plan(struct question *q, struct wf_job *job, struct wf_err *err)
{
    struct wf_plan_info *const info = q->info;
    *info = (struct wf_plan_info){ .ranks = job->ranks,
                                   .parameters = wf_graph_parameters(job->net.graph, false),
                                   .flops = wf_job_flops(job) };
    (void)snprintf(info->mesh, sizeof info->mesh, "%s", wf_mesh_print(&job->arena, &job->mesh));
    struct wf_all_ranks *const all = wf_all_ranks_new(job->global, NULL, err);
    if (!all)
        return false;
    const int micro = wf_job_micro_batches(job);
    info->seconds = all->seconds;
    for (int i = 0; i < all->n_ranks; i++) {
        const struct wf_rank_figures *const r = &all->ranks[i];
        const size_t bytes =
            r->arena_bytes + r->weight_bytes + wf_job_optim_bytes(job, r->trained_count);
        info->bytes = bytes > info->bytes ? bytes : info->bytes;
        info->messages += micro * r->messages;
        info->fetched += (size_t)micro * r->fetch_bytes;
        info->summed += r->reduce_bytes;
        if (i < (int)(sizeof info->rank_bytes / sizeof *info->rank_bytes)) {
            info->rank_bytes[i] = bytes;
            info->rank_seconds[i] = micro * r->seconds;
        }
    }
    wf_all_ranks_free(all);
    return true;
}

bool wf_session_plan(struct wf_session *s, int count, const int64_t size[],
                     struct wf_plan_info *info, struct wf_err *err)
{
    struct question q = {
        .s = s, .count = count, .size = size, .answer = answer_plan, .info = info
    };
    return wf_engine_call(s->engine, ask_job, &q, err);
}

static bool answer_explain(struct question *q, struct wf_job *job, struct wf_err *err)
{
    if (q->rank < 0 || q->rank >= job->ranks)
        return wf_err_set(err, WF_ERR_USAGE, "rank %d of %d", q->rank, job->ranks);
    struct wf_plan_cache cache = { 0 };
    struct wf_plan *const plan = wf_plan_estimate_on(job->global, q->rank, NULL, &cache, err);
    if (plan)
        q->text = wf_take_text(wf_plan_explain(&job->arena, plan));
    wf_plan_free(plan);
    wf_plan_cache_release(&cache);
    return q->text != NULL;
}

char *wf_session_explain(struct wf_session *s, int count, const int64_t size[], int rank,
                         struct wf_err *err)
{
    struct question q = {
        .s = s, .count = count, .size = size, .answer = answer_explain, .rank = rank
    };
    return wf_engine_call(s->engine, ask_job, &q, err) ? q.text : NULL;
}

void wf_text_free(char *text)
{
    free(text);
}

static bool answer_verify(struct question *q, struct wf_job *job, struct wf_err *err)
{
    struct wf_verify_info *const info = q->info;
    struct wf_verify v = { .job = job };
    v.tolerance = job->net.graph->options.compute == WF_F32 ? 1e-5 : 2e-2;
    if (!wf_verify_run(&v, err))
        return false;
    if (job->launch.world && !wf_comm_broadcast(job->launch.world, 0, v.worst, sizeof v.worst, err))
        return false;
    *info = (struct wf_verify_info){ .same = v.pass,
                                     .loss = v.worst[WF_VERIFY_LOSS],
                                     .predictions = v.worst[WF_VERIFY_PRED],
                                     .gradients = v.worst[WF_VERIFY_GRAD],
                                     .weights = v.worst[WF_VERIFY_PARAM] };
    return true;
}

bool wf_session_verify(struct wf_session *s, int count, const int64_t size[],
                       struct wf_verify_info *info, struct wf_err *err)
{
    struct question q = { .s = s,
                          .count = count,
                          .size = size,
                          .answer = answer_verify,
                          .verifies = true,
                          .info = info };
    return wf_engine_call(s->engine, ask_job, &q, err);
}
