/*
 * Documents that are made from the tables of commands and options, so that they cannot lie.
 *
 * 'widefield config docs|networks|man|bash|zsh|fish' prints one of them; the files in the repository are
 * what these print, which 'scripts/lint-docs' looks after ('--fix' writes them).
 */
#pragma once

#include <stdio.h>

#include "cli/cli.h"

struct wf_document {
    const char *verb, *what;
    void (*print)(struct wf_arena *arena, FILE *out);
};
extern const struct wf_document wf_documents[]; /* ends with a NULL verb */

/* The words that may follow a command, read off its usage ("model list | model show NAME"): those
 * written in small letters only. NULL-ended. */
const char *const *wf_docs_verbs(struct wf_arena *arena, const struct wf_command *command);
/* The section of a key: "model" of "model.base". */
const char *wf_docs_section(struct wf_arena *arena, const struct wf_option *option);

void wf_docs_markdown(struct wf_arena *arena, FILE *out);
void wf_docs_networks(struct wf_arena *arena, FILE *out);
void wf_docs_man(struct wf_arena *arena, FILE *out);
void wf_docs_bash(struct wf_arena *arena, FILE *out);
void wf_docs_zsh(struct wf_arena *arena, FILE *out);
void wf_docs_fish(struct wf_arena *arena, FILE *out);
