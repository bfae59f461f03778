#include "plan/alike.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"

/* Positions count modulo this: what a kernel does may depend on a region's parity, or on its place
 * under a stride. */
enum { PERIOD = 32 };

struct kind {
    XXH128_hash_t key;
    int rank;
};

/* A region as seen from `from`, and whether it touches the borders. */
static void add_region(XXH3_state_t *hash, struct wf_region r, struct wf_region from,
                       const struct wf_shape *shape)
{
    int64_t seen[4 * WF_AXES];
    for (int a = 0; a < WF_AXES; a++) {
        seen[4 * a + 0] = r.lo[a] - from.lo[a];
        seen[4 * a + 1] = r.hi[a] - r.lo[a];
        seen[4 * a + 2] = r.lo[a] % PERIOD;
        seen[4 * a + 3] = (r.lo[a] == 0) + 2 * (r.hi[a] == shape->at[a]);
    }
    (void)XXH3_128bits_update(hash, seen, sizeof seen);
}

static void add_items(XXH3_state_t *hash, const struct wf_geometry *geo, int rank)
{
    for (int i = 0; i < geo->program->n_items; i++) {
        const struct wf_item *const item = &geo->program->items[i];
        const struct wf_region work = wf_geometry_work(geo, rank, i);
        add_region(hash, work, work, &item->node->out[0]->shape);
        for (int k = 0; k < item->node->n_in; k++)
            if (item->in[k] >= 0)
                add_region(hash, wf_geometry_reads(geo, rank, i, k),
                           wf_geometry_box(geo, rank, item->in[k]), &item->node->in[k]->shape);
    }
}

static void add_fetches(XXH3_state_t *hash, const struct wf_geometry *geo, int rank)
{
    for (int f = 0; f < geo->n_fetches; f++) {
        const struct wf_fetch *const fetch = &geo->fetches[f];
        const struct wf_region box = wf_geometry_box(geo, rank, fetch->instance);
        for (int i = fetch->first_of[rank]; i < fetch->first_of[rank + 1]; i++) {
            const struct wf_transfer *const t = &fetch->transfers[fetch->of_rank[i]];
            const int sides[] = { f, t->from == rank, t->to == rank };
            (void)XXH3_128bits_update(hash, sides, sizeof sides);
            add_region(hash, t->box, box, &geo->program->instances[fetch->instance].value->shape);
        }
    }
}

static XXH128_hash_t key_of(XXH3_state_t *hash, const struct wf_geometry *geo, int rank)
{
    (void)XXH3_128bits_reset(hash);
    for (int i = 0; i < geo->program->n_instances; i++) {
        const struct wf_region box = wf_geometry_box(geo, rank, i);
        const struct wf_shape *const shape = &geo->program->instances[i].value->shape;
        add_region(hash, box, box, shape);
        add_region(hash, wf_geometry_have(geo, rank, i), box, shape);
    }
    add_items(hash, geo, rank);
    add_fetches(hash, geo, rank);
    return XXH3_128bits_digest(hash);
}

static int by_key(const void *a, const void *b)
{
    const struct kind *const x = a, *const y = b;
    const int order = memcmp(&x->key, &y->key, sizeof x->key);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_rank(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int wf_unlike_ranks(struct wf_arena *arena, const struct wf_geometry *geo, int **ranks)
{
    const int n = geo->n_ranks;
    struct kind *const kinds = wf_arena_array(arena, n, struct kind);
    XXH3_state_t *const hash = XXH3_createState();
    if (!hash)
        wf_no_memory(0);
    for (int r = 0; r < n; r++)
        kinds[r] = (struct kind){ key_of(hash, geo, r), r };
    (void)XXH3_freeState(hash);
    qsort(kinds, (size_t)n, sizeof *kinds, by_key);
    int *const first = wf_arena_array(arena, n, int);
    int count = 0;
    for (int i = 0; i < n; i++)
        if (i == 0 || !XXH128_isEqual(kinds[i].key, kinds[i - 1].key))
            first[count++] = kinds[i].rank;
    qsort(first, (size_t)count, sizeof *first, by_rank);
    *ranks = first;
    return count;
}
