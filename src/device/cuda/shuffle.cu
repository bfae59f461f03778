/* Channels to positions and back, channels among themselves, and the largest of them. */
#include "device/cuda/rows.cuh"
#include "device/cuda/spatial.cuh"

namespace wf
{

struct ToSpace {
    Image x, y;
    int64_t factor[3];

    template <class T, int V> __device__ void run(const Place &at) const
    {
        int64_t from[3], channel = at.c;
#pragma unroll
        for (int i = 0; i < 3; i++) {
            from[i] = at.x[i] / factor[i];
            channel = channel * factor[i] + at.x[i] - from[i] * factor[i];
        }
        *element<T>(y, at.n, at.x, at.c) = *element<T>(x, at.n, from, channel);
    }
};

struct ToDepth {
    Image x, y;
    int64_t factor[3];

    template <class T, int V> __device__ void run(const Place &at) const
    {
        int64_t from[3], channel = at.c;
#pragma unroll
        for (int i = 2; i >= 0; i--) {
            const int64_t next = channel / factor[i];
            from[i] = at.x[i] * factor[i] + channel - next * factor[i];
            channel = next;
        }
        *element<T>(y, at.n, at.x, at.c) = *element<T>(x, at.n, from, channel);
    }
};

struct MixChannels {
    Image x, y;
    int64_t groups, each;

    template <class T, int V> __device__ void run(const Place &at) const
    {
        const int64_t i = at.c / groups, channel = (at.c - i * groups) * each + i;
        *element<T>(y, at.n, at.x, at.c) = *element<T>(x, at.n, at.x, channel);
    }
};

template <class S> static S shuffle_of(const struct wf_call *call)
{
    const struct wf_shuffle_attrs *a = (const struct wf_shuffle_attrs *)call->node->attrs;
    S s = { image_of(call->in[0]), image_of(call->out[0]), {} };
    for (int i = 0; i < 3; i++)
        s.factor[i] = a->factor[i];
    return s;
}

/* The largest in a team: ties go to the lower channel, NaN wins over all, the last of several. */
template <class T, int Team> __global__ void __launch_bounds__(THREADS) channel_max(const Rows r)
{
    const int64_t p = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / Team;
    const int lane = (int)threadIdx.x % Team;
    if (p >= r.count())
        return;
    int64_t offset[3];
    arith<T> best = -INFINITY;
    int where = -1;
    r.positions.at(p, offset);
    for (int c = lane; c < (int)r.channels; c += Team) {
        const arith<T> x = to_arith(*r.at<const T>(0, offset[0], c));
        if (where < 0 || x > best || x != x) {
            best = x;
            where = c;
        }
    }
    for (int m = Team / 2; m > 0; m /= 2) {
        const arith<T> other = __shfl_xor_sync(0xffffffffu, best, m);
        const int there = __shfl_xor_sync(0xffffffffu, where, m);
        const bool mine_is_nan = best != best, other_is_nan = other != other;
        const bool larger = mine_is_nan || other_is_nan
                                ? other_is_nan && (!mine_is_nan || there > where)
                                : other > best || (other == best && there < where);
        if (there >= 0 && (where < 0 || larger)) {
            best = other;
            where = there;
        }
    }
    if (lane == 0) {
        *r.at<T>(1, offset[1], 0) = To<T>::from(best);
        *r.at<int32_t>(2, offset[2], 0) = where;
    }
}

struct ChannelMaxGrad {
    Image dy, index, dx;

    template <class T, int V> __device__ void run(const Place &at) const
    {
        const int64_t where = *element<int32_t>(index, at.n, at.x, 0) - at.c;
        Vec<T, V> v = {};
        if (where >= 0 && where < V) {
            const T d = *element<T>(dy, at.n, at.x, 0);
#pragma unroll
            for (int j = 0; j < V; j++)
                if (where == j)
                    v.put(j, d);
        }
        v.store(element<T>(dx, at.n, at.x, at.c));
    }
};

} // namespace wf

using namespace wf;

void wf_cuda_depth_to_space(const struct wf_call *call)
{
    spatial_move(call, false, shuffle_of<ToSpace>(call));
}

void wf_cuda_space_to_depth(const struct wf_call *call)
{
    spatial_move(call, false, shuffle_of<ToDepth>(call));
}

void wf_cuda_channel_shuffle(const struct wf_call *call)
{
    const struct wf_groups_attrs *a = (const struct wf_groups_attrs *)call->node->attrs;
    spatial_move(call, false,
                 MixChannels{ image_of(call->in[0]), image_of(call->out[0]), a->groups,
                              call->node->in[0]->shape.at[WF_C] / a->groups });
}

void wf_cuda_channel_max(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->in[0], &call->out[0], &call->out[1] };
    if (is_empty(call->work))
        return;
    Rows r = rows_over(call->work, call->node->in[0]->shape.at[WF_C], views, 3);
    r.there = rows_there(call);
    with_type(r.dtype[0], [&](auto t) {
        typedef decltype(t) T;
        with_team(r.channels, [&](auto team) {
            enum { TEAM = decltype(team)::value };
            launch(channel_max<T, TEAM>, blocks_for(r.positions.count * TEAM, THREADS), THREADS,
                   wf_cuda_stream(call), r);
        });
    });
}

void wf_cuda_channel_max_grad(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->out[0] };
    spatial_call(
        call, views, 1,
        ChannelMaxGrad{ image_of(call->in[0]), image_of(call->in[1]), image_of(call->out[0]) });
}
