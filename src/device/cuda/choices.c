#include "device/cuda/choices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* How it was chosen. 2: parts of large problems are padded as the whole. 4: on the whole, and with most_workspace, where
 * others would fail. */
enum { WAY = 4 };

static void print_key(const struct wf_cuda *cuda, const struct wf_cudnn_problem *problem,
                      char key[WF_CHOICE_KEY])
{
    const int at = snprintf(
        key, WF_CHOICE_KEY, "%s, cuDNN %zu, way %d, at most %zu to %zu bytes: ", cuda->name,
        cuda->dnn.cudnnGetVersion(), (int)WAY, cuda->workspace, cuda->most_workspace);
    wf_cudnn_problem_print(problem, key + at, (size_t)(WF_CHOICE_KEY - at));
}

/* --- in the table --- */

bool wf_cuda_choice_find(const struct wf_cuda *cuda, const struct wf_cudnn_problem *problem,
                         struct wf_cudnn_choice *choice)
{
    char key[WF_CHOICE_KEY];
    print_key(cuda, problem, key);
    const char *const text = wf_choices_find(cuda->choices, key);
    return text && wf_cudnn_choice_parse(text, choice);
}

void wf_cuda_choice_put(const struct wf_cuda *cuda, const struct wf_cudnn_problem *problem,
                        const struct wf_cudnn_choice *choice)
{
    char key[WF_CHOICE_KEY], text[WF_CHOICE_TEXT];
    print_key(cuda, problem, key);
    wf_cudnn_choice_print(choice, text, sizeof text);
    wf_choices_put(cuda->choices, key, text);
}

void wf_cuda_choice_put_wrong(const struct wf_cuda *cuda, const struct wf_cudnn_problem *problem,
                              const struct wf_cudnn_choice *choice)
{
    char key[WF_CHOICE_KEY], text[WF_CHOICE_TEXT];
    print_key(cuda, problem, key);
    wf_cudnn_choice_print(choice, text, sizeof text);
    const size_t end = strlen(key);
    (void)snprintf(key + end, sizeof key - end, ": engine %s", text);
    wf_choices_put(cuda->choices, key, WF_CHOICE_WRONG);
}

/* --- plans --- */

static void print_plan_key(const struct wf_cuda *cuda, const struct wf_cudnn_problem *problem,
                           const struct wf_cudnn_choice *choice, char key[WF_CHOICE_KEY])
{
    char text[WF_CHOICE_TEXT];
    print_key(cuda, problem, key);
    wf_cudnn_choice_print(choice, text, sizeof text);
    const size_t end = strlen(key);
    (void)snprintf(key + end, WF_CHOICE_KEY - end, ": plan of engine %s", text);
}

void wf_cuda_choice_keep(const struct wf_cuda *cuda, const struct wf_cudnn_problem *problem,
                         const struct wf_cudnn_choice *choice, const struct wf_cudnn_plan *plan)
{
    char key[WF_CHOICE_KEY];
    size_t size = 0;
    char *const text = wf_cudnn_plan_is_compiled(plan) ? wf_cudnn_plan_print(plan, &size) : NULL;
    if (!text)
        return;
    print_plan_key(cuda, problem, choice, key);
    wf_choices_store(cuda->choices, key, text, size);
    free(text);
}

struct wf_cudnn_plan *wf_cuda_choice_plan(const struct wf_cuda *cuda, struct wf_cudnn_graph *graph,
                                          const struct wf_cudnn_problem *problem,
                                          const struct wf_cudnn_choice *choice)
{
    char key[WF_CHOICE_KEY];
    size_t size = 0;
    print_plan_key(cuda, problem, choice, key);
    char *const text = wf_choices_load(cuda->choices, key, &size);
    struct wf_cudnn_plan *plan = text ? wf_cudnn_plan_parse(graph, text, size) : NULL;
    free(text);
    if (plan)
        return plan;
    plan = wf_cudnn_plan_new(graph, choice);
    if (plan)
        wf_cuda_choice_keep(cuda, problem, choice, plan);
    return plan;
}
