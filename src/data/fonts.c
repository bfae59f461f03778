#include "data/fonts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "data/dataset_inside.h"

#ifdef WF_HAVE_FREETYPE
#include <ft2build.h>
#include FT_FREETYPE_H
#include FT_OUTLINE_H

enum { DEEP = 8 /* folders in folders: a link may lead back up */ };

/* --- finding --- */

static bool is_font_name(const char *name)
{
    static const char *const known[] = { ".ttf", ".otf", ".ttc", ".otc", ".pfb" };
    const char *const end = strrchr(name, '.');
    for (size_t i = 0; end && i < sizeof known / sizeof *known; i++)
        if (strcasecmp(end, known[i]) == 0)
            return true;
    return false;
}

/* Ten different outlines: fonts of symbols, and those that draw a box for everything, have not. */
static bool has_digits(FT_Face face)
{
    if (!FT_IS_SCALABLE(face) || FT_Select_Charmap(face, FT_ENCODING_UNICODE) != 0)
        return false;
    FT_UInt seen[10];
    for (int i = 0; i < 10; i++) {
        seen[i] = FT_Get_Char_Index(face, '0' + (FT_ULong)i);
        for (int j = 0; j < i; j++)
            if (seen[j] == seen[i])
                return false;
        if (seen[i] == 0 || FT_Load_Glyph(face, seen[i], FT_LOAD_NO_SCALE) != 0 ||
            face->glyph->format != FT_GLYPH_FORMAT_OUTLINE || face->glyph->outline.n_points < 3)
            return false;
    }
    return true;
}

/* Files that are no fonts, or none of ours, are left out: nobody chose them one by one. */
static void look_at_file(struct wf_fonts *f, FT_Library library, const char *path)
{
    FT_Face face;
    if (FT_New_Face(library, path, 0, &face) != 0)
        return;
    if (face->family_name && has_digits(face)) {
        WF_GROW(f->at, f->room, f->count);
        f->at[f->count++] = (struct wf_font){
            .family = wf_arena_copy(&f->arena, face->family_name),
            .style = wf_arena_copy(&f->arena, face->style_name ? face->style_name : "Regular"),
            .path = path,
        };
    }
    (void)FT_Done_Face(face);
}

static bool look_in_folder(struct wf_fonts *f, FT_Library library, const char *path, int deep,
                           struct wf_err *err)
{
    struct wf_folder folder;
    if (!wf_folder_list(&f->arena, path, &folder, err))
        return false;
    for (size_t i = 0; i < folder.n_files; i++)
        if (is_font_name(folder.files[i]))
            look_at_file(f, library, wf_path_join(&f->arena, path, folder.files[i]));
    bool ok = true;
    for (size_t i = 0; ok && deep < DEEP && i < folder.n_folders; i++)
        ok = look_in_folder(f, library, wf_path_join(&f->arena, path, folder.folders[i]), deep + 1,
                            err);
    return ok;
}

static int by_name(const void *a, const void *b)
{
    const struct wf_font *const x = a, *const y = b;
    int order = strcmp(x->family, y->family);
    order = order ? order : strcmp(x->style, y->style);
    return order ? order : strcmp(x->path, y->path);
}

static void drop_twins(struct wf_fonts *f)
{
    size_t left = 0;
    qsort(f->at, f->count, sizeof *f->at, by_name);
    for (size_t i = 0; i < f->count; i++)
        if (left == 0 || strcmp(f->at[left - 1].family, f->at[i].family) != 0 ||
            strcmp(f->at[left - 1].style, f->at[i].style) != 0)
            f->at[left++] = f->at[i];
    f->count = left;
}

static bool look_in_system(struct wf_fonts *f, FT_Library library, struct wf_err *err)
{
    const char *const home = getenv("HOME");
    const char *const folders[] = {
        "/usr/share/fonts",
        "/usr/local/share/fonts",
        home ? wf_path_join(&f->arena, home, ".fonts") : NULL,
        home ? wf_path_join(&f->arena, home, ".local/share/fonts") : NULL,
    };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const bool is_there = folders[i] && wf_path_is_folder(folders[i], err);
        if (err->code || (is_there && !look_in_folder(f, library, folders[i], 0, err)))
            return false;
    }
    return true;
}

