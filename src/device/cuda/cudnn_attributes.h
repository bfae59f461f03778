/* Attributes of cuDNN's descriptors, each with the C type that its cuDNN type stands for. */
#pragma once

#include <stdint.h>

#include "device/cuda/libraries.h"

static inline bool set(const struct wf_cudnn *dnn, cudnnBackendDescriptor_t d,
                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t count, const void *values)
{
    return dnn->cudnnBackendSetAttribute(d, name, type, count, values) == CUDNN_STATUS_SUCCESS;
}

static inline bool set_int(const struct wf_cudnn *dnn, cudnnBackendDescriptor_t d,
                           cudnnBackendAttributeName_t name, int64_t value)
{
    return set(dnn, d, name, CUDNN_TYPE_INT64, 1, &value);
}

static inline bool set_ints(const struct wf_cudnn *dnn, cudnnBackendDescriptor_t d,
                            cudnnBackendAttributeName_t name, int64_t count, const int64_t values[])
{
    return set(dnn, d, name, CUDNN_TYPE_INT64, count, values);
}

static inline bool set_float(const struct wf_cudnn *dnn, cudnnBackendDescriptor_t d,
                             cudnnBackendAttributeName_t name, float value)
{
    return set(dnn, d, name, CUDNN_TYPE_FLOAT, 1, &value);
}

static inline bool set_type(const struct wf_cudnn *dnn, cudnnBackendDescriptor_t d,
                            cudnnBackendAttributeName_t name, cudnnDataType_t value)
{
    return set(dnn, d, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

static inline bool set_descriptor(const struct wf_cudnn *dnn, cudnnBackendDescriptor_t d,
                                  cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    return value && set(dnn, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static inline bool finalize(const struct wf_cudnn *dnn, cudnnBackendDescriptor_t d)
{
    return dnn->cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS;
}
