/*
 * Training on arrays in memory: a U-Net learns to find bright discs in a noisy image, which is cut over
 * two ranks. The ranks are threads of this process; under mpirun -n 2 they would be processes.
 *
 *     cc train_unet.c $(pkg-config --cflags --libs widefield)
 */
#include <stdio.h>
#include <stdlib.h>

#include "widefield.h"

enum { SIDE = 96, STEPS = 40 };

static float image[SIDE][SIDE];
static uint8_t labels[SIDE][SIDE];

/* What is at a pixel: 1 inside one of the discs. */
static uint8_t label_at(int y, int x)
{
    static const int discs[][3] = { { 20, 24, 9 }, { 60, 30, 12 }, { 34, 70, 14 }, { 78, 76, 8 } };
    for (size_t i = 0; i < sizeof discs / sizeof *discs; i++) {
        const int dy = y - discs[i][0], dx = x - discs[i][1];
        if (dy * dy + dx * dx < discs[i][2] * discs[i][2])
            return 1;
    }
    return 0;
}

static void draw(void)
{
    uint32_t noise = 7;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            float sum = 0; /* of four numbers from -1 to 1 */
            for (int i = 0; i < 4; i++) {
                noise = noise * 1664525u + 1013904223u;
                sum += (float)(noise >> 8) / (1 << 23) - 1;
            }
            labels[y][x] = label_at(y, x);
            image[y][x] = (float)labels[y][x] + sum;
        }
}

static void check(bool ok, const struct wf_err *err)
{
    if (ok)
        return;
    (void)fprintf(stderr, "train_unet: %s\n", err->text);
    exit(EXIT_FAILURE);
}

int main(void)
{
    static const char *const settings[][2] = {
        { "model.name", "unet" },  { "model.base", "8" },         { "model.depth", "2" },
        { "mesh", "space=2x1" },   { "train.optimizer", "adam" }, { "train.lr", "0.01" },
        { "train.epochs", "100" }, { "data.validation", "0" },
    };
    struct wf_err err = WF_ZERO;
    struct wf_options *options = wf_options_new();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check(wf_options_set(options, settings[i][0], settings[i][1], &err), &err);
    struct wf_session *session = wf_session_new(options, &err);
    check(session != NULL, &err);

    const int64_t size[] = { 1, 1, SIDE, SIDE };
    struct wf_plan_info plan;
    check(wf_session_plan(session, 4, size, &plan, &err), &err);
    for (int rank = 0; rank < plan.ranks; rank++)
        printf("rank %d: %zu bytes planned\n", rank, plan.rank_bytes[rank]);

    struct wf_arrays arrays = WF_ZERO;
    draw();
    arrays.samples = 1;
    arrays.dims = 2;
    arrays.extents = size + 2;
    arrays.channels = 1;
    arrays.image_dtype = WF_F32;
    arrays.image_block = image;
    arrays.label_dtype = WF_U8;
    arrays.label_block = labels;
    struct wf_data *data = wf_data_arrays(&arrays, &err);
    check(data != NULL, &err);

    struct wf_trainer *trainer = wf_trainer_new(session, data, NULL, &err);
    check(trainer != NULL, &err);
    double first = 0, last = 0;
    for (int i = 0; i < STEPS; i++) {
        struct wf_step_info step;
        check(wf_trainer_step(trainer, &step, &err), &err);
        last = step.loss;
        if (i == 0)
            first = last;
        if (i % 10 == 0 || i == STEPS - 1)
            printf("step %2d  loss %.4f\n", (int)step.step, last);
    }
    wf_trainer_free(trainer);
    wf_data_free(data);
    wf_session_free(session);
    wf_options_free(options);
    return last < 0.5 * first ? EXIT_SUCCESS : EXIT_FAILURE;
}
