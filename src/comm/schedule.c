#include "comm/schedule.h"

#include <stdlib.h>

#include "base/arena.h"

struct part {
    size_t first, count;
};

/* Part i of n; any remainder. */
static struct part part_of(struct part whole, int i, int n)
{
    const size_t at = (size_t)i, parts = (size_t)n;
    const size_t each = whole.count / parts, rest = whole.count % parts;
    return (struct part){ whole.first + at * each + (at < rest ? at : rest),
                          each + (at < rest ? 1 : 0) };
}

static void put(struct wf_sum_schedule *s, const struct wf_sum_group *g, int peer,
                struct wf_move move)
{
    if (move.count == 0) /* S2 */
        return;
    move.round = s->rounds;
    move.peer = g->ranks ? g->ranks[peer] : peer;
    WF_GROW(s->moves, s->room, s->count);
    s->moves[s->count++] = move;
}

static void send(struct wf_sum_schedule *s, const struct wf_sum_group *g, int peer, struct part p)
{
    put(s, g, peer, (struct wf_move){ .sends = true, .first = p.first, .count = p.count });
}

static void send_exact(struct wf_sum_schedule *s, const struct wf_sum_group *g, int peer,
                       struct part p)
{
    put(s, g, peer,
        (struct wf_move){ .sends = true, .exact = true, .first = p.first, .count = p.count });
}

static void add(struct wf_sum_schedule *s, const struct wf_sum_group *g, int peer, struct part p)
{
    put(s, g, peer, (struct wf_move){ .adds = true, .first = p.first, .count = p.count });
}

static void take(struct wf_sum_schedule *s, const struct wf_sum_group *g, int peer, struct part p)
{
    put(s, g, peer, (struct wf_move){ .first = p.first, .count = p.count });
}

void wf_sum_schedule_ring(struct wf_sum_schedule *s, const struct wf_sum_group *g, size_t first,
                          size_t count)
{
    const struct part whole = { first, count };
    const int n = g->size, me = g->rank, right = (me + 1) % n, left = (me + n - 1) % n;
    for (int t = 0; t < n - 1; t++, s->rounds++) {
        send(s, g, right, part_of(whole, (me + n - t) % n, n));
        add(s, g, left, part_of(whole, (me + 2 * n - t - 1) % n, n));
    }
    for (int t = 0; t < n - 1; t++, s->rounds++) {
        send_exact(s, g, right, part_of(whole, (me + 1 + n - t) % n, n));
        take(s, g, left, part_of(whole, (me + n - t) % n, n));
    }
}

/* --- tree --- */

/* The power of two that takes part; of the `extra` pairs in front, the odd ones do. */
struct tree {
    const struct wf_sum_group *group;
    int power, extra, me; /* me: among the power; -1: an even one in front */
};

static struct tree tree_of(const struct wf_sum_group *g)
{
    struct tree t = { .group = g, .power = 1 };
    while (t.power * 2 <= g->size)
        t.power *= 2;
    t.extra = g->size - t.power;
    t.me = g->rank >= 2 * t.extra ? g->rank - t.extra : g->rank % 2 ? g->rank / 2 : -1;
    return t;
}

static int peer_of(const struct tree *t, int number)
{
    return number < t->extra ? 2 * number + 1 : number + t->extra;
}

static void all_to_each(struct wf_sum_schedule *s, const struct tree *t, struct part whole)
{
    for (int mask = 1; mask < t->power; mask *= 2, s->rounds++) {
        const int peer = peer_of(t, t->me ^ mask);
        send_exact(s, t->group, peer, whole);
        add(s, t->group, peer, whole);
    }
}

static void halve_and_double(struct wf_sum_schedule *s, const struct tree *t, struct part mine)
{
    struct part kept[32], given[32];
    int level = 0;
    for (int mask = t->power / 2; mask > 0; mask /= 2, level++, s->rounds++) {
        const int peer = peer_of(t, t->me ^ mask);
        const bool upper = t->me & mask;
        kept[level] = part_of(mine, upper, 2);
        given[level] = part_of(mine, !upper, 2);
        send(s, t->group, peer, given[level]);
        add(s, t->group, peer, kept[level]);
        mine = kept[level];
    }
    for (int mask = 1; mask < t->power; mask *= 2, s->rounds++) {
        const int peer = peer_of(t, t->me ^ mask);
        level--;
        send_exact(s, t->group, peer, kept[level]);
        take(s, t->group, peer, given[level]);
    }
}

void wf_sum_schedule_tree(struct wf_sum_schedule *s, const struct wf_sum_group *g, size_t first,
                          size_t count, bool is_short)
{
    const struct part whole = { first, count };
    const struct tree t = tree_of(g);
    const bool hands_in = t.me < 0, gets = !hands_in && g->rank < 2 * t.extra;
    if (hands_in)
        send(s, g, g->rank + 1, whole);
    if (gets)
        add(s, g, g->rank - 1, whole);
    s->rounds += t.extra > 0;
    if (!hands_in && is_short)
        all_to_each(s, &t, whole);
    else if (!hands_in)
        halve_and_double(s, &t, whole);
    if (gets)
        send_exact(s, g, g->rank - 1, whole);
    if (hands_in)
        take(s, g, g->rank + 1, whole);
    s->rounds += t.extra > 0;
}

/* --- nodes --- */

void wf_sum_schedule_nodes(struct wf_sum_schedule *s, const struct wf_sum_nodes *nodes,
                           size_t first, size_t count, bool is_short)
{
    const struct part whole = { first, count };
    const struct wf_sum_group *const here = &nodes->here;
    const int owners = nodes->owners;
    const bool owns = here->rank < owners;
    const struct part mine = owns ? part_of(whole, here->rank, owners) : (struct part){ 0 };
    for (int i = 0; i < here->size; i++) {
        if (i == here->rank)
            continue;
        if (i < owners)
            send(s, here, i, part_of(whole, i, owners));
        if (owns)
            add(s, here, i, mine);
    }
    s->rounds++;
    if (owns)
        wf_sum_schedule_tree(s, &nodes->across, mine.first, mine.count, is_short);
    for (int i = 0; i < here->size; i++) {
        if (i == here->rank)
            continue;
        if (owns)
            send_exact(s, here, i, mine);
        if (i < owners)
            take(s, here, i, part_of(whole, i, owners));
    }
    s->rounds++;
}

void wf_sum_schedule_release(struct wf_sum_schedule *s)
{
    free(s->moves);
    *s = (struct wf_sum_schedule){ 0 };
}
