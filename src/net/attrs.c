/* The attributes that layers of a network file may have, in the order in which they are printed. */
#include <string.h>

#include "net/net.h"
#include "ops/activation.h"
#include "ops/build.h"

#define AT(member) .offset = offsetof(struct wf_layer_attrs, member)
#define COUNT_MAX 1e9

static const char *const axes[] = { "channels", "depth", "height", "width", NULL };
static const char *const overs[] = { "batch", "tile", "rank", NULL };
static const char *const aligns[] = { "centre", "start", "cut_end", NULL };

const struct wf_layer_attr wf_layer_attr_table[] = {
    { "out", "channels of the result; `classes`: as many as the job has classes", WF_ATTR_OUT,
      AT(out), .least = 1, .most = COUNT_MAX },
    { "kernel", "extents of the window", WF_ATTR_INTS, AT(kernel), .least = 1, .most = 1e6 },
    { "stride", "steps of the window; default 1, of poolings the kernel", WF_ATTR_INTS, AT(stride),
      .least = 1, .most = 1e6 },
    { "dilation", "distances between the window's elements; default 1", WF_ATTR_INTS, AT(dilation),
      .least = 1, .most = 1e6 },
    { "pad",
      "positions added around the image, or cut off behind a transposed convolution; `same` keeps "
      "the extent at stride 1",
      WF_ATTR_PAD, AT(pad_lo), .least = -1e6, .most = 1e6 },
    { "pad_mode", "what is there; default zero", WF_ATTR_NAME, AT(pad_mode), wf_pad_mode_names },
    { "output_pad", "of a transposed convolution: positions added at the end", WF_ATTR_INTS,
      AT(output_pad), .least = 0, .most = 1e6 },
    { "groups", "groups of channels; default 1", WF_ATTR_INT, AT(groups), .least = 1,
      .most = COUNT_MAX },
    { "bias", "adds a bias; default false", WF_ATTR_BOOL, AT(bias) },
    { "ceil", "a last window that only begins inside counts; default false", WF_ATTR_BOOL,
      AT(ceil) },
    { "count_pad", "zeros of the padding count in the mean; default false", WF_ATTR_BOOL,
      AT(count_pad) },
    { "tiles", "subdomains along each axis", WF_ATTR_INTS, AT(tiles), .least = 1, .most = 65536 },
    { "over",
      "what the statistics are over in training: all of the batch, each subdomain (`tiles`), or "
      "each rank's part; default batch",
      WF_ATTR_NAME, AT(over), overs },
    { "align",
      "half is added or cut off at either side, all of it at the end (`start`), or zeros at either side and cuts at the end (`cut_end`); default centre",
      WF_ATTR_NAME, AT(align), aligns },
    { "mode", "how values between elements are found; default nearest", WF_ATTR_NAME, AT(mode),
      wf_upsample_mode_names },
    { "size", "extents of the result", WF_ATTR_INTS, AT(size), .least = 1, .most = COUNT_MAX },
    { "scale", "extents of the result by those of the input, rounded down", WF_ATTR_REALS,
      AT(scale), .least = 1e-6, .most = 1e6 },
    { "axis", "the axis; default channels", WF_ATTR_NAME, AT(axis), axes },
    { "from", "first position; negative: from the end; default 0", WF_ATTR_INT, AT(from),
      .least = -COUNT_MAX, .most = COUNT_MAX },
    { "to", "position behind the last; negative: from the end; default: the end", WF_ATTR_INT,
      AT(to), .least = -COUNT_MAX, .most = COUNT_MAX },
    { "eps", "added to the variance; default 1e-5", WF_ATTR_REAL, AT(eps), .least = 1e-300,
      .most = 1e6 },
    { "momentum", "share of a new step in the running statistics; default 0.1", WF_ATTR_REAL,
      AT(momentum), .least = 1e-300, .most = 1 },
    { "plain", "without weight and bias; default false", WF_ATTR_BOOL, AT(plain) },
    { "act", "activation behind it; default none", WF_ATTR_NAME, AT(act), wf_act_names },
    { "slope", "of leaky_relu below 0, default 0.01; of elu and softplus, default 1", WF_ATTR_REAL,
      AT(slope), .least = 1e-300, .most = 1e6 },
    { "p", "probability that an element is zeroed in training", WF_ATTR_REAL, AT(p), .least = 0,
      .most = 0.999999 },
    { "factor",
      "the number that it is multiplied by; of a pixel shuffle: positions along each axis",
      WF_ATTR_REAL, AT(factor), .least = -1e30, .most = 1e30 },
    { "offset", "the number that is added", WF_ATTR_REAL, AT(offset), .least = -1e30,
      .most = 1e30 },
    { "lo", "the least value", WF_ATTR_REAL, AT(lo), .least = -1e30, .most = 1e30 },
    { "hi", "the largest value", WF_ATTR_REAL, AT(hi), .least = -1e30, .most = 1e30 },
    { "form", "which of the two matrices is transposed: the second, none, the first; default nt",
      WF_ATTR_NAME, AT(form), wf_matmul_form_names },
    { "shared", "one weight for all channels; default false", WF_ATTR_BOOL, AT(shared) },
    { .name = NULL },
};

const struct wf_layer_attr *wf_layer_attr(const char *name)
{
    for (const struct wf_layer_attr *a = wf_layer_attr_table; a->name; a++)
        if (strcmp(a->name, name) == 0)
            return a;
    return NULL;
}

bool wf_layer_word_in(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; at && *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (length == n && strncmp(at, word, n) == 0)
            return true;
        at += length;
    }
    return false;
}
