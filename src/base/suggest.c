#include "base/suggest.h"

#include <string.h>

enum { LONGEST = 63 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t wf_edit_distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST) /* nobody mistypes a name of that length into a known one */
        return strcmp(a, b) == 0 ? 0 : n + m;
    size_t rows[3][LONGEST + 1] = { 0 };
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        above[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t replace = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = smaller(replace, 1 + smaller(above[j], row[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], before[j - 2] + 1);
        }
        size_t *const spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[m];
}

void wf_suggest_offer(struct wf_suggest *s, const char *candidate)
{
    const size_t distance = wf_edit_distance(s->typed, candidate);
    /* A third of the letters wrong is still a typing mistake, more is another word. */
    const size_t enough = 1 + strlen(s->typed) / 3;
    if (distance <= enough && distance < strlen(candidate) &&
        (!s->best || distance < s->distance)) {
        s->best = candidate;
        s->distance = distance;
    }
}
