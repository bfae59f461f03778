/*
 * A link model: wraps another comm and delays each message until a network of the given latency and
 * bandwidth would have delivered it. For measurements: ranks of one machine then wait as ranks on
 * several machines would, and a core that waits is idle.
 *
 * L1. A rank sends one message at a time, in the order in which they were begun, and may send
 *     and receive at once: it leaves when the ones before it have left, takes bytes / bandwidth to
 *     leave, and arrives a latency later. A send is complete when it has left. A message that fits
 *     into one packet is sent between the packets of longer ones: it does not wait for them, and
 *     they are delayed by its time.
 * L2. Each message is preceded by another one with its arrival time on the machine's clock, so all
 *     ranks must be on one machine.
 * L3. Sums go over the link too, by messages, once wf_comm_set_sums() was called; before that, and
 *     in splits, they bypass it. A message to oneself takes no time.
 *
 * The bytes are still copied by the ranks' own cores, as without the link model, when they poll.
 *
 *     struct wf_comm *slow = wf_comm_link_model(comm, &(struct wf_link_model){ 25e-6, 1.25e9 });
 *     ...
 *     wf_comm_free(slow);                                          comm is still there
 */
#pragma once

#include "comm/comm.h"

struct wf_link_model {
    double seconds; /* latency */
    double bytes_per_second;
};

/* Borrows `under`, which must outlive it and is not used beside it. */
struct wf_comm *wf_comm_link_model(struct wf_comm *under, const struct wf_link_model *link);
