/* Completion for shells: commands, their verbs and flags, keys and the names they take. */
#include <string.h>

#include "cli/docs.h"

/* Keys whose values are names out of a list. */
static bool has_names(const struct wf_option *o)
{
    return o->names != NULL || o->type == WF_OPTION_BOOL;
}

static void print_names(FILE *out, const struct wf_option *o)
{
    static const char *const switches[] = { "true", "false", NULL };
    const char *const *const names = o->names ? o->names : switches;
    for (int i = 0; names[i]; i++)
        (void)fprintf(out, "%s%s", i ? " " : "", names[i]);
}

/* Every flag of a command, as "--a --b". */
static void print_flags(FILE *out, const struct wf_command *c)
{
    const char *gap = "";
    for (const struct wf_command_flag *f = c->flags; f && f->name; f++, gap = " ")
        (void)fprintf(out, "%s--%s", gap, f->name);
    for (const struct wf_option_flag *f = wf_option_flags; c->config_at && f->name; f++, gap = " ")
        (void)fprintf(out, "%s--%s", gap, f->name);
    for (const struct wf_command_flag *f = wf_plain_flags; f->name; f++, gap = " ")
        (void)fprintf(out, "%s--%s", gap, f->name);
}

static void print_keys(FILE *out, const char *between)
{
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o))
        (void)fprintf(out, "%s%s=", o == wf_option_next(NULL) ? "" : between, o->key);
}

static void print_verbs(struct wf_arena *arena, FILE *out, const struct wf_command *c)
{
    for (const char *const *v = wf_docs_verbs(arena, c); *v; v++)
        (void)fprintf(out, " %s", *v);
}

/* case lines 'KEY) VALUES': of keys, and of the flags that are short for them. */
static void print_values(FILE *out, const char *indent, const char *format)
{
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o)) {
        if (!has_names(o))
            continue;
        (void)fprintf(out, "%s%s", indent, o->key);
        for (const struct wf_option_flag *f = wf_option_flags; f->name; f++)
            if (strcmp(f->key, o->key) == 0)
                (void)fprintf(out, " | --%s", f->name);
        (void)fprintf(out, ") %s'", format);
        print_names(out, o);
        (void)fputs("' ;;\n", out);
    }
}

static void print_commands(FILE *out)
{
    for (const struct wf_command *const *c = wf_commands; *c; c++)
        (void)fprintf(out, "%s%s", c == wf_commands ? "" : " ", (*c)->name);
}

/* --- bash --- */

/* case lines 'COMMAND) words=FLAGS; verbs=VERBS'. */
static void print_bash_commands(struct wf_arena *arena, FILE *out)
{
    for (const struct wf_command *const *c = wf_commands; *c; c++) {
        (void)fprintf(out, "    %s) words='", (*c)->name);
        print_flags(out, *c);
        (void)fputs("'", out);
        if (*wf_docs_verbs(arena, *c)) {
            (void)fputs("; ((COMP_CWORD == 2)) && verbs='", out);
            print_verbs(arena, out, *c);
            (void)fputs("'", out);
        }
        (void)fputs(" ;;\n", out);
    }
}

void wf_docs_bash(struct wf_arena *arena, FILE *out)
{
    (void)fputs("# Completion of widefield for bash. Made by 'widefield config bash'; do not "
                "edit.\n"
                "_widefield() {\n"
                "    local cur=${COMP_WORDS[COMP_CWORD]} key= values= words= verbs= i\n"
                "    COMPREPLY=()\n"
                "    # bash takes 'key=value' for three words\n"
                "    if [[ $cur == = ]]; then\n"
                "        key=${COMP_WORDS[COMP_CWORD - 1]} cur=\n"
                "    elif ((COMP_CWORD > 2)) && [[ ${COMP_WORDS[COMP_CWORD - 1]} == = ]]; then\n"
                "        key=${COMP_WORDS[COMP_CWORD - 2]}\n"
                "    elif ((COMP_CWORD > 1)); then\n"
                "        key=${COMP_WORDS[COMP_CWORD - 1]}\n"
                "    fi\n"
                "    case $key in\n",
                out);
    print_values(out, "    ", "values=");
    (void)fputs("    esac\n"
                "    if [[ $values ]]; then\n"
                "        COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
                "        return\n"
                "    fi\n"
                "    if ((COMP_CWORD == 1)); then\n"
                "        COMPREPLY=($(compgen -W '",
                out);
    print_commands(out);
    (void)fputs(" help --help --version' -- \"$cur\"))\n"
                "        return\n"
                "    fi\n"
                "    case ${COMP_WORDS[1]} in\n",
                out);
    print_bash_commands(arena, out);
    (void)fputs("    help) verbs='", out);
    print_commands(out);
    (void)fputs("' ;;\n"
                "    esac\n"
                "    local IFS=$' \\n'\n"
                "    if [[ $cur == -* ]]; then\n"
                "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                "        return\n"
                "    fi\n"
                "    [[ $cur ]] && verbs+=' ",
                out);
    print_keys(out, " ");
    (void)fputs("'\n"
                "    COMPREPLY=($(compgen -W \"$verbs\" -- \"$cur\"))\n"
                "    for i in \"${COMPREPLY[@]}\"; do\n"
                "        [[ $i == *= ]] && compopt -o nospace 2>/dev/null\n"
                "    done\n"
                "    # not together with keys: as a file name, their '=' would be quoted\n"
                "    ((${#COMPREPLY[@]})) || compopt -o filenames 2>/dev/null\n"
                "    IFS=$'\\n'\n"
                "    COMPREPLY+=($(compgen -f -- \"$cur\"))\n"
                "}\n"
                "complete -F _widefield widefield\n",
                out);
}

