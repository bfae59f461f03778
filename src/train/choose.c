#include "train/choose.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/units.h"
#include "ops/op.h"
#include "plan/plan_cache.h"

enum {
    TRIED = 8,         /* candidates that are planned */
    TYPICAL_RANKS = 4, /* of each */
    LARGE = 64,        /* ranks: beyond, half as many of both */
    HALO_WEIGHT = 8,   /* what an element of the halo costs, in elements of the part */
    MOST_RANKS = 2048, /* where advice stops to look */
};

/* --- candidates --- */

static struct wf_shape image_of(const struct wf_graph *g)
{
    struct wf_shape s = WF_SHAPE(1, 1, 1, 1, 1);
    for (size_t i = 0; i < g->n_values; i++)
        for (int a = 0; a < WF_C; a++)
            if (g->values[i]->kind == WF_INPUT && !g->values[i]->replicated)
                s.at[a] = wf_max(s.at[a], g->values[i]->shape.at[a]);
    return s;
}

/* The largest part, and the faces it shares with others; workers along domain have a part of the images. */
static double rule_of_thumb(const struct wf_shape *image, const struct wf_mesh *mesh)
{
    double part = 1, halo = 0, extent[WF_C];
    for (int a = 0; a < WF_C; a++) {
        extent[a] = (double)wf_ceil_div(image->at[a], mesh->at[wf_mesh_axis_of((enum wf_axis)a)]);
        part *= extent[a];
    }
    for (int a = WF_D; a < WF_C; a++) {
        const int parts = mesh->at[wf_mesh_axis_of((enum wf_axis)a)];
        halo += parts > 1 ? (parts > 2 ? 2 : 1) * part / extent[a] : 0;
    }
    return (part + HALO_WEIGHT * halo) / mesh->at[WF_MESH_DOMAIN];
}

static int by_thumb(const void *a, const void *b)
{
    const struct wf_mesh_candidate *const x = a, *const y = b;
    if (x->thumb != y->thumb)
        return x->thumb < y->thumb ? -1 : 1;
    for (int i = 0; i < WF_MESH_AXES; i++) /* fewer cuts along the inner axes: they cost copies */
        if (x->mesh.at[i] != y->mesh.at[i])
            return x->mesh.at[i] > y->mesh.at[i] ? -1 : 1;
    return 0;
}

/* All ways to cut images of this shape over so many ranks, beside workers along domain and stages along pipe. What
 * stages take longer than an equal part each is `waits`. */
static void list_cuts(struct wf_mesh_candidates *list, const struct wf_shape *image, int ranks,
                      int domain, int pipe, double waits)
{
    for (int data = 1; data <= ranks && data <= image->at[WF_N]; data++)
        for (int d = 1; ranks % data == 0 && d <= ranks / data && d <= image->at[WF_D]; d++)
            for (int h = 1; ranks / data % d == 0 && h <= ranks / data / d; h++) {
                const int w = ranks / data / d / h;
                if (data * d * h * w != ranks || h > image->at[WF_H] || w > image->at[WF_W])
                    continue;
                const struct wf_mesh mesh = { { data, domain, pipe, d, h, w } };
                WF_GROW(list->at, list->room, list->count);
                list->at[list->count++] =
                    (struct wf_mesh_candidate){ mesh, waits * rule_of_thumb(image, &mesh) / pipe };
            }
}

/* All candidates, the most promising first. */
static struct wf_mesh_candidates list_candidates(const struct wf_shape *image, int ranks,
                                                 const struct wf_layout_options *layout)
{
    struct wf_mesh_candidates list = { 0 };
    for (int domain = 1; domain <= wf_max(1, layout->n_domains); domain++)
        if (ranks % domain == 0)
            list_cuts(&list, image, ranks / domain, domain, 1, 1);
    if (list.count > 0)
        qsort(list.at, list.count, sizeof *list.at, by_thumb);
    return list;
}

struct wf_mesh_candidates wf_mesh_candidates(const struct wf_graph *g, int ranks, int pipe_most,
                                             int micro_batches)
{
    const struct wf_shape image = image_of(g);
    struct wf_mesh_candidates list = { 0 };
    for (int pipe = 1; pipe <= pipe_most && pipe <= ranks; pipe++)
        if (ranks % pipe == 0)
            list_cuts(&list, &image, ranks / pipe, 1, pipe, 1 + (pipe - 1.0) / micro_batches);
    if (list.count > 0)
        qsort(list.at, list.count, sizeof *list.at, by_thumb);
    return list;
}

/* --- planning one --- */

static int64_t owned_count(const struct wf_global_plan *s, int rank)
{
    int64_t count = 0;
    for (size_t i = 0; i < s->graph->n_values; i++) {
        const struct wf_value *const v = s->graph->values[i];
        if (v->kind == WF_INPUT && !v->replicated)
            count = wf_max(count, wf_region_count(wf_geometry_owned(&s->geometry, rank, v)));
    }
    return count;
}

