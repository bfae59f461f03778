#include "image/raster_grid.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "image/raster_format.h"

enum {
    SCALE = 33550,
    TIEPOINT = 33922,
    TRANSFORMATION = 34264,
    KEYS = 34735,
    NUMBERS = 34736,
    TEXTS = 34737
};
enum {
    RASTER_TYPE = 1025,
    GEOGRAPHIC = 2048,
    PROJECTED = 3072,
    USER_DEFINED = 32767,
    IS_POINT = 2
};

/* --- NIfTI --- */

static void nifti_quaternion(const struct wf_raster_space *s, double at[3][4])
{
    const double b = s->quatern[0], c = s->quatern[1], d = s->quatern[2];
    const double rest = 1 - b * b - c * c - d * d, a = rest > 0 ? sqrt(rest) : 0;
    const double turn[3][3] = {
        { a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c) },
        { 2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b) },
        { 2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - c * c - b * b },
    };
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++)
            at[i][j] = turn[i][j] * s->pixdim[1 + j] * (j == 2 && s->pixdim[0] < 0 ? -1 : 1);
        at[i][3] = s->offset[i];
    }
}

static bool nifti_grid(const struct wf_raster_space *s, double at[3][4])
{
    if (s->rank == 0 || (s->sform <= 0 && s->qform <= 0))
        return false;
    if (s->sform > 0)
        memcpy(at, s->affine, sizeof s->affine);
    else
        nifti_quaternion(s, at);
    return true;
}

/* --- GeoTIFF --- */

static const struct wf_raster_geo *tag_of(const struct wf_raster_place *p, uint32_t tag, int type,
                                          uint32_t least)
{
    for (int i = 0; i < p->geo_count; i++)
        if (p->geo[i].tag == tag && (int)p->geo[i].type == type && p->geo[i].count >= least)
            return &p->geo[i];
    return NULL;
}

/* The keys of a directory: four numbers each, behind four that say how many there are. */
struct keys {
    const uint16_t *at;
    uint32_t count;
};

static struct keys keys_of(const struct wf_raster_place *p)
{
    const struct wf_raster_geo *const g = tag_of(p, KEYS, WF_GEO_SHORT, 4);
    if (!g)
        return (struct keys){ 0 };
    const uint16_t *const all = g->data;
    const uint32_t room = g->count / 4 - 1;
    return (struct keys){ .at = all + 4, .count = all[3] < room ? all[3] : room };
}

/* A key whose value stands in the directory; -1: there is none. */
static int key_of(const struct wf_raster_place *p, int key)
{
    const struct keys k = keys_of(p);
    for (uint32_t i = 0; i < k.count; i++)
        if (k.at[4 * i] == key && k.at[4 * i + 1] == 0)
            return k.at[4 * i + 3];
    return -1;
}

static bool geo_grid(const struct wf_raster_place *p, double at[3][4])
{
    const struct wf_raster_geo *const matrix = tag_of(p, TRANSFORMATION, WF_GEO_DOUBLE, 16);
    const struct wf_raster_geo *const scale = tag_of(p, SCALE, WF_GEO_DOUBLE, 2);
    const struct wf_raster_geo *const tie = tag_of(p, TIEPOINT, WF_GEO_DOUBLE, 6);
    if (matrix) {
        const double *const m = matrix->data;
        for (int i = 0; i < 2; i++) {
            at[i][0] = m[4 * i];
            at[i][1] = m[4 * i + 1];
            at[i][3] = m[4 * i + 3];
        }
    } else if (scale && tie) {
        const double *const s = scale->data, *const t = tie->data;
        at[0][0] = s[0];
        at[0][3] = t[3] - t[0] * s[0];
        at[1][1] = -s[1];
        at[1][3] = t[4] + t[1] * s[1];
    } else {
        return false;
    }
    at[2][2] = 1;
    if (key_of(p, RASTER_TYPE) != IS_POINT) /* numbers count from a pixel's corner */
        for (int i = 0; i < 2; i++)
            at[i][3] += 0.5 * (at[i][0] + at[i][1]);
    return true;
}

