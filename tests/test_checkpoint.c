/* Checkpoints: all comes back on any mesh, and no damage goes unseen. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ckpt/checkpoint.h"
#include "files.h"
#include "plan/mesh.h"
#include "support_net.h"
#include "support_scratch.h"

/* --- a network whose every number is known --- */

static bool is_weight(const struct wf_value *v)
{
    return v->kind == WF_PARAM || v->kind == WF_STATE;
}

static bool is_trained(const struct wf_value *v)
{
    return v->kind == WF_PARAM && !v->frozen;
}

static float *weight(const struct support_net *n, const struct wf_value *v)
{
    return wf_run_view(n->run, v).data;
}

/* Number i of tensor v of array k, so that no two are alike; k 0 is the weight itself. */
static float mark(size_t v, int k, int64_t i)
{
    return (float)v + 0.25f * (float)k + (float)i * 1e-3f;
}

static void paint(const struct support_net *n)
{
    for (size_t v = 0; v < n->g->n_values; v++)
        for (int64_t i = 0;
             is_weight(n->g->values[v]) && i < wf_shape_count(n->g->values[v]->shape); i++) {
            weight(n, n->g->values[v])[i] = mark(v, 0, i);
            for (int k = 0; is_trained(n->g->values[v]) && k < n->optim->n_states; k++)
                n->optim->states[k][n->plan->param_at[v] + (size_t)i] = mark(v, k + 1, i);
        }
}

/* `with` was painted; `n` must have the same by name, whatever its graph. */
static bool is_painted(const struct support_net *n, const struct wf_graph *with, bool optim,
                       struct wf_err *err)
{
    for (size_t j = 0; j < n->g->n_values; j++) {
        const struct wf_value *const v = n->g->values[j];
        if (!is_weight(v))
            continue;
        const size_t id = (size_t)wf_graph_find(with, v->name)->id;
        for (int64_t i = 0; i < wf_shape_count(v->shape); i++) {
            bool ok = weight(n, v)[i] == mark(id, 0, i);
            for (int k = 0; optim && is_trained(v) && k < n->optim->n_states; k++)
                ok = ok &&
                     n->optim->states[k][n->plan->param_at[j] + (size_t)i] == mark(id, k + 1, i);
            if (!ok)
                return wf_err_set(err, WF_ERR_FAILED, "'%s' differs at %lld", v->name,
                                  (long long)i);
        }
    }
    return true;
}

static const double mean[] = { 0.1, 1.0 / 3, -2e-300 }, deviation[] = { 1, 1e300, 3 };
static const char *const names[] = { "back \"ground\"", "Zellkern\n\xc3\xa4" };

static struct wf_checkpoint_info info_at(int64_t step)
{
    return (struct wf_checkpoint_info){
        .config = "model:\n  name: \"unet\"\n",
        .at = { .step = step,
                .epoch = 3,
                .batch = 5,
                .skipped = 11,
                .in_a_row = 1,
                .loss_sum = 1.0 / 3,
                .loss_samples = 12,
                .loss = (double)NAN,
                .best = 0.1 + 0.2,
                .best_epoch = -1,
                .stale = 2,
                .seconds = 1e-17,
                .loss_scale = 1024,
                .scale_streak = 13,
                .schedule = { .factor = 0.1 + 0.7, .best = 1e-300, .seen = 14, .bad = 15 } },
        .seed = 9007199254740991u,
        .channels = 3,
        .mean = mean,
        .deviation = deviation,
        .classes = 2,
        .class_names = names
    };
}

/* --- round trips --- */

struct trip {
    const char *from, *to, *path, *frozen;
};

/* Frozen weights have no gradients and no moments, and lie behind the others. */
static bool frozen_lie_apart(const struct support_net *n, struct wf_err *err)
{
    size_t trained = 0, frozen = 0;
    for (size_t v = 0; v < n->g->n_values; v++) {
        const struct wf_value *const w = n->g->values[v];
        const size_t at = n->plan->param_at[v], room = (size_t)wf_shape_count(w->shape);
        if (is_trained(w) && at + room > trained)
            trained = at + room;
        if (w->kind == WF_PARAM && w->frozen && (frozen == 0 || at < frozen))
            frozen = at;
    }
    const size_t count = n->optim->count;
    if (wf_run_trained_count(n->run) == count && count * 4 == n->plan->store_bytes[WF_STORE_GRAD] &&
        trained <= count &&
        (frozen ? frozen == count && count < wf_run_param_count(n->run)
                : count == wf_run_param_count(n->run)))
        return true;
    return wf_err_set(err, WF_ERR_FAILED, "%zu elements of the optimiser, %zu trained, %zu frozen",
                      count, trained, frozen);
}

