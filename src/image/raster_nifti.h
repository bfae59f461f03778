/* Inside image/: shared by the reader and the writer of NIfTI. */
#pragma once

#include "image/raster_format.h"

enum { WF_NIFTI_HEADER_1 = 348, WF_NIFTI_HEADER_2 = 540 };

struct wf_nifti_type {
    int code;  /* the header's `datatype` */
    int inner; /* interleaved samples of a pixel: 3 for RGB, 4 for RGBA, otherwise 1 */
    enum wf_sample sample;
};
enum { WF_NIFTI_TYPES = 12 };
extern const struct wf_nifti_type wf_nifti_types[WF_NIFTI_TYPES];
