#include "plan/group.h"

#include <stdlib.h>
#include <string.h>

/* The number of the group of these ranks. */
static int find_group(struct wf_arena *arena, struct wf_groups *g, const int ranks[], int n)
{
    for (int i = 0; i < g->n; i++)
        if (g->at[i].n == n && memcmp(g->at[i].ranks, ranks, (size_t)n * sizeof *ranks) == 0)
            return i;
    WF_GROW(g->at, g->room, (size_t)g->n);
    g->at[g->n] = (struct wf_group){ wf_arena_array(arena, n, int), n };
    memcpy(g->at[g->n].ranks, ranks, (size_t)n * sizeof *ranks);
    return g->n++;
}

/* The rank at the beginning of its group, for a placement of one block. */
static int leader(const struct wf_groups *g, const struct wf_block *block, int rank, unsigned axes)
{
    int at[WF_MESH_AXES];
    wf_mesh_coords(&g->mesh, rank, at);
    for (int a = 0; a < WF_MESH_AXES; a++)
        if (axes & (1u << a))
            at[a] = block->lo[a];
    return wf_mesh_rank(&g->mesh, at);
}

static bool is_equal(const struct wf_grouping *a, const struct wf_grouping *b, int ranks)
{
    return memcmp(a->group_of, b->group_of, (size_t)ranks * sizeof *a->group_of) == 0;
}

const struct wf_grouping *wf_groups_form(struct wf_arena *arena, struct wf_groups *g,
                                         const struct wf_placement *placement, unsigned axes)
{
    const int n = wf_mesh_size(&g->mesh);
    int together = placement->n > 1 ? 2 : 1;
    for (int a = 0; a < WF_MESH_AXES; a++)
        together *= axes & (1u << a) ? wf_block_extent(&placement->tilings[0]->block, a) : 1;
    if (together < 2)
        return NULL;
    struct wf_arena work = { 0 };
    int *const first = wf_arena_array(&work, n, int), *const ranks = wf_arena_array(&work, n, int);
    struct wf_layout layout = { .mesh = g->mesh };
    int any = -1; /* the first rank of a placement of several blocks, which is one group */
    for (int r = 0; r < n; r++) {
        const struct wf_tiling *const tiling = wf_layout_tiling(&layout, placement, r);
        first[r] = !tiling            ? -1
                   : placement->n > 1 ? (any = any < 0 ? r : any)
                                      : leader(g, &tiling->block, r, axes);
    }
    struct wf_grouping *made = wf_arena_one(arena, struct wf_grouping);
    made->group_of = wf_arena_array(arena, n, int);
    for (int r = 0; r < n; r++) {
        made->group_of[r] = first[r] < 0 ? -1 : made->group_of[first[r]];
        if (first[r] != r)
            continue;
        int count = 0;
        for (int k = r; k < n; k++)
            if (first[k] == r)
                ranks[count++] = k;
        made->group_of[r] = find_group(arena, g, ranks, count);
    }
    wf_arena_release(&work);
    for (int i = 0; i < g->n_groupings; i++)
        if (is_equal(g->groupings[i], made, n))
            return g->groupings[i];
    WF_GROW(g->groupings, g->room_groupings, (size_t)g->n_groupings);
    return g->groupings[g->n_groupings++] = made;
}

bool wf_group_has(const struct wf_group *group, int rank)
{
    int low = 0, high = group->n;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (group->ranks[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < group->n && group->ranks[low] == rank;
}

void wf_groups_release(struct wf_groups *groups)
{
    free(groups->at);
    free(groups->groupings);
    *groups = (struct wf_groups){ 0 };
}
