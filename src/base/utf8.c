#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/memory.h"

size_t wf_utf8_character(const char *text, size_t left)
{
    const unsigned char *const at = (const unsigned char *)text;
    const unsigned char c = at[0];
    if (c < 0x80)
        return 1;
    const size_t n = c >= 0xC2 && c <= 0xDF ? 2 : c >= 0xE0 && c <= 0xEF ? 3 : 4;
    if (c < 0xC2 || c > 0xF4 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    const bool wrong = (c == 0xE0 && at[1] < 0xA0) || (c == 0xED && at[1] > 0x9F) ||
                       (c == 0xF0 && at[1] < 0x90) || (c == 0xF4 && at[1] > 0x8F);
    return wrong ? 0 : n;
}

size_t wf_utf8_valid(const char *text, size_t bytes)
{
    size_t at = 0;
    for (size_t n; at < bytes && (n = wf_utf8_character(text + at, bytes - at)); at += n)
        ;
    return at;
}

uint32_t wf_utf8_code(const char *text, size_t bytes)
{
    const unsigned char *const at = (const unsigned char *)text;
    uint32_t code = bytes > 1 ? at[0] & (0x7Fu >> bytes) : at[0];
    for (size_t i = 1; i < bytes; i++)
        code = code << 6 | (at[i] & 0x3Fu);
    return code;
}

bool wf_utf8_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C || code == 0x200E ||
           code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* One character, or one byte that is none. */
static void show(const char *text, size_t bytes, char out[16])
{
    const uint32_t code = bytes ? wf_utf8_code(text, bytes) : 0;
    if (bytes && !wf_utf8_is_control(code)) {
        memcpy(out, text, bytes);
        out[bytes] = '\0';
    } else if (bytes == 1 && (code == '\n' || code == '\t' || code == '\r')) {
        (void)snprintf(out, 16, "\\%c", code == '\n' ? 'n' : code == '\t' ? 't' : 'r');
    } else if (bytes > 1) {
        (void)snprintf(out, 16, "\\u%04" PRIx32, code);
    } else {
        (void)snprintf(out, 16, "\\x%02x", (unsigned char)*text);
    }
}

char *wf_utf8_shown(const char *text, char *to, size_t room)
{
    size_t used = 0;
    for (size_t left = strlen(text); left > 0;) {
        char one[16];
        const size_t n = wf_utf8_character(text, left);
        show(text, n, one);
        const size_t bytes = strlen(one);
        if (used + bytes + 1 > room)
            break;
        memcpy(to + used, one, bytes);
        used += bytes;
        text += n ? n : 1;
        left -= n ? n : 1;
    }
    if (room)
        to[used] = '\0';
    return to;
}

char *wf_utf8_json(const char *json)
{
    enum { ESCAPE = 6 };
    size_t left = strlen(json);
    char *const out = wf_take(left * ESCAPE + 1), *to = out;
    while (left > 0) {
        const size_t n = wf_utf8_character(json, left);
        const uint32_t code = n ? wf_utf8_code(json, n) : 0xFFFD;
        /* Below 0x20 only blanks between the parts are left. */
        if (n == 0 || (code >= 0x7F && wf_utf8_is_control(code)))
            to += snprintf(to, ESCAPE + 1, "\\u%04" PRIx32, code);
        else
            to = mempcpy(to, json, n);
        json += n ? n : 1;
        left -= n ? n : 1;
    }
    *to = '\0';
    return out;
}
