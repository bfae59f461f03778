#include "cli/docs.h"

#include <string.h>

const struct wf_document wf_documents[] = {
    { "docs", "docs/config.md", wf_docs_markdown },
    { "networks", "docs/networks.md", wf_docs_networks },
    { "man", "the manual page", wf_docs_man },
    { "bash", "completion for bash", wf_docs_bash },
    { "zsh", "completion for zsh", wf_docs_zsh },
    { "fish", "completion for fish", wf_docs_fish },
    { .verb = NULL },
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

/* --- the manual page, in the man macros of troff --- */

/* Text in which nothing is a request: '\' and '-' are escaped, and so are '.' and '\'' at the start
 * of a line. Lines are filled anew, an empty one begins a paragraph. */
static void print_text(FILE *out, const char *text)
{
    for (bool first = true; *text; text++) {
        if (first && (*text == '.' || *text == '\''))
            (void)fputs("\\&", out);
        first = *text == '\n';
        if (*text == '\\')
            (void)fputs("\\e", out);
        else if (*text == '-')
            (void)fputs("\\-", out);
        else if (first && text[1] == '\n')
            (void)fputs("\n.PP", out);
        else
            (void)fputc(*text, out);
    }
}

/* Bold words that stand as they are. */
static void print_bold(FILE *out, const char *text)
{
    (void)fputs("\\fB", out);
    print_text(out, text);
    (void)fputs("\\fR", out);
}

static void print_flag(FILE *out, const char *name, const char *value, const char *help)
{
    (void)fputs(".TP\n\\fB\\-\\-", out);
    print_text(out, name);
    (void)fputs("\\fR", out);
    if (value) {
        (void)fputs(" \\fI", out);
        print_text(out, value);
        (void)fputs("\\fR", out);
    }
    (void)fputs("\n", out);
    print_text(out, help);
    (void)fputs("\n", out);
}

static void print_command(FILE *out, const struct wf_command *c)
{
    (void)fprintf(out, ".SS %s\n", c->name);
    (void)fputs(".B widefield\n", out);
    print_text(out, c->usage);
    (void)fputs("\n.PP\n", out);
    print_text(out, c->summary);
    (void)fputs(".\n", out);
    if (c->notes) {
        (void)fputs(".PP\n", out);
        print_text(out, c->notes);
        (void)fputs("\n", out);
    }
    for (const struct wf_command_flag *f = c->flags; f && f->name; f++)
        print_flag(out, f->name, f->value, f->help);
}

static void print_keys(struct wf_arena *arena, FILE *out)
{
    const char *section = "";
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o)) {
        const char *const mine = wf_docs_section(arena, o);
        if (strcmp(mine, section) != 0)
            (void)fprintf(out, ".SS Section \\(dq%s\\(dq\n", mine);
        section = mine;
        (void)fputs(".TP\n", out);
        print_bold(out, o->key);
        (void)fputs("\n", out);
        print_text(out, o->help);
        (void)fputs(": ", out);
        print_text(out, wf_option_allowed(arena, o));
        (void)fputs(". Default: ", out);
        print_text(out, o->fallback ? o->fallback : o->unset);
        (void)fputs(".\n", out);
    }
}

static void print_tail(FILE *out)
{
    (void)fputs(
        ".SH ENVIRONMENT\n.TP\n.B WIDEFIELD_\\fISECTION\\fB_\\fIKEY\\fR\n"
        "Replaces a key of the config, as WIDEFIELD_MODEL_BASE=32 does for model.base. The command "
        "line takes precedence.\n"
        ".SH FILES\nA run folder holds\n"
        ".TP\n.B config.yaml\nthe resolved config\n"
        ".TP\n.B log.jsonl\none JSON object a line: steps, epochs, samples, the end\n"
        ".TP\n.B checkpoints/\nlast.safetensors and best.safetensors\n"
        ".TP\n.B report.html\nthe report, and samples/ with the images in it\n"
        ".TP\n.B events.out.tfevents.*\nthe curves for TensorBoard\n"
        ".SH EXIT STATUS\n"
        ".TP\n.B 0\nsuccess\n.TP\n.B 1\nfailed\n.TP\n.B 2\nwrong usage or config\n"
        ".TP\n.B 3\ndoes not fit: memory or mesh\n"
        ".TP\n.B 75\nstopped by a signal after a checkpoint was written\n"
        ".SH SEE ALSO\n.BR mpirun (1),\n.BR srun (1)\n",
        out);
}

void wf_docs_man(struct wf_arena *arena, FILE *out)
{
    (void)fputs(".\\\" Made by 'widefield config man' from the tables of commands and options; do "
                "not edit.\n"
                ".TH WIDEFIELD 1 \"\" \"widefield " WF_VERSION_STRING "\" \"User Commands\"\n"
                ".SH NAME\nwidefield \\- convolutional networks on whole images, cut over many "
                "ranks\n"
                ".SH SYNOPSIS\n.B widefield\n.I COMMAND\n[\\fIARGUMENT\\fR ...] "
                "[\\fIKEY\\fR=\\fIVALUE\\fR ...] [\\fB\\-\\-\\fIOPTION\\fR ...]\n"
                ".SH DESCRIPTION\n"
                "Widefield trains convolutional networks on whole images, however large. An image "
                "that is too large for one device is cut over several, with the results of one.\n"
                ".PP\nData goes to standard output, messages to standard error. Under\n"
                ".BR mpirun (1)\nor\n.BR srun (1)\nthe ranks are the launcher's; otherwise they "
                "are threads of one process.\n"
                ".SH COMMANDS\n",
                out);
    for (const struct wf_command *const *c = wf_commands; *c; c++)
        print_command(out, *c);
    (void)fputs(".SH COMMON OPTIONS\n", out);
    for (const struct wf_command_flag *f = wf_plain_flags; f->name; f++)
        print_flag(out, f->name, f->value, f->help);
    (void)fputs(".PP\nCommands that take a config also take flags that are short for a key:\n",
                out);
    for (const struct wf_option_flag *f = wf_option_flags; f->name; f++)
        print_flag(out, f->name, f->value, f->help);
    (void)fputs(".SH CONFIG\nA YAML file with one level of sections. The command line goes before "
                "the environment, that before the file, that before the default.\n",
                out);
    print_keys(arena, out);
    print_tail(out);
}
