#include "device/cuda/choices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

enum { LINE = 2048, KEY = 512 };

struct entry {
    const char *key, *choice;
};

struct wf_cuda_choices {
    struct wf_arena arena;
    char prefix[160]; /* of every key: GPU and version */
    const char *path; /* NULL: no file */
    struct entry *entries;
    size_t count, room;
    bool changed;
};

/* --- texts --- */

void wf_cudnn_choice_print(const struct wf_cudnn_choice *choice, char *text, size_t room)
{
    int at = snprintf(text, room, "%" PRId64, choice->engine);
    for (int i = 0; i < choice->n_knobs && at > 0 && (size_t)at < room; i++)
        at += snprintf(text + at, room - (size_t)at, "%c%" PRId64 "=%" PRId64, i ? ',' : ':',
                       choice->knobs[i].type, choice->knobs[i].value);
}

bool wf_cudnn_choice_parse(const char *text, struct wf_cudnn_choice *choice)
{
    memset(choice, 0, sizeof *choice);
    char *end;
    choice->engine = strtoll(text, &end, 10);
    if (end == text)
        return false;
    while (*end == ':' || *end == ',') {
        if (choice->n_knobs == WF_CUDNN_KNOBS)
            return false;
        const char *const type = end + 1;
        choice->knobs[choice->n_knobs].type = strtoll(type, &end, 10);
        if (end == type || *end != '=')
            return false;
        const char *const value = end + 1;
        choice->knobs[choice->n_knobs].value = strtoll(value, &end, 10);
        if (end == value)
            return false;
        choice->n_knobs++;
    }
    return *end == '\0';
}

static int print_triple(char *text, size_t room, char letter, const int64_t v[WF_CUDNN_SPACE])
{
    return snprintf(text, room, " %c%" PRId64 "x%" PRId64 "x%" PRId64, letter, v[0], v[1], v[2]);
}

void wf_cudnn_problem_print(const struct wf_cudnn_problem *p, char *text, size_t room)
{
    static const char *const names[] = { "forward", "data", "weights" };
    int at = snprintf(
        text, room,
        "%s %s%s%s%s%s n%" PRId64 " i%" PRId64 " o%" PRId64 " g%" PRId64 " a%" PRId64 ",%" PRId64,
        names[p->pass], wf_dtype_name(p->dtype), p->tf32 ? " tf32" : "",
        p->deterministic ? " deterministic" : "", p->bias ? " bias" : "",
        p->widely ? " widely" : "", p->n, p->in, p->out, p->groups, p->align[0], p->align[1]);
    if (p->own != WF_ENGINE_NONE && at > 0 && (size_t)at < room)
        at += snprintf(text + at, room - (size_t)at, " own%" PRId64, -p->own);
    const struct {
        char letter;
        const int64_t *values;
    } triples[] = { { 'x', p->image },  { 'y', p->result },   { 'k', p->kernel },
                    { 's', p->stride }, { 'd', p->dilation }, { 'l', p->pad_lo },
                    { 'h', p->pad_hi } };
    for (size_t i = 0; i < sizeof triples / sizeof *triples && at > 0 && (size_t)at < room; i++)
        at += print_triple(text + at, room - (size_t)at, triples[i].letter, triples[i].values);
}

static void print_key(const struct wf_cuda_choices *c, const struct wf_cudnn_problem *problem,
                      char key[KEY])
{
    const int at = snprintf(key, KEY, "%s ", c->prefix);
    wf_cudnn_problem_print(problem, key + at, KEY - (size_t)at);
}

/* --- the table --- */

static struct entry *look_up(const struct wf_cuda_choices *c, const char *key)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->entries[i].key, key) == 0)
            return &c->entries[i];
    return NULL;
}

static void add(struct wf_cuda_choices *c, const char *key, const char *choice)
{
    struct entry *e = look_up(c, key);
    if (!e) {
        WF_GROW(c->entries, c->room, c->count);
        e = &c->entries[c->count++];
        e->key = wf_arena_copy(&c->arena, key);
    }
    e->choice = wf_arena_copy(&c->arena, choice);
}

bool wf_cuda_choices_find(const struct wf_cuda_choices *c, const struct wf_cudnn_problem *problem,
                          struct wf_cudnn_choice *choice)
{
    char key[KEY];
    print_key(c, problem, key);
    const struct entry *const e = look_up(c, key);
    return e && wf_cudnn_choice_parse(e->choice, choice);
}

void wf_cuda_choices_put(struct wf_cuda_choices *c, const struct wf_cudnn_problem *problem,
                         const struct wf_cudnn_choice *choice)
{
    char key[KEY], text[LINE - KEY];
    print_key(c, problem, key);
    wf_cudnn_choice_print(choice, text, sizeof text);
    add(c, key, text);
    c->changed = true;
}

/* --- the file --- */

static void read_file(struct wf_cuda_choices *c)
{
    FILE *const file = c->path ? fopen(c->path, "r") : NULL;
    if (!file)
        return;
    char line[LINE];
    while (fgets(line, sizeof line, file)) {
        char *const tab = strchr(line, '\t'), *const end = strchr(line, '\n');
        struct wf_cudnn_choice choice;
        if (!tab || !end)
            continue;
        *tab = *end = '\0';
        if (wf_cudnn_choice_parse(tab + 1, &choice))
            add(c, line, tab + 1);
    }
    (void)fclose(file);
}

/* Makes the folders on the way to the file. */
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

static void write_file(struct wf_cuda_choices *c)
{
    if (!c->changed || !c->path)
        return;
    make_folders(c->path);
    /* The context's own address tells ranks of one process apart. */
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
        return wf_arena_printf(arena, "%s/widefield/cudnn", cache);
    return home && home[0] ? wf_arena_printf(arena, "%s/.cache/widefield/cudnn", home) : NULL;
}

struct wf_cuda_choices *wf_cuda_choices_new(const struct wf_cuda *cuda, const char *path)
{
    struct wf_cuda_choices *const c = calloc(1, sizeof *c);
    WF_BUG_ON(!c, "out of memory");
    (void)snprintf(c->prefix, sizeof c->prefix, "%s, cuDNN %zu, at most %zu bytes:", cuda->name,
                   cudnnGetVersion(), cuda->workspace);
    c->path = !path ? usual_path(&c->arena) : path[0] ? wf_arena_copy(&c->arena, path) : NULL;
    read_file(c);
    return c;
}

void wf_cuda_choices_free(struct wf_cuda_choices *c)
{
    if (!c)
        return;
    write_file(c);
    free(c->entries);
    wf_arena_release(&c->arena);
    free(c);
}
