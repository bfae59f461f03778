#include "report/svg.h"

#include <stdarg.h>
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

void wf_svg_printf(struct wf_svg *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    wf_buffer_vprintf(&s->out, format, args);
    va_end(args);
}

void wf_svg_text(struct wf_svg *s, double x, double y, const char *classes, const char *text)
{
    wf_svg_printf(s, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, classes);
    wf_markup_text(&s->out, text);
    wf_svg_printf(s, "</text>\n");
}

void wf_svg_rect(struct wf_svg *s, struct wf_box box, const char *paint, const char *title)
{
    wf_svg_printf(s, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" %s>", box.x, box.y,
                  box.width, box.height, paint);
    if (title) {
        wf_svg_printf(s, "<title>");
        wf_markup_text(&s->out, title);
        wf_svg_printf(s, "</title>");
    }
    wf_svg_printf(s, "</rect>\n");
}

char *wf_svg_finish(struct wf_svg *s, struct wf_arena *arena, double width, double height)
{
    char *const text = wf_arena_printf(
        arena,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
        "height=\"%.0f\">\n<style>text{font:12px sans-serif;fill:#222}"
        ".head{font-size:17px;font-weight:bold}.bold{font-weight:bold}.dim{fill:#666}"
        ".mid{text-anchor:middle}.end{text-anchor:end}.light{fill:#fff}.dark{fill:#222}"
        ".grid{stroke:#ddd}</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
        "%s</svg>\n",
        width, height, width, height, s->out.data);
    wf_buffer_release(&s->out);
    wf_arena_release(&s->arena);
    return text;
}
