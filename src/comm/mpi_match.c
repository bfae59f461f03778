/*
 * Which receive a message belongs to: see M5 in mpi_wait.h.
 *
 * Both lists of a comm are in order: `expected` as begun, `early` as sent. MPI gives the messages of
 * one sender in the order in which they were sent, so the first that fits is the right one.
 */
#include "comm/mpi_wait.h"

#include <string.h>

#include "base/arena.h"
#include "base/memory.h"

/* In one go, so that a flood of messages does not keep the caller from its own. The bytes: what is
 * long is copied when it is matched, and the caller shall find it in the cache. */
enum { MATCHES_MOST = 32, BYTES_MOST = 256 << 10 };

static void remove_expected(struct wf_mpi_comm *comm, size_t i)
{
    memmove(&comm->expected[i], &comm->expected[i + 1],
            (comm->expected_count - i - 1) * sizeof *comm->expected);
    comm->expected_count--;
}

void wf_mpi_forget(struct wf_request *r, int first)
{
    struct wf_mpi_comm *comm = r->comm;
    for (size_t i = comm->expected_count; i-- > 0;) {
        const struct wf_mpi_expected e = comm->expected[i];
        if (e.request != r || (first != WF_MPI_ALL && r->pieces[e.at].first != first))
            continue;
        remove_expected(comm, i);
        r->left--;
    }
}

/* A message of another size is still received, elsewhere: the sender waits for that. */
static void receive(struct wf_request *r, int at, struct wf_mpi_early *early)
{
    struct wf_mpi_piece *piece = &r->pieces[at];
    const struct wf_message *m = &piece->message;
    void *place = piece->place;
    if ((size_t)early->bytes != piece->bytes) {
        (void)wf_err_set(&r->err, WF_ERR_FAILED,
                         "message from rank %d with tag %d: expected %zu bytes, got %d%s", m->peer,
                         m->tag, m->bytes, early->bytes,
                         piece->bytes == m->bytes ? "" : " in one of its pieces");
        piece->scratch = wf_take((size_t)early->bytes + 1);
        place = piece->scratch;
        piece->torn = true;
        wf_mpi_forget(r, piece->first); /* M3: it has no more pieces, or too many */
    }
    const int code = MPI_Imrecv(place, early->bytes, MPI_BYTE, &early->message, &r->handles[at]);
    if (code != MPI_SUCCESS) {
        (void)wf_mpi_failed(&r->err, code, "receiving");
        r->handles[at] = MPI_REQUEST_NULL;
        r->left--;
    }
}

void wf_mpi_expect(struct wf_request *r, int at)
{
    struct wf_mpi_comm *comm = r->comm;
    struct wf_mpi_piece *piece = &r->pieces[at];
    const struct wf_message *m = &piece->message;
    if (at > piece->first && r->pieces[at - 1].torn) {
        piece->torn = true;
        r->left--;
        return;
    }
    for (size_t i = 0; i < comm->early_count; i++) {
        struct wf_mpi_early early = comm->early[i];
        if (early.source != m->peer || early.tag != m->tag)
            continue;
        memmove(&comm->early[i], &comm->early[i + 1],
                (comm->early_count - i - 1) * sizeof *comm->early);
        comm->early_count--;
        receive(r, at, &early);
        return;
    }
    WF_GROW(comm->expected, comm->expected_room, comm->expected_count);
    comm->expected[comm->expected_count++] = (struct wf_mpi_expected){ r, at };
}

static void sort_in(struct wf_mpi_comm *comm, struct wf_mpi_early *early)
{
    for (size_t i = 0; i < comm->expected_count; i++) {
        const struct wf_mpi_expected e = comm->expected[i];
        const struct wf_message *m = &e.request->pieces[e.at].message;
        if (m->peer != early->source || m->tag != early->tag)
            continue;
        remove_expected(comm, i);
        receive(e.request, e.at, early);
        return;
    }
    WF_GROW(comm->early, comm->early_room, comm->early_count);
    comm->early[comm->early_count++] = *early;
}

void wf_mpi_match(struct wf_mpi_world *world)
{
    int64_t bytes = 0;
    for (struct wf_mpi_comm *comm = world->comms; comm; comm = comm->next)
        for (int n = 0; n < MATCHES_MOST && comm->expected_count > 0 && bytes < BYTES_MOST; n++) {
            int there = 0;
            MPI_Status status;
            struct wf_mpi_early early = { .message = MPI_MESSAGE_NULL };
            if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm->mpi, &there, &early.message,
                            &status) != MPI_SUCCESS ||
                !there || MPI_Get_count(&status, MPI_BYTE, &early.bytes) != MPI_SUCCESS)
                break;
            WF_BUG_ON(early.bytes < 0, "a message of %d bytes", early.bytes);
            early.source = status.MPI_SOURCE;
            early.tag = status.MPI_TAG;
            bytes += early.bytes;
            sort_in(comm, &early);
        }
}
