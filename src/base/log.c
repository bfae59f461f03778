#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"

void wf_log(const struct wf_log *log, enum wf_log_level level, const char *format, ...)
{
    if (!log || level > log->level || level == WF_LOG_QUIET)
        return;
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (log->take) {
        log->take(level, text, log->user);
        return;
    }
    static const char *const lead[] = { "", "error: ", "warning: ", "", "debug: " };
    /* Names of files and classes are in it: a terminal must not obey them. */
    char shown[sizeof text * WF_UTF8_SHOWN];
    (void)fprintf(stderr, "widefield: %s%s\n", lead[level],
                  wf_utf8_shown(text, shown, sizeof shown));
}
