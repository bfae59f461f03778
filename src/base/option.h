/*
 * The declaration of one setting: its key, type, range, default and help.
 *
 * Tables of these are all that is known of a setting: from them it is read, checked, shown and documented
 * (config/options.h). Whoever owns a setting declares it; networks declare their own (models/model.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum wf_option_type {
    WF_OPTION_INT,
    WF_OPTION_REAL,
    WF_OPTION_BOOL,
    WF_OPTION_BYTES, /* a count with an optional unit: 16GiB, 500M */
    WF_OPTION_NAME,  /* one of `names` */
    WF_OPTION_SUM,   /* distinct names joined by '+' */
    WF_OPTION_TEXT,
    WF_OPTION_INTS,  /* [1, 3, 64, 64]; on the command line also 1,3,64,64 and 1x3x64x64 */
    WF_OPTION_NAMES, /* a list of distinct names */
    WF_OPTION_TEXTS,
};

struct wf_option {
    const char *key, *help;
    enum wf_option_type type;
    const char *fallback; /* the default, as on the command line; NULL: not set */
    const char *unset;    /* what then happens, for people */
    bool may_be_empty;    /* of a text */
    const char *const *names;
    double min, max;          /* of numbers and of each number of a list, both included */
    int count_min, count_max; /* of lists */
    size_t offset;            /* of a network's own: where its struct has it */
};

/* Parts of a row: a type with its range, or with its names. */
#define WF_OPTION_IN(kind, lo, hi) .type = WF_OPTION_##kind, .min = lo, .max = hi
#define WF_OPTION_OF(kind, list) .type = WF_OPTION_##kind, .names = list
