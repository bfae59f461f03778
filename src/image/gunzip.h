/*
 * Reading a .gz file at any place, without unpacking it from the start each time.
 *
 * While it unpacks, places to enter are noted every megabyte or so: where in the file a deflate block
 * begins, and the 32 KiB before it that the block may refer to. Going back costs from the nearest
 * place, not from the start. The first pass from the start checks the file's checksum.
 *
 * Borrows the infile. Built only where zlib is there (WF_HAVE_ZLIB).
 */
#ifndef WF_IMAGE_GUNZIP_H
#define WF_IMAGE_GUNZIP_H

#include "base/file.h"

struct wf_gunzip;

[[nodiscard]] struct wf_gunzip *wf_gunzip_new(const struct wf_infile *file);
/* How many bytes there should be: sets how far apart places are noted, and when the sum is checked. */
void wf_gunzip_expect(struct wf_gunzip *g, uint64_t bytes);
[[nodiscard]] bool wf_gunzip_read(struct wf_gunzip *g, uint64_t offset, void *dst, size_t bytes,
                                  struct wf_err *err);
void wf_gunzip_free(struct wf_gunzip *g);

#endif
