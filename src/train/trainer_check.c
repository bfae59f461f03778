/* Whether a run that came to its end has learned something. */
#include <inttypes.h>
#include <math.h>

#include "train/trainer.h"

/* Steps that are skipped now and then are what a dynamic scale is made of, also all of a short
 * epoch. */
static bool learned(const struct wf_trainer_options *o, const struct wf_trainer_result *r,
                    struct wf_err *err)
{
    const char *const f16 = o->learner->scaler.dynamic ? ", use train.precision=bf16 or f32" : "";
    if (r->end == WF_END_SIGNAL || r->at.step == 0)
        return true;
    if (r->at.skipped >= r->at.step)
        return wf_err_set(err, WF_ERR_FAILED,
                          "every step was skipped because a gradient was not finite (%" PRId64
                          " of %" PRId64 " steps): nothing is learned: lower train.lr%s, or look "
                          "at the data ('widefield data inspect')",
                          r->at.skipped, r->at.step, f16);
    const bool unknown = isnan(r->loss) && r->at.skipped > 0;
    if ((!unknown && !isfinite(r->loss)) ||
        (!isnan(r->metric) && o->validator && wf_validator_failed(o->validator)))
        return wf_err_set(
            err, WF_ERR_FAILED,
            "the loss is not finite after %" PRId64 " steps (training %g): nothing is "
            "learned: lower train.lr%s, or look at the data ('widefield data inspect')",
            r->at.step, r->loss, f16);
    return true;
}

bool wf_trainer_check(const struct wf_trainer_options *options,
                      const struct wf_trainer_result *result, struct wf_err *err)
{
    return wf_comm_agree(options->comm, learned(options, result, err), err);
}
