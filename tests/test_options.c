/* needs: COMMAND */
/* The option table and everything that reads by it. Expected values are written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/options.h"
#include "base/suggest.h"

static struct wf_options *fresh(void)
{
    return wf_options_new();
}

/* The message of a failure that must be a usage error (exit 2). */
static void assert_refused(bool ok, const struct wf_err *err, const char *const parts[])
{
    assert_false(ok);
    assert_int_equal(err->code, WF_ERR_USAGE);
    for (int i = 0; parts[i]; i++)
        if (!strstr(err->text, parts[i]))
            fail_msg("'%s' does not say '%s'", err->text, parts[i]);
}
#define REFUSED(call, ...)                                                                         \
    do {                                                                                           \
        struct wf_err err = { 0 };                                                                 \
        const bool ok = (call);                                                                    \
        assert_refused(ok, &err, (const char *[]){ __VA_ARGS__, NULL });                           \
    } while (0)
#define TAKEN(call)                                                                                \
    do {                                                                                           \
        struct wf_err err = { 0 };                                                                 \
        if (!(call))                                                                               \
            fail_msg("%s", err.text);                                                              \
    } while (0)

static void table__keys_are_unique_and_say_what_they_do(void **state)
{
    for (const struct wf_option *o = wf_option_next(NULL); o; o = wf_option_next(o)) {
        assert_ptr_equal(wf_option_find(o->key), o);
        assert_non_null(strchr(o->key, '.'));
        assert_true(o->help && o->help[0]);
        assert_true(o->fallback || o->unset);
        const bool named =
            o->type == WF_OPTION_NAME || o->type == WF_OPTION_SUM || o->type == WF_OPTION_NAMES;
        assert_int_equal(named, o->names != NULL);
        assert_true(o->count_max <= WF_OPTION_LIST_MAX);
    }
}

static void flags__are_short_for_keys_of_the_table(void **state)
{
    for (const struct wf_option_flag *f = wf_option_flags; f->name; f++)
        assert_true(strcmp(f->key, "mesh") == 0 || wf_option_find(f->key));
}

static void defaults__are_those_of_the_manual(void **state)
{
    struct wf_options *o = fresh();
    assert_string_equal(wf_options_text(o, "model.name"), "unet");
    assert_string_equal(wf_options_text(o, "train.optimizer"), "adam");
    assert_true(wf_options_real(o, "train.lr") == 1e-3);
    assert_int_equal(wf_options_int(o, "train.seed"), 1);
    assert_false(wf_options_is_set(o, "model.base"));
    assert_false(wf_options_mesh_given(o));
    assert_int_equal(wf_options_get(o, "train.lr")->origin, WF_FROM_DEFAULT);
    wf_options_free(o);
}

static const char yaml[] = "model: { name: unet, dims: 3, base: 32 }\n"
                           "data:\n"
                           "  size: [2, 1, 16, 16, 16]\n"
                           "train: { lr: 5e-3, loss: ce+dice, optimizer: sgd }\n"
                           "mesh: { data: 2, space: [2, 3] }\n";

static void file__gives_each_scalar_the_type_of_the_table(void **state)
{
    struct wf_options *o = fresh();
    TAKEN(wf_options_read_text(o, "a.yaml", yaml, &err));
    assert_int_equal(wf_options_int(o, "model.dims"), 3);
    assert_true(wf_options_real(o, "train.lr") == 5e-3);
    assert_int_equal(wf_options_int(o, "train.loss"), 1 << 0 | 1 << 2); /* ce, dice */
    const struct wf_setting *size = wf_options_get(o, "data.size");
    assert_int_equal(size->count, 5);
    assert_int_equal(size->list[0], 2);
    assert_int_equal(size->list[4], 16);
    assert_string_equal(wf_options_get(o, "model.base")->where, "a.yaml:1:37");
    assert_true(wf_options_mesh_given(o));
    wf_options_free(o);
}

static void file__may_be_json(void **state)
{
    struct wf_options *o = fresh();
    TAKEN(
        wf_options_read_text(o, "a.json", "{\"model\": {\"base\": 8, \"name\": \"unet\"}}", &err));
    assert_int_equal(wf_options_int(o, "model.base"), 8);
    wf_options_free(o);
}

static void file__may_be_empty_and_keys_may_be_dotted(void **state)
{
    struct wf_options *o = fresh();
    TAKEN(wf_options_read_text(o, "a.yaml", "", &err));
    TAKEN(wf_options_read_text(o, "a.yaml", "# nothing\n", &err));
    TAKEN(wf_options_read_text(o, "a.yaml", "model.base: 12\n", &err));
    assert_int_equal(wf_options_int(o, "model.base"), 12);
    wf_options_free(o);
}

