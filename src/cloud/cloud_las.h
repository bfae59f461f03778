/* LAS and its packed form LAZ: what both readers know of a file. */
#pragma once

#include "cloud/cloud_inside.h"

struct wf_las {
    int format;     /* of points: 0 to 10 */
    bool is_packed; /* LAZ */
    bool has_color;
    uint32_t start, bytes; /* of the first record; of each */
    double scale[3], offset[3];
};

/* The numbers of all points of a packed file, through the library LASzip, which is looked for when the first such file
 * is met. `c` has memory for them. */
[[nodiscard]] bool wf_laz_read(const struct wf_infile *file, const struct wf_las *l,
                               struct wf_cloud *c, struct wf_err *err);
/* Fails where the library is not found. */
[[nodiscard]] bool wf_laz_is_here(const char *name, struct wf_err *err);
