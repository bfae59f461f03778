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
#include "ckpt/tensor_list.h"
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

static void hash_end(const XXH64_state_t *hash, char text[WF_CHECKPOINT_HASH])
{
    (void)snprintf(text, WF_CHECKPOINT_HASH, "%016" PRIx64, (uint64_t)XXH64_digest(hash));
}

/* --- saving --- */

/* C5 */
static bool check_finite(const struct wf_tensor_item *t, const float *data, int64_t step,
                         struct wf_err *err)
{
    const size_t count = (size_t)wf_shape_count(t->value->shape);
    uint32_t found = 0; /* without a way out of the loop, so that it costs little */
    for (size_t i = 0; i < count; i++)
        found |= isfinite(data[i]) ? 0 : 1;
    for (size_t i = 0; found && i < count; i++)
        if (!isfinite(data[i]))
            return wf_err_set(err, WF_ERR_FAILED,
                              "it has the value %s after step %" PRId64
                              ": nothing is saved, the checkpoints stay as they were: lower "
                              "train.lr, set train.clip, or look at the data ('widefield data "
                              "inspect')",
                              isnan(data[i]) ? "nan"
                              : data[i] > 0  ? "inf"
                                             : "-inf",
                              step);
    return true;
}

/* One pass over the tensors: each is fetched, checked, added to the checksum and written. */
struct source {
    struct wf_tensor_list *all;
    const struct wf_tensor_item *item;
    XXH64_state_t *hash;
    int64_t step;
};

static const void *give(void *user, struct wf_err *err)
{
    const struct source *const s = user;
    const struct wf_value *const v = s->item->value;
    int64_t shape[WF_AXES];
    const int rank = wf_border_shape(v->shape, v->border_dims, shape);
    const float *const data = wf_tensor_give(s->all, s->item, err);
    if (!data || !check_finite(s->item, data, s->step, err))
        return NULL;
    hash_tensor(s->hash, s->item->name, rank, shape, data);
    return data;
}

static void fill_digest(void *user, char *text)
{
    hash_end(user, text);
}

static bool write_file(const char *path, struct wf_tensor_list *t, int64_t step,
                       const struct wf_checkpoint_texts *texts, struct wf_err *err)
{
    struct wf_safetensors_writer *const w = wf_safetensors_begin();
    XXH64_state_t *const hash = hash_begin(texts);
    struct source *const sources = wf_take((t->count + 1) * sizeof *sources);
    for (size_t i = 0; i < t->count; i++) {
        const struct wf_value *const v = t->items[i].value;
        int64_t shape[WF_AXES];
        const int rank = wf_border_shape(v->shape, v->border_dims, shape);
        sources[i] = (struct source){ t, &t->items[i], hash, step };
        wf_safetensors_add(w, &(struct wf_safetensors_item){ .name = t->items[i].name,
                                                             .dtype = WF_F32,
                                                             .rank = rank,
                                                             .shape = shape,
                                                             .give = give,
                                                             .user = &sources[i] });
    }
    for (size_t i = 0; i < WF_CHECKPOINT_TEXTS; i++)
        if (texts->value[i])
            wf_safetensors_add_metadata(w, wf_checkpoint_keys[i], texts->value[i]);
    wf_safetensors_add_late(w, WF_CHECKPOINT_HASH_KEY, WF_CHECKPOINT_HASH - 1, fill_digest, hash);
    const bool ok = wf_safetensors_finish(w, path, err);
    wf_safetensors_writer_free(w);
    free(sources);
    (void)XXH64_freeState(hash);
    return ok;
}

bool wf_tensor_list_write(struct wf_tensor_list *t, const char *path,
                          const struct wf_checkpoint_info *info, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_checkpoint_texts texts;
    wf_checkpoint_print(&arena, info, &texts);
    const bool ok = write_file(path, t, info->at.step, &texts, err);
    wf_arena_release(&arena);
    return ok || wf_err_wrap(err, "writing a checkpoint");
}

