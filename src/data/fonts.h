/*
 * Fonts of the system, to draw digits from (FreeType).
 *
 *     struct wf_fonts fonts = { 0 };
 *     bool ok = wf_fonts_find(&fonts, NULL, err) &&
 *               wf_fonts_draw(&fonts.at[0], &(struct wf_glyph){ '7', ... }, coverage, err);
 *     wf_fonts_release(&fonts);
 *
 * A font counts if it has an outline of its own for each of 0 to 9. A family and style that several
 * files hold is taken once. Sorted by family, style and file, so that an index means the same font
 * as long as the same fonts are installed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

struct wf_font {
    const char *family, *style, *path;
};

struct wf_fonts {
    struct wf_arena arena;
    struct wf_font *at;
    size_t count, room;
};

/* In `folder` and the folders in it; NULL: where fonts usually are. At least one. */
[[nodiscard]] bool wf_fonts_find(struct wf_fonts *fonts, const char *folder, struct wf_err *err);
void wf_fonts_release(struct wf_fonts *fonts);

/* Lengths in pixels, x to the right and y down. */
struct wf_glyph {
    char letter;
    float x, y;          /* centre of its box */
    float height, width; /* of the upright box: the largest of its shape that fits into both */
    float stretch;       /* of its width */
    float turn;          /* in radians, counterclockwise */
};

/* Coverage of each pixel of an image of rows x columns, 0 to 255. */
[[nodiscard]] bool wf_fonts_draw(const struct wf_font *font, const struct wf_glyph *glyph,
                                 int64_t rows, int64_t columns, uint8_t *coverage,
                                 struct wf_err *err);
