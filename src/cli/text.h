/*
 * What the command prints for people: numbers with units, aligned tables.
 *
 *     struct wf_table t = { .arena = &arena };
 *     wf_table_row(&t, 2, (const char *[]){ "rank", ">arena" });    '>' in the head: right-aligned
 *     wf_table_row(&t, 2, (const char *[]){ "0", wf_text_bytes(&arena, n) });
 *     wf_table_print(&t, stdout);
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/units.h"
#include "train/validate.h"

/* A name from outside as a terminal may have it (base/utf8.h). */
const char *wf_text_shown(struct wf_arena *arena, const char *name);

enum { WF_TABLE_COLUMNS = 10 };

struct wf_table {
    struct wf_arena *arena;
    const char *(*rows)[WF_TABLE_COLUMNS];
    size_t count, room;
    int columns;
};

/* The first row is the head. Cells may hold anything, and are borrowed until the table is printed. */
void wf_table_row(struct wf_table *t, int columns, const char *const cells[]);
/* Prints and empties the table, which may be filled again. */
void wf_table_print(struct wf_table *t, FILE *out);
void wf_table_release(struct wf_table *t); /* one that was not printed */

/* A table of scores. */
void wf_print_scores(struct wf_arena *arena, const struct wf_scores *scores,
                     const char *const class_names[]);
/* Those of several domains, with the path of each domain's data; nothing for one. */
void wf_print_domains(struct wf_arena *arena, const struct wf_domain_scores domains[], int count,
                      const char *const paths[]);
