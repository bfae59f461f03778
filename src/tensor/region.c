#include "tensor/region.h"

#include <string.h>

#include "base/err.h"

int64_t wf_shape_count(struct wf_shape shape)
{
    int64_t count = 1;
    for (int a = 0; a < WF_AXES; a++)
        count *= shape.at[a];
    return count;
}

bool wf_shape_equal(struct wf_shape a, struct wf_shape b)
{
    return memcmp(a.at, b.at, sizeof a.at) == 0;
}

struct wf_region wf_shape_region(struct wf_shape shape)
{
    struct wf_region r = { 0 };
    for (int a = 0; a < WF_AXES; a++)
        r.hi[a] = shape.at[a];
    return r;
}

bool wf_shape_is_valid(struct wf_shape shape)
{
    const int64_t most = INT64_C(1) << 53;
    int64_t count = 1;
    for (int a = 0; a < WF_AXES; a++)
        if (shape.at[a] < 1 || __builtin_mul_overflow(count, shape.at[a], &count) || count > most)
            return false;
    return true;
}

bool wf_region_is_empty(struct wf_region r)
{
    for (int a = 0; a < WF_AXES; a++)
        if (r.hi[a] <= r.lo[a])
            return true;
    return false;
}

int64_t wf_region_count(struct wf_region r)
{
    return wf_region_is_empty(r) ? 0 : wf_shape_count(wf_region_shape(r));
}

struct wf_shape wf_region_shape(struct wf_region r)
{
    struct wf_shape shape;
    for (int a = 0; a < WF_AXES; a++)
        shape.at[a] = wf_max(0, r.hi[a] - r.lo[a]);
    return shape;
}

bool wf_region_equal(struct wf_region a, struct wf_region b)
{
    if (wf_region_is_empty(a) || wf_region_is_empty(b))
        return wf_region_is_empty(a) && wf_region_is_empty(b);
    return memcmp(&a, &b, sizeof a) == 0;
}

bool wf_region_contains(struct wf_region outer, struct wf_region inner)
{
    if (wf_region_is_empty(inner))
        return true;
    for (int a = 0; a < WF_AXES; a++)
        if (inner.lo[a] < outer.lo[a] || inner.hi[a] > outer.hi[a])
            return false;
    return true;
}

struct wf_region wf_region_intersect(struct wf_region a, struct wf_region b)
{
    struct wf_region r;
    for (int i = 0; i < WF_AXES; i++) {
        r.lo[i] = wf_max(a.lo[i], b.lo[i]);
        r.hi[i] = wf_max(r.lo[i], wf_min(a.hi[i], b.hi[i]));
    }
    return r;
}

struct wf_region wf_region_bound(struct wf_region a, struct wf_region b)
{
    if (wf_region_is_empty(a))
        return b;
    if (wf_region_is_empty(b))
        return a;
    for (int i = 0; i < WF_AXES; i++) {
        a.lo[i] = wf_min(a.lo[i], b.lo[i]);
        a.hi[i] = wf_max(a.hi[i], b.hi[i]);
    }
    return a;
}

struct wf_region wf_region_shift(struct wf_region r, const int64_t by[WF_AXES])
{
    for (int a = 0; a < WF_AXES; a++) {
        r.lo[a] += by[a];
        r.hi[a] += by[a];
    }
    return r;
}

/* Peels one slab per side and axis off `a` until only the intersection is left. */
int wf_region_subtract(struct wf_region a, struct wf_region b,
                       struct wf_region out[WF_SUBTRACT_MAX])
{
    if (wf_region_is_empty(a))
        return 0;
    b = wf_region_intersect(a, b);
    if (wf_region_is_empty(b)) {
        out[0] = a;
        return 1;
    }
    int count = 0;
    for (int i = 0; i < WF_AXES; i++) {
        if (a.lo[i] < b.lo[i]) {
            out[count] = a;
            out[count++].hi[i] = b.lo[i];
        }
        if (b.hi[i] < a.hi[i]) {
            out[count] = a;
            out[count++].lo[i] = b.hi[i];
        }
        a.lo[i] = b.lo[i];
        a.hi[i] = b.hi[i];
    }
    return count;
}

int64_t wf_split_point(int64_t extent, int64_t parts, int64_t index)
{
    WF_BUG_ON(parts < 1 || index < 0 || index > parts, "part %lld of %lld", (long long)index,
              (long long)parts);
    /* extent * index / parts without overflow for extents up to 2^63 / parts. */
    return extent / parts * index + extent % parts * index / parts;
}
