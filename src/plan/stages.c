#include "plan/stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/op.h"
#include "plan/target.h"

const char *const wf_pipe_schedule_names[] = {
    [WF_PIPE_1F1B] = "1f1b",
    [WF_PIPE_INTERLEAVED] = "interleaved",
    [WF_PIPE_ZERO_BUBBLE] = "zero_bubble",
    NULL,
};

/* What is computed from weights alone, or cheaply from inputs as they come, runs with its readers. */
enum pull { NOT_PULLED, OF_INPUTS, OF_WEIGHTS };

struct cutter {
    struct wf_arena *arena;
    struct wf_stages *s;
    const struct wf_graph *g;
    const struct wf_costs *costs;
    double *seconds; /* per forward node: with its gradient */
    double *level;   /* per forward node: seconds from the inputs to its end, by the longest way */
    enum pull *pulled; /* per forward node */
    int *at;           /* the other forward nodes by level */
    int n;
    int *place;       /* per node: its place in `at`, or -1 */
    double *crossing; /* per place: seconds that what travels takes, if a chunk begins there */
    bool *allowed;    /* per place: a chunk may begin there */
};

/* --- levels --- */

static double value_bytes(const struct wf_value *v)
{
    return (double)wf_shape_count(v->shape) * (double)wf_dtype_size(v->dtype);
}

static const struct wf_node *producer(const struct wf_node *n, int input)
{
    return n->in[input] ? n->in[input]->producer : NULL;
}

static bool collects(const struct wf_node *n)
{
    return (n->op->flags & WF_OP_COLLECTS) != 0;
}

static enum pull pull_of(const struct cutter *c, const struct wf_node *n)
{
    enum pull pull = n->n_in > 0 ? OF_WEIGHTS : OF_INPUTS;
    for (int k = 0; k < n->n_in; k++) {
        const struct wf_node *const from = producer(n, k);
        const bool is_input = n->in[k] && n->in[k]->kind == WF_INPUT;
        const enum pull in = from ? c->pulled[from->id] : is_input ? OF_INPUTS : OF_WEIGHTS;
        pull = in < pull ? in : pull;
    }
    const bool cheap = (n->op->flags & WF_OP_CHEAP) != 0;
    return collects(n) || (pull == OF_INPUTS && !cheap) ? NOT_PULLED : pull;
}

static void find_levels(struct cutter *c)
{
    const struct wf_graph *const g = c->g;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct wf_node *const n = g->nodes[i];
        if (!n->backward || n->of >= 0)
            c->seconds[n->backward ? n->of : n->id] += wf_cost_node(c->costs, n);
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct wf_node *const n = g->nodes[i];
        if (n->backward)
            continue;
        c->pulled[i] = pull_of(c, n);
        for (int k = 0; k < n->n_in; k++)
            if (producer(n, k) && !c->pulled[producer(n, k)->id])
                c->level[i] = fmax(c->level[i], c->level[producer(n, k)->id]);
        c->level[i] += c->seconds[i];
    }
    /* What is collected is added up where it is: with its sum (T1 keeps the rest in order). */
    for (size_t i = g->n_nodes; i-- > 0;)
        for (int k = 0; collects(g->nodes[i]) && !g->nodes[i]->backward && k < g->nodes[i]->n_in;
             k++)
            if (producer(g->nodes[i], k))
                c->level[producer(g->nodes[i], k)->id] = c->level[i];
}

