/*
 * Random access to a .gz file, without decompressing it from the start each time.
 *
 * While it decompresses, it records an access point every megabyte or so: the offset of a deflate
 * block, and the 32 KiB before it that the block may refer to. Seeking back starts at the nearest
 * access point, not at the start. The first pass from the start verifies the file's checksum.
 *
 * Borrows the infile. Built only with zlib (WF_HAVE_ZLIB).
 */
#pragma once

#include "base/file.h"

struct wf_gunzip;

[[nodiscard]] struct wf_gunzip *wf_gunzip_new(const struct wf_infile *file);
/* The expected number of bytes: sets the distance of access points, and when the checksum is
 * verified. */
void wf_gunzip_expect(struct wf_gunzip *g, uint64_t bytes);
[[nodiscard]] bool wf_gunzip_read(struct wf_gunzip *g, uint64_t offset, void *dst, size_t bytes,
                                  struct wf_err *err);
void wf_gunzip_free(struct wf_gunzip *g);
