#include "ckpt/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/arena.h"
#include "base/memory.h"
#include "ckpt/checkpoint_text.h"
#include "ckpt/safetensors.h"
#include "exec/holders.h"
#include "tensor/border.h"

struct wf_checkpoint {
    struct wf_arena arena;
    struct wf_safetensors *file;
    struct wf_checkpoint_info info;
    char *path;
};

const struct wf_checkpoint_info *wf_checkpoint_info(const struct wf_checkpoint *c)
{
    return &c->info;
}

const char *wf_checkpoint_digest(const struct wf_checkpoint *c)
{
    return wf_safetensors_metadata(c->file, WF_CHECKPOINT_HASH_KEY);
}

const char *wf_checkpoint_path(const struct wf_checkpoint *c)
{
    return c->path;
}

/* --- tensors --- */

/* One tensor of the file, and where it lies in our layout. */
struct tensor {
    const struct wf_value *value;
    const char *name;
    int array;   /* as exec/holders.h numbers them */
    float *ours; /* in the device's memory; NULL: another rank holds it */
};

struct tensors {
    struct wf_arena arena;
    struct tensor *items;
    size_t count, room;
    float *buffer;       /* for the largest of them, in their layout */
    float *fetched;      /* likewise from another rank, in our layout; NULL: all are here */
    struct wf_host host; /* of the one at hand, in ours */
    const struct wf_run *run;
};

static float *weight_of(const struct wf_run *run, const struct wf_value *v)
{
    const struct wf_view view = wf_run_view(run, v);
    WF_BUG_ON(view.data && (!wf_view_is_dense(&view) || view.dtype != WF_F32),
              "'%s' is not a whole f32 tensor", v->name);
    return view.data;
}

/* The tensors of a file come in passes: parameters, states, then each array of the optimiser. NULL for
 * values that have none in this pass. */
static const char *name_in_pass(struct wf_arena *arena, const struct wf_value *v, int pass)
{
    if (v->kind != (pass == 1 ? WF_STATE : WF_PARAM))
        return NULL;
    return pass < 2 ? wf_arena_printf(arena, pass ? "state.%s" : "param.%s", v->name)
                    : wf_arena_printf(arena, "optim.%d.%s", pass - 2, v->name);
}

/* All that a run and its optimiser keep from step to step, in the order of the file. */
static void list_tensors(struct tensors *t, const struct wf_run *run, const struct wf_optim *optim)
{
    const struct wf_plan *const plan = wf_run_plan(run);
    const struct wf_graph *const g = plan->global->graph;
    t->run = run;
    for (int pass = 0; pass < 2 + (optim ? optim->n_states : 0); pass++)
        for (size_t i = 0; i < g->n_values; i++) {
            const struct wf_value *const v = g->values[i];
            const char *const name = name_in_pass(&t->arena, v, pass);
            if (!name)
                continue;
            float *ours = weight_of(run, v);
            if (pass >= 2 && ours)
                ours = optim->states[pass - 2] + plan->param_at[v->id];
            WF_GROW(t->items, t->room, t->count);
            t->items[t->count++] = (struct tensor){ v, name, pass, ours };
        }
}

/* Maps the tensor's memory. */
static float *host_of(struct tensors *t, const struct tensor *tensor)
{
    const struct wf_region all = wf_shape_region(tensor->value->shape);
    wf_host_map(&t->host, wf_run_device(t->run), wf_run_context(t->run),
                wf_view_dense(tensor->ours, WF_F32, all));
    return t->host.view.data;
}

static void release_tensors(struct tensors *t)
{
    wf_host_release(&t->host);
    free(t->items);
    free(t->buffer);
    free(t->fetched);
    wf_arena_release(&t->arena);
}

static bool make_buffer(struct tensors *t, struct wf_err *err)
{
    size_t most = 1;
    for (size_t i = 0; i < t->count; i++) {
        const size_t count = (size_t)wf_shape_count(t->items[i].value->shape);
        most = count > most ? count : most;
    }
    t->buffer = malloc(most * sizeof *t->buffer);
    if (!wf_run_is_whole(t->run))
        t->fetched = wf_take(most * sizeof *t->fetched);
    return t->buffer || wf_err_set(err, WF_ERR_FIT, "no memory for a checkpoint's tensor");
}

/* --- checksum --- */

/* Over the texts, and over name, shape and bytes of every tensor: what is not in it may change
 * without harm (blanks of the header, other programs' texts). */
static void hash_tensor(XXH64_state_t *hash, const char *name, int rank, const int64_t shape[],
                        const float *data)
{
    size_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= (size_t)shape[i];
    (void)XXH64_update(hash, name, strlen(name) + 1);
    (void)XXH64_update(hash, shape, (size_t)rank * sizeof *shape);
    (void)XXH64_update(hash, data, count * sizeof *data);
}