static bool save_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct trip *const trip = arg;
    struct support_net n;
    bool ok = support_net_init_frozen(&n, comm, trip->from, trip->frozen, err) &&
              frozen_lie_apart(&n, err);
    if (ok)
        paint(&n);
    const struct wf_checkpoint_info info = info_at(42);
    if (ok && wf_comm_rank(comm) == 0)
        ok = wf_checkpoint_save(trip->path, &info, n.run, n.optim, err);
    ok = wf_comm_agree(comm, ok, err);
    support_net_release(&n);
    return ok;
}

static bool load_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    const struct trip *const trip = arg;
    struct support_net n, other; /* an inference graph numbers its values in another way */
    struct wf_checkpoint *const c = wf_checkpoint_open(trip->path, err);
    bool ok = c && support_net_init_frozen(&n, comm, trip->to, trip->frozen, err) &&
              wf_checkpoint_load(c, n.run, n.optim, err) && is_painted(&n, n.g, true, err);
    if (ok && n.optim->step != 42 - 11) /* without the skipped */
        ok = wf_err_set(err, WF_ERR_FAILED, "the optimiser is at step %lld",
                        (long long)n.optim->step);
    if (ok) {
        ok = support_net_init(&other, comm, trip->to, false, err) &&
             wf_checkpoint_load(c, other.run, NULL, err) && is_painted(&other, n.g, false, err);
        support_net_release(&other);
        support_net_release(&n);
    }
    wf_checkpoint_free(c);
    return wf_comm_agree(comm, ok, err);
}

static int ranks_of(const char *mesh_text)
{
    struct wf_mesh mesh;
    struct wf_err err = { 0 };
    assert_true(wf_mesh_parse(mesh_text, &mesh, &err));
    return wf_mesh_size(&mesh);
}

/* ranks: 1 2 3 4 6 */
static void weights__come_back_on_any_mesh(void **state)
{
    static const char *const meshes[] = { "space=1", "space=2x1", "data=2,space=1x2", "space=3",
                                          "space=2x3" };
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        struct trip trip = { .from = meshes[i],
                             .to = meshes[(i + 2) % 5],
                             .path = "trip.safetensors",
                             .frozen = i % 2 ? "enc" : NULL };
        struct wf_err err = { 0 };
        if (!wf_comm_threads_run(ranks_of(trip.from), save_rank, &trip, &err) ||
            !wf_comm_threads_run(ranks_of(trip.to), load_rank, &trip, &err))
            fail_msg("from %s to %s: %s", trip.from, trip.to, err.text);
    }
}

/* Frozen at first, and trained from then on. */
static void weights_that_were_frozen__begin_with_zero_moments(void **state)
{
    (void)state;
    struct trip trip = { .from = "space=1", .path = "frozen.safetensors", .frozen = "enc" };
    struct wf_err err = { 0 };
    struct support_net n;
    struct wf_comm *const comm = wf_comm_self();
    assert_true(wf_comm_threads_run(1, save_rank, &trip, &err));
    struct wf_checkpoint *const c = wf_checkpoint_open(trip.path, &err);
    assert_non_null(c);
    assert_true(support_net_init(&n, comm, "", true, &err));
    for (int k = 0; k < n.optim->n_states; k++)
        for (size_t i = 0; i < n.optim->count; i++)
            n.optim->states[k][i] = 7;
    assert_true(wf_checkpoint_fits(c, n.g, n.optim->n_states, &err));
    assert_true(wf_checkpoint_load(c, n.run, n.optim, &err));
    int zeros = 0, kept = 0;
    for (size_t v = 0; v < n.g->n_values; v++) {
        const struct wf_value *const w = n.g->values[v];
        for (int64_t i = 0; is_trained(w) && i < wf_shape_count(w->shape); i++)
            for (int k = 0; k < n.optim->n_states; k++) {
                const float moment = n.optim->states[k][n.plan->param_at[v] + (size_t)i];
                const bool was_frozen = strncmp(w->name, "enc", 3) == 0;
                assert_true(was_frozen ? moment == 0 : moment != 0 && moment != 7);
                zeros += was_frozen;
                kept += !was_frozen;
            }
    }
    assert_true(zeros > 0 && kept > 0);
    support_net_release(&n);
    wf_checkpoint_free(c);
    wf_comm_free(comm);
}

