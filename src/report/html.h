/*
 * The sections of a report (html*.c), each of which writes itself, or nothing where the log has
 * nothing for it. All of them keep to bounds, so that a report of any run stays under
 * WF_REPORT_BYTES_MAX.
 */
#ifndef WF_REPORT_HTML_H
#define WF_REPORT_HTML_H

#include "report/page.h"
#include "report/runlog.h"

enum { WF_REPORT_BYTES_MAX = 5'000'000 };

struct wf_html {
    struct wf_page page;
    struct wf_runlog log;
    const char *folder; /* of the run */
    const char *name;   /* of the run: the folder's last part */
};

/* All of it, from <!doctype> on. */
void wf_html_write(struct wf_html *h);

void wf_html_curves(struct wf_html *h);
void wf_html_classes(struct wf_html *h);
void wf_html_samples(struct wf_html *h);
void wf_html_memory(struct wf_html *h);
void wf_html_time(struct wf_html *h);
void wf_html_staleness(struct wf_html *h); /* within the section on time */
void wf_html_timeline(struct wf_html *h);  /* within the section on time */

/* The bytes of a file of the run folder; false when it is not there, empty, longer than `most`, or
 * named so that it might lie outside of the folder. */
bool wf_html_read(struct wf_html *h, const char *name, size_t most, struct wf_buffer *out);

#endif
