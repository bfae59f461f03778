/* Inside image/: the EXIF orientation of a picture. */
#pragma once

#include <stddef.h>

/* The orientation, 1 to 8, of an EXIF block: a TIFF header and its first directory, as in PNG's
 * eXIf chunk and behind "Exif\0\0" in JPEG's APP1. 1 if the block has none. Reads at most `size`
 * bytes. */
int wf_exif_orientation(const unsigned char *block, size_t size);
