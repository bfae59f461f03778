/* Under a launcher every rank has a command line, a config and an environment of its own. They must say
 * the same: ranks that plan different networks would wait for messages that never come. */
#include "cli/same.h"

#include <string.h>

#include "base/buffer.h"
#include "comm/comm.h"

bool wf_cli_agree(const struct wf_cli *cli, bool ok, struct wf_err *err)
{
    if (!cli->world)
        return ok;
    if (!ok && !err->is_shared)
        wf_comm_abort(cli->world, err);
    return ok && wf_comm_agree(cli->world, ok, err);
}

/* What may differ: machines need not be alike. */
static bool is_local(const char *key)
{
    return strcmp(key, "run.threads") == 0 || strcmp(key, "data.threads") == 0;
}

/* A line for everything that was given, lines in an order that does not depend on what they say. */
static void write_all(const struct wf_cli *cli, struct wf_buffer *to)
{
    wf_buffer_printf(to, "%s\n", cli->command->name);
    for (size_t i = 0; i < cli->options->count; i++) {
        const struct wf_setting *const s = &cli->options->settings[i];
        if (!is_local(s->option->key))
            wf_buffer_printf(to, "%s=%s\n", s->option->key, s->is_set ? s->text : "");
    }
    const struct wf_command_flag *const own = cli->command->flags;
    for (int i = 0; own && own[i].name; i++)
        wf_buffer_printf(to, "--%s %s\n", own[i].name,
                         cli->flags[i] ? cli->flags[i] : "(not given)");
    for (int i = 0; i < cli->n_arguments; i++)
        wf_buffer_printf(to, "%s\n", cli->arguments[i]);
}

/* The first line in which they differ, to its end. */
static bool compare(const char *mine, const char *first, struct wf_err *err)
{
    for (;;) {
        const int a = (int)strcspn(mine, "\n"), b = (int)strcspn(first, "\n");
        if (a != b || strncmp(mine, first, (size_t)a) != 0)
            return wf_err_set(err, WF_ERR_USAGE,
                              "started with '%.*s', rank 0 with '%.*s': give all ranks the same "
                              "command line, config and WIDEFIELD_* environment",
                              a, mine, b, first);
        if (!mine[a] || !first[b])
            return true;
        mine += a + 1;
        first += b + 1;
    }
}

/* Collective. Rank 0's bytes on every rank; they live in the command's arena. */
static const char *of_first(struct wf_cli *cli, const void *mine, size_t bytes, size_t *got,
                            struct wf_err *err)
{
    int64_t size = (int64_t)bytes;
    if (!wf_comm_broadcast(cli->world, 0, &size, sizeof size, err))
        return NULL;
    char *const all = wf_arena_array(&cli->arena, size + 1, char);
    if (wf_comm_rank(cli->world) == 0)
        memcpy(all, mine, bytes);
    *got = (size_t)size;
    return wf_comm_broadcast(cli->world, 0, all, (size_t)size, err) ? all : NULL;
}

bool wf_cli_same_file(struct wf_cli *cli, const char *path, const char *digest, struct wf_err *err)
{
    size_t bytes;
    if (!cli->world)
        return true;
    const char *const first = of_first(cli, digest, strlen(digest), &bytes, err);
    if (!first)
        return false;
    const bool ok = strcmp(first, digest) == 0 ||
                    wf_err_set(err, WF_ERR_INPUT,
                               "'%s' is another file here than on rank 0 (%s, %s there): give all "
                               "machines the same",
                               path, digest, first);
    return wf_cli_agree(cli, ok, err);
}

bool wf_cli_same_data(struct wf_cli *cli, const struct wf_dataset *data,
                      const struct wf_fingerprint *mine, struct wf_err *err)
{
    size_t bytes;
    if (!cli->world)
        return true;
    struct wf_fingerprint first = { .all = mine->all, .samples = mine->samples };
    if (!wf_comm_broadcast(cli->world, 0, &first.all, sizeof first.all, err) ||
        !wf_comm_broadcast(cli->world, 0, &first.samples, sizeof first.samples, err))
        return false;
    first.each = (const uint64_t *)(const void *)of_first(
        cli, mine->each, (size_t)mine->samples * sizeof *mine->each, &bytes, err);
    if (!first.each)
        return false;
    bool ok = first.all == mine->all;
    if (!ok) {
        const int64_t at = wf_fingerprint_differs(mine, &first);
        const char *const name =
            at >= 0 && at < mine->samples ? wf_dataset_sample(data, at)->name : NULL;
        (void)wf_err_set(
            err, WF_ERR_INPUT,
            "'%s' is another dataset here than on rank 0: %lld samples, %lld there%s%s%s: "
            "give all machines the same files",
            wf_dataset_info(data)->path, (long long)mine->samples, (long long)first.samples,
            name ? ", the first that differs is '" : "", name ? name : "", name ? "'" : "");
    }
    return wf_cli_agree(cli, ok, err);
}

bool wf_cli_same(struct wf_cli *cli, struct wf_err *err)
{
    struct wf_buffer mine = { 0 };
    size_t bytes;
    write_all(cli, &mine);
    const char *const first = of_first(cli, mine.data, mine.size, &bytes, err);
    const bool ok = first && wf_cli_agree(cli, compare(mine.data, first, err), err);
    wf_buffer_release(&mine);
    return ok;
}
