/* What the pictures of this folder, which are SVG files that stand alone, have in common. */
#ifndef WF_REPORT_SVG_H
#define WF_REPORT_SVG_H

#include "base/arena.h"
#include "base/buffer.h"

/* Text from outside on its way into HTML or SVG, inside an element or a quoted attribute alike: markup is
 * escaped, what shows nothing is made visible, and length is bounded. */
void wf_markup_text(struct wf_buffer *out, const char *text);

#endif
