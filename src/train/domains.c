#include "train/domains.h"

const char *const wf_domain_placement_names[] = { "auto", "domain",        "encoder",
                                                  "role", "domain_losses", "encoder_losses",
                                                  NULL };

struct workers {
    int encoders; /* workers that share the encoders */
    int each;     /* units of a domain, which go to them in turn */
    int units;    /* of all domains */
    bool apart;   /* a worker more, for decoders and losses */
};

static struct workers workers_of(const struct wf_domains *d, const struct wf_mesh *mesh)
{
    const enum wf_domain_placement p = d->placement;
    const int workers = mesh->at[WF_MESH_DOMAIN];
    struct workers w = {
        .each = p == WF_PLACEMENT_ROLE                                          ? 3
                : p == WF_PLACEMENT_ENCODER || p == WF_PLACEMENT_ENCODER_LOSSES ? 2
                                                                                : 1,
        .apart =
            workers > 1 && (p == WF_PLACEMENT_DOMAIN_LOSSES || p == WF_PLACEMENT_ENCODER_LOSSES),
    };
    w.encoders = workers - w.apart;
    w.units = w.each * d->count;
    return w;
}

static int worker_of(const struct workers *w, int domain, enum wf_domain_role role)
{
    if (role == WF_ROLE_LOSSES && w->apart)
        return w->encoders;
    const int part = (int)role < w->each ? (int)role : 0; /* losses go with the shared encoder */
    return (w->each * domain + part) * w->encoders / w->units;
}

static bool place(const void *user, const struct wf_mesh *mesh, struct wf_block blocks[],
                  struct wf_err *err)
{
    const struct wf_domains *const d = user;
    const struct workers w = workers_of(d, mesh);
    if (w.encoders > w.units)
        return wf_err_set(
            err, WF_ERR_FIT,
            "mesh: %d workers along domain, but with domain.placement=%s there is work "
            "for %d (%d domains): use domain=%d, or give space or data the others",
            mesh->at[WF_MESH_DOMAIN], wf_domain_placement_names[d->placement], w.units + w.apart,
            d->count, w.units + w.apart);
    for (int k = 0; k < d->count; k++)
        for (int role = 0; role < WF_DOMAIN_ROLES; role++) {
            const int worker = worker_of(&w, k, (enum wf_domain_role)role);
            struct wf_block *const b = &blocks[wf_domain_label(k, (enum wf_domain_role)role) - 1];
            *b = wf_mesh_block(mesh);
            b->lo[WF_MESH_DOMAIN] = worker;
            b->hi[WF_MESH_DOMAIN] = worker + 1;
        }
    return true;
}

static bool same(const struct wf_domains *d, const struct workers *a, const struct workers *b)
{
    for (int k = 0; k < d->count; k++)
        for (int role = 0; role < WF_DOMAIN_ROLES; role++)
            if (worker_of(a, k, (enum wf_domain_role)role) !=
                worker_of(b, k, (enum wf_domain_role)role))
                return false;
    return true;
}

int wf_domains_placements(const struct wf_domains *d, const struct wf_mesh *mesh,
                          enum wf_domain_placement list[WF_PLACEMENTS])
{
    struct workers found[WF_PLACEMENTS];
    int n = 0;
    for (int p = WF_PLACEMENT_DOMAIN; p < WF_PLACEMENTS; p++) {
        const struct wf_domains one = { d->count, (enum wf_domain_placement)p };
        found[n] = workers_of(&one, mesh);
        bool is_new = found[n].encoders <= found[n].units;
        for (int i = 0; is_new && i < n; i++)
            is_new = !same(d, &found[i], &found[n]);
        if (is_new)
            list[n++] = one.placement;
    }
    if (d->placement == WF_PLACEMENT_AUTO && n > 0)
        return n;
    list[0] = d->placement == WF_PLACEMENT_AUTO ? WF_PLACEMENT_ROLE : d->placement;
    return 1;
}

struct wf_layout_options wf_domains_layout(const struct wf_domains *d)
{
    struct wf_layout_options none = { 0 };
    if (d->count == 1)
        return none;
    return (struct wf_layout_options){ .n_domains = d->count * WF_DOMAIN_ROLES,
                                       .place = place,
                                       .user = d };
}