static void save(const char *path, int64_t step)
{
    struct support_net n;
    struct wf_err err = { 0 };
    struct wf_comm *const comm = wf_comm_self();
    assert_true(support_net_init(&n, comm, "", true, &err));
    paint(&n);
    const struct wf_checkpoint_info info = info_at(step);
    if (!wf_checkpoint_save(path, &info, n.run, n.optim, &err))
        fail_msg("%s", err.text);
    support_net_release(&n);
    wf_comm_free(comm);
}

static void info__comes_back_to_the_last_bit(void **state)
{
    struct wf_err err = { 0 };
    save("info.safetensors", 7);
    struct wf_checkpoint *const c = wf_checkpoint_open("info.safetensors", &err);
    assert_non_null(c);
    const struct wf_checkpoint_info *const got = wf_checkpoint_info(c);
    const struct wf_checkpoint_info want = info_at(7);
    assert_string_equal(got->config, want.config);
    assert_true(got->seed == want.seed && got->at.step == 7 && isnan(got->at.loss));
    struct wf_position at = got->at, same = want.at;
    at.loss = same.loss = 0;
    assert_memory_equal(&at, &same, sizeof at);
    assert_int_equal(got->channels, 3);
    for (int i = 0; i < 3; i++)
        assert_true(got->mean[i] == mean[i] && got->deviation[i] == deviation[i]);
    assert_int_equal(got->classes, 2);
    for (int i = 0; i < 2; i++)
        assert_string_equal(got->class_names[i], names[i]);
    wf_checkpoint_free(c);
}

/* --- damage --- */

