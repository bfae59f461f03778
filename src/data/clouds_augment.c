/* Random augmentation of a point cloud. Numbers are keyed by (seed, epoch, item) and the point. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "data/augment.h"
#include "data/clouds.h"

enum { ANGLE, FLIP_X, FLIP_Y, SCALE, GAIN, SHIFT, DROP };

static const float SCALE_BY = 0.1f, DROP_MOST = 0.2f;
/* In voxels: the deviation of jitter; the size of an elastic displacement, and the distance over which it changes. */
static const double JITTER = 0.25, ELASTIC = 2, ELASTIC_OVER = 20;

unsigned wf_cloud_augments(void)
{
    return WF_AUGMENT_FLIP | WF_AUGMENT_ELASTIC | WF_AUGMENT_BRIGHTNESS | WF_AUGMENT_CONTRAST |
           WF_AUGMENT_ROTATE | WF_AUGMENT_SCALE | WF_AUGMENT_JITTER | WF_AUGMENT_DROP;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static struct wf_random stream(const struct wf_cloud_rule *rule, const char *name)
{
    return wf_random(rule->seed, mix(mix(wf_random_stream(name) ^ (uint64_t)rule->epoch) +
                                     (uint64_t)rule->item));
}

static float *column(struct wf_cloud *c, const char *name)
{
    for (int i = 0; i < c->n_columns; i++)
        if (strcmp(c->columns[i].name, name) == 0)
            return c->columns[i].values;
    return NULL;
}

/* --- a linear map --- */

struct turn {
    double m[2][2]; /* of x, y */
    double scale;
};

static struct turn draw_turn(const struct wf_cloud_rule *rule, struct wf_random r)
{
    const double full = 6.283185307179586;
    const double a =
        rule->augment & WF_AUGMENT_ROTATE ? full * (double)wf_random_uniform(r, ANGLE) : 0;
    const bool flips = rule->augment & WF_AUGMENT_FLIP;
    const double x = flips && wf_random_below(r, FLIP_X, 2) ? -1 : 1;
    const double y = flips && wf_random_below(r, FLIP_Y, 2) ? -1 : 1;
    const float by = 2 * SCALE_BY * wf_random_uniform(r, SCALE) - SCALE_BY;
    return (struct turn){ { { cos(a) * x, -sin(a) * y }, { sin(a) * x, cos(a) * y } },
                          rule->augment & WF_AUGMENT_SCALE ? 1 + (double)by : 1 };
}

static void turn_points(struct wf_cloud *c, const struct turn *t)
{
    double mean[3] = { 0 };
    for (int64_t i = 0; i < 3 * c->n; i++)
        mean[i % 3] += c->at[i] / (double)c->n;
    for (int64_t i = 0; i < c->n; i++) {
        double *const p = c->at + 3 * i;
        const double x = p[0] - mean[0], y = p[1] - mean[1], z = p[2] - mean[2];
        p[0] = mean[0] + t->scale * (t->m[0][0] * x + t->m[0][1] * y);
        p[1] = mean[1] + t->scale * (t->m[1][0] * x + t->m[1][1] * y);
        p[2] = mean[2] + t->scale * z;
    }
}

static void turn_normals(struct wf_cloud *c, const struct turn *t)
{
    float *const nx = column(c, "nx"), *const ny = column(c, "ny");
    for (int64_t i = 0; nx && ny && i < c->n; i++) {
        const double x = (double)nx[i], y = (double)ny[i];
        nx[i] = (float)(t->m[0][0] * x + t->m[0][1] * y);
        ny[i] = (float)(t->m[1][0] * x + t->m[1][1] * y);
    }
}

/* --- a field --- */

/* Smooth numbers in [-1, 1] at a place in units of the lattice. */
static double field(struct wf_random r, const double at[3], int axis)
{
    double low[3], part[3], sum = 0;
    for (int k = 0; k < 3; k++) {
        low[k] = floor(at[k]);
        const double t = at[k] - low[k];
        part[k] = t * t * (3 - 2 * t);
    }
    for (int corner = 0; corner < 8; corner++) {
        double weight = 1;
        uint64_t key = (uint64_t)axis;
        for (int k = 0; k < 3; k++) {
            const int up = corner >> k & 1;
            weight *= up ? part[k] : 1 - part[k];
            key = mix(key * 0x9e3779b97f4a7c15u + (uint64_t)(int64_t)(low[k] + up));
        }
        sum += weight * (2 * (double)wf_random_uniform(r, key) - 1);
    }
    return sum;
}

static void bend(struct wf_cloud *c, const struct wf_cloud_rule *rule)
{
    const struct wf_random r = stream(rule, "cloud.elastic");
    for (int64_t i = 0; i < c->n; i++) {
        double at[3];
        for (int k = 0; k < 3; k++)
            at[k] = c->at[3 * i + k] / (rule->voxel * ELASTIC_OVER);
        for (int k = 0; k < 3; k++)
            c->at[3 * i + k] += ELASTIC * rule->voxel * field(r, at, k);
    }
}

static void shake(struct wf_cloud *c, const struct wf_cloud_rule *rule)
{
    const struct wf_random r = stream(rule, "cloud.jitter");
    for (int64_t i = 0; i < 3 * c->n; i++)
        c->at[i] += JITTER * rule->voxel * (double)wf_random_normal(r, (uint64_t)i);
}

/* --- colours --- */

static void tint(struct wf_cloud *c, const struct wf_cloud_rule *rule, struct wf_random r)
{
    static const char *const names[] = { "red", "green", "blue", "intensity" };
    const float gain =
        rule->augment & WF_AUGMENT_CONTRAST ? 0.75f + 0.5f * wf_random_uniform(r, GAIN) : 1;
    const float shift =
        rule->augment & WF_AUGMENT_BRIGHTNESS ? 0.5f * wf_random_uniform(r, SHIFT) - 0.25f : 0;
    for (int k = 0; k < 4; k++) {
        float *const v = column(c, names[k]);
        double sum = 0, squares = 0;
        for (int64_t i = 0; v && i < c->n; i++) {
            sum += (double)v[i];
            squares += (double)v[i] * (double)v[i];
        }
        const double mean = sum / (double)c->n;
        const double std = sqrt(fmax(squares / (double)c->n - mean * mean, 0));
        for (int64_t i = 0; v && i < c->n; i++)
            v[i] = (float)mean + (v[i] - (float)mean) * gain + shift * (float)std;
    }
}

/* --- fewer points --- */

static void drop(struct wf_cloud *c, const struct wf_cloud_rule *rule, struct wf_random draw)
{
    const struct wf_random r = stream(rule, "cloud.drop");
    const float part = DROP_MOST * wf_random_uniform(draw, DROP);
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (wf_random_uniform(r, (uint64_t)i) < part && !(n == 0 && i + 1 == c->n))
            continue;
        memmove(c->at + 3 * n, c->at + 3 * i, 3 * sizeof *c->at);
        for (int k = 0; k < c->n_columns; k++)
            c->columns[k].values[n] = c->columns[k].values[i];
        if (c->labels)
            c->labels[n] = c->labels[i];
        n++;
    }
    c->n = n;
}

void wf_cloud_augment(struct wf_cloud *c, const struct wf_cloud_rule *rule)
{
    const struct wf_random r = stream(rule, "cloud.draw");
    const struct turn t = draw_turn(rule, r);
    if (rule->augment & WF_AUGMENT_DROP)
        drop(c, rule, r);
    turn_points(c, &t);
    turn_normals(c, &t);
    if (rule->augment & WF_AUGMENT_ELASTIC)
        bend(c, rule);
    if (rule->augment & WF_AUGMENT_JITTER)
        shake(c, rule);
    if (rule->augment & (WF_AUGMENT_BRIGHTNESS | WF_AUGMENT_CONTRAST))
        tint(c, rule, r);
}
