#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

bool wf_err_set(struct wf_err *err, enum wf_err_code code, const char *format, ...)
{
    if (!err || err->code != WF_OK)
        return false;
    err->code = code;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return false;
}

bool wf_err_wrap(struct wf_err *err, const char *format, ...)
{
    if (!err)
        return false;
    char where[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(where, sizeof where, format, args);
    va_end(args);
    char cause[sizeof err->text];
    memcpy(cause, err->text, sizeof cause);
    cause[sizeof cause - 1] = '\0';
    /* The cause matters more than the way to it: where the two do not fit, the cause stays. */
    if (strlen(where) + 2 + strlen(cause) < sizeof err->text) {
        char *end = stpcpy(stpcpy(err->text, where), ": ");
        memcpy(end, cause, strlen(cause) + 1);
    }
    if (err->code == WF_OK)
        err->code = WF_ERR_FAILED;
    return false;
}

int wf_err_exit_status(enum wf_err_code code)
{
    switch (code) {
    case WF_OK:
        return 0;
    case WF_ERR_USAGE:
        return 2;
    case WF_ERR_FIT:
        return 3;
    case WF_ERR_STOPPED:
        return 75;
    case WF_ERR_FAILED:
    case WF_ERR_INPUT:
        break;
    }
    return 1;
}

void wf_bug(const char *file, int line, const char *what, const char *format, ...)
{
    char text[1024], shown[sizeof text * WF_UTF8_SHOWN];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)fprintf(stderr, "BUG: %s:%d: %s: %s\n", file, line, what,
                  wf_utf8_shown(text, shown, sizeof shown));
    abort();
}
