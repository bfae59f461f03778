/* Inside cloud/: what a format supplies, and what formats share. */
#pragma once

#include "cloud/cloud.h"

struct wf_cloud_format {
    const char *ending;
    bool is_mesh;
    /* Fills n, columns and has_labels, and unless it is header_only the numbers. */
    bool (*read)(const struct wf_infile *file, const struct wf_cloud_options *o, struct wf_cloud *c,
                 struct wf_err *err);
};
extern const struct wf_cloud_format wf_cloud_format_ply, wf_cloud_format_npz, wf_cloud_format_npy,
    wf_cloud_format_off, wf_cloud_format_bin, wf_cloud_format_las, wf_cloud_format_laz;

/* The name that a column of a file has here ("label" for labels). */
void wf_cloud_name(char to[WF_CLOUD_NAME], const char *name);
/* A new column of that name; -1: there are too many, and it is left out. */
int wf_cloud_add(struct wf_cloud *c, const char *name);
/* Memory for c->n points in all columns, and for labels where it has them. Fails without it. */
[[nodiscard]] bool wf_cloud_take(struct wf_cloud *c, const char *path, struct wf_err *err);
/* A number of the file as a label: whole, and in the range of i32. */
[[nodiscard]] bool wf_cloud_label(const char *path, int64_t point, double value, int32_t *label,
                                  struct wf_err *err);

/* --- text and bytes from the front to the end --- */
struct wf_cloud_stream {
    const struct wf_infile *file;
    uint64_t at; /* of the next byte of the file that is not in the buffer */
    size_t from, end;
    char buffer[1 << 16];
};
/* So many bytes at once, which are valid until the next call; NULL: the file ends before. */
const char *wf_cloud_bytes(struct wf_cloud_stream *s, size_t bytes, struct wf_err *err);
/* The next line without its end, in `line`; false where there is none or it does not fit. */
bool wf_cloud_line(struct wf_cloud_stream *s, char *line, size_t room, struct wf_err *err);
/* The next word, ended by blanks; '#' begins a comment where `comments`. */
bool wf_cloud_word(struct wf_cloud_stream *s, char *word, size_t room, bool comments,
                   struct wf_err *err);
/* The next word as a number. */
[[nodiscard]] bool wf_cloud_number(struct wf_cloud_stream *s, bool comments, double *number,
                                   struct wf_err *err);
