#include "report/svg.h"

#include <string.h>

#include "base/utf8.h"

enum { TEXT_BYTES = 400 };

void wf_markup_text(struct wf_buffer *out, const char *text)
{
    char shown[TEXT_BYTES];
    for (const char *at = wf_utf8_shown(text ? text : "", shown, sizeof shown); *at;) {
        const size_t n = strcspn(at, "&<>\"'");
        wf_buffer_add(out, at, n);
        at += n;
        if (*at)
            wf_buffer_printf(out, "&#%d;", *at++);
    }
}