static void file__errors_tell_line_and_column(void **state)
{
    struct wf_options *o = fresh();
    REFUSED(wf_options_read_text(o, "a.yaml", "model:\n  bsae: 3\n", &err), "a.yaml:2:3",
            "model.bsae", "did you mean 'model.base'?");
    REFUSED(wf_options_read_text(o, "a.yaml", "modle: { base: 3 }\n", &err), "a.yaml:1:1",
            "did you mean 'model'?");
    REFUSED(wf_options_read_text(o, "a.yaml", "model:\n  base: many\n", &err), "a.yaml:2:9",
            "'model.base'", "'many'", "an integer from 1 to 65536");
    REFUSED(wf_options_read_text(o, "a.yaml", "model: [1, 2\nx", &err), "a.yaml:");
    REFUSED(wf_options_read_text(o, "a.yaml", "model: 3\n", &err), "a.yaml:1:1",
            "'model' takes keys");
    REFUSED(wf_options_read_text(o, "a.yaml", "model: { base: }\n", &err), "model.base",
            "no value");
    REFUSED(wf_options_read_text(o, "a.yaml", "model: { base: { a: 1 } }\n", &err), "model.base",
            "not a mapping");
    REFUSED(wf_options_read_text(o, "a.yaml", "model: { base: [1] }\n", &err), "model.base",
            "'[1]'");
    REFUSED(wf_options_read_text(o, "a.yaml", "data: { size: [1, [2], 3] }\n", &err), "data.size");
    REFUSED(wf_options_read_text(o, "a.yaml", "- a\n- b\n", &err), "a.yaml");
    REFUSED(wf_options_read_text(o, "a.yaml", "model: { base: 3, base: 4 }\n", &err), "a.yaml:1:");
    REFUSED(wf_options_read_text(o, "a.yaml", "model: { base: &x 3, depth: *x }\n", &err), "alias");
    REFUSED(wf_options_read_text(o, "a.yaml", "%\x80", &err), "UTF-8");
    wf_options_free(o);
}

static void assign__refuses_what_is_out_of_range_or_of_another_type(void **state)
{
    struct wf_options *o = fresh();
    REFUSED(wf_options_assign(o, "model.dims=5", &err), "model.dims", "'5'", "from 1 to 4");
    REFUSED(wf_options_assign(o, "model.dims=2.5", &err), "'2.5'", "an integer");
    REFUSED(wf_options_assign(o, "model.dims=", &err), "model.dims");
    REFUSED(wf_options_assign(o, "model.base=99999999999999999999", &err), "model.base");
    REFUSED(wf_options_assign(o, "train.lr=nan", &err), "train.lr", "a number");
    REFUSED(wf_options_assign(o, "train.lr=inf", &err), "train.lr");
    REFUSED(wf_options_assign(o, "train.lr=-1", &err), "train.lr");
    REFUSED(wf_options_assign(o, "train.loss=ce+foo", &err), "train.loss", "ce, bce, dice, mse");
    REFUSED(wf_options_assign(o, "train.loss=ce+ce", &err), "train.loss");
    REFUSED(wf_options_assign(o, "train.loss=ce+", &err), "train.loss");
    REFUSED(wf_options_assign(o, "train.optimizer=adma", &err), "sgd, momentum, nesterov");
    REFUSED(wf_options_assign(o, "data.size=1,2", &err), "data.size", "3 to 6 integers");
    REFUSED(wf_options_assign(o, "data.size=1,2,3,4,5,6,7,8,9,10,11", &err), "data.size");
    REFUSED(wf_options_assign(o, "data.size=1,,3", &err), "data.size");
    REFUSED(wf_options_assign(o, "memory.recompute=yes", &err), "true or false");
    REFUSED(wf_options_assign(o, "base=3", &err), "unknown key 'base'", "model.base");
    REFUSED(wf_options_assign(o, "zzzzqqq=3", &err), "config schema");
    wf_options_free(o);
}

static void lists__are_written_in_three_ways(void **state)
{
    static const char *const ways[] = { "data.size=[1, 3, 64, 32]", "data.size=1,3,64,32",
                                        "data.size=1x3x64x32" };
    for (size_t i = 0; i < 3; i++) {
        struct wf_options *o = fresh();
        TAKEN(wf_options_assign(o, ways[i], &err));
        const struct wf_setting *s = wf_options_get(o, "data.size");
        assert_int_equal(s->count, 4);
        assert_int_equal(s->list[2], 64);
        assert_string_equal(s->text, "[1, 3, 64, 32]");
        wf_options_free(o);
    }
}

static void precedence__does_not_depend_on_the_order_of_reading(void **state)
{
    char *const environment[] = { "PATH=/bin", "WIDEFIELD_MODEL_BASE=16", "WIDEFIELD_TRAIN_LR=0.5",
                                  NULL };
    struct wf_options *o = fresh();
    TAKEN(wf_options_assign(o, "model.base=64", &err));
    TAKEN(wf_options_read_environment(o, environment, &err));
    TAKEN(wf_options_read_text(o, "a.yaml", "model: { base: 8, depth: 2 }\ntrain: { lr: 0.25 }\n",
                               &err));
    assert_int_equal(wf_options_int(o, "model.base"), 64);
    assert_int_equal(wf_options_get(o, "model.base")->origin, WF_FROM_COMMAND_LINE);
    assert_true(wf_options_real(o, "train.lr") == 0.5);
    assert_string_equal(wf_options_get(o, "train.lr")->where, "WIDEFIELD_TRAIN_LR");
    assert_int_equal(wf_options_get(o, "model.depth")->origin, WF_FROM_FILE);
    wf_options_free(o);
}

