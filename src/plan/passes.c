/*
 * The tables of passes. An optimisation is a pass that rewrites its list, in a file of its own: the
 * program's items, alike on all ranks, or a rank's steps. A new one is a file and a row here.
 *
 * Each row has a check of the rules that its pass keeps (the letters at the top of its file). Where
 * options.check_passes is set, and in builds without optimisation, the rules of a pass are checked
 * behind it and behind every later pass, and that the list can run as it is.
 */
#include "plan/check.h"
#include "plan/planner.h"

static const struct {
    const char *name;
    void (*run)(struct wf_global_plan *global);
    const char *(*check)(const struct wf_global_plan *global);
} of_program[] = {
    { "fuse", wf_pass_fuse, wf_pass_fuse_check },
    { "strips", wf_pass_strips, wf_pass_strips_check },
    { "buckets", wf_pass_buckets, wf_pass_buckets_check },
};

static const struct {
    const char *name;
    void (*run)(struct wf_planner *p);
    const char *(*check)(const struct wf_plan *plan);
} of_steps[] = {
    { "overlap", wf_pass_overlap, wf_pass_overlap_check },
    { "split", wf_pass_split, wf_pass_split_check },
    { "pack", wf_pass_pack, wf_pass_pack_check },
};

enum {
    PROGRAM_PASSES = sizeof of_program / sizeof *of_program,
    STEP_PASSES = sizeof of_steps / sizeof *of_steps,
};

static bool are_checked(const struct wf_plan_options *options)
{
#ifdef __OPTIMIZE__
    return options->check_passes;
#else
    return options || true;
#endif
}

static bool is_kept(const char *pass, const char *broken, struct wf_err *err)
{
    return !broken ||
           wf_err_set(err, WF_ERR_FAILED,
                      "plan breaks a rule of pass '%s' at '%s': please report it", pass, broken);
}

/* The first n of them. */
static bool check_program(const struct wf_global_plan *global, int n, struct wf_err *err)
{
    bool ok = true;
    for (int i = 0; ok && i < n; i++)
        ok = is_kept(of_program[i].name, of_program[i].check(global), err);
    return ok;
}

static bool check_steps(const struct wf_plan *plan, int n, struct wf_err *err)
{
    bool ok = wf_check_list(plan, err);
    for (int i = 0; ok && i < n; i++)
        ok = is_kept(of_steps[i].name, of_steps[i].check(plan), err);
    return ok || n == 0 || wf_err_wrap(err, "behind pass '%s'", of_steps[n - 1].name);
}

bool wf_passes_check(const struct wf_plan *plan, struct wf_err *err)
{
    return check_program(plan->global, PROGRAM_PASSES, err) && check_steps(plan, STEP_PASSES, err);
}

bool wf_passes_over_program(struct wf_global_plan *global, struct wf_err *err)
{
    bool ok = true;
    for (int i = 0; ok && i < PROGRAM_PASSES; i++) {
        of_program[i].run(global);
        ok = !are_checked(&global->options) || check_program(global, i + 1, err);
    }
    return ok;
}

bool wf_passes_over_steps(struct wf_planner *p, struct wf_err *err)
{
    const bool check = are_checked(p->options) && p->geo->fetches; /* without them it cannot run */
    bool ok = !check || check_steps(p->plan, 0, err);
    for (int i = 0; ok && i < STEP_PASSES; i++) {
        of_steps[i].run(p);
        ok = !check || check_steps(p->plan, i + 1, err);
    }
    return ok;
}
