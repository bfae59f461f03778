/* Shared by the reader and the writer of safetensors. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The format's own limit, so that a wrong length does not make readers allocate. */
#define WF_SAFETENSORS_HEADER_MAX ((uint64_t)100'000'000)
#define WF_SAFETENSORS_METADATA "__metadata__"

/* Length and header are little endian, and so are we: numbers are copied. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a big-endian machine has to swap bytes");

/* Names of tensors are printed and compared as C texts. */
static inline bool wf_text_has_control(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    return false;
}

/* True for complete, shortest-form UTF-8 without surrogates. */
static inline bool wf_utf8_is_valid(const unsigned char *text, size_t size)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    for (size_t i = 0; i < size;) {
        const unsigned char lead = text[i++];
        if (lead < 0x80)
            continue;
        const int length = (lead & 0xe0) == 0xc0   ? 2
                           : (lead & 0xf0) == 0xe0 ? 3
                           : (lead & 0xf8) == 0xf0 ? 4
                                                   : 0;
        if (length == 0 || size - i < (size_t)length - 1)
            return false;
        uint32_t code = lead & (0x7fu >> length);
        for (int k = 1; k < length; k++, i++) {
            if ((text[i] & 0xc0) != 0x80)
                return false;
            code = code << 6 | (text[i] & 0x3fu);
        }
        if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return false;
    }
    return true;
}