/* --- zsh --- */

void wf_docs_zsh(struct wf_arena *arena, FILE *out)
{
    (void)fputs("#compdef widefield\n"
                "# Completion of widefield for zsh. Made by 'widefield config zsh'; do not edit.\n"
                "_widefield() {\n"
                "    local key values\n"
                "    local -a commands words_\n"
                "    commands=(\n",
                out);
    for (const struct wf_command *const *c = wf_commands; *c; c++) {
        /* Within single quotes; ':' ends the name, and the summaries have no quote of their own. */
        (void)fprintf(out, "        '%s:", (*c)->name);
        for (const char *at = (*c)->summary; *at; at++)
            (void)fputs(*at == '\'' ? "'\\''" : (char[]){ *at, '\0' }, out);
        (void)fputs("'\n", out);
    }
    (void)fputs("    )\n"
                "    if ((CURRENT == 2)); then\n"
                "        _describe command commands\n"
                "        return\n"
                "    fi\n"
                "    key=${words[CURRENT-1]}\n"
                "    if [[ $PREFIX == [a-z]*.*=* ]]; then\n"
                "        key=${PREFIX%%=*}\n"
                "        compset -P '*='\n"
                "    fi\n"
                "    case $key in\n",
                out);
    print_values(out, "    ", "values=");
    (void)fputs("    esac\n"
                "    if [[ -n $values ]]; then\n"
                "        compadd -- ${=values}\n"
                "        return\n"
                "    fi\n"
                "    case ${words[2]} in\n",
                out);
    for (const struct wf_command *const *c = wf_commands; *c; c++) {
        (void)fprintf(out, "    %s) words_=(", (*c)->name);
        print_flags(out, *c);
        (void)fputs(")", out);
        if (*wf_docs_verbs(arena, *c)) {
            (void)fputs("; ((CURRENT == 3)) && words_+=(", out);
            print_verbs(arena, out, *c);
            (void)fputs(")", out);
        }
        (void)fputs(" ;;\n", out);
    }
    (void)fputs("    esac\n"
                "    compadd -- $words_\n"
                "    compadd -S '' -- ",
                out);
    print_keys(out, " ");
    (void)fputs("\n    _files\n}\n_widefield \"$@\"\n", out);
}

/* --- fish --- */

static void fish_text(FILE *out, const char *text)
{
    (void)fputc('\'', out);
    for (; *text; text++)
        (void)fputs(*text == '\'' || *text == '\\' ? (char[]){ '\\', *text, '\0' }
                                                   : (char[]){ *text, '\0' },
                    out);
    (void)fputc('\'', out);
}

static void fish_flag(FILE *out, const char *when, const char *name, const char *value,
                      const char *help)
{
    (void)fprintf(out, "complete -c widefield -n '%s' -l %s%s -d ", when, name, value ? " -r" : "");
    fish_text(out, help);
    (void)fputs("\n", out);
}

void wf_docs_fish(struct wf_arena *arena, FILE *out)
{
    (void)fputs("# Completion of widefield for fish. Made by 'widefield config fish'; do not "
                "edit.\n",
                out);
    for (const struct wf_command *const *c = wf_commands; *c; c++) {
        (void)fprintf(out, "complete -c widefield -n __fish_use_subcommand -f -a %s -d ",
                      (*c)->name);
        fish_text(out, (*c)->summary);
        (void)fputs("\n", out);
        const char *const when =
            wf_arena_printf(arena, "__fish_seen_subcommand_from %s", (*c)->name);
        for (const char *const *v = wf_docs_verbs(arena, *c); *v; v++)
            (void)fprintf(out, "complete -c widefield -n '%s' -a %s\n", when, *v);
        for (const struct wf_command_flag *f = (*c)->flags; f && f->name; f++)
            fish_flag(out, when, f->name, f->value, f->help);
        for (const struct wf_option_flag *f = wf_option_flags; (*c)->config_at && f->name; f++)
            fish_flag(out, when, f->name, f->value, f->help);
    }
    for (const struct wf_command_flag *f = wf_plain_flags; f->name; f++)
        fish_flag(out, "not __fish_use_subcommand", f->name, f->value, f->help);
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o)) {
        (void)fprintf(out, "complete -c widefield -n 'not __fish_use_subcommand' -a '%s=' -d ",
                      o->key);
        fish_text(out, o->help);
        (void)fputs("\n", out);
    }
}
