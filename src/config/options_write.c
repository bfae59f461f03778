/* Options as YAML: what a run folder and a checkpoint keep of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "config/options.h"

static void write_text(FILE *to, const char *text)
{
    (void)fputc('"', to);
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        const size_t bytes = wf_utf8_character(text, left);
        const uint32_t code = bytes ? wf_utf8_code(text, bytes) : 0xFFFD;
        n = bytes ? bytes : 1;
        if (bytes && wf_utf8_is_control(code))
            (void)fprintf(to, "\\u%04x", (unsigned)code);
        else if (code == '"' || code == '\\')
            (void)fprintf(to, "\\%c", (char)code);
        else
            (void)fwrite(text, 1, n, to);
    }
    (void)fputc('"', to);
}

static bool is_run_section(const char *key)
{
    static const char *const sections[] = { "mesh.", "run.", "memory." };
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (strncmp(key, sections[i], strlen(sections[i])) == 0)
            return true;
    return false;
}

/* The lines "  a:" for the sections of `key` that the key before was not in; returns the depth. */
static int open_sections(FILE *to, const char *key, const char *before, const char **last)
{
    int depth = 0;
    bool same = before != NULL;
    for (const char *dot; (dot = strchr(key, '.')); key = dot + 1, depth++) {
        const size_t n = (size_t)(dot - key) + 1;
        same = same && strncmp(key, before, n) == 0;
        if (same)
            before += n;
        else
            (void)fprintf(to, "%*s%.*s:\n", 2 * depth, "", (int)n - 1, key);
    }
    *last = key;
    return depth;
}

static void write_texts(FILE *to, const struct wf_setting *s)
{
    for (int i = 0; i < s->count; i++) {
        (void)fputs(i ? ", " : "[", to);
        write_text(to, s->texts[i]);
    }
    (void)fputc(']', to);
}

const char *wf_options_yaml(struct wf_arena *arena, const struct wf_options *o, bool with_run)
{
    char *text = NULL;
    size_t size = 0;
    FILE *const to = open_memstream(&text, &size);
    if (!to)
        wf_no_memory(BUFSIZ);
    const char *before = NULL;
    for (size_t i = 0; i < o->count; i++) {
        const struct wf_setting *const s = &o->settings[i];
        if (!s->is_set || (!with_run && is_run_section(s->option->key)))
            continue;
        const char *name;
        const int depth = open_sections(to, s->option->key, before, &name);
        (void)fprintf(to, "%*s%s: ", 2 * depth, "", name);
        if (s->option->type == WF_OPTION_TEXT)
            write_text(to, s->text);
        else if (s->option->type == WF_OPTION_TEXTS)
            write_texts(to, s);
        else
            (void)fputs(s->text, to);
        (void)fputc('\n', to);
        before = s->option->key;
    }
    const bool whole = !ferror(to);
    if (fclose(to) != 0 || !whole)
        wf_no_memory(size);
    const char *const copy = wf_arena_copy(arena, text);
    free(text);
    return copy;
}
