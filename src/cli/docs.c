#include "cli/docs.h"

#include <string.h>

const struct wf_document wf_documents[] = {
    { "docs", "docs/config.md", wf_docs_markdown },  { "man", "the manual page", wf_docs_man },
    { "bash", "completion for bash", wf_docs_bash }, { "zsh", "completion for zsh", wf_docs_zsh },
    { "fish", "completion for fish", wf_docs_fish }, { .verb = NULL },
};

/* --- common --- */

const char *wf_docs_section(struct wf_arena *arena, const struct wf_option *option)
{
    return wf_arena_printf(arena, "%.*s", (int)strcspn(option->key, "."), option->key);
}

/* The verb at the head of one alternative of a usage, or NULL. */
static const char *verb_of(struct wf_arena *arena, const char *part, const char *command)
{
    const size_t n = strlen(command);
    if (strncmp(part, command, n) == 0 && (part[n] == ' ' || part[n] == '\0'))
        part += n + (part[n] == ' ');
    const size_t word = strcspn(part, " |");
    const size_t small = strspn(part, "abcdefghijklmnopqrstuvwxyz");
    return word > 0 && word == small ? wf_arena_printf(arena, "%.*s", (int)word, part) : NULL;
}

const char *const *wf_docs_verbs(struct wf_arena *arena, const struct wf_command *command)
{
    size_t parts = 2;
    for (const char *at = strchr(command->usage, '|'); at; at = strchr(at + 1, '|'))
        parts++;
    const char **const verbs = wf_arena_array(arena, parts, const char *);
    size_t count = 0;
    for (const char *at = command->usage; at;) {
        const char *const verb = verb_of(arena, at + strspn(at, " "), command->name);
        if (verb)
            verbs[count++] = verb;
        at = strstr(at, " | ");
        at = at ? at + 3 : NULL;
    }
    return verbs;
}

/* --- Markdown --- */

/* A cell of a table, where '|' would end it. */
static void print_cell(FILE *out, const char *text)
{
    for (; *text; text++)
        (void)fprintf(out, *text == '|' ? "\\|" : "%c", *text);
}

static void print_row(FILE *out, struct wf_arena *arena, const struct wf_option *o)
{
    (void)fprintf(out, "| `%s` | ", strchr(o->key, '.') + 1);
    if (o->fallback)
        (void)fprintf(out, "`%s` | ", o->fallback);
    else
        (void)fprintf(out, "%s | ", o->unset);
    print_cell(out, o->help);
    (void)fputs(" | ", out);
    print_cell(out, wf_option_allowed(arena, o));
    (void)fputs(" |\n", out);
}

static void print_sections(FILE *out, struct wf_arena *arena)
{
    const char *section = "";
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o)) {
        const char *const mine = wf_docs_section(arena, o);
        if (strcmp(mine, section) != 0)
            (void)fprintf(out, "\n## %s\n\n| key | default | what | allowed |\n|---|---|---|---|\n",
                          mine);
        section = mine;
        print_row(out, arena, o);
    }
}

void wf_docs_markdown(struct wf_arena *arena, FILE *out)
{
    (void)fputs(
        "<!-- Made by 'widefield config docs' from the option table; do not edit. -->\n"
        "# The config\n\n"
        "A config is a YAML file (JSON is YAML) with one level of sections:\n\n"
        "```yaml\n"
        "model: { name: unet, classes: 2, base: 32 }\n"
        "data:  { path: data/nuclei, crop: [512, 512] }\n"
        "train: { epochs: 20, batch: 4, lr: 1e-3 }\n"
        "mesh:  { space: [2, 2] }\n"
        "```\n\n"
        "Each key can also be given on the command line (`model.base=32`) and in the environment\n"
        "(`WIDEFIELD_MODEL_BASE=32`). Precedence: command line, environment, file, default;\n"
        "`widefield config show CONFIG` prints the resolved values and their origin. An unknown key is an\n"
        "error that suggests the nearest known key.\n\n"
        "Lists are written `[2, 2]` in the file, and also `2,2` or `2x2` on the command line.\n"
        "`widefield config schema --json` prints a JSON schema for editors.\n",
        out);
    print_sections(out, arena);
    (void)fputs("\n## Flags that set a key\n\n| flag | key | what |\n|---|---|---|\n", out);
    for (const struct wf_option_flag *f = wf_option_flags; f->name; f++) {
        (void)fprintf(out, "| `--%s %s` | `%s` | ", f->name, f->value, f->key);
        print_cell(out, f->help);
        (void)fputs(" |\n", out);
    }
}
