#include "device/choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/memory.h"

enum { LINE = WF_CHOICE_KEY + WF_CHOICE_TEXT };

struct entry {
    const char *key, *choice;
};

struct wf_choices {
    struct wf_arena arena;
    const char *path; /* NULL: no file */
    struct entry *entries;
    size_t count, room;
    bool changed;
};

/* --- the table --- */

static struct entry *look_up(const struct wf_choices *c, const char *key)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->entries[i].key, key) == 0)
            return &c->entries[i];
    return NULL;
}

static void add(struct wf_choices *c, const char *key, const char *choice)
{
    WF_GROW(c->entries, c->room, c->count);
    c->entries[c->count++] =
        (struct entry){ wf_arena_copy(&c->arena, key), wf_arena_copy(&c->arena, choice) };
}

const char *wf_choices_find(const struct wf_choices *c, const char *key)
{
    const struct entry *const e = look_up(c, key);
    return e ? e->choice : NULL;
}

void wf_choices_put(struct wf_choices *c, const char *key, const char *choice)
{
    struct entry *const e = look_up(c, key);
    if (e)
        e->choice = wf_arena_copy(&c->arena, choice);
    else
        add(c, key, choice);
    c->changed = true;
}

size_t wf_choices_count(const struct wf_choices *c, const char *prefix, const char *choice)
{
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++)
        n += strncmp(c->entries[i].key, prefix, strlen(prefix)) == 0 &&
             strcmp(c->entries[i].choice, choice) == 0;
    return n;
}

/* --- the file --- */

/* Adds what the file has and the table has not. */
static void read_file(struct wf_choices *c)
{
    FILE *const file = c->path ? fopen(c->path, "r") : NULL;
    if (!file)
        return;
    char line[LINE];
    while (fgets(line, sizeof line, file)) {
        char *const tab = strchr(line, '\t'), *const end = strchr(line, '\n');
        if (!tab || !end)
            continue;
        *tab = *end = '\0';
        if (!look_up(c, line))
            add(c, line, tab + 1);
    }
    (void)fclose(file);
}

/* Makes the folders above the file. */
static void make_folders(const char *path)
{
    struct wf_arena arena = { 0 };
    char *const copy = wf_arena_copy(&arena, path);
    for (char *at = strchr(copy + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(copy, 0777);
        *at = '/';
    }
    wf_arena_release(&arena);
}

static void write_file(struct wf_choices *c)
{
    if (!c->changed || !c->path)
        return;
    make_folders(c->path);
    read_file(c);
    /* The table's own address tells ranks of one process apart. */
    const char *const other =
        wf_arena_printf(&c->arena, "%s.%ld.%p", c->path, (long)getpid(), (void *)c);
    FILE *const file = fopen(other, "w");
    if (!file)
        return;
    bool ok = true;
    for (size_t i = 0; ok && i < c->count; i++)
        ok = fprintf(file, "%s\t%s\n", c->entries[i].key, c->entries[i].choice) > 0;
    ok = fclose(file) == 0 && ok;
    if (!ok || rename(other, c->path) != 0)
        (void)unlink(other);
}

static const char *usual_path(struct wf_arena *arena)
{
    const char *const cache = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    if (cache && cache[0] == '/')
        return wf_arena_printf(arena, "%s/widefield/kernels", cache);
    return home && home[0] ? wf_arena_printf(arena, "%s/.cache/widefield/kernels", home) : NULL;
}

struct wf_choices *wf_choices_new(const char *path)
{
    struct wf_choices *const c = wf_take_zeroed(1, sizeof *c);
    c->path = !path ? usual_path(&c->arena) : path[0] ? wf_arena_copy(&c->arena, path) : NULL;
    read_file(c);
    return c;
}

void wf_choices_free(struct wf_choices *c)
{
    if (!c)
        return;
    write_file(c);
    free(c->entries);
    wf_arena_release(&c->arena);
    free(c);
}
