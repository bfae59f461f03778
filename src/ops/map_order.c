/*
 * map -> the rows of a kernel map, those with like neighbours together: what multiplies several rows at once takes
 * them in this order, because it has to take every offset that one of them has. Rows are sorted by a key
 * of eight bits, and are otherwise in their own order.
 *
 * Of few offsets the key has a bit for each. Of others it says on which sides of a row (per axis below and
 * above) there is a neighbour: measured on rooms (surfaces, kernel 3, tiles of 128 rows) a row then takes part in
 * 11.2, 12.5, 14.6 offsets on three levels, with all 27 bits in 10.1, 12.4, 15.1, unsorted in 17.2, 20.0, 23.9; it has
 * neighbours at 7.8, 10.0, 10.9.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/build.h"
#include "ops/sparse.h"

unsigned wf_map_order_bits(const struct wf_kernel_map_attrs *a, int64_t k)
{
    int64_t offset[WF_SPARSE_AXES];
    unsigned bits = 0;
    if (wf_kernel_map_count(a) <= 8)
        return 1u << k;
    wf_kernel_map_offset(a, k, offset);
    for (int64_t d = 0; d < a->dims; d++)
        if (offset[d] != 0)
            bits |= 1u << (2 * d + (offset[d] > 0)) % 8;
    return bits;
}

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_value *const map = node->in[0];
    if (!map->producer || map->producer->op != &wf_op_kernel_map)
        return wf_err_set(err, WF_ERR_USAGE, "a kernel map is wanted");
    node->out[0]->shape = WF_SHAPE(map->shape.at[WF_N], 1, 1, 1, 1);
    node->out[0]->dtype = WF_I32;
    node->out[0]->set = map->set;
    return true;
}

static void reference(const struct wf_call *call)
{
    const struct wf_kernel_map_attrs *a = call->node->in[0]->producer->attrs;
    const int64_t n = wf_region_extent(call->work, WF_N), first = call->work.lo[WF_N];
    const int64_t count = wf_kernel_map_count(a);
    int64_t start[257] = { 0 };
    unsigned char *const keys = wf_take((size_t)n + 1);
    for (int64_t u = 0; u < n; u++) {
        keys[u] = 0;
        for (int64_t k = 0; k < count; k++)
            if (wf_view_get(&call->in[0], first + u, 0, 0, 0, k) >= 0)
                keys[u] |= (unsigned char)wf_map_order_bits(a, k);
        start[keys[u] + 1]++;
    }
    for (int i = 0; i < 256; i++)
        start[i + 1] += start[i];
    for (int64_t u = 0; u < n; u++)
        wf_view_put(&call->out[0], first + start[keys[u]]++, 0, 0, 0, 0, (double)u);
    free(keys);
}

const struct wf_op wf_op_map_order = {
    .name = "map_order",
    .n_in = 1,
    .flags = WF_OP_SETS | WF_OP_WHOLE,
    .infer = infer,
    .reads = wf_sparse_reads,
    .reference = reference,
    .flops_each = 4,
};

struct wf_value *wf_map_order(struct wf_graph *g, struct wf_value *map)
{
    if (!map || map->producer->op != &wf_op_kernel_map)
        return NULL;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == &wf_op_map_order && g->nodes[i]->in[0] == map)
            return g->nodes[i]->out[0];
    const char *const name = wf_arena_printf(&g->arena, "order.%s", map->name);
    return wf_append(g, &wf_op_map_order, name, NULL, NULL, 1, &map);
}
