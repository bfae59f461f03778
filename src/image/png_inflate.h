/*
 * The pixels of a PNG inflated at once by libdeflate, which takes less than half of the time that zlib needs for them
 * row by row. All else stays libpng's: it reads a stream whose beginning is the file's, and whose pixels are in one
 * chunk of blocks that are not compressed.
 *
 *     struct wf_png_inflated in = { 0 };
 *     wf_png_inflate(&in, file, raw);       false: damaged, or not so; libpng reads the file and says why
 *     ... bytes from `from` on are in.data
 *     free(in.data);
 *
 * Built only with libdeflate (WF_HAVE_DEFLATE).
 */
#pragma once

#include "base/file.h"

/* Of a file that is inflated at once, with all threads that read at the same time in mind: bytes of its rows. */
enum { WF_PNG_INFLATED_MAX = 16 << 20 };

struct wf_png_inflated {
    uint64_t from; /* where the file's pixels begin */
    unsigned char *data;
    size_t bytes;
};

/* `raw`: bytes of all rows with the filter of each. Checksums of chunks and pixels are verified. */
[[nodiscard]] bool wf_png_inflate(struct wf_png_inflated *in, const struct wf_infile *file,
                                  uint64_t raw);