static XXH64_state_t *hash_begin(const struct wf_checkpoint_texts *texts)
{
    XXH64_state_t *const hash = XXH64_createState();
    if (!hash)
        wf_no_memory(0);
    (void)XXH64_reset(hash, 0);
    for (size_t i = 0; i < WF_CHECKPOINT_TEXTS; i++) {
        const char *const value = texts->value[i] ? texts->value[i] : "";
        if (!texts->value[i] && i >= WF_CHECKPOINT_DATA)
            continue;
        (void)XXH64_update(hash, wf_checkpoint_keys[i], strlen(wf_checkpoint_keys[i]) + 1);
        (void)XXH64_update(hash, value, strlen(value) + 1);
    }
    return hash;
}

static void hash_end(XXH64_state_t *hash, char text[WF_CHECKPOINT_HASH])
{
    (void)snprintf(text, WF_CHECKPOINT_HASH, "%016" PRIx64, (uint64_t)XXH64_digest(hash));
    (void)XXH64_freeState(hash);
}

/* --- saving --- */

struct source {
    struct tensors *all;
    const struct tensor *tensor;
};

static const void *give(void *user, struct wf_err *err)
{
    const struct source *const s = user;
    const struct tensor *const t = s->tensor;
    const float *const ours = t->ours ? host_of(s->all, t) : s->all->fetched;
    if (!(t->ours ? wf_host_get(&s->all->host, err)
                  : wf_run_ask(s->all->run, t->array, t->value, s->all->fetched, err)))
        return NULL;
    wf_border_export(t->value->shape, ours, s->all->buffer);
    return s->all->buffer;
}

/* C5 */
static bool check_finite(const struct tensor *t, const float *data, int64_t step,
                         struct wf_err *err)
{
    const size_t count = (size_t)wf_shape_count(t->value->shape);
    uint32_t found = 0; /* without a way out of the loop, so that it costs little */
    for (size_t i = 0; i < count; i++)
        found |= isfinite(data[i]) ? 0 : 1;
    for (size_t i = 0; found && i < count; i++)
        if (!isfinite(data[i]))
            return wf_err_set(err, WF_ERR_FAILED,
                              "'%s' has the value %g after step %" PRId64
                              ": nothing is saved, the checkpoints stay as they were: lower "
                              "train.lr, set train.clip, or look at the data ('widefield data "
                              "inspect')",
                              t->name, (double)data[i], step);
    return true;
}

static bool write_file(const char *path, struct tensors *t, int64_t step,
                       const struct wf_checkpoint_texts *texts, struct wf_err *err)
{
    struct wf_safetensors_writer *const w = wf_safetensors_begin();
    XXH64_state_t *const hash = hash_begin(texts);
    bool ok = true;
    for (size_t i = 0; ok && i < t->count; i++) {
        struct source *const s = wf_arena_one(&t->arena, struct source);
        *s = (struct source){ t, &t->items[i] };
        int64_t shape[WF_AXES];
        const struct wf_value *const v = t->items[i].value;
        const struct wf_safetensors_item item = { .name = t->items[i].name,
                                                  .dtype = WF_F32,
                                                  .rank = wf_border_shape(v->shape, v->border_dims,
                                                                          shape),
                                                  .shape = shape,
                                                  .give = give,
                                                  .user = s };
        wf_safetensors_add(w, &item);
        const float *const data = give(s, err);
        ok = data && check_finite(&t->items[i], data, step, err);
        if (ok)
            hash_tensor(hash, item.name, item.rank, shape, data);
    }
    char digest[WF_CHECKPOINT_HASH];
    hash_end(hash, digest);
    for (size_t i = 0; i < WF_CHECKPOINT_TEXTS; i++)
        if (texts->value[i])
            wf_safetensors_add_metadata(w, wf_checkpoint_keys[i], texts->value[i]);
    wf_safetensors_add_metadata(w, WF_CHECKPOINT_HASH_KEY, digest);
    ok = ok && wf_safetensors_finish(w, path, err);
    wf_safetensors_writer_free(w);
    return ok;
}

bool wf_checkpoint_save(const char *path, const struct wf_checkpoint_info *info,
                        const struct wf_run *run, const struct wf_optim *optim, struct wf_err *err)
{
    struct tensors t = { 0 };
    struct wf_checkpoint_texts texts;
    wf_checkpoint_print(&t.arena, info, &texts);
    list_tensors(&t, run, optim);
    const bool ok = make_buffer(&t, err) && write_file(path, &t, info->at.step, &texts, err);
    release_tensors(&t);
    return ok || wf_err_wrap(err, "writing a checkpoint");
}

/* --- opening --- */

static bool damaged(const char *path, const char *what, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_INPUT,
                      "'%s' %s: the file is damaged: copy it again, or take another checkpoint",
                      path, what);
}

