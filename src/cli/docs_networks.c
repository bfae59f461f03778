/* docs/networks.md: the form of a network file, and the tables of kinds and attributes. */
#include <string.h>

#include "cli/docs.h"
#include "net/net.h"

static const char head[] =
    "<!-- Made by 'widefield config networks' from the table of kinds; do not edit. -->\n"
    "# Network files\n\n"
    "A network file is a list of layers without sizes, in YAML or JSON. Name it where a network is named:\n\n"
    "```sh\n"
    "widefield model show nets/tiny.yaml            # parameters, tensors, FLOPs\n"
    "widefield train job.yaml model.name=nets/tiny.yaml\n"
    "widefield model show unet --net > mine.yaml    # a built-in network, to copy and change\n"
    "widefield model show mine.yaml --draw mine.svg # a drawing\n"
    "```\n\n"
    "```yaml\n"
    "name: tiny\n"
    "dims: 2\n"
    "in: 3\n"
    "layers:\n"
    "  - { name: enc0.conv0, kind: conv, in: image, out: 16, kernel: 3, pad: 1 }\n"
    "  - { name: enc0.bn0, kind: batch_norm, act: relu }   # `in` left out: the layer before\n"
    "  - { name: pool, kind: max_pool, kernel: 2 }\n"
    "  - { name: enc1.conv0, kind: conv, out: 32, kernel: 3, pad: same }\n"
    "  - { name: enc1.bn0, kind: batch_norm, act: relu }\n"
    "  - { name: up, kind: upsample, like: enc0.bn0, mode: linear }\n"
    "  - { name: cat, kind: concat, in: [enc0.bn0, up] }\n"
    "  - { name: out, kind: conv, kernel: 1, bias: true }   # `out` of a head left out: model.classes\n"
    "heads: [out]\n"
    "```\n\n"
    "A model name with a `/`, or that ends in `.yaml`, `.yml` or `.json`, is a file. A relative path is looked up\n"
    "in the current folder, then in the folder of the config file. A run folder has a copy, `network.yaml`, and a\n"
    "checkpoint holds the network's text: what reads a checkpoint does not need the file. A run cannot be resumed\n"
    "with another network.\n\n"
    "## Keys of the file\n\n"
    "| key | default | what |\n|---|---|---|\n"
    "| `name` | the file's | shown in reports |\n"
    "| `dims` | 2 | spatial dimensions: 1, 2 or 3; `model.dims`, where given, must be the same |\n"
    "| `in` | `model.in`, or as the data has | channels of the image; likewise |\n"
    "| `classes` | | the default of `model.classes` |\n"
    "| `size` | | extents of an image that it takes: for a network that takes none of the squares that are tried, "
    "64, 224, 256, 512 and 1024 |\n"
    "| `layers` | | the layers in the order in which they run: a layer reads earlier ones only |\n"
    "| `heads` | the last layer | results that are used: names, or `{ layer: aux, weight: 0.4 }` |\n\n"
    "The first head is the prediction. Further heads count in the loss of a training step only, each with its\n"
    "weight (1 where none is given; the weight of the first one counts too). Their target has the extents of the\n"
    "prediction: a head with other extents is compared with the nearest labels at its own resolution, as nnU-Net's\n"
    "deep supervision does.\n\n"
    "Whether there is one prediction per pixel or one per image follows from the network: its result is a vector\n"
    "behind `global_pool`, `flatten` or `linear`.\n\n"
    "## Keys of a layer\n\n"
    "| key | default | what |\n|---|---|---|\n"
    "| `name` | | unique; the path of its weights: layer `enc0.conv0` has `enc0.conv0.weight` |\n"
    "| `kind` | | see below |\n"
    "| `in` | the layer before | the layer that it reads, or a list; `image` is the network's input |\n"
    "| `like` | | of kinds that have it: the layer whose extents the result takes |\n"
    "| `weights` | its own | an earlier layer of the same kind whose weights it shares |\n"
    "| `frozen` | false | its weights are not trained; a batch norm then uses its running statistics |\n\n"
    "Names have letters, digits and `_ . - /`. Weights are in PyTorch's layout, so a state dict whose names are the\n"
    "same loads by `model.weights`.\n\n"
    "## Kinds\n\n"
    "Attributes in bold must be given.\n\n"
    "| kind | inputs | attributes | what |\n|---|---|---|---|\n";

static void print_kind(FILE *out, const struct wf_layer_kind *k)
{
    (void)fprintf(out, "| `%s` | ", k->name);
    const int n = k->n_in ? k->n_in : 1;
    (void)fprintf(out, n < 0 ? "%d or more | " : "%d | ", n < 0 ? -n : n);
    const char *gap = "";
    for (const struct wf_layer_attr *a = wf_layer_attr_table; a->name; a++)
        if (wf_layer_word_in(k->takes, a->name)) {
            const bool must = wf_layer_word_in(k->needs, a->name);
            (void)fprintf(out, must ? "%s**`%s`**" : "%s`%s`", gap, a->name);
            gap = ", ";
        }
    if (k->takes_like)
        (void)fprintf(out, "%s`like`", gap);
    (void)fprintf(out, " | %s |\n", k->what);
}

static void print_attribute(FILE *out, const struct wf_layer_attr *a)
{
    static const char *const values[] = {
        [WF_ATTR_INT] = "a whole number",
        [WF_ATTR_INTS] = "a whole number, or a list with one for each axis",
        [WF_ATTR_REAL] = "a number",
        [WF_ATTR_REALS] = "a number, or a list with one for each axis",
        [WF_ATTR_BOOL] = "`true` or `false`",
        [WF_ATTR_OUT] = "a whole number, or `classes`",
        [WF_ATTR_PAD] = "a whole number, a list, a list of `[before, behind]`, or `same`",
    };
    (void)fprintf(out, "| `%s` | %s | ", a->name, a->what);
    if (a->type != WF_ATTR_NAME)
        (void)fputs(values[a->type], out);
    for (int i = 0; a->type == WF_ATTR_NAME && a->names[i]; i++)
        (void)fprintf(out, "%s`%s`", i ? ", " : "", a->names[i]);
    (void)fputs(" |\n", out);
}

void wf_docs_networks(struct wf_arena *, FILE *out)
{
    (void)fputs(head, out);
    for (const struct wf_layer_kind *const *k = wf_layer_kinds; *k; k++)
        print_kind(out, *k);
    (void)fputs("\n## Attributes\n\nAxes are in the order depth, height, width.\n\n"
                "| attribute | what | value |\n|---|---|---|\n",
                out);
    for (const struct wf_layer_attr *a = wf_layer_attr_table; a->name; a++)
        print_attribute(out, a);
}
