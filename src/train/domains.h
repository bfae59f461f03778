/*
 * Where the parts of a network of several domains run: the mesh axis `domain` as workers, and who of them has
 * which encoder.
 *
 *     const struct wf_domains d = { .count = 4, .placement = WF_PLACEMENT_DOMAIN };
 *     options.layout = wf_domains_layout(&d);                 borrows d
 *
 * Any number of domains goes on any number of workers up to what there is to distribute: neighbours share a
 * worker where there are more of them.
 */
#pragma once

#include "models/model.h"
#include "plan/layout.h"

enum wf_domain_placement {
    WF_PLACEMENT_AUTO,           /* the cheapest of the others */
    WF_PLACEMENT_DOMAIN,         /* a worker has all of a domain */
    WF_PLACEMENT_ENCODER,        /* shared and private encoder of a domain on different workers */
    WF_PLACEMENT_ROLE,           /* likewise, and decoder and losses of a domain on a third */
    WF_PLACEMENT_DOMAIN_LOSSES,  /* the last worker has the decoders and losses of all domains */
    WF_PLACEMENT_ENCODER_LOSSES, /* the same with encoders apart, as in the first of such systems */
};
extern const char *const wf_domain_placement_names[]; /* ends with NULL */
enum { WF_PLACEMENTS = WF_PLACEMENT_ENCODER_LOSSES + 1 };

struct wf_domains {
    int count; /* of the network; 1: an ordinary one, which has no labels */
    enum wf_domain_placement placement;
};
struct wf_layout_options wf_domains_layout(const struct wf_domains *d);
/* The placements that are to be compared on a mesh: the given one; with `auto` all that have work for its workers,
 * and none that places as another does. If none has, the one that takes most workers, which is then refused. */
int wf_domains_placements(const struct wf_domains *d, const struct wf_mesh *mesh,
                          enum wf_domain_placement list[WF_PLACEMENTS]);