static int by_level(const void *a, const void *b, void *arg)
{
    const struct cutter *const c = arg;
    const int x = *(const int *)a, y = *(const int *)b;
    if (c->level[x] != c->level[y])
        return c->level[x] < c->level[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

static void sort_nodes(struct cutter *c)
{
    for (size_t i = 0; i < c->g->n_nodes; i++) {
        c->place[i] = -1;
        if (!c->g->nodes[i]->backward && !c->pulled[i])
            c->at[c->n++] = (int)i;
    }
    qsort_r(c->at, (size_t)c->n, sizeof *c->at, by_level, c);
    for (int i = 0; i < c->n; i++)
        c->place[c->at[i]] = i;
}

/* --- where a chunk may begin, and what travels there --- */

/* T2: not between two uses of a parameter, also not by what is computed from weights alone. */
static void forbid_within(struct cutter *c, const struct wf_value *v, int first[], int last[])
{
    for (int i = first[v->id] + 1; i <= last[v->id]; i++)
        c->allowed[i] = false;
}

/* The length of the layer's name in that of its weight: "enc0.bn1" of "enc0.bn1.domain2.running_mean". */
static size_t layer_length(const char *name)
{
    const char *const dot = strrchr(name, '.'), *const domain = strstr(name, ".domain");
    const size_t length = dot ? (size_t)(dot - name) : strlen(name);
    return domain && (size_t)(domain - name) < length ? (size_t)(domain - name) : length;
}

/* All weights and states of a layer are in one part: a network for prediction may read them by one node. */
static void join_layers(const struct wf_graph *g, int first[], int last[])
{
    for (size_t a = 0; a < g->n_values; a++) {
        const struct wf_value *const x = g->values[a];
        const size_t length = layer_length(x->name);
        for (size_t b = 0; (x->kind == WF_PARAM || x->kind == WF_STATE) && b < g->n_values; b++) {
            const struct wf_value *const y = g->values[b];
            if ((y->kind != WF_PARAM && y->kind != WF_STATE) || layer_length(y->name) != length ||
                strncmp(x->name, y->name, length) != 0)
                continue;
            first[a] = (int)wf_min(first[a], first[b]);
            last[a] = (int)wf_max(last[a], last[b]);
        }
    }
}

static void find_places(struct cutter *c)
{
    const struct wf_graph *const g = c->g;
    int *const first = wf_arena_array(c->arena, g->n_values, int);
    int *const last = wf_arena_array(c->arena, g->n_values, int);
    for (size_t v = 0; v < g->n_values; v++) {
        first[v] = c->n;
        last[v] = -1;
    }
    for (size_t i = g->n_nodes; i-- > 0;) { /* readers of what a pulled node makes come before it */
        const struct wf_node *const n = g->nodes[i];
        if (n->backward)
            continue;
        int low = c->place[i], high = c->place[i];
        if (c->pulled[i]) {
            low = c->n;
            for (int o = 0; o < n->n_out; o++) {
                low = (int)wf_min(low, first[n->out[o]->id]);
                high = (int)wf_max(high, last[n->out[o]->id]);
            }
        }
        for (int k = 0; k < n->n_in; k++) {
            if (!n->in[k])
                continue;
            first[n->in[k]->id] = (int)wf_min(first[n->in[k]->id], low);
            last[n->in[k]->id] = (int)wf_max(last[n->in[k]->id], high);
        }
    }
    join_layers(g, first, last);
    for (size_t v = 0; v < g->n_values; v++) {
        const struct wf_value *const value = g->values[v];
        const struct wf_node *const from = value->producer;
        if (last[v] < 0)
            continue;
        if (value->kind == WF_PARAM || value->kind == WF_STATE ||
            (from && c->pulled[from->id] == OF_WEIGHTS))
            forbid_within(c, value, first, last);
        /* There and back: its gradient is as large. */
        for (int i = from && !c->pulled[from->id] ? c->place[from->id] + 1 : c->n; i <= last[v];
             i++)
            c->crossing[i] += 2 * value_bytes(value) / c->costs->links.bytes_per_second;
    }
    for (int i = 1; i < c->n;
         i++) /* equal levels stay together, as what is collected and its sum */
        c->allowed[i] = c->allowed[i] && c->level[c->at[i]] > c->level[c->at[i - 1]];
}

/* --- the cut --- */

static bool has_name(const struct wf_node *n, const char *layer)
{
    const size_t length = strlen(layer);
    return strncmp(n->name, layer, length) == 0 &&
           (n->name[length] == '\0' || n->name[length] == '.');
}

static bool cut_by_name(const struct cutter *c, const struct wf_pipe_options *o, int begin[],
                        struct wf_err *err)
{
    if (o->n_cut != c->s->n_chunks - 1)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "pipe.cut: %d layers, but the network is cut into %d parts: name the first "
            "layer of each part but the first, %d in all",
            o->n_cut, c->s->n_chunks, c->s->n_chunks - 1);
    for (int k = 0; k < o->n_cut; k++) {
        int at = 0;
        while (at < c->n && !has_name(c->g->nodes[c->at[at]], o->cut[k]))
            at++;
        if (at == c->n)
            return wf_err_set(err, WF_ERR_USAGE,
                              "pipe.cut: there is no layer '%s': 'widefield model show' lists them",
                              o->cut[k]);
        while (at > 0 && !(c->level[c->at[at]] > c->level[c->at[at - 1]]))
            at--;
        if (at == 0 || !c->allowed[at] || (k > 0 && at <= begin[k]))
            return wf_err_set(err, WF_ERR_USAGE, "pipe.cut: no part can begin at layer '%s': %s",
                              o->cut[k],
                              at == 0           ? "it is the first one"
                              : !c->allowed[at] ? "layers on both sides of it share weights"
                                                : "name the layers in the order in which they run");
        begin[k + 1] = at;
    }
    return true;
}

/* The cheapest way to cut the first i nodes into k parts: seconds of its slowest part. */
static bool cut_by_cost(const struct cutter *c, int begin[], struct wf_err *err)
{
    const int parts = c->s->n_chunks, n = c->n;
    struct wf_arena scratch = { 0 };
    double *const sum = wf_arena_array(&scratch, n + 1, double);
    double *const best = wf_arena_array(&scratch, (parts + 1) * (n + 1), double);
    int *const from = wf_arena_array(&scratch, (parts + 1) * (n + 1), int);
    int possible = 1;
    for (int i = 0; i < n; i++) {
        sum[i + 1] = sum[i] + c->seconds[c->at[i]];
        possible += i > 0 && c->allowed[i];
    }
    for (int i = 0; i < (parts + 1) * (n + 1); i++)
        best[i] = INFINITY;
    best[0] = 0;
    for (int k = 1; k <= parts; k++)
        for (int i = 1; i <= n; i++) {
            if (i < n && !c->allowed[i])
                continue;
            for (int j = 0; j < i; j++) {
                const double before = best[(k - 1) * (n + 1) + j];
                const double travel = c->crossing[j] + (i < n ? c->crossing[i] : 0);
                const double slowest = fmax(before, sum[i] - sum[j] + travel);
                if (slowest < best[k * (n + 1) + i]) {
                    best[k * (n + 1) + i] = slowest;
                    from[k * (n + 1) + i] = j;
                }
            }
        }
    const bool ok = isfinite(best[parts * (n + 1) + n]);
    for (int k = parts, i = n; ok && k > 0; k--)
        begin[k - 1] = i = from[k * (n + 1) + i];
    wf_arena_release(&scratch);
    return ok ||
           wf_err_set(err, WF_ERR_FIT,
                      "mesh: the network is to be cut into %d parts for pipe=%d, but has places "
                      "for %d: use pipe=%d or fewer",
                      parts, c->s->n_stages, possible, possible * c->s->n_stages / parts);
}

/* --- chunks and segments --- */

static int chunk_of_weight(const struct wf_pipe_options *o, const struct wf_value *weight)
{
    const struct wf_value *const there = wf_graph_find(o->like, weight->name);
    for (size_t i = 0; there && i < o->like->n_nodes; i++)
        for (int k = 0; k < o->like->nodes[i]->n_in; k++)
            if (o->like->nodes[i]->in[k] == there)
                return o->like_stages->chunk[i];
    return 0;
}

/* The chunk in which the other graph has what a node reads of weights, directly or by what is computed from
 * them alone. */
static int chunk_like(const struct cutter *c, const struct wf_pipe_options *o,
                      const struct wf_node *n)
{
    int chunk = 0;
    for (int k = 0; k < n->n_in; k++) {
        const struct wf_value *const v = n->in[k];
        const struct wf_node *const from = producer(n, k);
        if (v && (v->kind == WF_PARAM || v->kind == WF_STATE))
            chunk = (int)wf_max(chunk, chunk_of_weight(o, v));
        else if (from && c->pulled[from->id] == OF_WEIGHTS)
            chunk = (int)wf_max(chunk, chunk_like(c, o, from));
    }
    return chunk;
}

/* give_later() moves what reads no weights behind what it reads. */
static void give_like(const struct cutter *c, const struct wf_pipe_options *o)
{
    for (size_t i = 0; i < c->g->n_nodes; i++)
        if (!c->g->nodes[i]->backward && !c->pulled[i])
            c->s->chunk[i] = chunk_like(c, o, c->g->nodes[i]);
}

static void give_places(const struct cutter *c, const int begin[])
{
    for (int i = 0, k = 0; i < c->n; i++) {
        while (k + 1 < c->s->n_chunks && begin[k + 1] <= i)
            k++;
        c->s->chunk[c->at[i]] = k;
    }
}

/* What the forward nodes have so far is moved behind what they read; then the others follow. */
static void give_later(const struct cutter *c)
{
    const struct wf_graph *const g = c->g;
    int *const chunk = c->s->chunk;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; !g->nodes[i]->backward && !c->pulled[i] && k < g->nodes[i]->n_in; k++) {
            const struct wf_node *const from = producer(g->nodes[i], k);
            if (from && !c->pulled[from->id])
                chunk[i] = (int)wf_max(chunk[i], chunk[from->id]);
        }
    for (size_t i = 0; i < g->n_nodes; i++)
        if (c->pulled[i])
            chunk[i] = c->s->n_chunks - 1;
    for (size_t i = g->n_nodes; i-- > 0;)
        for (int k = 0; !g->nodes[i]->backward && k < g->nodes[i]->n_in; k++) {
            const struct wf_node *const from = producer(g->nodes[i], k);
            if (from && c->pulled[from->id])
                chunk[from->id] = (int)wf_min(chunk[from->id], chunk[i]);
        }
    for (size_t i = 0; i < g->n_nodes; i++) { /* T1 */
        const struct wf_node *const n = g->nodes[i];
        if (n->backward)
            chunk[i] = n->of >= 0 ? chunk[n->of] : c->s->n_chunks - 1;
        for (int k = 0; n->backward && k < n->n_in; k++) {
            const struct wf_node *const from = producer(n, k);
            if (from && from->backward)
                chunk[i] = (int)wf_min(chunk[i], chunk[from->id]);
        }
    }
}

