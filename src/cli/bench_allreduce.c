/* bench allreduce: the ways to sum over ranks, against each other, from 1 KiB to 64 MiB. */
#include <cjson/cJSON.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "config/options_settings.h"
#include "cli/text.h"

enum { WAYS = 4, SIZES = 9, REPEATS_MOST = 100, FIRST_BYTES = 1024, STEP = 4 };
static const double repeat_bytes = 4 << 20; /* a round is about as long, whatever the size */
static const enum wf_sum_way ways[WAYS] = { WF_SUM_LIBRARY, WF_SUM_RING, WF_SUM_TREE,
                                            WF_SUM_NODES };

struct row {
    size_t bytes;
    double seconds[WAYS];
    enum wf_sum_way taken; /* by default */
};

struct contest {
    struct wf_cli *cli;
    int64_t rounds;
    struct row rows[SIZES]; /* rank 0's */
    int ranks, nodes;
    const char *transport;
};

/* One rank's: a comm for each way, and one that chooses. */
struct rank {
    struct wf_comm *comm, *by[WAYS], *chooses;
    float *data;
    double *seconds; /* by way and round */
};

/* Collective. Mean over the ranks of the time of one sum. */
static bool time_way(struct rank *r, int way, size_t bytes, double *seconds, struct wf_err *err)
{
    const double wanted = repeat_bytes / (double)bytes;
    const int repeats = wanted < 1 ? 1 : wanted > REPEATS_MOST ? REPEATS_MOST : (int)wanted;
    const size_t count = bytes / sizeof(float);
    for (size_t i = 0; i < count; i++)
        r->data[i] = 0; /* sums of sums would end at infinity */
    if (!wf_comm_barrier(r->comm, err))
        return false;
    const double start = wf_now();
    for (int i = 0; i < repeats; i++)
        if (!wf_comm_sum(r->by[way], r->data, count, WF_F32, err))
            return false;
    double mine = (wf_now() - start) / repeats;
    if (!wf_comm_sum(r->comm, &mine, 1, WF_F64, err))
        return false;
    *seconds = mine / wf_comm_size(r->comm);
    return true;
}

/* The ways take turns, so that what else the machine does falls on all of them. */
static bool time_size(struct contest *c, struct rank *r, struct row *row, struct wf_err *err)
{
    double warm;
    for (int way = 0; way < WAYS; way++)
        if (!time_way(r, way, row->bytes, &warm, err))
            return false;
    for (int64_t round = 0; round < c->rounds; round++)
        for (int i = 0; i < WAYS; i++) {
            const int way = (int)((round + i) % WAYS);
            if (!time_way(r, way, row->bytes, &r->seconds[way * c->rounds + round], err))
                return false;
        }
    for (int way = 0; way < WAYS; way++)
        row->seconds[way] = wf_median(r->seconds + way * c->rounds, c->rounds);
    row->taken = wf_comm_sum_way(r->chooses, row->bytes);
    return true;
}

static bool make_comms(const struct contest *c, struct rank *r, struct wf_err *err)
{
    struct wf_sum_options options = wf_options_comm(c->cli->options).sums;
    options.sent_dtype = WF_F32;
    for (int way = 0; way <= WAYS; way++) {
        struct wf_comm **const comm = way < WAYS ? &r->by[way] : &r->chooses;
        options.way = way < WAYS ? ways[way] : WF_SUM_AUTO;
        if (!wf_comm_split(r->comm, 0, comm, err) || !wf_comm_set_sums(*comm, &options, err))
            return false;
    }
    return true;
}

static bool compete(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct contest *const c = arg;
    struct row rows[SIZES];
    struct rank r = { .comm = comm };
    size_t bytes = FIRST_BYTES;
    for (int i = 0; i < SIZES; i++, bytes *= STEP)
        rows[i] = (struct row){ .bytes = bytes };
    r.data = malloc(rows[SIZES - 1].bytes);
    r.seconds = malloc((size_t)c->rounds * WAYS * sizeof *r.seconds);
    bool ok = r.data && r.seconds;
    if (!ok)
        (void)wf_err_set(err, WF_ERR_FIT, "no memory for sums of %zu bytes", bytes / STEP);
    ok = wf_comm_agree(comm, ok, err) && make_comms(c, &r, err);
    for (int i = 0; ok && i < SIZES; i++)
        ok = time_size(c, &r, &rows[i], err);
    if (ok && wf_comm_rank(comm) == 0) {
        for (int i = 0; i < SIZES; i++)
            c->rows[i] = rows[i];
        c->ranks = wf_comm_size(comm);
        c->nodes = wf_comm_nodes(r.chooses);
        c->transport = wf_comm_name(comm);
    }
    for (int way = 0; way < WAYS; way++)
        wf_comm_free(r.by[way]);
    wf_comm_free(r.chooses);
    free(r.data);
    free(r.seconds);
    return ok;
}

