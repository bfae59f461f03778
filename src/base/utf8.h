/* Text from outside (names of files and classes) may be no UTF-8 at all, or hold what a terminal obeys. */
#ifndef WF_BASE_UTF8_H
#define WF_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at `text`, of which `left` > 0 bytes remain; 0 when it is none: overlong, a
 * surrogate, past the last one, or cut off. */
size_t wf_utf8_character(const char *text, size_t left);
/* The code point of such a character. */
uint32_t wf_utf8_code(const char *text, size_t bytes);
/* Is it one that shows nothing but does something: C0, DEL, C1, line separators, and those that turn the
 * direction of what follows? */
bool wf_utf8_is_control(uint32_t code);

/* `text` as it can be shown: each such character, and each byte that is none, as \n, \x1b or \u202e. What
 * does not fit in `room` bytes is cut off between characters. Returns `to`. */
char *wf_utf8_shown(const char *text, char *to, size_t room);
enum { WF_UTF8_SHOWN = 4 }; /* bytes that a byte of text becomes at most */

/* JSON as a library prints it, with every such character as an escape, and U+FFFD for what is no UTF-8, which
 * JSON cannot hold. From the heap. */
char *wf_utf8_json(const char *json);

#endif