static void put_file(const char *path, const unsigned char *bytes, size_t size)
{
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void damage__is_seen_wherever_it_is(void **state)
{
    size_t size;
    save("whole.safetensors", 1);
    unsigned char *const bytes = slurp("whole.safetensors", &size);
    assert_non_null(bytes);
    uint64_t header;
    memcpy(&header, bytes, 8);
    int harmless = 0;
    for (size_t at = 0; at < size; at += at < 8 + header ? 7 : 211) {
        const unsigned char was = bytes[at];
        bytes[at] ^= (unsigned char)(1u << at % 8);
        put_file("bad.safetensors", bytes, size);
        struct wf_err err = { 0 };
        struct wf_checkpoint *const c = wf_checkpoint_open("bad.safetensors", &err);
        /* Only the blanks that pad the header may become others. */
        if (c && bytes[at] != ' ' && was != ' ')
            fail_msg("byte %zu changed from %d to %d and nobody saw it", at, was, bytes[at]);
        harmless += c != NULL;
        if (!c)
            assert_true(err.code != WF_OK && strstr(err.text, "bad.safetensors"));
        wf_checkpoint_free(c);
        bytes[at] = was;
    }
    assert_true(harmless <= 2);
    for (size_t cut = 0; cut < size; cut += 1 + cut / 3) {
        put_file("bad.safetensors", bytes, cut);
        struct wf_err err = { 0 };
        assert_null(wf_checkpoint_open("bad.safetensors", &err));
        assert_true(err.code != WF_OK);
    }
    free(bytes);
}

static void other_files__are_told_apart_from_checkpoints(void **state)
{
    static const unsigned char file[] = "\x0a\0\0\0\0\0\0\0{        }";
    put_file("weights.safetensors", file, 18);
    struct wf_err err = { 0 };
    assert_null(wf_checkpoint_open("weights.safetensors", &err));
    assert_non_null(strstr(err.text, "not a checkpoint of widefield"));
}

static void another_network__is_refused_by_name(void **state)
{
    struct wf_err err = { 0 };
    save("small.safetensors", 1);
    struct wf_checkpoint *const c = wf_checkpoint_open("small.safetensors", &err);
    assert_non_null(c);
    struct wf_comm *const comm = wf_comm_self();
    struct support_net n;
    assert_true(support_net_init(&n, comm, "", true, &err));
    struct wf_value *const v = wf_graph_find(n.g, "out.weight");
    assert_non_null(v);
    v->name = "out.other";
    assert_false(wf_checkpoint_load(c, n.run, n.optim, &err));
    assert_non_null(strstr(err.text, "param.out.other"));
    support_net_release(&n);
    wf_comm_free(comm);
    wf_checkpoint_free(c);
}

/* --- a folder of them --- */

static const struct wf_log quiet = { .level = WF_LOG_QUIET };

static int64_t latest(const char *folder, struct wf_err *err)
{
    *err = (struct wf_err){ 0 };
    struct wf_checkpoint *const c = wf_checkpoint_open_latest(folder, &quiet, err);
    const int64_t step = c ? wf_checkpoint_info(c)->at.step : -1;
    wf_checkpoint_free(c);
    return step;
}

static int64_t step_of(const char *path)
{
    struct wf_err err = { 0 };
    struct wf_checkpoint *const c = wf_checkpoint_open(path, &err);
    if (!c)
        fail_msg("%s", err.text);
    const int64_t step = wf_checkpoint_info(c)->at.step;
    wf_checkpoint_free(c);
    return step;
}

static void damage_file(const char *path)
{
    size_t size;
    unsigned char *const bytes = slurp(path, &size);
    assert_non_null(bytes);
    bytes[size - 5] ^= 1;
    /* Not in place: `last` and `best` may share a file. */
    assert_int_equal(unlink(path), 0);
    put_file(path, bytes, size);
    free(bytes);
}

static void newest__falls_back_to_the_one_before(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_int_equal(latest("folder", &err), -1);
    assert_int_equal(err.code, WF_OK); /* nothing there is no failure */
    struct wf_comm *const comm = wf_comm_self();
    struct support_net n;
    assert_true(support_net_init(&n, comm, "", true, &err));
    struct wf_checkpoint_folder folder = { .path = "folder" };
    const struct wf_checkpoint_source from = { .run = n.run, .optim = n.optim };
    for (int64_t step = 1; step <= 4; step++) {
        const struct wf_checkpoint_info info = info_at(step);
        if (!wf_checkpoint_save_last(&folder, step == 2 || step == 3, &info, &from, &err))
            fail_msg("%s", err.text);
        assert_int_equal(latest("folder", &err), step);
    }
    assert_int_equal(step_of("folder/last.safetensors"), 4);
    assert_int_equal(step_of("folder/previous.safetensors"), 3);
    assert_int_equal(step_of("folder/best.safetensors"), 3);
    assert_int_equal(count_files("folder", ".partial"), 0);

    damage_file("folder/last.safetensors");
    assert_int_equal(latest("folder", &err), 3);
    assert_int_equal(unlink("folder/last.safetensors"), 0); /* killed between the two renames */
    assert_int_equal(latest("folder", &err), 3);
    damage_file("folder/previous.safetensors");
    assert_int_equal(latest("folder", &err), 3); /* the best */
    damage_file("folder/best.safetensors");
    assert_int_equal(latest("folder", &err), -1);
    assert_int_equal(err.code, WF_ERR_INPUT);
    support_net_release(&n);
    wf_comm_free(comm);
}

static void last__that_was_taken_away_ends_no_run(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("taken", 0777), 0);
    struct wf_comm *const comm = wf_comm_self();
    struct support_net n;
    assert_true(support_net_init(&n, comm, "", true, &err));
    struct wf_checkpoint_folder folder = { .path = "taken" };
    const struct wf_checkpoint_source from = { .run = n.run, .optim = n.optim };
    for (int64_t step = 1; step <= 3; step++) {
        const struct wf_checkpoint_info info = info_at(step);
        assert_true(wf_checkpoint_save_last(&folder, false, &info, &from, &err));
        if (step == 2)
            assert_int_equal(remove("taken/last.safetensors"), 0);
    }
    assert_int_equal(step_of("taken/previous.safetensors"), 1);
    assert_int_equal(step_of("taken/last.safetensors"), 3);
    support_net_release(&n);
    wf_comm_free(comm);
}

static void damaged_last__never_takes_the_place_of_a_good_previous(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("kept", 0777), 0);
    struct wf_comm *const comm = wf_comm_self();
    struct support_net n;
    assert_true(support_net_init(&n, comm, "", true, &err));
    struct wf_checkpoint_folder folder = { .path = "kept" };
    const struct wf_checkpoint_source from = { .run = n.run, .optim = n.optim };
    for (int64_t step = 1; step <= 2; step++) {
        const struct wf_checkpoint_info info = info_at(step);
        assert_true(wf_checkpoint_save_last(&folder, false, &info, &from, &err));
    }
    damage_file("kept/last.safetensors");
    folder = (struct wf_checkpoint_folder){ .path = "kept" }; /* a process that went on from 1 */
    const struct wf_checkpoint_info info = info_at(2);
    limit_files(2000);
    assert_false(wf_checkpoint_save_last(&folder, false, &info, &from, &err));
    limit_files(0);
    err = (struct wf_err){ 0 };
    assert_int_equal(step_of("kept/previous.safetensors"), 1);
    assert_true(wf_checkpoint_save_last(&folder, false, &info, &from, &err));
    assert_int_equal(step_of("kept/previous.safetensors"), 1);
    assert_int_equal(step_of("kept/last.safetensors"), 2);
    support_net_release(&n);
    wf_comm_free(comm);
}

