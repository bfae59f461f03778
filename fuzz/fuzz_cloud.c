/* Any bytes as a point cloud: refused with words, or all its numbers are there. The first byte picks the format. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cloud/cloud.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "x.ply", "x.npz", "x.npy", "x.off", "x.bin", "x.las" };
    enum { NAMES = sizeof names / sizeof *names };
    if (size == 0)
        return 0;
    const char *const name = names[data[0] % NAMES];
    for (int header_only = 0; header_only < 2; header_only++) {
        const struct wf_cloud_options o = { .header_only = header_only, .points = 100 };
        struct wf_err err = { 0 };
        struct wf_cloud c;
        if (!wf_cloud_parse(name, data + 1, size - 1, &o, &c, &err)) {
            WF_BUG_ON(err.code == WF_OK || !strstr(err.text, name), "error without words");
            continue;
        }
        WF_BUG_ON(c.n < 1 || (!header_only && !c.at), "no points");
        double sum = 0;
        for (int64_t i = 0; !header_only && i < c.n; i++) {
            WF_BUG_ON(!isfinite(c.at[3 * i]), "a position that is not finite");
            for (int k = 0; k < c.n_columns; k++)
                sum += (double)c.columns[k].values[i];
            sum += c.has_labels ? c.labels[i] : 0;
        }
        WF_BUG_ON(sum > 1 && header_only, "numbers of a header");
        wf_cloud_release(&c);
    }
    return 0;
}
