/* OFF: a mesh as text, of which points are drawn, as many on each triangle as its area asks for; each has the
 * normal of its triangle. ModelNet's files begin with "OFF" and the counts on one line, or without a blank. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "cloud/cloud_inside.h"

struct mesh {
    struct wf_cloud_stream stream;
    int64_t vertices, faces;
    double *at;        /* [vertices][3] */
    int32_t (*tri)[3]; /* fans of the faces */
    double *area;      /* of all triangles up to and with this one */
    int64_t n, room;
};

static bool counts(struct mesh *m, struct wf_err *err)
{
    const char *const path = m->stream.file->name;
    char word[64];
    double n[3];
    if (!wf_cloud_word(&m->stream, word, sizeof word, true, err) || strncmp(word, "OFF", 3) != 0)
        return err->code ? false : wf_err_set(err, WF_ERR_INPUT, "'%s' is no OFF file", path);
    char *end;
    const bool glued = word[3] != '\0';
    n[0] = glued ? strtod(word + 3, &end) : 0;
    if (glued && *end)
        return wf_err_set(err, WF_ERR_INPUT, "'%s': '%.20s' begins no OFF file", path, word);
    for (int i = glued; i < 3; i++)
        if (!wf_cloud_number(&m->stream, true, &n[i], err))
            return false;
    /* A vertex has six bytes at least, a face eight. */
    const double size = (double)m->stream.file->size;
    for (int i = 0; i < 2; i++)
        if (!(n[i] >= 0 && n[i] <= size / (i ? 8 : 6) + 1) || n[i] != floor(n[i]))
            return wf_err_set(err, WF_ERR_INPUT,
                              "'%s' promises %g %s and is too short for them: it is cut short",
                              path, n[i], i ? "faces" : "vertices");
    m->vertices = (int64_t)n[0];
    m->faces = (int64_t)n[1];
    return true;
}

static void corners(const struct mesh *m, int64_t t, const double *p[3])
{
    for (int k = 0; k < 3; k++)
        p[k] = m->at + 3 * (int64_t)m->tri[t][k];
}

/* Twice the area, as a vector along the normal. */
static void cross_of(const double *p[3], double out[3])
{
    double u[3], v[3];
    for (int k = 0; k < 3; k++) {
        u[k] = p[1][k] - p[0][k];
        v[k] = p[2][k] - p[0][k];
    }
    for (int k = 0; k < 3; k++)
        out[k] = u[(k + 1) % 3] * v[(k + 2) % 3] - u[(k + 2) % 3] * v[(k + 1) % 3];
}

static bool add_triangle(struct mesh *m, const int32_t t[3], struct wf_err *err)
{
    if (m->n == m->room) {
        m->room = 2 * m->room + 256;
        int32_t(*const tri)[3] = realloc(m->tri, (size_t)m->room * sizeof *tri);
        if (tri)
            m->tri = tri;
        double *const area = realloc(m->area, (size_t)m->room * sizeof *area);
        if (area)
            m->area = area;
        if (!tri || !area)
            return wf_err_set(err, WF_ERR_FIT, "'%s': no memory for its faces",
                              m->stream.file->name);
    }
    const double *p[3];
    double c[3];
    memcpy(m->tri[m->n], t, sizeof m->tri[0]);
    corners(m, m->n, p);
    cross_of(p, c);
    m->area[m->n] = (m->n ? m->area[m->n - 1] : 0) + sqrt(c[0] * c[0] + c[1] * c[1] + c[2] * c[2]);
    m->n++;
    return true;
}

