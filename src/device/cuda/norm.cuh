/* What the kernels of a normalisation read: statistics, weight and bias of a channel. */
#pragma once

#include "device/cuda/columns.cuh"

namespace wf
{

enum { X, S, W, B, DY, Q }; /* inputs of norm and its gradients */

struct Norm {
    Table s, w, b;
    int64_t groups, width; /* channels of a group */
    double below;          /* slope of the activation below zero; 1: there is none */
    int32_t by_sample;

    int32_t plain; /* all tables are f32 */

    __device__ float weight(int64_t c) const
    {
        return w.data ? (float)w.get(0, c) : 1.0f;
    }
    /* Of channel c. f32 tables are read at once, without waiting for one after the other. */
    __device__ void load(int64_t row, int64_t c, float *mean, float *rstd, float *weight_of,
                         float *bias) const
    {
        const int64_t r = by_sample ? row : 0, group = c / width;
        if (plain) {
            const float *const table = (const float *)s.data + r * s.row;
            *mean = table[group * s.column];
            *rstd = table[(groups + group) * s.column];
            *weight_of = w.data ? ((const float *)w.data)[c * w.column] : 1.0f;
            *bias = b.data ? ((const float *)b.data)[c * b.column] : 0.0f;
        } else {
            *mean = (float)s.get(r, group);
            *rstd = (float)s.get(r, groups + group);
            *weight_of = weight(c);
            *bias = b.data ? (float)b.get(0, c) : 0.0f;
        }
    }
};

/* What kernels keep of a channel: y = act((x - mean) * scale + bias). */
enum { MEAN, SCALE, BIAS, RSTD, AFFINE };

/* Of the block's channels, made once for all of its threads. */
template <class A, int V> struct Staged {
    A at[AFFINE][ACROSS_MOST * V];

    __device__ void fill(const Columns &g, const Norm &norm, int64_t row)
    {
        const int64_t first = (int64_t)blockIdx.y * g.across * V;
        for (int i = (int)threadIdx.x; i < g.across * V; i += (int)blockDim.x) {
            float mean = 0, rstd = 0, weight = 0, bias = 0; /* for lanes without a channel too */
            if (first + i < g.channels)
                norm.load(row, g.first_channel + first + i, &mean, &rstd, &weight, &bias);
            at[MEAN][i] = mean;
            at[SCALE][i] = (A)rstd * (A)weight;
            at[BIAS][i] = bias;
            at[RSTD][i] = rstd;
        }
        __syncthreads();
    }
};

/* A thread's first channel among the block's. */
template <int V> __device__ inline int staged_from(const Columns &g)
{
    return ((int)threadIdx.x & (g.across - 1)) * V;
}

inline Norm norm_of(const struct wf_node *node, const struct wf_view *in)
{
    const struct wf_norm_attrs *a = (const struct wf_norm_attrs *)node->attrs;
    Norm n = { table_of(in[S]),
               table_of(in[W]),
               table_of(in[B]),
               a->groups,
               node->in[X]->shape.at[WF_C] / a->groups,
               1.0,
               (int32_t)a->per_sample,
               0 };
    n.plain = n.s.dtype == WF_F32 && (!n.w.data || n.w.dtype == WF_F32) &&
              (!n.b.data || n.b.dtype == WF_F32);
    if (a->act != WF_ACT_NONE)
        n.below = a->act == WF_RELU ? 0.0 : a->slope;
    return n;
}

/* Statistics of each sample, of samples that lie in one row of the table otherwise. */
inline bool norm_by_sample(const struct wf_node *node)
{
    return ((const struct wf_norm_attrs *)node->attrs)->per_sample != 0;
}

/* From the first element of a window [1|2,2,2] to its others. */
struct Corner {
    int64_t d, h, w;

    __device__ int64_t at(int k) const
    {
        return k / 4 * d + k / 2 % 2 * h + k % 2 * w;
    }
    bool takes(int v) const
    {
        return d % v == 0 && h % v == 0 && w % v == 0;
    }
};

inline Corner corner_of(const struct wf_view &view)
{
    return { view.stride[WF_D], view.stride[WF_H], view.stride[WF_W] };
}

/* What a thread keeps of its channels, and what becomes of an element. */
template <class A, int V> struct Affine {
    A mean[V], scale[V], bias[V];

    __device__ void take(const Columns &g, const Staged<A, V> &staged)
    {
        const int from = staged_from<V>(g);
#pragma unroll
        for (int j = 0; j < V; j++) {
            mean[j] = staged.at[MEAN][from + j];
            scale[j] = staged.at[SCALE][from + j];
            bias[j] = staged.at[BIAS][from + j];
        }
    }
    __device__ A apply(A x, int j, A below) const
    {
        const A z = fma_of(x - mean[j], scale[j], bias[j]);
        return z > 0 ? z : z * below;
    }
    template <class T> __device__ void apply_all(Vec<T, V> &x, A below) const
    {
        arith<T> z[V];
#pragma unroll
        for (int j = 0; j < V; j++)
            z[j] = (arith<T>)apply((A)x.get(j), j, below);
        x.set_all(z);
    }
};

} // namespace wf
