/*
 * Verdicts on primitives, kept (device/choices.h) under all that they depend on: the library's version,
 * the instruction set, the cache's size, threads, the implementation's name and the problem.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "device/choices.h"
#include "device/cpu/dnnl.h"

static int print_triple(char *text, size_t room, char letter, const int64_t v[3])
{
    return snprintf(text, room, " %c%" PRId64 "x%" PRId64 "x%" PRId64, letter, v[0], v[1], v[2]);
}

static void print_key(const struct wf_dnnl_problem *p, const char *name, int threads,
                      char key[WF_CHOICE_KEY])
{
    static const char *const passes[] = { "forward", "data", "weights" };
    char about[WF_DNNL_ABOUT];
    wf_dnnl_about(about);
    int at = snprintf(key, WF_CHOICE_KEY,
                      "%s %s, threads %d, %s %s%s n%" PRId64 " i%" PRId64 " o%" PRId64 " g%" PRId64,
                      about, name, threads, passes[p->pass], wf_dtype_name(p->dtype),
                      p->bias ? " bias" : "", p->batch, p->in, p->out, p->groups);
    const struct {
        char letter;
        const int64_t *values;
    } triples[] = { { 'x', p->src },    { 'y', p->dst },      { 'k', p->kernel },
                    { 's', p->stride }, { 'd', p->dilation }, { 'l', p->pad_lo },
                    { 'h', p->pad_hi } };
    for (size_t i = 0; i < sizeof triples / sizeof *triples && at < WF_CHOICE_KEY; i++)
        at += print_triple(key + at, (size_t)(WF_CHOICE_KEY - at), triples[i].letter,
                           triples[i].values);
}

bool wf_dnnl_verdict_find(const struct wf_dnnl_checking *checking, const char *key, bool *right)
{
    const char *const known = checking->verdicts ? wf_choices_find(checking->verdicts, key) : NULL;
    *right = !known || strcmp(known, WF_CHOICE_WRONG) != 0;
    return known != NULL;
}

void wf_dnnl_verdict_put(const struct wf_dnnl_checking *checking, const char *key, bool right)
{
    if (checking->verdicts)
        wf_choices_put(checking->verdicts, key, right ? WF_CHOICE_RIGHT : WF_CHOICE_WRONG);
}

bool wf_dnnl_conv_is_right(struct wf_dnnl *lib, struct wf_dnnl_conv *conv,
                           const struct wf_dnnl_problem *p, const struct wf_dnnl_checking *checking)
{
    char key[WF_CHOICE_KEY];
    bool right, sure;
    print_key(p, wf_dnnl_conv_name(conv), checking->threads, key);
    if (wf_dnnl_verdict_find(checking, key, &right))
        return right;
    right = wf_dnnl_conv_compare(lib, conv, p, &sure);
    if (sure)
        wf_dnnl_verdict_put(checking, key, right);
    return right;
}
