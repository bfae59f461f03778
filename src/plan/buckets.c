/*
 * Buckets: gradients whose sums over ranks begin together, when the last of them is made, and end at the
 * end of the step.
 *
 * A bucket has gradients of one group and one placement in the order of the weights' store, in which
 * weights of one placement lie together: so on every rank of the group it is the same bytes in a row.
 *
 * B1. A gradient in a bucket is read by no item and fetched by no rank.
 * B2. Gradients in a bucket are of one segment (stages.h).
 */
#include <stdlib.h>

#include "plan/planner.h"

/* A gradient that is summed over ranks and that nobody reads (B1). */
static bool may_wait_for_others(const struct wf_global_plan *s, int instance)
{
    const struct wf_instance *const in = &s->program->instances[instance];
    return in->maker >= 0 && in->keep && in->value->grad_of && in->n_uses == 0 &&
           wf_geometry_sums(&s->geometry, in->maker) && !s->geometry.is_fetched[instance];
}

static const struct wf_placement *placement_of(const struct wf_global_plan *s, int instance)
{
    return &s->geometry.layout.of_value[s->program->instances[instance].value->id];
}

static const struct wf_grouping *grouping_of(const struct wf_global_plan *s, int instance)
{
    return s->geometry.grouping[s->program->instances[instance].maker];
}

static int parameter_of(const struct wf_global_plan *s, int instance)
{
    return s->program->instances[instance].value->grad_of->id;
}

static int segment_of(const struct wf_global_plan *s, int instance)
{
    return s->program->items[s->program->instances[instance].maker].segment;
}

/* The bucket that is being filled for such gradients, or a new one where that is full. */
static struct wf_bucket *open_bucket(struct wf_global_plan *s, int instance)
{
    const size_t limit = s->options.bucket_bytes ? s->options.bucket_bytes : WF_BUCKET_BYTES;
    for (int b = s->n_buckets - 1; b >= 0; b--) {
        struct wf_bucket *const bucket = &s->buckets[b];
        if (grouping_of(s, bucket->parts[0]) != grouping_of(s, instance) ||
            segment_of(s, bucket->parts[0]) != segment_of(s, instance) ||
            !wf_placement_equal(placement_of(s, bucket->parts[0]), placement_of(s, instance)))
            continue;
        if (bucket->bytes < limit)
            return bucket;
        break;
    }
    s->buckets[s->n_buckets].parts = wf_arena_array(&s->arena, s->program->n_instances, int);
    return &s->buckets[s->n_buckets++];
}

void wf_pass_buckets(struct wf_global_plan *s)
{
    const struct wf_program *const p = s->program;
    s->buckets = wf_arena_array(&s->arena, p->n_instances + 1, struct wf_bucket);
    for (int item = 0; item < p->n_items; item++)
        for (int o = 0; o < p->items[item].node->n_out; o++) {
            const int i = p->items[item].out[o];
            p->instances[i].bucket = -1;
            if (!may_wait_for_others(s, i))
                continue;
            struct wf_bucket *const b = open_bucket(s, i);
            p->instances[i].bucket = (int)(b - s->buckets);
            int at = b->n_parts++;
            for (; at > 0 && parameter_of(s, b->parts[at - 1]) > parameter_of(s, i); at--)
                b->parts[at] = b->parts[at - 1];
            b->parts[at] = i;
            b->last = item;
            b->bytes += (size_t)wf_shape_count(p->instances[i].value->shape) *
                        wf_dtype_size(p->instances[i].value->dtype);
        }
}

const char *wf_pass_buckets_check(const struct wf_global_plan *s)
{
    for (int b = 0; b < s->n_buckets; b++)
        for (int k = 0; k < s->buckets[b].n_parts; k++) {
            const int i = s->buckets[b].parts[k], first = s->buckets[b].parts[0];
            const struct wf_instance *const in = &s->program->instances[i];
            if (in->bucket != b || in->maker > s->buckets[b].last || !may_wait_for_others(s, i) ||
                grouping_of(s, i) != grouping_of(s, first) ||
                segment_of(s, i) != segment_of(s, first) || /* B2 */
                (k > 0 && parameter_of(s, s->buckets[b].parts[k - 1]) >= parameter_of(s, i)))
                return in->value->name;
        }
    return NULL;
}
