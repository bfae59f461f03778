/* Files of points from the front to the end. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/cloud_inside.h"

/* At least so many bytes in the buffer, where the file has them. False: a read failed. */
static bool fill(struct wf_cloud_stream *s, size_t bytes, struct wf_err *err)
{
    if (s->end - s->from >= bytes || s->at >= s->file->size)
        return true;
    memmove(s->buffer, s->buffer + s->from, s->end - s->from);
    s->end -= s->from;
    s->from = 0;
    const uint64_t left = s->file->size - s->at, room = sizeof s->buffer - s->end;
    const size_t take = (size_t)(left < room ? left : room);
    if (!wf_infile_read(s->file, s->at, s->buffer + s->end, take, err))
        return false;
    s->at += take;
    s->end += take;
    return true;
}

const char *wf_cloud_bytes(struct wf_cloud_stream *s, size_t bytes, struct wf_err *err)
{
    WF_BUG_ON(bytes > sizeof s->buffer, "%zu bytes at once", bytes);
    if (!fill(s, bytes, err))
        return NULL;
    if (s->end - s->from < bytes) {
        (void)wf_err_set(err, WF_ERR_INPUT, "'%s' ends before its last point: it is cut short",
                         s->file->name);
        return NULL;
    }
    s->from += bytes;
    return s->buffer + s->from - bytes;
}

/* -1: the end, or a failure. */
static int next_char(struct wf_cloud_stream *s, struct wf_err *err)
{
    if (s->from == s->end && (!fill(s, 1, err) || s->from == s->end))
        return -1;
    return (unsigned char)s->buffer[s->from++];
}

bool wf_cloud_line(struct wf_cloud_stream *s, char *line, size_t room, struct wf_err *err)
{
    size_t n = 0;
    int c;
    while ((c = next_char(s, err)) >= 0 && c != '\n') {
        if (n + 1 == room)
            return wf_err_set(err, WF_ERR_INPUT, "'%s': a line is too long", s->file->name);
        line[n++] = (char)c;
    }
    if (n > 0 && line[n - 1] == '\r')
        n--;
    line[n] = '\0';
    return !err->code && (c >= 0 || n > 0);
}

bool wf_cloud_word(struct wf_cloud_stream *s, char *word, size_t room, bool comments,
                   struct wf_err *err)
{
    size_t n = 0;
    int c = next_char(s, err);
    while (c >= 0 && (isspace(c) || (comments && c == '#'))) {
        while (c == '#' && (c = next_char(s, err)) >= 0 && c != '\n')
            c = '#';
        c = next_char(s, err);
    }
    for (; c >= 0 && !isspace(c); c = next_char(s, err)) {
        if (n + 1 == room)
            return wf_err_set(err, WF_ERR_INPUT, "'%s': a word is too long", s->file->name);
        word[n++] = (char)c;
    }
    word[n] = '\0';
    return !err->code && n > 0;
}

bool wf_cloud_number(struct wf_cloud_stream *s, bool comments, double *number, struct wf_err *err)
{
    char word[64], *end;
    if (!wf_cloud_word(s, word, sizeof word, comments, err))
        return err->code
                   ? false
                   : wf_err_set(err, WF_ERR_INPUT,
                                "'%s' ends before its last number: it is cut short", s->file->name);
    *number = strtod(word, &end);
    return *end == '\0' ||
           wf_err_set(err, WF_ERR_INPUT, "'%s': '%.20s' is no number", s->file->name, word);
}