/* --- grids --- */

static double determinant(const double m[3][4])
{
    return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) -
           m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
           m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
}

static bool can_be_turned_round(const double m[3][4])
{
    const double d = determinant(m);
    bool ok = isfinite(d) && d != 0;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++)
            ok = ok && isfinite(m[i][j]);
    return ok;
}

void wf_raster_grid_of(const struct wf_raster_info *info, struct wf_raster_grid *grid)
{
    *grid = (struct wf_raster_grid){ .kind = WF_RASTER_GRID_NONE, .place = info->place };
    if (!info->place)
        return;
    if (nifti_grid(&info->place->space, grid->at))
        grid->kind = WF_RASTER_GRID_NIFTI;
    else if (geo_grid(info->place, grid->at))
        grid->kind = WF_RASTER_GRID_GEO;
    if (grid->kind != WF_RASTER_GRID_NONE && !can_be_turned_round(grid->at))
        grid->kind = WF_RASTER_GRID_NONE;
}

bool wf_raster_grid_compares(const struct wf_raster_grid *a, const struct wf_raster_grid *b)
{
    return a->kind != WF_RASTER_GRID_NONE && a->kind == b->kind;
}

void wf_raster_grid_move(const double map[3][4], const double from[3], double to[3])
{
    for (int i = 0; i < 3; i++)
        to[i] = map[i][0] * from[0] + map[i][1] * from[1] + map[i][2] * from[2] + map[i][3];
}

void wf_raster_grid_map(const struct wf_raster_grid *from, const struct wf_raster_grid *to,
                        double map[3][4])
{
    const double(*const m)[4] = to->at;
    const double d = determinant(m);
    double back[3][3];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            const int r0 = (j + 1) % 3, r1 = (j + 2) % 3, c0 = (i + 1) % 3, c1 = (i + 2) % 3;
            back[i][j] = (m[r0][c0] * m[r1][c1] - m[r0][c1] * m[r1][c0]) / d;
        }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++) {
            map[i][j] = 0;
            for (int k = 0; k < 3; k++)
                map[i][j] += back[i][k] * (from->at[k][j] - (j == 3 ? m[k][3] : 0));
        }
}

double wf_raster_grid_shift(const double map[3][4], const int64_t extent[3])
{
    double most = 0;
    for (int corner = 0; corner < 8; corner++) {
        double from[3], to[3], apart = 0;
        for (int i = 0; i < 3; i++)
            from[i] = corner >> i & 1 ? (double)(extent[i] - 1) : 0;
        wf_raster_grid_move(map, from, to);
        for (int i = 0; i < 3; i++)
            apart = fmax(apart, fabs(to[i] - from[i]));
        most = fmax(most, apart);
    }
    return most;
}

/* --- coordinate systems --- */

/* Keys that say how pixels are counted, or that are there for people. */
static bool is_beside(int key)
{
    return key == RASTER_TYPE || key == 1026 || key == 2049 || key == 3073 || key == 4097;
}

static bool same_numbers(const struct wf_raster_place *p, const uint16_t *k,
                         const struct wf_raster_place *q, const uint16_t *l)
{
    const struct wf_raster_geo *const a = tag_of(p, NUMBERS, WF_GEO_DOUBLE, (uint32_t)k[3] + k[2]);
    const struct wf_raster_geo *const b = tag_of(q, NUMBERS, WF_GEO_DOUBLE, (uint32_t)l[3] + l[2]);
    if (!a || !b || k[2] != l[2])
        return false;
    for (int i = 0; i < k[2]; i++) {
        const double x = ((const double *)a->data)[k[3] + i],
                     y = ((const double *)b->data)[l[3] + i];
        if (!(fabs(x - y) <= 1e-9 * fmax(fabs(x), fabs(y))))
            return false;
    }
    return true;
}