/* Makes nothing but gradients of its own node's weights. */
static void find_weight_nodes(const struct cutter *c, bool is_weights[])
{
    const struct wf_graph *const g = c->g;
    for (size_t i = 0; i < g->n_nodes; i++)
        is_weights[i] = g->nodes[i]->backward;
    for (size_t i = g->n_nodes; i-- > 0;) {
        const struct wf_node *const n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            const struct wf_node *const from = producer(n, k);
            if (from && (!is_weights[i] || (from->of != n->of && !collects(n)) ||
                         c->s->chunk[from->id] != c->s->chunk[i]))
                is_weights[from->id] = false;
        }
    }
}

static void give_segments(struct cutter *c, bool apart)
{
    struct wf_stages *const s = c->s;
    const struct wf_graph *const g = c->g;
    const int each = apart ? 2 : 1;
    bool *const is_weights = wf_arena_array(c->arena, g->n_nodes, bool);
    find_weight_nodes(c, is_weights);
    s->n_segments = s->n_chunks * (1 + each);
    s->segments = wf_arena_array(c->arena, s->n_segments, struct wf_segment);
    for (int k = 0; k < s->n_chunks; k++) {
        const int back = s->n_chunks + each * (s->n_chunks - 1 - k);
        s->segments[k] = (struct wf_segment){ WF_SEGMENT_FORWARD, k };
        s->segments[back] = (struct wf_segment){ WF_SEGMENT_BACKWARD, k };
        if (apart)
            s->segments[back + 1] = (struct wf_segment){ WF_SEGMENT_WEIGHTS, k };
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        const int k = s->chunk[i];
        s->segment[i] = !g->nodes[i]->backward ? k
                                               : s->n_chunks + each * (s->n_chunks - 1 - k) +
                                                     (apart && k > 0 && is_weights[i]);
    }
    int n = 0;
    for (int segment = 0; segment < s->n_segments; segment++)
        for (size_t i = 0; i < g->n_nodes; i++)
            if (s->segment[i] == segment)
                s->order[n++] = (int)i;
}