static void environment__wrong_names_are_told_foreign_ones_pass(void **state)
{
    char *const typo[] = { "WIDEFIELD_MODEL_BSE=16", NULL };
    char *const section[] = { "WIDEFIELD_MODLE_BASE=16", NULL };
    char *const value[] = { "WIDEFIELD_MODEL_BASE=x", NULL };
    char *const foreign[] = { "WIDEFIELD_TEST_COMM=mpi", "WIDEFIELD=/bin/widefield", NULL };
    char *const flag[] = { "WIDEFIELD_MESH=space=2x2", NULL };
    struct wf_options *o = fresh();
    REFUSED(wf_options_read_environment(o, typo, &err), "WIDEFIELD_MODEL_BSE",
            "WIDEFIELD_MODEL_BASE");
    REFUSED(wf_options_read_environment(o, section, &err), "WIDEFIELD_MODEL_BASE");
    REFUSED(wf_options_read_environment(o, value, &err), "WIDEFIELD_MODEL_BASE", "model.base",
            "'x'");
    TAKEN(wf_options_read_environment(o, foreign, &err));
    TAKEN(wf_options_read_environment(o, flag, &err));
    assert_int_equal(wf_options_get(o, "mesh.space")->count, 2);
    wf_options_free(o);
}

static void mesh__the_whole_text_replaces_every_axis(void **state)
{
    struct wf_options *o = fresh();
    TAKEN(wf_options_read_text(o, "a.yaml", "mesh: { data: 4, space: [2, 2] }\n", &err));
    TAKEN(wf_options_set(o, "mesh", "space=3", &err));
    assert_int_equal(wf_options_int(o, "mesh.data"), 1);
    assert_int_equal(wf_options_get(o, "mesh.space")->count, 1);
    assert_int_equal(wf_options_get(o, "mesh.space")->list[0], 3);
    REFUSED(wf_options_set(o, "mesh", "sapce=3", &err), "sapce", "space");
    REFUSED(wf_options_set(o, "mesh", "space=0", &err), "space");
    wf_options_free(o);
}

static void mesh__auto_ends_where_an_axis_is_named(void **state)
{
    struct wf_options *o = fresh();
    TAKEN(wf_options_read_text(o, "a.yaml", "mesh: auto\n", &err));
    assert_int_equal(wf_options_int(o, "mesh.auto"), 1);
    assert_false(wf_options_mesh_given(o));
    TAKEN(wf_options_assign(o, "mesh.space=2", &err));
    assert_true(wf_options_mesh_given(o));
    wf_options_free(o);
}

static void distance__counts_slips_of_the_finger(void **state)
{
    assert_int_equal(wf_edit_distance("", "abc"), 3);
    assert_int_equal(wf_edit_distance("abc", "abc"), 0);
    assert_int_equal(wf_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(wf_edit_distance("bsae", "base"), 1); /* a swap is one slip */
    assert_null(wf_option_suggest("entirely_other_thing"));
    assert_string_equal(wf_option_suggest("train.optimiser"), "train.optimizer");
}

/* Configs and checkpoints of earlier versions have it. */
static void old_names__are_read(void **state)
{
    (void)state;
    struct wf_err err = { 0 };
    struct wf_options *const o = wf_options_new();
    assert_true(wf_options_assign(o, "comm.wire=bf16", &err));
    assert_int_equal(wf_options_int(o, "comm.precision"), 1);
    wf_options_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_names__are_read),
        cmocka_unit_test(table__keys_are_unique_and_say_what_they_do),
        cmocka_unit_test(flags__are_short_for_keys_of_the_table),
        cmocka_unit_test(defaults__are_those_of_the_manual),
        cmocka_unit_test(file__gives_each_scalar_the_type_of_the_table),
        cmocka_unit_test(file__may_be_json),
        cmocka_unit_test(file__may_be_empty_and_keys_may_be_dotted),
        cmocka_unit_test(file__errors_tell_line_and_column),
        cmocka_unit_test(assign__refuses_what_is_out_of_range_or_of_another_type),
        cmocka_unit_test(lists__are_written_in_three_ways),
        cmocka_unit_test(precedence__does_not_depend_on_the_order_of_reading),
        cmocka_unit_test(environment__wrong_names_are_told_foreign_ones_pass),
        cmocka_unit_test(mesh__the_whole_text_replaces_every_axis),
        cmocka_unit_test(mesh__auto_ends_where_an_axis_is_named),
        cmocka_unit_test(distance__counts_slips_of_the_finger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