static void file_that_cannot_be_read_now__is_not_damaged(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("busy", 0777), 0);
    save("busy/last.safetensors", 2);
    save("busy/previous.safetensors", 1);
    struct rlimit limit, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = (struct rlimit){ 0, limit.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(latest("busy", &err), -1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(err.code, WF_ERR_FAILED);
    assert_non_null(strstr(err.text, "Too many open files"));
}

static void numbers_that_are_not_finite__are_never_saved(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("finite", 0777), 0);
    struct wf_comm *const comm = wf_comm_self();
    struct support_net n;
    assert_true(support_net_init(&n, comm, "", true, &err));
    struct wf_checkpoint_folder folder = { .path = "finite" };
    const struct wf_checkpoint_source from = { .run = n.run, .optim = n.optim };
    struct wf_checkpoint_info info = info_at(1);
    assert_true(wf_checkpoint_save_last(&folder, true, &info, &from, &err));
    info.at.step = 2;
    float *const places[] = { wf_run_params(n.run), wf_run_states(n.run), n.optim->states[1] };
    const float values[] = { NAN, INFINITY, -INFINITY };
    for (int i = 0; i < 3; i++) {
        const float before = *places[i];
        *places[i] = values[i];
        err = (struct wf_err){ 0 };
        assert_false(wf_checkpoint_save_last(&folder, true, &info, &from, &err));
        assert_non_null(strstr(err.text, "after step 2: nothing is saved"));
        assert_non_null(strstr(err.text, "train.lr"));
        *places[i] = before;
    }
    assert_int_equal(step_of("finite/last.safetensors"), 1);
    assert_int_equal(step_of("finite/best.safetensors"), 1);
    assert_int_equal(count_files("finite", ".partial"), 0);
    support_net_release(&n);
    wf_comm_free(comm);
}

static void full_disk__leaves_the_last_one_readable(void **state)
{
    struct wf_err err = { 0 };
    assert_int_equal(mkdir("full", 0777), 0);
    struct wf_comm *const comm = wf_comm_self();
    struct support_net n;
    assert_true(support_net_init(&n, comm, "", true, &err));
    struct wf_checkpoint_info info = info_at(1);
    struct wf_checkpoint_folder folder = { .path = "full" };
    const struct wf_checkpoint_source from = { .run = n.run, .optim = n.optim };
    assert_true(wf_checkpoint_save_last(&folder, true, &info, &from, &err));
    info.at.step = 2;
    for (int best = 0; best < 2; best++) {
        limit_files(2000);
        err = (struct wf_err){ 0 };
        const bool ok = wf_checkpoint_save_last(&folder, best, &info, &from, &err);
        limit_files(0);
        assert_false(ok);
        assert_non_null(strstr(err.text, "cannot write"));
        assert_int_equal(latest("full", &err), 1);
        assert_int_equal(step_of("full/best.safetensors"), 1);
        assert_int_equal(count_files("full", ".partial"), 0);
    }
    support_net_release(&n);
    wf_comm_free(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights__come_back_on_any_mesh),
        cmocka_unit_test(weights_that_were_frozen__begin_with_zero_moments),
        cmocka_unit_test(info__comes_back_to_the_last_bit),
        cmocka_unit_test(damage__is_seen_wherever_it_is),
        cmocka_unit_test(other_files__are_told_apart_from_checkpoints),
        cmocka_unit_test(another_network__is_refused_by_name),
        cmocka_unit_test(newest__falls_back_to_the_one_before),
        cmocka_unit_test(full_disk__leaves_the_last_one_readable),
        cmocka_unit_test(last__that_was_taken_away_ends_no_run),
        cmocka_unit_test(damaged_last__never_takes_the_place_of_a_good_previous),
        cmocka_unit_test(file_that_cannot_be_read_now__is_not_damaged),
        cmocka_unit_test(numbers_that_are_not_finite__are_never_saved),
    };
    return cmocka_run_group_tests(tests, support_scratch_enter, support_scratch_leave);
}