static bool check(const struct cutter *c, const struct wf_pipe_options *o, struct wf_err *err)
{
    const struct wf_graph *const g = c->g;
    int *const used = wf_arena_array(c->arena, g->n_values, int); /* chunk + 1 */
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct wf_node *const n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            const struct wf_value *const v = n->in[k];
            if (!v)
                continue;
            WF_BUG_ON(v->producer && c->s->segment[v->producer->id] > c->s->segment[i],
                      "'%s' is read before it is made, by '%s'", v->name, n->name);
            if ((v->kind != WF_PARAM && v->kind != WF_STATE) || collects(n))
                continue;
            if (used[v->id] && used[v->id] != c->s->chunk[i] + 1)
                return wf_err_set(
                    err, WF_ERR_FIT,
                    "mesh: '%s' is used in two parts of the pipeline, by '%s' and by a "
                    "layer before it: use another pipe.cut, or no axis pipe",
                    v->name, n->name);
            used[v->id] = c->s->chunk[i] + 1;
            if (o->like && chunk_of_weight(o, v) != c->s->chunk[i])
                return wf_err_set(
                    err, WF_ERR_FIT,
                    "mesh: '%s' is on another stage in training than '%s' needs it: use "
                    "another pipe.cut",
                    v->name, n->name);
        }
    }
    return true;
}

