/*
 * Groups: sets of ranks that sum together.
 *
 * A value is complete on a rank, or it is the rank's part of a sum over a group. Each set of ranks is
 * in the table once, so equal groups have equal numbers. A *grouping* says for every rank of a block
 * with which group it sums; its groups have no rank in common, so that they can be formed together.
 * Both are the same on all ranks.
 */
#pragma once

#include "plan/layout.h"

struct wf_group {
    int *ranks, n; /* ascending */
};

struct wf_grouping {
    int *group_of; /* per rank: the number of its group; -1: it takes no part */
};

struct wf_groups {
    struct wf_group *at;
    int n;
    struct wf_grouping **groupings;
    int n_groupings;
    size_t room, room_groupings;
    struct wf_mesh mesh;
};

/* Ranks of the placement whose coordinates differ along the mesh axes of the mask only sum together;
 * with a mask of ~0 all of its ranks. NULL where each would be alone. Lives in the arena. */
const struct wf_grouping *wf_groups_form(struct wf_arena *arena, struct wf_groups *groups,
                                         const struct wf_placement *placement, unsigned axes);
bool wf_group_has(const struct wf_group *group, int rank);
/* Frees the tables, not what lives in the arena. */
void wf_groups_release(struct wf_groups *groups);