/* One pass over the whole file. */
static bool check_hash(const struct wf_safetensors *file, const char *path,
                       const struct wf_checkpoint_texts *texts, struct wf_err *err)
{
    const char *const want = wf_safetensors_metadata(file, WF_CHECKPOINT_HASH_KEY);
    if (!want)
        return damaged(path, "has no checksum", err);
    XXH64_state_t *const hash = hash_begin(texts);
    float *buffer = NULL;
    bool ok = true;
    for (int64_t i = 0; ok && i < wf_safetensors_count(file); i++) {
        const struct wf_safetensor *const t = wf_safetensors_at(file, i);
        if (t->dtype != WF_F32) {
            ok = damaged(path, "has a tensor that is not f32", err);
            break;
        }
        float *const grown = realloc(buffer, (size_t)(t->count ? t->count : 1) * sizeof *buffer);
        if (!grown) {
            ok = wf_err_set(err, WF_ERR_FIT, "'%s': no memory for '%s'", path, t->name);
            break;
        }
        buffer = grown;
        ok = wf_safetensors_read(file, t, WF_F32, buffer, err);
        if (ok)
            hash_tensor(hash, t->name, t->rank, t->shape, buffer);
    }
    free(buffer);
    char got[WF_CHECKPOINT_HASH];
    hash_end(hash, got);
    return ok && (strcmp(got, want) == 0 || damaged(path, "does not match its checksum", err));
}

static struct wf_checkpoint_texts texts_of(const struct wf_safetensors *file)
{
    struct wf_checkpoint_texts texts;
    for (size_t i = 0; i < WF_CHECKPOINT_TEXTS; i++)
        texts.value[i] = wf_safetensors_metadata(file, wf_checkpoint_keys[i]);
    return texts;
}

static bool read_texts(struct wf_checkpoint *c, struct wf_err *err)
{
    const struct wf_checkpoint_texts texts = texts_of(c->file);
    if (!texts.value[WF_CHECKPOINT_FORMAT])
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' is not a checkpoint of widefield: 'widefield train' writes them",
                          c->path);
    return check_hash(c->file, c->path, &texts, err) &&
           wf_checkpoint_parse(&c->arena, &texts, &c->info, err);
}

bool wf_checkpoint_vouch(const struct wf_safetensors *file, const char *path, struct wf_err *err)
{
    const struct wf_checkpoint_texts texts = texts_of(file);
    /* Either text says that it is one: a single bit may have spoilt the other. */
    return (!texts.value[WF_CHECKPOINT_FORMAT] &&
            !wf_safetensors_metadata(file, WF_CHECKPOINT_HASH_KEY)) ||
           check_hash(file, path, &texts, err);
}

struct wf_checkpoint *wf_checkpoint_open(const char *path, struct wf_err *err)
{
    struct wf_safetensors *const file = wf_safetensors_open(path, err);
    if (!file)
        return NULL;
    struct wf_checkpoint *const c = wf_take_zeroed(1, sizeof *c);
    c->file = file;
    c->path = wf_arena_copy(&c->arena, path);
    if (read_texts(c, err))
        return c;
    wf_checkpoint_free(c);
    return NULL;
}

void wf_checkpoint_free(struct wf_checkpoint *c)
{
    if (!c)
        return;
    wf_safetensors_free(c->file);
    wf_arena_release(&c->arena);
    free(c);
}

/* --- loading --- */

static const struct wf_safetensor *want(const struct wf_checkpoint *c, const struct wf_value *v,
                                        const char *name, struct wf_err *err)
{
    int64_t shape[WF_AXES];
    const int rank = wf_border_shape(v->shape, v->border_dims, shape);
    return wf_safetensors_want(c->file, name, rank, shape, err);
}

static bool others(struct wf_err *err)
{
    return wf_err_wrap(err, "this network and optimizer are not those of the checkpoint");
}

bool wf_checkpoint_fits(const struct wf_checkpoint *c, const struct wf_graph *g, int optim_states,
                        struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    bool ok = true;
    for (int pass = 0; ok && pass < 2 + optim_states; pass++)
        for (size_t i = 0; ok && i < g->n_values; i++) {
            const char *const name = name_in_pass(&arena, g->values[i], pass);
            ok = !name || want(c, g->values[i], name, err);
        }
    wf_arena_release(&arena);
    return ok || others(err);
}

static bool load_tensor(const struct wf_checkpoint *c, struct tensors *t,
                        const struct tensor *tensor, struct wf_err *err)
{
    const struct wf_value *const v = tensor->value;
    const struct wf_safetensor *const from = want(c, v, tensor->name, err);
    if (!from || !wf_safetensors_read(c->file, from, WF_F32, t->buffer, err))
        return false;
    wf_border_import(v->shape, t->buffer, host_of(t, tensor));
    wf_host_put(&t->host);
    return true;
}

bool wf_checkpoint_load(const struct wf_checkpoint *c, struct wf_run *run, struct wf_optim *optim,
                        struct wf_err *err)
{
    struct tensors t = { 0 };
    list_tensors(&t, run, optim);
    bool ok = make_buffer(&t, err);
    for (size_t i = 0; ok && i < t.count; i++)
        ok = !t.items[i].ours || load_tensor(c, &t, &t.items[i], err);
    release_tensors(&t);
    if (!ok)
        return others(err);
    if (optim)
        optim->step = c->info.at.step - c->info.at.skipped;
    return true;
}
