/* Untrusted text (names of files and classes) may be invalid UTF-8 or contain control sequences. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at `text`, of which `left` > 0 bytes remain; 0 if it is invalid: overlong,
 * a surrogate, beyond the last code point, or truncated. */
size_t wf_utf8_character(const char *text, size_t left);
/* Bytes of `text` in front of the first that is invalid; `bytes`: all are right. */
size_t wf_utf8_valid(const char *text, size_t bytes);
/* The code point of such a character. */
uint32_t wf_utf8_code(const char *text, size_t bytes);
/* Whether it is a control character: C0, DEL, C1, line separators, and those that change the
 * direction of text. */
bool wf_utf8_is_control(uint32_t code);

/* `text` in printable form: each control character, and each invalid byte, as \n, \x1b or \u202e.
 * Truncated between characters to `room` bytes. Returns `to`. */
char *wf_utf8_shown(const char *text, char *to, size_t room);
enum { WF_UTF8_SHOWN = 4 }; /* bytes that a byte of text becomes at most */

/* JSON as printed by a library, with every control character escaped, and U+FFFD for invalid UTF-8,
 * which JSON cannot hold. On the heap. */
char *wf_utf8_json(const char *json);