static int fastest(const struct row *row)
{
    int best = 0;
    for (int way = 1; way < WAYS; way++)
        if (row->seconds[way] < row->seconds[best])
            best = way;
    return best;
}

static double taken_seconds(const struct row *row)
{
    int way = 0;
    while (ways[way] != row->taken)
        way++;
    return row->seconds[way];
}

static bool print_json(const struct contest *c, struct wf_err *err)
{
    cJSON *const json = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(json, "comm", c->transport);
    (void)cJSON_AddNumberToObject(json, "ranks", c->ranks);
    (void)cJSON_AddNumberToObject(json, "nodes", c->nodes);
    (void)cJSON_AddNumberToObject(json, "rounds", (double)c->rounds);
    cJSON *const list = cJSON_AddArrayToObject(json, "sizes");
    for (int i = 0; i < SIZES; i++) {
        const struct row *const row = &c->rows[i];
        cJSON *const one = cJSON_CreateObject();
        (void)cJSON_AddNumberToObject(one, "bytes", (double)row->bytes);
        cJSON *const us = cJSON_AddObjectToObject(one, "us");
        for (int way = 0; way < WAYS; way++)
            (void)cJSON_AddNumberToObject(us, wf_sum_way_names[ways[way]], row->seconds[way] * 1e6);
        (void)cJSON_AddStringToObject(one, "default", wf_sum_way_names[row->taken]);
        (void)cJSON_AddStringToObject(one, "fastest", wf_sum_way_names[ways[fastest(row)]]);
        (void)cJSON_AddNumberToObject(one, "default_to_fastest",
                                      taken_seconds(row) / row->seconds[fastest(row)]);
        (void)cJSON_AddItemToArray(list, one);
    }
    return wf_cli_print_json(c->cli, json, err);
}

static void print_table(const struct contest *c)
{
    struct wf_arena *const arena = &c->cli->arena;
    (void)printf("sum over %s (%s, %d machine%s), microseconds, median of %d rounds\n",
                 wf_text_ranks(arena, c->ranks), c->transport, c->nodes, c->nodes == 1 ? "" : "s",
                 (int)c->rounds);
    (void)printf("%10s", "size");
    for (int way = 0; way < WAYS; way++)
        (void)printf(" %10s", wf_sum_way_names[ways[way]]);
    (void)printf("   %-8s %-8s %s\n", "default", "fastest", "default / fastest");
    for (int i = 0; i < SIZES; i++) {
        const struct row *const row = &c->rows[i];
        (void)printf("%10s", wf_text_bytes(arena, (double)row->bytes));
        for (int way = 0; way < WAYS; way++)
            (void)printf(" %10.1f", row->seconds[way] * 1e6);
        (void)printf("   %-8s %-8s %.2f\n", wf_sum_way_names[row->taken],
                     wf_sum_way_names[ways[fastest(row)]],
                     taken_seconds(row) / row->seconds[fastest(row)]);
    }
}

bool wf_bench_allreduce(struct wf_cli *cli, int64_t rounds, struct wf_err *err)
{
    struct contest c = { .cli = cli, .rounds = rounds };
    if (wf_options_int(cli->options, "comm.emulate"))
        return wf_err_set(err, WF_ERR_USAGE,
                          "comm.emulate: 'bench allreduce' times the library, too, which goes past "
                          "an emulated link");
    const struct wf_setting *const ranks = wf_options_get(cli->options, "run.ranks");
    if (cli->launch.world && ranks->is_set && ranks->integer != wf_comm_size(cli->launch.world))
        return wf_err_set(err, WF_ERR_USAGE, "the launcher started %d ranks, not %d",
                          wf_comm_size(cli->launch.world), (int)ranks->integer);
    const bool ok = cli->launch.world ? compete(cli->launch.world, &c, err)
                                      : wf_comm_threads_run(ranks->is_set ? (int)ranks->integer : 2,
                                                            compete, &c, err);
    if (!ok || !cli->launch.is_root)
        return ok;
    if (cli->json)
        return print_json(&c, err);
    print_table(&c);
    return true;
}
