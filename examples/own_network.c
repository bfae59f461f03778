/*
 * A network of one's own, trained on one's own arrays, saved, loaded into a new session, and used on an
 * image that is larger than those it was trained on, in windows.
 *
 * The images are noise with bright squares; the network has to mark the squares' pixels.
 *
 *     cc own_network.c $(pkg-config --cflags --libs widefield)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "widefield.h"

enum { SAMPLES = 8, SIDE = 48, EPOCHS = 15, HEIGHT = 150, WIDTH = 210 };

static float images[SAMPLES][SIDE * SIDE];
static uint8_t labels[SAMPLES][SIDE * SIDE];
static float large[HEIGHT * WIDTH];
static uint8_t truth[HEIGHT * WIDTH];
static int32_t found[HEIGHT * WIDTH], whole[HEIGHT * WIDTH];
static float probabilities[2][HEIGHT * WIDTH];

static const char *const checkpoint = "own_network.safetensors";

static void check(bool ok, const struct wf_err *err)
{
    if (ok)
        return;
    (void)fprintf(stderr, "own_network: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static int draw_number(uint32_t *state, int below)
{
    *state = *state * 1664525u + 1013904223u;
    return (int)((*state >> 8) % (uint32_t)below);
}

/* Squares of 6 to 13 pixels in noise. */
static void draw(int height, int width, uint32_t seed, float *image, uint8_t *label)
{
    memset(label, 0, (size_t)height * (size_t)width);
    for (int n = height * width / 500; n > 0; n--) {
        const int side = 6 + draw_number(&seed, 8);
        const int top = draw_number(&seed, height - side), left = draw_number(&seed, width - side);
        for (int y = top; y < top + side; y++)
            memset(label + y * width + left, 1, (size_t)side);
    }
    for (int i = 0; i < height * width; i++)
        image[i] = (float)(60 * label[i] + draw_number(&seed, 100));
}

/* Three convolutions and a sum around the middle one. Sizes come from the image: it is called for every
 * size that is needed. */
static struct wf_value *network(struct wf_graph *g, struct wf_value *image, void *user)
{
    struct wf_conv conv = WF_ZERO;
    struct wf_norm norm = WF_ZERO;
    (void)user;
    conv.name = "first";
    conv.out = 12;
    conv.kernel[1] = conv.kernel[2] = 5;
    conv.same = true;
    norm.name = "first_norm";
    norm.act = WF_RELU;
    struct wf_value *x = wf_batch_norm(g, wf_conv(g, image, &conv), &norm);
    conv.name = "second";
    norm.name = "second_norm";
    x = wf_add(g, x, wf_batch_norm(g, wf_conv(g, x, &conv), &norm));
    conv.name = "last";
    conv.out = 2;
    conv.kernel[1] = conv.kernel[2] = 1;
    conv.bias = true;
    return wf_conv(g, x, &conv);
}

static struct wf_session *open_session(const char *mesh, struct wf_err *err)
{
    static const char *const settings[][2] = {
        { "train.epochs", "15" }, { "train.batch", "4" },           { "train.optimizer", "adam" },
        { "train.lr", "0.01" },   { "data.augment", "flip,rot90" },
    };
    struct wf_options *options = wf_options_new();
    check(wf_options_set(options, "mesh", mesh, err), err);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check(wf_options_set(options, settings[i][0], settings[i][1], err), err);
    struct wf_session *session = wf_session_new(options, err);
    check(session != NULL, err);
    wf_session_network(session, network, NULL);
    wf_options_free(options);
    return session;
}

static void train_and_save(struct wf_err *err)
{
    const int64_t extents[] = { SIDE, SIDE };
    const bool validation[SAMPLES] = { false, false, false, false, false, false, true, true };
    struct wf_arrays arrays = WF_ZERO;
    for (int i = 0; i < SAMPLES; i++)
        draw(SIDE, SIDE, (uint32_t)i + 1, images[i], labels[i]);
    arrays.samples = SAMPLES;
    arrays.dims = 2;
    arrays.extents = extents;
    arrays.channels = 1;
    arrays.image_block = images;
    arrays.label_dtype = WF_U8;
    arrays.label_block = labels;
    arrays.validation = validation;
    struct wf_data *data = wf_data_arrays(&arrays, err);
    check(data != NULL, err);
    struct wf_session *session = open_session("data=2", err);
    struct wf_trainer *trainer = wf_trainer_new(session, data, NULL, err);
    check(trainer != NULL, err);
    struct wf_epoch_info epoch = WF_ZERO;
    while (!epoch.ended) {
        check(wf_trainer_epoch(trainer, &epoch, err), err);
        printf("epoch %2d  loss %.4f  validation %.4f  mean IoU %.3f\n", (int)epoch.epoch,
               epoch.loss, epoch.validation, epoch.metric);
    }
    check(wf_trainer_save(trainer, checkpoint, err), err);
    wf_trainer_free(trainer);
    wf_session_free(session);
    wf_data_free(data);
}

/* The part of the pixels that are right. */
static double predict_large(struct wf_err *err)
{
    const int64_t windows[3] = { 1, 64, 64 };
    struct wf_predict_arrays arrays = WF_ZERO;
    draw(HEIGHT, WIDTH, 1000, large, truth);
    struct wf_session *session = open_session("data=2", err);
    struct wf_predictor *predictor = wf_predictor_new(session, checkpoint, err);
    check(predictor != NULL, err);
    arrays.dims = 2;
    arrays.extents[0] = HEIGHT;
    arrays.extents[1] = WIDTH;
    arrays.image = large;
    arrays.labels = whole;
    check(wf_predictor_array(predictor, &arrays, err), err);
    arrays.labels = found;
    arrays.probabilities = probabilities[0];
    wf_predictor_window(predictor, windows);
    check(wf_predictor_array(predictor, &arrays, err), err);
    wf_predictor_free(predictor);
    wf_session_free(session);
    int right = 0, differ = 0;
    for (int i = 0; i < HEIGHT * WIDTH; i++) {
        right += found[i] == truth[i];
        differ += found[i] != whole[i] || (probabilities[1][i] > 0.5f) != (found[i] == 1);
    }
    printf("%d of %d pixels are right, %d differ from the whole image at once\n", right,
           HEIGHT * WIDTH, differ);
    return differ > 0 ? 0 : (double)right / (HEIGHT * WIDTH);
}

int main(void)
{
    struct wf_err err = WF_ZERO;
    train_and_save(&err);
    const double accuracy = predict_large(&err);
    return accuracy > 0.95 ? EXIT_SUCCESS : EXIT_FAILURE;
}