/* Of each worker along domain, whose work differs, the one in the middle. Otherwise the rank with the largest part,
 * the one in the middle, both ends. */
static int find_typical(const struct wf_global_plan *s, int most, int ranks[])
{
    const int workers = s->mesh.at[WF_MESH_DOMAIN];
    int at[WF_MESH_AXES], largest = 0;
    for (int a = 0; a < WF_MESH_AXES; a++)
        at[a] = s->mesh.at[a] / 2;
    if (workers > 1) {
        for (at[WF_MESH_DOMAIN] = 0; at[WF_MESH_DOMAIN] < workers; at[WF_MESH_DOMAIN]++)
            ranks[at[WF_MESH_DOMAIN]] = wf_mesh_rank(&s->mesh, at);
        return workers;
    }
    int64_t parts = -1;
    for (int r = 0; r < s->geometry.n_ranks; r++) {
        const int64_t count = owned_count(s, r);
        if (count > parts) {
            parts = count;
            largest = r;
        }
    }
    ranks[0] = largest;
    ranks[1] = wf_mesh_rank(&s->mesh, at);
    ranks[2] = 0;
    ranks[3] = s->geometry.n_ranks - 1;
    if (s->geometry.n_ranks <= TYPICAL_RANKS) /* so few can all be looked at */
        for (int i = 0; i < s->geometry.n_ranks; i++)
            ranks[i] = i;
    return most;
}

/* Workers along domain wait for each other; the others have about the same work. */
static double seconds_of(struct wf_plan *const plans[], int count, bool together)
{
    double seconds = 0;
    if (together)
        return wf_plans_seconds((const struct wf_plan *const *)plans, count);
    for (int i = 0; i < count; i++)
        seconds = plans[i]->seconds > seconds ? plans[i]->seconds : seconds;
    return seconds;
}

static bool try_mesh(const struct wf_graph *g, const struct wf_plan_options *options,
                     const struct wf_choose *ask, struct wf_choice *out, struct wf_err *err)
{
    struct wf_global_plan *const s = wf_global_plan_new(g, &out->mesh, options, err);
    if (!s)
        return false;
    struct wf_arena arena = { 0 };
    const int workers = out->mesh.at[WF_MESH_DOMAIN];
    int *const ranks = wf_arena_array(&arena, wf_max(workers, TYPICAL_RANKS), int);
    const int count =
        find_typical(s, ask->ranks > LARGE ? TYPICAL_RANKS / 2 : TYPICAL_RANKS, ranks);
    struct wf_plan **const plans = wf_arena_array(&arena, count, struct wf_plan *);
    struct wf_plan_cache cache = { 0 };
    out->bytes = s->bytes; /* of all ranks, where there is a limit to hold them against */
    bool ok = true;
    for (int i = 0; ok && i < count; i++) {
        plans[i] = wf_plan_estimate(s, ranks[i], &cache, err);
        ok = plans[i] != NULL;
        if (!ok)
            break;
        const size_t bytes = plans[i]->arena_bytes + wf_plan_param_bytes(plans[i]) + ask->more;
        out->bytes = bytes > out->bytes ? bytes : out->bytes;
    }
    if (ok)
        out->seconds = seconds_of(plans, count, workers > 1);
    for (int i = 0; i < count; i++)
        wf_plan_free(plans[i]);
    wf_plan_cache_release(&cache);
    wf_global_plan_free(s);
    wf_arena_release(&arena);
    return ok;
}

/* --- choosing --- */

/* Times within a hundredth are the same: then memory decides. */
static bool is_better(const struct wf_choice *a, const struct wf_choice *b, size_t limit)
{
    const bool fits = !limit || a->bytes <= limit, other_fits = !limit || b->bytes <= limit;
    if (fits != other_fits)
        return fits;
    if (!fits || (a->seconds < 1.01 * b->seconds && b->seconds < 1.01 * a->seconds))
        return a->bytes < b->bytes;
    return a->seconds < b->seconds;
}

/* With the best placement of domains on the mesh, of those that are asked for. */
static bool try_placements(const struct wf_graph *g, const struct wf_plan_options *options,
                           const struct wf_choose *ask, struct wf_choice *best, struct wf_err *err)
{
    if (!ask->domains)
        return try_mesh(g, options, ask, best, err);
    enum wf_domain_placement list[WF_PLACEMENTS];
    const int count = wf_domains_placements(ask->domains, &best->mesh, list);
    best->tried = 0;
    for (int i = 0; i < count; i++) {
        struct wf_choice one = { .mesh = best->mesh, .placement = list[i] };
        const struct wf_domains domains = { ask->domains->count, list[i] };
        struct wf_plan_options with = *options;
        with.layout = wf_domains_layout(&domains);
        if (!try_mesh(g, &with, ask, &one, err))
            continue;
        one.tried = best->tried + 1;
        if (best->tried == 0 || is_better(&one, best, ask->limit))
            *best = one;
        best->tried = one.tried;
    }
    return best->tried > 0;
}

