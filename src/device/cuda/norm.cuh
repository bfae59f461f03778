/* What the kernels of a normalisation read: statistics, weight and bias of a channel. */
#ifndef WF_DEVICE_CUDA_NORM_CUH
#define WF_DEVICE_CUDA_NORM_CUH

#include "device/cuda/columns.cuh"

namespace wf
{

enum { X, S, W, B, DY, Q }; /* inputs of norm and its gradients */

struct Norm {
    Table s, w, b;
    int64_t groups, width; /* channels of a group */
    float below;           /* slope of the activation below zero; 1: there is none */
    int32_t by_sample;

    __device__ float mean(int64_t row, int64_t c) const
    {
        return (float)s.get(by_sample ? row : 0, c / width);
    }
    __device__ float rstd(int64_t row, int64_t c) const
    {
        return (float)s.get(by_sample ? row : 0, groups + c / width);
    }
    __device__ float weight(int64_t c) const
    {
        return w.data ? (float)w.get(0, c) : 1.0f;
    }
    __device__ float bias(int64_t c) const
    {
        return b.data ? (float)b.get(0, c) : 0.0f;
    }
};

inline Norm norm_of(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = (const struct wf_norm_attrs *)call->node->attrs;
    Norm n = { table_of(call->in[S]),
               table_of(call->in[W]),
               table_of(call->in[B]),
               a->groups,
               call->node->in[X]->shape.at[WF_C] / a->groups,
               1.0f,
               (int32_t)a->per_sample };
    if (a->act != WF_ACT_NONE)
        n.below = a->act == WF_RELU ? 0.0f : (float)a->slope;
    return n;
}

/* Statistics of each sample, of samples that lie in one row of the table otherwise. */
inline bool norm_by_sample(const struct wf_call *call)
{
    return ((const struct wf_norm_attrs *)call->node->attrs)->per_sample != 0;
}

} // namespace wf

#endif