bool wf_checkpoint_save(const char *path, const struct wf_checkpoint_info *info,
                        const struct wf_run *run, const struct wf_optim *optim, struct wf_err *err)
{
    struct wf_tensor_list t;
    wf_tensor_list_init(&t, run, optim);
    const bool ok = wf_tensor_list_buffer(&t, err) && wf_tensor_list_write(&t, path, info, err);
    wf_tensor_list_release(&t);
    return ok;
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
    int64_t most = 1;
    for (int64_t i = 0; i < wf_safetensors_count(file); i++) {
        const struct wf_safetensor *const t = wf_safetensors_at(file, i);
        if (t->dtype != WF_F32)
            return damaged(path, "has a tensor that is not f32", err);
        most = t->count > most ? t->count : most;
    }
    float *const buffer =
        malloc((size_t)most * sizeof *buffer); /* once: new pages cost more than reading */
    if (!buffer)
        return wf_err_set(err, WF_ERR_FIT, "'%s': no memory for a tensor of %zu bytes", path,
                          (size_t)most * sizeof *buffer);
    XXH64_state_t *const hash = hash_begin(texts);
    bool ok = true;
    for (int64_t i = 0; ok && i < wf_safetensors_count(file); i++) {
        const struct wf_safetensor *const t = wf_safetensors_at(file, i);
        ok = wf_safetensors_read(file, t, WF_F32, buffer, err);
        if (ok)
            hash_tensor(hash, t->name, t->rank, t->shape, buffer);
    }
    free(buffer);
    char got[WF_CHECKPOINT_HASH];
    hash_end(hash, got);
    (void)XXH64_freeState(hash);
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

enum { MOMENTS = 2 }; /* passes from this one on are the optimiser's */

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

/* A weight that was frozen has no moments in the file, though others have: it begins with zeros. */
static bool was_frozen(const struct wf_checkpoint *c, const struct wf_value *v, const char *moment)
{
    if (wf_safetensors_find(c->file, moment))
        return false;
    struct wf_arena arena = { 0 };
    const bool has_weight =
        wf_safetensors_find(c->file, wf_arena_printf(&arena, "param.%s", v->name));
    wf_arena_release(&arena);
    const size_t array = strlen(moment) - strlen(v->name); /* "optim.0." */
    bool others_have = false;
    for (int64_t i = 0; !others_have && i < wf_safetensors_count(c->file); i++)
        others_have = strncmp(wf_safetensors_at(c->file, i)->name, moment, array) == 0;
    return has_weight && others_have;
}

bool wf_checkpoint_fits(const struct wf_checkpoint *c, const struct wf_graph *g, int optim_states,
                        struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    bool ok = true;
    for (int pass = 0; ok && pass < 2 + optim_states; pass++)
        for (size_t i = 0; ok && i < g->n_values; i++) {
            const char *const name = wf_tensor_name(&arena, g->values[i], pass);
            ok = !name || (pass >= MOMENTS && was_frozen(c, g->values[i], name)) ||
                 want(c, g->values[i], name, err);
        }
    wf_arena_release(&arena);
    return ok || others(err);
}

static bool load_tensor(const struct wf_checkpoint *c, struct wf_tensor_list *t,
                        const struct wf_tensor_item *tensor, struct wf_err *err)
{
    const struct wf_value *const v = tensor->value;
    if (tensor->array >= MOMENTS && was_frozen(c, v, tensor->name)) {
        memset(wf_tensor_map(t, tensor), 0, (size_t)wf_shape_count(v->shape) * sizeof(float));
        wf_host_put(&t->host);
        return true;
    }
    const struct wf_safetensor *const from = want(c, v, tensor->name, err);
    if (!from || !wf_safetensors_read(c->file, from, WF_F32, t->buffer, err))
        return false;
    wf_border_import(v->shape, t->buffer, wf_tensor_map(t, tensor));
    wf_host_put(&t->host);
    return true;
}

bool wf_checkpoint_load(const struct wf_checkpoint *c, struct wf_run *run, struct wf_optim *optim,
                        struct wf_err *err)
{
    struct wf_tensor_list t;
    wf_tensor_list_init(&t, run, optim);
    bool ok = wf_tensor_list_buffer(&t, err);
    for (size_t i = 0; ok && i < t.count; i++)
        ok = !t.items[i].ours || load_tensor(c, &t, &t.items[i], err);
    wf_tensor_list_release(&t);
    if (!ok)
        return others(err);
    if (optim)
        optim->step = c->info.at.step - c->info.at.skipped;
    return true;
}
