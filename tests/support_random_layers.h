/* What random graphs (support_random.h) are grown with. */
#ifndef WF_TESTS_SUPPORT_RANDOM_LAYERS_H
#define WF_TESTS_SUPPORT_RANDOM_LAYERS_H

#include "base/random.h"
#include "graph/graph.h"

enum { MOST_VALUES = 24, MOST_ELEMENTS = 3000, TRIES = 8 };

/* Numbers drawn one behind the other. */
struct draw {
    struct wf_random from;
    uint64_t at;
};

static inline int64_t below(struct draw *d, int64_t bound)
{
    return wf_random_below(d->from, d->at++, (uint32_t)bound);
}

static inline int64_t between(struct draw *d, int64_t lo, int64_t hi) /* both ends are drawn */
{
    return lo + below(d, hi - lo + 1);
}

static inline bool chance(struct draw *d, int percent)
{
    return below(d, 100) < percent;
}

/* What a graph is grown with. */
struct maker {
    struct draw draw;
    struct wf_graph *g;
    int dims, layers;
    struct wf_value *made[MOST_VALUES];
    int n_made;
    struct wf_value *end; /* a sum over the image: nothing follows it, the graph ends there */
};

static inline const char *next_name(struct maker *m, const char *what)
{
    return wf_arena_printf(&m->g->arena, "%s%d", what, m->layers++);
}

static inline int64_t a_divisor(struct draw *d, int64_t of)
{
    int64_t k = between(d, 1, of);
    while (of % k != 0)
        k--;
    return k;
}

/* One more layer of the builder's, on one of the values so far; NULL or that value itself where none fits. */
struct wf_value *support_random_layer(struct maker *m);

#endif
