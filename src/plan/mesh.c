#include "plan/mesh.h"

#include <stdlib.h>
#include <string.h>

static const char *const axis_names[WF_MESH_AXES] = { "data", "domain", "pipe" };

struct wf_mesh wf_mesh_one(void)
{
    struct wf_mesh mesh;
    for (int a = 0; a < WF_MESH_AXES; a++)
        mesh.at[a] = 1;
    return mesh;
}

static bool parse_extent(const char **at, int *out)
{
    char *end;
    const long value = strtol(*at, &end, 10);
    if (end == *at || value < 1 || value > 1'000'000)
        return false;
    *at = end;
    *out = (int)value;
    return true;
}

/* "2", "2x3" or "2x3x4": the last is W. */
static bool parse_space(const char **at, struct wf_mesh *mesh)
{
    int extents[3], n = 0;
    do {
        if (n == 3 || !parse_extent(at, &extents[n++]))
            return false;
    } while (**at == 'x' && (*at)++);
    for (int i = 0; i < n; i++)
        mesh->at[WF_MESH_W - (n - 1) + i] = extents[i];
    return true;
}

bool wf_mesh_parse(const char *text, struct wf_mesh *mesh, struct wf_err *err)
{
    *mesh = wf_mesh_one();
    const char *at = text;
    while (*at) {
        const size_t length = strcspn(at, "=,");
        int axis = 0;
        while (axis < WF_MESH_D &&
               (strlen(axis_names[axis]) != length || strncmp(at, axis_names[axis], length) != 0))
            axis++;
        const bool space = length == 5 && strncmp(at, "space", 5) == 0;
        if ((axis == WF_MESH_D && !space) || at[length] != '=')
            return wf_err_set(err, WF_ERR_USAGE,
                              "mesh '%s': expected axes data, domain, pipe, space such as "
                              "data=2,space=2x2, got '%.*s'",
                              text, (int)length, at);
        at += length + 1;
        if (!(space ? parse_space(&at, mesh) : parse_extent(&at, &mesh->at[axis])) ||
            (*at && *at != ','))
            return wf_err_set(err, WF_ERR_USAGE, "mesh '%s': '%s' takes %s of at least 1", text,
                              space ? "space" : axis_names[axis],
                              space ? "W, HxW or DxHxW ranks" : "a number");
        at += *at == ',';
    }
    int64_t ranks = 1;
    for (int a = 0; a < WF_MESH_AXES; a++)
        ranks *= mesh->at[a];
    if (ranks > 1'000'000)
        return wf_err_set(err, WF_ERR_USAGE, "mesh '%s': more than a million ranks", text);
    return true;
}

char *wf_mesh_print(struct wf_arena *arena, const struct wf_mesh *mesh)
{
    char *text = wf_arena_copy(arena, "");
    for (int a = 0; a < WF_MESH_D; a++)
        if (mesh->at[a] > 1)
            text = wf_arena_printf(arena, "%s%s%s=%d", text, *text ? "," : "", axis_names[a],
                                   mesh->at[a]);
    const int *s = mesh->at;
    const char *gap = *text ? "," : "";
    if (s[WF_MESH_D] > 1)
        return wf_arena_printf(arena, "%s%sspace=%dx%dx%d", text, gap, s[WF_MESH_D], s[WF_MESH_H],
                               s[WF_MESH_W]);
    if (s[WF_MESH_H] > 1)
        return wf_arena_printf(arena, "%s%sspace=%dx%d", text, gap, s[WF_MESH_H], s[WF_MESH_W]);
    if (s[WF_MESH_W] > 1 || !*text)
        return wf_arena_printf(arena, "%s%sspace=%d", text, gap, s[WF_MESH_W]);
    return text;
}

int wf_mesh_size(const struct wf_mesh *mesh)
{
    int size = 1;
    for (int a = 0; a < WF_MESH_AXES; a++)
        size *= mesh->at[a];
    return size;
}

void wf_mesh_coords(const struct wf_mesh *mesh, int rank, int at[WF_MESH_AXES])
{
    for (int a = WF_MESH_AXES - 1; a >= 0; a--) {
        at[a] = rank % mesh->at[a];
        rank /= mesh->at[a];
    }
}

int wf_mesh_rank(const struct wf_mesh *mesh, const int at[WF_MESH_AXES])
{
    int rank = 0;
    for (int a = 0; a < WF_MESH_AXES; a++)
        rank = rank * mesh->at[a] + at[a];
    return rank;
}

int wf_mesh_axis_of(enum wf_axis axis)
{
    static const int of[WF_AXES] = { WF_MESH_DATA, WF_MESH_D, WF_MESH_H, WF_MESH_W, -1 };
    return of[axis];
}

struct wf_block wf_mesh_block(const struct wf_mesh *mesh)
{
    struct wf_block block = { 0 };
    for (int a = 0; a < WF_MESH_AXES; a++)
        block.hi[a] = mesh->at[a];
    return block;
}

bool wf_block_has(const struct wf_block *block, const int at[WF_MESH_AXES])
{
    for (int a = 0; a < WF_MESH_AXES; a++)
        if (at[a] < block->lo[a] || at[a] >= block->hi[a])
            return false;
    return true;
}

bool wf_block_equal(const struct wf_block *a, const struct wf_block *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

int wf_block_size(const struct wf_block *block)
{
    int size = 1;
    for (int a = 0; a < WF_MESH_AXES; a++)
        size *= wf_block_extent(block, a);
    return size;
}
