/*
 * Widefield: train convolutional networks on whole images, on however many ranks, with the numbers
 * of one.
 *
 * A program has four parts, and this is all of them:
 *
 *     struct wf_graph *g = wf_graph_new(&(struct wf_graph_options){ .training = true });
 *     ... wf_input(), wf_conv(), wf_cross_entropy(), wf_graph_grad()       what is computed
 *     struct wf_mesh mesh; wf_mesh_parse("space=2x2", &mesh, &err);        how it is cut
 *     struct wf_global_plan *s = wf_global_plan_new(g, &mesh, &options, &err);       planned, before it runs
 *     struct wf_plan *p = wf_plan_new(s, rank, &err);
 *     struct wf_run *run = wf_run_new(p, comm, seed, &err);                run
 *     wf_learner_step(&learner, run, &err);
 *
 * Each header below begins with a paragraph that teaches its part; read them in this order.
 * examples/course.c is the smallest whole program.
 */
#ifndef WIDEFIELD_H
#define WIDEFIELD_H

#include "base/err.h"
#include "base/random.h"
#include "tensor/region.h"
#include "tensor/view.h"

#include "graph/graph.h"
#include "ops/build.h"
#include "models/model.h"

#include "plan/mesh.h"
#include "plan/plan.h"
#include "device/device.h"
#include "comm/comm.h"
#include "exec/run.h"

#include "optim/optim.h"
#include "train/reduction.h"
#include "train/step.h"

#endif
