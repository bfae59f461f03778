#include "report/page.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void wf_page_raw(struct wf_page *p, const char *html)
{
    wf_buffer_text(&p->out, html);
}

void wf_page_printf(struct wf_page *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    wf_buffer_vprintf(&p->out, format, args);
    va_end(args);
}

static const char *escaped(unsigned char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        /* What HTML does not allow at all; tab and line ends are fine. */
        return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F ? "\xEF\xBF\xBD"
                                                                              : NULL;
    }
}

void wf_page_text_n(struct wf_page *p, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        const size_t n = wf_utf8_character(text + i, bytes - i);
        const char *const instead = n == 0   ? "\xEF\xBF\xBD"
                                    : n == 1 ? escaped((unsigned char)text[i])
                                    : wf_utf8_is_control(wf_utf8_code(text + i, n)) ? "\xEF\xBF\xBD"
                                                                                    : NULL;
        if (instead)
            wf_buffer_text(&p->out, instead);
        else
            wf_buffer_add(&p->out, text + i, n);
        i += n ? n : 1;
    }
}

void wf_page_text(struct wf_page *p, const char *text)
{
    if (!text)
        return;
    size_t bytes = strlen(text);
    const bool cut = bytes > WF_PAGE_TEXT_MAX;
    if (cut) /* not within a character */
        for (bytes = WF_PAGE_TEXT_MAX; bytes > 0 && ((unsigned char)text[bytes] & 0xC0) == 0x80;)
            bytes--;
    wf_page_text_n(p, text, bytes);
    if (cut)
        wf_page_raw(p, "…");
}

void wf_page_release(struct wf_page *p)
{
    wf_buffer_release(&p->out);
    wf_arena_release(&p->arena);
}

const char *wf_page_number(struct wf_page *p, double value)
{
    if (isnan(value))
        return "–";
    return wf_arena_printf(&p->arena, fabs(value) >= 1e4 && fabs(value) < 1e15 ? "%.0f" : "%.4g",
                           value);
}
