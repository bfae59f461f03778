/* Images, labels and predictions, the worst first: where to look before training again. */
#include <math.h>
#include <string.h>

#include "report/html.h"

/* Bytes of PNG files; base64 makes a third more of them. */
enum { IMAGE_BYTES = 1'000'000, ALL_BYTES = 2'600'000, SAMPLES_MAX = 24 };

static bool is_png(const struct wf_buffer *file)
{
    static const unsigned char lead[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n' };
    return file->size > sizeof lead && memcmp(file->data, lead, sizeof lead) == 0;
}

struct triple {
    struct wf_buffer files[3];
};
static const char *const captions[3] = { "image", "label", "prediction" };

/* Bytes of the files that can be shown. */
static size_t read_triple(struct wf_html *h, const struct wf_log_sample *s, struct triple *t)
{
    const char *const names[3] = { s->image, s->label, s->prediction };
    size_t bytes = 0;
    for (int k = 0; k < 3; k++) {
        t->files[k].size = 0;
        if (!wf_html_read(h, names[k], IMAGE_BYTES, &t->files[k]) || !is_png(&t->files[k]))
            t->files[k].size = 0;
        bytes += t->files[k].size;
    }
    return bytes;
}

static void write_picture(struct wf_page *p, const char *caption, const char *name,
                          const struct wf_buffer *file)
{
    if (!file->size) {
        wf_page_raw(p, "<div class=\"none\">not there</div>");
        return;
    }
    wf_page_printf(p, "<img alt=\"%s of ", caption);
    wf_page_text(p, name);
    wf_page_raw(p, "\" src=\"data:image/png;base64,");
    wf_buffer_base64(&p->out, file->data, file->size);
    wf_page_raw(p, "\">");
}

/* A classifier's: the image, what it is and what it was taken for. */
static void write_verdict(struct wf_page *p, const struct wf_log_sample *s, const struct triple *t)
{
    wf_page_raw(p, "<figure class=\"card verdict\">");
    write_picture(p, captions[0], s->name, &t->files[0]);
    wf_page_raw(p, "<figcaption><b>");
    wf_page_text(p, s->truth);
    wf_page_raw(p, "</b>, taken for <b>");
    wf_page_text(p, s->guess ? s->guess : "another");
    wf_page_raw(p, "</b><small>");
    wf_page_text(p, s->name);
    wf_page_raw(p, "</small></figcaption></figure>\n");
}

static void write_triple(struct wf_page *p, const struct wf_log_sample *s, const struct triple *t)
{
    wf_page_raw(p, "<div class=\"card sample\"><h3><span>");
    wf_page_text(p, s->name ? s->name : "without a name");
    wf_page_raw(p, "</span>");
    if (isfinite(s->mean_iou))
        wf_page_printf(p, "<b>IoU %.3f</b>", s->mean_iou);
    wf_page_raw(p, "</h3><div class=\"triple\">");
    for (int k = 0; k < 3; k++) {
        wf_page_raw(p, "<figure>");
        write_picture(p, captions[k], s->name, &t->files[k]);
        wf_page_printf(p, "<figcaption>%s</figcaption></figure>", captions[k]);
    }
    wf_page_raw(p, "</div></div>\n");
}

void wf_html_samples(struct wf_html *h)
{
    struct wf_page *const p = &h->page;
    struct triple t = { 0 };
    size_t bytes = 0, shown = 0;
    wf_page_raw(p, "<section id=\"samples\"><h2>Samples</h2>\n");
    const int64_t epoch = h->log.n_samples ? h->log.samples[0].epoch : 0;
    if (h->log.n_samples)
        wf_page_raw(p, "<p>Validation images, the worst first");
    if (epoch > 0)
        wf_page_printf(p, ", after epoch %lld, the last", (long long)epoch);
    if (h->log.n_samples)
        wf_page_printf(p, ".</p><div class=\"%s\">\n",
                       h->log.samples[0].truth ? "verdicts" : "samples");
    else
        wf_page_raw(p, h->log.end ? "<p>This run kept none.</p>\n"
                                  : "<p>None yet: they are chosen when a run ends.</p>\n");
    for (size_t i = 0; i < h->log.n_samples && shown < SAMPLES_MAX; i++) {
        const size_t more = read_triple(h, &h->log.samples[i], &t);
        if (bytes + more > ALL_BYTES)
            break;
        if (h->log.samples[i].truth)
            write_verdict(p, &h->log.samples[i], &t);
        else
            write_triple(p, &h->log.samples[i], &t);
        bytes += more;
        shown++;
    }
    if (h->log.n_samples)
        wf_page_raw(p, "</div>\n");
    if (shown < h->log.n_samples)
        wf_page_printf(p,
                       "<p class=\"note\">The %zu worst of %zu; the others are in the folder "
                       "samples/.</p>\n",
                       shown, h->log.n_samples);
    wf_page_raw(p, "</section>\n");
    for (int k = 0; k < 3; k++)
        wf_buffer_release(&t.files[k]);
}
