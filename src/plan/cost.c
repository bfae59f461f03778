/* Seconds that things are expected to take: good enough to choose between two plans. */
#include <math.h>

#include "plan/planner.h"

double wf_cost_copy(const struct wf_device *device, double bytes)
{
    return 2.0 * bytes / device->bytes_per_second;
}

static double region_bytes(const struct wf_value *v, struct wf_region r)
{
    return (double)wf_region_count(r) * (double)wf_dtype_size(v->dtype);
}

double wf_cost_kernel(const struct wf_planner *p, int item, struct wf_region work)
{
    const struct wf_node *n = p->program->items[item].node;
    double bytes = 0;
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k])
            bytes += region_bytes(n->in[k], wf_planner_reads(p, item, k, work));
    for (int o = 0; o < n->n_out; o++)
        bytes +=
            region_bytes(n->out[o], wf_op_sums_over(n) ? wf_shape_region(n->out[o]->shape) : work);
    const double compute = wf_op_flops(n, work) / p->device->flops_per_second;
    const double memory = bytes / p->device->bytes_per_second;
    return compute > memory ? compute : memory;
}

/* --- between ranks --- */

struct link {
    double bytes_per_second, seconds;
};

static struct link link_of(const struct wf_scheme *scheme)
{
    const struct wf_plan_options *o = &scheme->options;
    return (struct link){ o->link_bytes_per_second > 0 ? o->link_bytes_per_second
                                                       : o->device->link_bytes_per_second,
                          o->link_seconds > 0 ? o->link_seconds : o->device->link_seconds };
}

/* Both directions of a link work at once. */
static double exchange_bytes(const struct wf_exchange *x)
{
    double bytes[2] = { 0, 0 };
    for (int i = 0; i < x->n_messages; i++)
        bytes[x->messages[i].is_send] += (double)x->messages[i].bytes;
    return bytes[0] > bytes[1] ? bytes[0] : bytes[1];
}

double wf_cost_exchange(const struct wf_scheme *scheme, const struct wf_exchange *x)
{
    const struct link link = link_of(scheme);
    return link.seconds + exchange_bytes(x) / link.bytes_per_second;
}

static int group_size(const struct wf_mesh *mesh, unsigned axes)
{
    int size = 1;
    for (int a = 0; a < WF_MESH_AXES; a++)
        if (axes & (1u << a))
            size *= mesh->at[a];
    return size;
}

/* One thing after the other goes over the link, while the kernels run. */
double wf_cost_plan(const struct wf_plan *plan)
{
    const struct link link = link_of(plan->scheme);
    struct wf_arena scratch = { 0 };
    double *fetched = wf_arena_array(&scratch, plan->n_exchanges + 1, double);
    double *summed = wf_arena_array(&scratch, plan->n_sums + 1, double);
    double clock = 0, is_free = 0; /* the link, from then on */
    for (int s = 0; s < plan->n_steps; s++) {
        const struct wf_step *step = &plan->steps[s];
        clock += step->seconds;
        if (step->kind == WF_STEP_FETCH_BEGIN) {
            is_free = fmax(clock, is_free) +
                      exchange_bytes(&plan->exchanges[step->which]) / link.bytes_per_second;
            fetched[step->which] = is_free + link.seconds;
        } else if (step->kind == WF_STEP_SUM_BEGIN) {
            /* As a ring does it: every byte leaves a rank about twice. */
            const struct wf_sum *sum = &plan->sums[step->which];
            const double n = group_size(&plan->scheme->mesh, sum->axes);
            const double bytes = 2.0 * (n - 1) / n * (double)wf_view_bytes(&sum->slot.view);
            is_free = fmax(clock, is_free) + bytes / link.bytes_per_second;
            summed[step->which] = is_free + 2.0 * ceil(log2(n)) * link.seconds;
        } else if (step->kind == WF_STEP_FETCH_END) {
            clock = fmax(clock, fetched[step->which]);
        } else if (step->kind == WF_STEP_SUM_END) {
            clock = fmax(clock, summed[step->which]);
        }
    }
    wf_arena_release(&scratch);
    return clock;
}
