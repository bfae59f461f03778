#include "cli/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

const char *wf_text_shown(struct wf_arena *arena, const char *name)
{
    const size_t room = strlen(name) * WF_UTF8_SHOWN + 1;
    return wf_utf8_shown(name, wf_arena_array(arena, room, char), room);
}

void wf_table_row(struct wf_table *t, int columns, const char *const cells[])
{
    WF_BUG_ON(columns > WF_TABLE_COLUMNS || (t->count > 0 && columns != t->columns), "%d columns",
              columns);
    t->columns = columns;
    WF_GROW(t->rows, t->room, t->count);
    for (int i = 0; i < columns; i++)
        t->rows[t->count][i] = wf_text_shown(t->arena, cells[i]);
    t->count++;
}

/* Columns on the screen: bytes of UTF-8 that do not begin a character take none. */
static int width_of(const char *cell)
{
    int width = 0;
    for (; *cell; cell++)
        width += (*cell & 0xc0) != 0x80;
    return width;
}

static void print_cell(FILE *out, const char *cell, int width, bool right, bool last)
{
    const int room = width - width_of(cell);
    if (right)
        (void)fprintf(out, "%*s%s", room, "", cell);
    else
        (void)fprintf(out, "%s%*s", cell, last ? 0 : room, "");
    (void)fputs(last ? "\n" : "  ", out);
}

void wf_table_print(struct wf_table *t, FILE *out)
{
    int width[WF_TABLE_COLUMNS] = { 0 };
    bool right[WF_TABLE_COLUMNS] = { false };
    for (int i = 0; i < t->columns; i++) {
        right[i] = t->rows[0][i][0] == '>';
        t->rows[0][i] += right[i];
        for (size_t row = 0; row < t->count; row++) {
            const int w = width_of(t->rows[row][i]);
            width[i] = w > width[i] ? w : width[i];
        }
    }
    for (size_t row = 0; row < t->count; row++) {
        int last = t->columns - 1; /* no blanks behind it */
        while (last > 0 && !*t->rows[row][last])
            last--;
        for (int i = 0; i <= last; i++)
            print_cell(out, t->rows[row][i], width[i], right[i], i == last);
    }
    wf_table_release(t);
}

void wf_table_release(struct wf_table *t)
{
    free(t->rows);
    *t = (struct wf_table){ .arena = t->arena };
}

/* --- scores --- */

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

void wf_print_domains(struct wf_arena *arena, const struct wf_domain_scores domains[], int count,
                      const char *const paths[])
{
    if (count <= 1)
        return;
    const bool per_image = domains[0].scores.per_image;
    struct wf_table t = { .arena = arena };
    wf_table_row(
        &t, 4,
        (const char *[]){ "domain", ">loss", per_image ? ">accuracy" : ">mean IoU", "data" });
    for (int i = 0; i < count; i++) {
        const struct wf_scores *const s = &domains[i].scores;
        wf_table_row(&t, 4,
                     (const char *[]){ domains[i].domain
                                           ? wf_arena_printf(arena, "target %d", domains[i].domain)
                                           : "source",
                                       number(arena, domains[i].loss),
                                       number(arena, per_image ? s->accuracy : s->mean_iou),
                                       paths[domains[i].domain] });
    }
    wf_table_print(&t, stdout);
}