bool wf_mesh_place(const struct wf_graph *g, const struct wf_plan_options *options,
                   const struct wf_choose *ask, const struct wf_mesh *mesh,
                   struct wf_choice *choice, struct wf_err *err)
{
    enum wf_domain_placement list[WF_PLACEMENTS];
    *choice = (struct wf_choice){ .mesh = *mesh, .tried = 1 };
    if (wf_domains_placements(ask->domains, mesh, list) > 1)
        return try_placements(g, options, ask, choice, err);
    choice->placement = list[0]; /* nothing to choose */
    return true;
}

/* The best of so many ranks, whether it fits or not; tried == 0: there is none. */
static struct wf_choice best_of(const struct wf_graph *g, const struct wf_plan_options *options,
                                const struct wf_choose *ask, int most, struct wf_err *err)
{
    const struct wf_shape image = image_of(g);
    const struct wf_mesh_candidates list = list_candidates(&image, ask->ranks, &options->layout);
    struct wf_choice best = { 0 };
    if (list.count == 1 && !ask->limit &&
        !ask->domains) { /* nothing to choose: whoever plans it says what it takes */
        best = (struct wf_choice){ .mesh = list.at[0].mesh, .tried = 1 };
        free(list.at);
        return best;
    }
    for (size_t i = 0; i < list.count && best.tried < most; i++) {
        struct wf_choice one = { .mesh = list.at[i].mesh };
        *err = (struct wf_err){ 0 };
        if (!try_placements(g, options, ask, &one, err))
            continue;
        one.tried = best.tried + 1;
        if (best.tried == 0 || is_better(&one, &best, ask->limit))
            best = one;
        best.tried = one.tried;
    }
    free(list.at);
    return best;
}

const char *wf_mesh_advice(struct wf_arena *arena, const struct wf_graph *g,
                           const struct wf_plan_options *options, const struct wf_choose *ask)
{
    struct wf_err ignored = { 0 };
    size_t before = SIZE_MAX;
    for (int64_t ranks = (int64_t)ask->ranks * 2; ranks <= MOST_RANKS; ranks *= 2) {
        struct wf_choose more = *ask;
        struct wf_plan_options plain = *options;
        more.ranks = (int)ranks;
        if (ranks > LARGE) /* making results again for each of them takes long to plan */
            plain.limit = 0;
        const struct wf_choice best = best_of(g, &plain, &more, 1, &ignored);
        if (best.tried == 0 || best.bytes >= before)
            break; /* more ranks do not help any further */
        if (best.bytes <= ask->limit)
            return wf_arena_printf(arena, "use %d ranks (--mesh %s needs %s)", more.ranks,
                                   wf_mesh_print(arena, &best.mesh),
                                   wf_text_bytes(arena, (double)best.bytes));
        before = best.bytes;
    }
    return "use a smaller image or batch, a smaller network or --precision bf16; more ranks alone "
           "do not help";
}

bool wf_mesh_choose(const struct wf_graph *g, const struct wf_plan_options *options,
                    const struct wf_choose *ask, struct wf_choice *choice, struct wf_err *err)
{
    struct wf_err last = { 0 };
    *choice = best_of(g, options, ask, ask->ranks > LARGE ? TRIED / 2 : TRIED, &last);
    if (choice->tried == 0 && last.code) {
        *err = last;
        return false;
    }
    const struct wf_shape image = image_of(g);
    if (choice->tried == 0)
        return wf_err_set(
            err, WF_ERR_FIT,
            "no mesh of %d ranks: the batch of %" PRId64 " and the image of %" PRId64 " x %" PRId64
            " x %" PRId64 " cannot be cut into so many equal counts: use another number of ranks",
            ask->ranks, image.at[WF_N], image.at[WF_D], image.at[WF_H], image.at[WF_W]);
    if (!ask->limit || choice->bytes <= ask->limit)
        return true;
    struct wf_arena arena = { 0 };
    (void)wf_err_set(err, WF_ERR_FIT,
                     "no mesh of %d ranks fits: the best, %s, needs %s a rank, memory.limit is %s: "
                     "%s",
                     ask->ranks, wf_mesh_print(&arena, &choice->mesh),
                     wf_text_bytes(&arena, (double)choice->bytes),
                     wf_text_bytes(&arena, (double)ask->limit),
                     wf_mesh_advice(&arena, g, options, ask));
    wf_arena_release(&arena);
    return false;
}
