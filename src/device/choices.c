#include "device/choices.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/err.h"
#include "base/file.h"
#include "base/memory.h"

enum {
    LINE = WF_CHOICE_KEY + WF_CHOICE_TEXT,
    FREE = 0,         /* slots hold 1 + the index of an entry */
    LOCK_TRIES = 200, /* 10 ms apart */
};

struct entry {
    const char *key, *choice;
};

struct wf_choices {
    struct wf_arena arena;
    const char *path;      /* NULL: no file */
    struct entry *entries; /* oldest first */
    size_t count, room;
    uint32_t *slots; /* by hash, the next free one where it is taken; at most half of them are */
    size_t n_slots;  /* a power of two, or 0 */
    bool changed;
};

/* --- the table --- */

/* FNV-1a */
static uint64_t hash(const char *key)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 0x100000001b3u;
    return h ^ (h >> 32);
}

/* Where the key is, or would be. */
static uint32_t *slot_of(const struct wf_choices *c, const char *key)
{
    size_t at = (size_t)hash(key) & (c->n_slots - 1);
    while (c->slots[at] != FREE && strcmp(c->entries[c->slots[at] - 1].key, key) != 0)
        at = (at + 1) & (c->n_slots - 1);
    return &c->slots[at];
}

static struct entry *look_up(const struct wf_choices *c, const char *key)
{
    const uint32_t index = c->n_slots ? *slot_of(c, key) : FREE;
    return index == FREE ? NULL : &c->entries[index - 1];
}

static void grow_slots(struct wf_choices *c)
{
    c->n_slots = c->n_slots ? 2 * c->n_slots : 64;
    free(c->slots);
    c->slots = wf_take_zeroed(c->n_slots, sizeof *c->slots);
    for (size_t i = 0; i < c->count; i++)
        *slot_of(c, c->entries[i].key) = (uint32_t)i + 1;
}

static void add(struct wf_choices *c, const char *key, const char *choice)
{
    WF_GROW(c->entries, c->room, c->count);
    if (2 * c->count >= c->n_slots)
        grow_slots(c);
    *slot_of(c, key) = (uint32_t)c->count + 1;
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
void wf_choices_make_folder(const char *path)
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

/* Keeps others from writing until it is closed. -1 where that cannot be had: then what others write in
 * the same moment may be lost, which is better than to wait. */
static int lock_file(struct wf_choices *c)
{
    const int lock =
        open(wf_arena_printf(&c->arena, "%s.lock", c->path), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    for (int i = 0; lock >= 0 && i < LOCK_TRIES && flock(lock, LOCK_EX | LOCK_NB) != 0; i++)
        (void)nanosleep(&(struct timespec){ .tv_nsec = 10'000'000 }, NULL);
    return lock;
}

/* Under the lock: what others wrote meanwhile, and the table, in the file's place. */
static void replace_file(struct wf_choices *c)
{
    read_file(c);
    /* The table's own address tells ranks of one process apart. */
    const char *const other =
        wf_arena_printf(&c->arena, "%s.%ld.%p", c->path, (long)getpid(), (void *)c);
    FILE *const file = fopen(other, "w");
    if (!file)
        return;
    bool ok = true;
    const size_t first = c->count > WF_CHOICES_KEPT ? c->count - WF_CHOICES_KEPT : 0;
    for (size_t i = first; ok && i < c->count; i++)
        ok = fprintf(file, "%s\t%s\n", c->entries[i].key, c->entries[i].choice) > 0;
    ok = fclose(file) == 0 && ok;
    if (!ok || rename(other, c->path) != 0)
        (void)unlink(other);
}

static void write_file(struct wf_choices *c)
{
    if (!c->changed || !c->path)
        return;
    wf_choices_make_folder(c->path);
    const int lock = lock_file(c);
    replace_file(c);
    if (lock >= 0)
        (void)close(lock);
}

static const char *usual_path(struct wf_arena *arena)
{
    const char *const cache = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    if (cache && cache[0] == '/')
        return wf_arena_printf(arena, "%s/widefield/kernels", cache);
    return home && home[0] ? wf_arena_printf(arena, "%s/.cache/widefield/kernels", home) : NULL;
}

const char *wf_choices_path(struct wf_arena *arena, const char *path)
{
    struct wf_err ignored = { 0 };
    const size_t length = path ? strlen(path) : 0;
    if (length > 0 && path[length - 1] == '/') /* there or not */
        return wf_arena_printf(arena, "%skernels", path);
    if (path && wf_path_is_folder(path, &ignored))
        return wf_arena_printf(arena, "%s/kernels", path);
    return !path ? usual_path(arena) : path[0] ? wf_arena_copy(arena, path) : NULL;
}

struct wf_choices *wf_choices_new(const char *path)
{
    struct wf_choices *const c = wf_take_zeroed(1, sizeof *c);
    c->path = wf_choices_path(&c->arena, path);
    read_file(c);
    return c;
}

void wf_choices_free(struct wf_choices *c)
{
    if (!c)
        return;
    write_file(c);
    free(c->slots);
    free(c->entries);
    wf_arena_release(&c->arena);
    free(c);
}

/* --- what is long --- */

static const uint64_t longest = (uint64_t)64 << 20;

/* The key stands in the first line: two may have the same hash. */
static char *long_path(struct wf_arena *arena, const struct wf_choices *c, const char *key)
{
    return wf_arena_printf(arena, "%s.long/%016" PRIx64, c->path, hash(key));
}

static int count_files(const char *folder)
{
    DIR *const dir = opendir(folder);
    int count = 0;
    while (dir && readdir(dir))
        count++;
    if (dir)
        (void)closedir(dir);
    return count;
}

char *wf_choices_load(const struct wf_choices *c, const char *key, size_t *size)
{
    struct wf_arena arena = { 0 };
    struct wf_err ignored = { 0 };
    const size_t head = strlen(key) + 1;
    char *const text =
        c->path ? wf_file_read(long_path(&arena, c, key), longest, size, &ignored) : NULL;
    const bool ours =
        text && *size > head && memcmp(text, key, head - 1) == 0 && text[head - 1] == '\n';
    wf_arena_release(&arena);
    if (!ours) {
        free(text);
        return NULL;
    }
    *size -= head;
    memmove(text, text + head, *size + 1);
    return text;
}

void wf_choices_store(const struct wf_choices *c, const char *key, const void *data, size_t size)
{
    struct wf_arena arena = { 0 };
    struct wf_err ignored = { 0 };
    if (!c->path)
        return;
    wf_choices_make_folder(c->path);
    const char *const name = wf_arena_printf(&arena, "%s.long", c->path);
    (void)mkdir(name, 0777);
    if (count_files(name) < WF_CHOICES_LONG) {
        struct wf_buffer all = { 0 };
        wf_buffer_printf(&all, "%s\n", key);
        wf_buffer_add(&all, data, size);
        (void)!wf_file_write(long_path(&arena, c, key), all.data, all.size, &ignored);
        wf_buffer_release(&all);
    }
    wf_arena_release(&arena);
}
