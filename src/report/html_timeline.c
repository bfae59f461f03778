/* One step of every rank, as the run drew it when it ended. */
#include <string.h>

#include "report/html.h"

enum { PICTURE_BYTES = 900'000 };

/* A picture from a file stays a picture: as an image, nothing that it holds can run. */
void wf_html_timeline(struct wf_html *h)
{
    static const char lead[] = "<svg ";
    struct wf_page *const p = &h->page;
    struct wf_buffer file = { 0 };
    if (wf_html_read(h, "timeline.svg", PICTURE_BYTES, &file) && file.size > sizeof lead &&
        memcmp(file.data, lead, sizeof lead - 1) == 0) {
        wf_page_raw(p,
                    "<div class=\"card\"><h3>The last step of every rank</h3>"
                    "<img style=\"width:100%;background:#fff\" alt=\"what each rank computed, what "
                    "was on its way meanwhile, and when it waited\" "
                    "src=\"data:image/svg+xml;base64,");
        wf_buffer_base64(&p->out, file.data, file.size);
        wf_page_raw(p, "\"></div>\n");
    }
    wf_buffer_release(&file);
}