bool wf_fonts_find(struct wf_fonts *f, const char *folder, struct wf_err *err)
{
    FT_Library library;
    *f = (struct wf_fonts){ 0 };
    if (FT_Init_FreeType(&library) != 0)
        return wf_err_set(err, WF_ERR_FAILED, "FreeType cannot be started");
    const bool ok =
        folder ? look_in_folder(f, library, folder, 0, err) : look_in_system(f, library, err);
    (void)FT_Done_FreeType(library);
    if (ok && f->count > 0) {
        drop_twins(f);
        return true;
    }
    if (ok)
        (void)wf_err_set(err, WF_ERR_INPUT,
                         "no font with digits in '%s': install 'fonts-dejavu-core', or give "
                         "--fonts DIR",
                         folder ? folder : "/usr/share/fonts");
    wf_fonts_release(f);
    return false;
}

/* --- drawing --- */

/* From font units, y up, to 1/64 pixels, y up from the lower edge. */
static void place(FT_Outline *outline, const struct wf_glyph *g, int64_t rows)
{
    FT_BBox box;
    FT_Outline_Get_CBox(outline, &box);
    const double wide = (double)(box.xMax - box.xMin) * (double)g->stretch;
    const double high = (double)(box.yMax - box.yMin);
    const double scale = 64 * fmin((double)g->height / high, (double)g->width / wide);
    const double c = scale * cos((double)g->turn), s = scale * sin((double)g->turn);
    const double x = (double)(box.xMin + box.xMax) / 2, y = (double)(box.yMin + box.yMax) / 2;
    const double to_x = 64 * (double)g->x, to_y = 64 * ((double)rows - (double)g->y);
    for (int i = 0; i < outline->n_points; i++) {
        FT_Vector *const p = &outline->points[i];
        const double u = ((double)p->x - x) * (double)g->stretch, v = (double)p->y - y;
        *p = (FT_Vector){ .x = lround(to_x + c * u - s * v), .y = lround(to_y + s * u + c * v) };
    }
}

static bool draw(FT_Library library, FT_Face face, const struct wf_glyph *g, FT_Bitmap *bitmap)
{
    if (FT_Select_Charmap(face, FT_ENCODING_UNICODE) != 0 ||
        FT_Load_Char(face, (FT_ULong)g->letter, FT_LOAD_NO_SCALE) != 0 ||
        face->glyph->format != FT_GLYPH_FORMAT_OUTLINE)
        return false;
    place(&face->glyph->outline, g, bitmap->rows);
    return FT_Outline_Get_Bitmap(library, &face->glyph->outline, bitmap) == 0;
}

bool wf_fonts_draw(const struct wf_font *font, const struct wf_glyph *glyph, int64_t rows,
                   int64_t columns, uint8_t *coverage, struct wf_err *err)
{
    FT_Library library;
    FT_Face face;
    memset(coverage, 0, (size_t)(rows * columns));
    FT_Bitmap bitmap = { .rows = (unsigned)rows,
                         .width = (unsigned)columns,
                         .pitch = (int)columns,
                         .buffer = coverage,
                         .num_grays = 256,
                         .pixel_mode = FT_PIXEL_MODE_GRAY };
    bool ok = FT_Init_FreeType(&library) == 0;
    if (ok) {
        ok = FT_New_Face(library, font->path, 0, &face) == 0;
        ok = ok && draw(library, face, glyph, &bitmap);
        (void)FT_Done_FreeType(library); /* and its faces */
    }
    return ok || wf_err_set(err, WF_ERR_INPUT, "'%s': cannot draw '%c' from this font", font->path,
                            glyph->letter);
}
#else
bool wf_fonts_find(struct wf_fonts *f, const char *folder, struct wf_err *err)
{
    (void)folder;
    *f = (struct wf_fonts){ 0 };
    return wf_err_set(err, WF_ERR_FAILED,
                      "this build cannot draw from fonts: install 'libfreetype-dev' and build "
                      "again");
}

bool wf_fonts_draw(const struct wf_font *font, const struct wf_glyph *glyph, int64_t rows,
                   int64_t columns, uint8_t *coverage, struct wf_err *err)
{
    (void)font, (void)glyph, (void)rows, (void)columns, (void)coverage, (void)err;
    WF_BUG_ON(true, "no fonts without FreeType");
    return false;
}
#endif

void wf_fonts_release(struct wf_fonts *f)
{
    free(f->at);
    wf_arena_release(&f->arena);
    *f = (struct wf_fonts){ 0 };
}
