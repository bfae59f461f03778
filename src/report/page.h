/*
 * An HTML page in the making, and the one gate that foreign text passes on its way into it.
 *
 * wf_page_raw() and wf_page_printf() take our own markup. Whatever comes out of a log, a config or a
 * file name goes through wf_page_text(), inside an element or inside a quoted attribute alike:
 * markup is escaped, control characters and broken UTF-8 are replaced, and length is bounded.
 */
#ifndef WF_REPORT_PAGE_H
#define WF_REPORT_PAGE_H

#include "base/arena.h"
#include "base/buffer.h"

struct wf_page {
    struct wf_arena arena; /* texts on their way */
    struct wf_buffer out;
};

enum { WF_PAGE_TEXT_MAX = 400 }; /* bytes that wf_page_text() lets through */

void wf_page_raw(struct wf_page *p, const char *html);
void wf_page_printf(struct wf_page *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void wf_page_text(struct wf_page *p, const char *text); /* NULL is nothing */
void wf_page_text_n(struct wf_page *p, const char *text, size_t bytes);
void wf_page_release(struct wf_page *p);

/* "0.853", "12", "1.2e-05", "-" for what is no number. */
const char *wf_page_number(struct wf_page *p, double value);

#endif
