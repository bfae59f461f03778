/* Text from outside may be no UTF-8 at all. */
#ifndef WF_BASE_UTF8_H
#define WF_BASE_UTF8_H

#include <stddef.h>

/* Bytes of the character at `text`, of which `left` > 0 bytes remain; 0 when it is none: overlong, a
 * surrogate, past the last one, or cut off. */
size_t wf_utf8_character(const char *text, size_t left);

#endif