/* Has `q` each key of `p`, with the same value? */
static bool has_keys(const struct wf_raster_place *q, const struct wf_raster_place *p)
{
    const struct keys mine = keys_of(p), other = keys_of(q);
    for (uint32_t i = 0; i < mine.count; i++) {
        const uint16_t *const k = mine.at + 4 * i;
        if (is_beside(k[0]) || k[1] == TEXTS)
            continue;
        bool found = false;
        for (uint32_t j = 0; !found && j < other.count; j++) {
            const uint16_t *const l = other.at + 4 * j;
            found = l[0] == k[0] && l[1] == k[1] &&
                    (k[1] == NUMBERS ? same_numbers(p, k, q, l) : k[3] == l[3]);
        }
        if (!found)
            return false;
    }
    return true;
}

/* The number of the system in EPSG's list; 0: it has none. */
static int epsg_of(const struct wf_raster_place *p)
{
    const int projected = key_of(p, PROJECTED), geographic = key_of(p, GEOGRAPHIC);
    const int code = projected > 0 ? projected : geographic;
    return code > 0 && code != USER_DEFINED ? code : 0;
}

static bool names_system(const struct wf_raster_place *p)
{
    return key_of(p, PROJECTED) > 0 || key_of(p, GEOGRAPHIC) > 0;
}

bool wf_raster_grid_same_system(const struct wf_raster_grid *a, const struct wf_raster_grid *b)
{
    if (a->kind != WF_RASTER_GRID_GEO || b->kind != WF_RASTER_GRID_GEO)
        return true;
    if (!names_system(a->place) || !names_system(b->place))
        return true;
    const int x = epsg_of(a->place), y = epsg_of(b->place);
    if (x && y)
        return x == y;
    return has_keys(a->place, b->place) && has_keys(b->place, a->place);
}

/* --- words --- */

void wf_raster_grid_system(const struct wf_raster_grid *grid, char *text, size_t size)
{
    const int code = grid->kind == WF_RASTER_GRID_GEO ? epsg_of(grid->place) : 0;
    text[0] = '\0';
    if (code)
        (void)snprintf(text, size, "EPSG:%d", code);
}

static double step_of(const struct wf_raster_grid *g, int axis)
{
    return sqrt(g->at[0][axis] * g->at[0][axis] + g->at[1][axis] * g->at[1][axis] +
                g->at[2][axis] * g->at[2][axis]);
}

/* The direction of the world along which an axis of voxels runs, mostly. */
static char direction(const struct wf_raster_grid *g, int axis)
{
    int most = 0;
    for (int i = 1; i < 3; i++)
        if (fabs(g->at[i][axis]) > fabs(g->at[most][axis]))
            most = i;
    return (g->at[most][axis] < 0 ? "LPI" : "RAS")[most];
}

void wf_raster_grid_text(const struct wf_raster_grid *g, char *text, size_t size)
{
    if (g->kind == WF_RASTER_GRID_NIFTI) {
        (void)snprintf(text, size,
                       "%c%c%c, voxels of %.4g x %.4g x %.4g, origin (%.6g, %.6g, %.6g)",
                       direction(g, 0), direction(g, 1), direction(g, 2), step_of(g, 0),
                       step_of(g, 1), step_of(g, 2), g->at[0][3], g->at[1][3], g->at[2][3]);
        return;
    }
    char system[32];
    wf_raster_grid_system(g, system, sizeof system);
    (void)snprintf(text, size, "%s, pixels of %.6g x %.6g, upper left corner (%.9g, %.9g)",
                   *system                  ? system
                   : names_system(g->place) ? "a system of its own"
                                            : "no coordinate system",
                   step_of(g, 0), step_of(g, 1), g->at[0][3] - 0.5 * (g->at[0][0] + g->at[0][1]),
                   g->at[1][3] - 0.5 * (g->at[1][0] + g->at[1][1]));
}
