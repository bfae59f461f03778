/* How far behind the weights an asynchronous server's gradients were. */
#include <cjson/cJSON.h>

#include "base/units.h"
#include "report/html.h"

enum { ROWS_MOST = 64 };

/* The log may say anything: what is no count is none. */
static double count_of(const cJSON *item)
{
    const double count = cJSON_IsNumber(item) ? item->valuedouble : 0;
    return count >= 0 && count < 9e15 ? count : 0;
}

void wf_html_staleness(struct wf_html *h)
{
    const cJSON *const list = h->log.staleness, *item;
    struct wf_page *const p = &h->page;
    double total = 0;
    cJSON_ArrayForEach(item, list) total += count_of(item);
    if (total <= 0)
        return;
    wf_page_raw(p, "<div class=\"card scroll\"><h3>Staleness</h3><small>gradients that the server "
                   "applied, by how many updates they were behind</small><table><tr><th "
                   "class=\"n\">behind<th class=\"n\">gradients<th>share</tr>\n");
    int behind = 0;
    cJSON_ArrayForEach(item, list)
    {
        if (behind == ROWS_MOST)
            break;
        const double share = 100 * count_of(item) / total;
        wf_page_printf(p,
                       "<tr><td class=\"n\">%d<td class=\"n\">%s<td><div class=\"meter "
                       "c0\"><span><i style=\"width:%.1f%%\"></i></span><b>%.1f%%</b></div></tr>\n",
                       behind++, wf_text_count(&p->arena, (int64_t)count_of(item)), share, share);
    }
    wf_page_raw(p, "</table></div>\n");
}
