/* Under a launcher every rank has a command line, a config and an environment of its own. They must say
 * the same: ranks that plan different networks would wait for messages that never come. */
#include "cli/same.h"

#include <string.h>

#include "base/buffer.h"
#include "comm/comm.h"

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

bool wf_cli_same(struct wf_cli *cli, struct wf_err *err)
{
    struct wf_buffer mine = { 0 };
    write_all(cli, &mine);
    int64_t size = (int64_t)mine.size;
    bool ok = wf_comm_broadcast(cli->world, 0, &size, sizeof size, err);
    if (ok) {
        char *const text = wf_arena_array(&cli->arena, size + 1, char);
        if (wf_comm_rank(cli->world) == 0)
            memcpy(text, mine.data, mine.size);
        ok = wf_comm_broadcast(cli->world, 0, text, (size_t)size, err) &&
             wf_comm_agree(cli->world, compare(mine.data, text, err), err);
    }
    wf_buffer_release(&mine);
    return ok;
}