bool wf_stages_init(struct wf_arena *arena, struct wf_stages *s, const struct wf_graph *g,
                    const struct wf_mesh *mesh, const struct wf_pipe_options *o,
                    const struct wf_costs *costs, struct wf_err *err)
{
    const int stages = mesh->at[WF_MESH_PIPE];
    *s = (struct wf_stages){ .n_stages = stages, .n_chunks = 1, .n_segments = 1 };
    s->segments = wf_arena_one(arena, struct wf_segment);
    if (stages == 1)
        return true;
    const int micro = wf_pipe_micro_batches(o);
    bool trains = false;
    for (size_t i = 0; i < g->n_nodes; i++)
        trains = trains || g->nodes[i]->backward;
    if (trains && !o->like && o->schedule == WF_PIPE_INTERLEAVED && micro % stages != 0)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "pipe.schedule=interleaved needs a multiple of %d micro-batches with pipe=%d, "
            "and train.accumulate is %d: use %d",
            stages, stages, micro, (micro + stages - 1) / stages * stages);
    s->n_chunks = stages * (o->schedule == WF_PIPE_INTERLEAVED ? 2 : 1);
    s->chunk = wf_arena_array(arena, g->n_nodes, int);
    s->segment = wf_arena_array(arena, g->n_nodes, int);
    s->order = wf_arena_array(arena, g->n_nodes, int);
    struct cutter c = { .arena = arena, .s = s, .g = g, .costs = costs };
    c.seconds = wf_arena_array(arena, g->n_nodes, double);
    c.level = wf_arena_array(arena, g->n_nodes, double);
    c.pulled = wf_arena_array(arena, g->n_nodes, enum pull);
    c.at = wf_arena_array(arena, g->n_nodes, int);
    c.place = wf_arena_array(arena, g->n_nodes, int);
    c.crossing = wf_arena_array(arena, g->n_nodes + 1, double);
    c.allowed = wf_arena_array(arena, g->n_nodes + 1, bool);
    for (size_t i = 0; i <= g->n_nodes; i++)
        c.allowed[i] = true;
    int *const begin = wf_arena_array(arena, s->n_chunks + 1, int);
    find_levels(&c);
    sort_nodes(&c);
    find_places(&c);
    if (o->like)
        give_like(&c, o);
    else if (o->n_cut ? cut_by_name(&c, o, begin, err) : cut_by_cost(&c, begin, err))
        give_places(&c, begin);
    else
        return false;
    give_later(&c);
    give_segments(&c, o->schedule == WF_PIPE_ZERO_BUBBLE);
    return check(&c, o, err);
}
