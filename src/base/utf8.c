#include "base/utf8.h"

#include <stdbool.h>

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
