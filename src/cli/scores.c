#include "cli/scores.h"

#include <math.h>

#include "cli/text.h"

static const char *number(struct wf_arena *arena, double value)
{
    return isnan(value) ? "-" : wf_arena_printf(arena, "%.4f", value);
}

static void print_images(struct wf_arena *arena, const struct wf_scores *s,
                         const char *const class_names[])
{
    struct wf_table t = { .arena = arena };
    wf_table_row(&t, 4, (const char *[]){ "class", ">recall", ">precision", ">share" });
    for (int c = 0; c < s->classes; c++)
        wf_table_row(&t, 4,
                     (const char *[]){ class_names[c], number(arena, s->recall[c]),
                                       number(arena, s->precision[c]),
                                       number(arena, s->fraction[c]) });
    wf_table_print(&t, stdout);
    (void)printf("accuracy %s", number(arena, s->accuracy));
    if (isfinite(s->top5))
        (void)printf(", top-5 %s", number(arena, s->top5));
    (void)printf("\n");
}

void wf_print_scores(struct wf_arena *arena, const struct wf_scores *s,
                     const char *const class_names[])
{
    if (s->per_image) {
        print_images(arena, s, class_names);
        return;
    }
    struct wf_table t = { .arena = arena };
    wf_table_row(&t, 5, (const char *[]){ "class", ">IoU", ">Dice", ">recall", ">share" });
    for (int c = 0; c < s->classes; c++)
        wf_table_row(&t, 5,
                     (const char *[]){ class_names[c], number(arena, s->iou[c]),
                                       number(arena, s->dice[c]), number(arena, s->recall[c]),
                                       number(arena, s->fraction[c]) });
    wf_table_row(&t, 5,
                 (const char *[]){ "mean", number(arena, s->mean_iou), number(arena, s->mean_dice),
                                   "", "" });
    wf_table_print(&t, stdout);
    (void)printf("accuracy %s\n", number(arena, s->accuracy));
}
