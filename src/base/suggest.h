/* "Did you mean": the candidate closest to a mistyped word. */
#pragma once

#include <stddef.h>

/* Insertions, deletions, replacements and swaps of neighbours between the two. */
size_t wf_edit_distance(const char *a, const char *b);

/* Takes one candidate after another and keeps the closest. */
struct wf_suggest {
    const char *typed;
    const char *best; /* NULL until a candidate is close enough to be meant */
    size_t distance;
};
void wf_suggest_offer(struct wf_suggest *s, const char *candidate);
