#include "report/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ops/op.h"

enum { SHOWN = 256 }; /* of the fullest moment, what is at least such a part of it */

static bool is_live(const struct wf_plan_buffer *b, int step)
{
    return b->store == WF_STORE_ARENA && b->first >= 0 && b->first <= step && step <= b->last;
}

static void print_region(FILE *f, const struct wf_region *r)
{
    (void)fputc('[', f);
    for (int a = 0; a < WF_AXES; a++)
        (void)fprintf(f, "%s%" PRId64 ":%" PRId64, a ? " " : "", r->lo[a], r->hi[a]);
    (void)fputc(']', f);
}

static void print_slot(FILE *f, const struct wf_plan *p, const struct wf_slot *s)
{
    static const char *const stores[WF_STORES] = { "@", "param+", "grad+", "state+" };
    if (s->buffer < 0) {
        (void)fputs(" _", f);
        return;
    }
    const struct wf_plan_buffer *b = &p->buffers[s->buffer];
    (void)fprintf(f, " %s%zu", stores[b->store], b->offset + s->offset);
}

static void print_messages(FILE *f, const struct wf_exchange *x)
{
    for (int i = 0; i < x->n_messages; i++)
        (void)fprintf(f, " %s%d:%zu", x->messages[i].is_send ? ">" : "<", x->messages[i].peer,
                      x->messages[i].bytes);
}

static void print_step(FILE *f, const struct wf_plan *p, const struct wf_step *s)
{
    static const char *const kinds[] = { "run",       "copy",      "add-up", "fetch-begin",
                                         "fetch-end", "sum-begin", "sum-end" };
    (void)fprintf(f, "%-11s", kinds[s->kind]);
    switch (s->kind) {
    case WF_STEP_KERNEL:
        (void)fprintf(f, " %-15s %-22s %-26s", s->node->op->name, s->node->name, s->implementation);
        print_region(f, &s->work);
        break;
    case WF_STEP_COPY:
    case WF_STEP_ADD:
        (void)fprintf(f, " %-15s %-22s %-26s", "", s->node ? s->node->name : "state", "");
        print_region(f, &s->out[0].view.box);
        break;
    case WF_STEP_FETCH_BEGIN:
    case WF_STEP_FETCH_END:
        (void)fprintf(f, " %-15s %-22s", "", p->exchanges[s->which].value->name);
        print_messages(f, &p->exchanges[s->which]);
        break;
    case WF_STEP_SUM_BEGIN:
    case WF_STEP_SUM_END:
        (void)fprintf(f, " %-15s %-22s %zu elements, %d ranks", "", p->sums[s->which].value->name,
                      p->sums[s->which].count,
                      p->global->geometry.groups.at[p->sums[s->which].group].n);
        if (p->sums[s->which].n_parts)
            (void)fprintf(f, ", %d gradients", p->sums[s->which].n_parts);
        break;
    }
    for (int o = 0; o < s->n_out; o++)
        print_slot(f, p, &s->out[o]);
    if (s->n_out)
        (void)fputs(" <-", f);
    for (int k = 0; k < s->n_in; k++)
        print_slot(f, p, &s->in[k]);
    for (int i = 0; i < s->n_fused; i++)
        (void)fprintf(f, " (%s fused)", s->fuses[i].node->op->name);
    if (s->strip >= 0)
        (void)fprintf(f, " (strip %d)", s->strip);
    (void)fputs(wf_step_is_for_limit(p, s) ? " (recomputed, for the limit)\n"
                : s->recompute             ? " (recomputed)\n"
                                           : "\n",
                f);
}

/* What is live at the fullest moment: what a smaller step would have to do without. */
static void print_fullest(FILE *f, const struct wf_plan *p)
{
    size_t live = 0, most = 0;
    int peak = 0;
    for (int s = 0; s <= p->n_steps; s++, live = 0) {
        for (int i = 0; i < p->n_buffers; i++)
            if (is_live(&p->buffers[i], s))
                live += p->buffers[i].bytes;
        if (live > most) {
            most = live;
            peak = s;
        }
    }
    (void)fprintf(f, "fullest at step %d:", peak);
    for (int i = 0; i < p->n_buffers; i++)
        if (is_live(&p->buffers[i], peak) && p->buffers[i].bytes >= most / SHOWN)
            (void)fprintf(f, " %s:%zu", p->buffers[i].name, p->buffers[i].bytes);
    (void)fputc('\n', f);
}

char *wf_plan_explain(struct wf_arena *arena, const struct wf_plan *p)
{
    char *buffer = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&buffer, &bytes);
    if (!f)
        wf_no_memory(BUFSIZ);
    (void)fprintf(f,
                  "rank %d of %d, mesh %s: %d steps, arena %zu bytes (at most %zu live at once)\n",
                  p->rank, p->global->geometry.n_ranks, wf_mesh_print(arena, &p->global->mesh),
                  p->n_steps, p->arena_bytes, p->live_bytes);
    print_fullest(f, p);
    for (int s = 0; s < p->n_steps; s++) {
        (void)fprintf(f, "%4d ", s);
        print_step(f, p, &p->steps[s]);
    }
    const bool whole = !ferror(f);
    if (fclose(f) != 0 || !whole)
        wf_no_memory(bytes);
    char *text = wf_arena_copy(arena, buffer);
    free(buffer);
    return text;
}