static bool read_face(struct mesh *m, struct wf_err *err)
{
    double count, index;
    char rest[256];
    int32_t t[3] = { 0 };
    if (!wf_cloud_number(&m->stream, true, &count, err))
        return false;
    if (!(count >= 0 && count <= (double)m->vertices))
        return wf_err_set(err, WF_ERR_INPUT, "'%s': a face has %g of %" PRId64 " vertices",
                          m->stream.file->name, count, m->vertices);
    for (int64_t i = 0; i < (int64_t)count; i++) {
        if (!wf_cloud_number(&m->stream, true, &index, err))
            return false;
        if (!(index >= 0 && index < (double)m->vertices) || index != floor(index))
            return wf_err_set(err, WF_ERR_INPUT, "'%s': a face has vertex %g of %" PRId64,
                              m->stream.file->name, index, m->vertices);
        t[i < 2 ? i : 2] = (int32_t)index;
        if (i >= 2) {
            if (!add_triangle(m, t, err))
                return false;
            t[1] = t[2];
        }
    }
    /* A colour may follow on the same line; the last word took the line's end with it where there is none. */
    const struct wf_cloud_stream *const s = &m->stream;
    return s->from == 0 || s->buffer[s->from - 1] == '\n' ||
           wf_cloud_line(&m->stream, rest, sizeof rest, err) || !err->code;
}

static bool read_mesh(struct mesh *m, struct wf_err *err)
{
    m->at = malloc((size_t)(3 * m->vertices + 1) * sizeof *m->at);
    bool ok = m->at ||
              wf_err_set(err, WF_ERR_FIT, "'%s': no memory for its vertices", m->stream.file->name);
    for (int64_t i = 0; ok && i < 3 * m->vertices; i++) {
        ok = wf_cloud_number(&m->stream, true, &m->at[i], err);
        if (ok && !isfinite(m->at[i]))
            ok = wf_err_set(err, WF_ERR_INPUT, "'%s': vertex %" PRId64 " is not finite",
                            m->stream.file->name, i / 3);
    }
    for (int64_t i = 0; ok && i < m->faces; i++)
        ok = read_face(m, err);
    const double all = ok && m->n > 0 ? m->area[m->n - 1] : 0;
    if (ok && !(all > 0 && isfinite(all)))
        ok = wf_err_set(err, WF_ERR_INPUT, "'%s' has no area to draw points on",
                        m->stream.file->name);
    return ok;
}

/* Point i: a triangle by its area, and a place in it. */
static void draw(const struct mesh *m, struct wf_random r, int64_t i, struct wf_cloud *c)
{
    const uint64_t key = 3 * (uint64_t)i;
    const double wanted = (double)wf_random_uniform(r, key) * m->area[m->n - 1];
    int64_t lo = 0, hi = m->n - 1;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (m->area[mid] > wanted)
            hi = mid;
        else
            lo = mid + 1;
    }
    double a = (double)wf_random_uniform(r, key + 1), b = (double)wf_random_uniform(r, key + 2);
    if (a + b > 1) {
        a = 1 - a;
        b = 1 - b;
    }
    const double *p[3];
    double n[3];
    corners(m, lo, p);
    cross_of(p, n);
    const double length = sqrt(n[0] * n[0] + n[1] * n[1] + n[2] * n[2]);
    for (int k = 0; k < 3; k++) {
        c->at[3 * i + k] = p[0][k] + a * (p[1][k] - p[0][k]) + b * (p[2][k] - p[0][k]);
        c->columns[k].values[i] = length > 0 ? (float)(n[k] / length) : 0;
    }
}

static bool read_off(const struct wf_infile *file, const struct wf_cloud_options *o,
                     struct wf_cloud *c, struct wf_err *err)
{
    static const char *const normal[] = { "nx", "ny", "nz" };
    struct mesh *const m = calloc(1, sizeof *m);
    if (!m)
        return wf_err_set(err, WF_ERR_FIT, "'%s': no memory to read it", file->name);
    m->stream.file = file;
    for (int k = 0; k < 3; k++)
        (void)wf_cloud_add(c, normal[k]);
    bool ok = counts(m, err);
    c->n = m->vertices > 0 && m->faces > 0 ? (o->points ? o->points : WF_CLOUD_SAMPLED) : 0;
    if (ok && !o->header_only && c->n > 0) {
        ok = read_mesh(m, err) && wf_cloud_take(c, file->name, err);
        const struct wf_random r = wf_random(o->seed, wf_random_stream("cloud.mesh"));
        for (int64_t i = 0; ok && i < c->n; i++)
            draw(m, r, i, c);
    }
    free(m->at);
    free(m->tri);
    free(m->area);
    free(m);
    return ok;
}

const struct wf_cloud_format wf_cloud_format_off = { .ending = ".off",
                                                     .is_mesh = true,
                                                     .read = read_off };
