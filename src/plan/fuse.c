/*
 * Which instances are not made at all: where every kernel that reads one can compute it on its way
 * from what its maker reads, and that is cheaper than writing it and reading it again.
 *
 * F1. A fused instance is no output, no partial sum, is fetched by no rank, and none of what it is
 *     made from is fused.
 * F2. What it is made from lives as long as it would itself.
 */
#include "ops/op.h"
#include "plan/planner.h"

static bool may_be_fused(const struct wf_global_plan *s, int instance)
{
    const struct wf_instance *const in = &s->program->instances[instance];
    if (in->maker < 0 || in->keep || in->n_uses == 0 || s->geometry.is_fetched[instance] ||
        s->geometry.grouping[in->maker])
        return false;
    const struct wf_item *const made = &s->program->items[in->maker];
    for (int k = 0; k < made->node->n_in; k++)
        if (made->in[k] >= 0 && s->program->instances[made->in[k]].is_fused)
            return false;
    return made->node->n_out == 1 && !wf_op_sums_over(made->node);
}

static bool all_readers_fuse(const struct wf_global_plan *s, int instance)
{
    const struct wf_instance *const in = &s->program->instances[instance];
    const struct wf_node *const maker = s->program->items[in->maker].node;
    for (int item = in->maker + 1; item <= in->last_use; item++) {
        const struct wf_item *const it = &s->program->items[item];
        const struct wf_kernel *const kernel = s->program->items[item].kernel;
        for (int k = 0; k < it->node->n_in; k++)
            if (it->in[k] == instance && !(kernel->fuses && kernel->fuses(it->node, k, maker)))
                return false;
    }
    return true;
}

void wf_pass_fuse(struct wf_global_plan *s)
{
    struct wf_instance *const instances = s->program->instances;
    for (int item = 0; item < s->program->n_items; item++) {
        const struct wf_item *const it = &s->program->items[item];
        const int out = it->out[0];
        s->program->instances[out].is_fused = may_be_fused(s, out) && all_readers_fuse(s, out);
        for (int k = 0; s->program->instances[out].is_fused && k < it->node->n_in; k++) /* F2 */
            if (it->in[k] >= 0 && instances[it->in[k]].last_use < instances[out].last_use)
                instances[it->in[k]].last_use = instances[out].last_use;
    }
}

static bool keeps_rules(const struct wf_global_plan *s, int instance)
{
    const struct wf_instance *const instances = s->program->instances, *in = &instances[instance];
    if (!may_be_fused(s, instance) || !all_readers_fuse(s, instance)) /* F1 */
        return false;
    const struct wf_item *const made = &s->program->items[in->maker];
    bool ok = true;
    for (int k = 0; k < made->node->n_in; k++) /* F2 */
        ok = ok && (made->in[k] < 0 || instances[made->in[k]].last_use >= in->last_use);
    return ok;
}

const char *wf_pass_fuse_check(const struct wf_global_plan *s)
{
    for (int i = 0; i < s->program->n_instances; i++)
        if (s->program->instances[i].is_fused && !keeps_rules(s, i))
            return s->program->instances[i].value->name;
    return NULL;
}
