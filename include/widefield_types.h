/*
 * Plain values that all of Widefield's functions share: errors, log levels, element types, shapes.
 *
 * A structure that you fill starts with zeros, which mean "the usual":
 *
 *     struct wf_err err = WF_ZERO;
 *     struct wf_conv conv = WF_ZERO;
 *     conv.name = "first";
 */
#ifndef WIDEFIELD_TYPES_H
#define WIDEFIELD_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_VERSION_MAJOR 0
#define WF_VERSION_MINOR 1
#define WF_VERSION_PATCH 0

/* All declarations of the library stand between the first two: C linkage, and visible in the shared
 * library. A structure is zeroed by the third. */
/* clang-format off */
#ifdef __cplusplus
#define WF_API_BEGIN extern "C" { _Pragma("GCC visibility push(default)")
#define WF_API_END _Pragma("GCC visibility pop") }
#define WF_ZERO {}
#else
#define WF_API_BEGIN _Pragma("GCC visibility push(default)")
#define WF_API_END _Pragma("GCC visibility pop")
#define WF_ZERO { 0 }
#endif
/* clang-format on */

/* The result tells whether it worked: look at it. */
#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ > 201710L)
#define WF_CHECK [[nodiscard]]
#else
#define WF_CHECK __attribute__((warn_unused_result))
#endif

/* --- errors: a code and a sentence --- */

/* Functions that can fail return false or NULL and fill the last argument. */
enum wf_err_code {
    WF_OK = 0,
    WF_ERR_FAILED,  /* the environment failed: I/O, memory, another rank */
    WF_ERR_INPUT,   /* a file's content is bad, or data is */
    WF_ERR_USAGE,   /* wrong usage or settings */
    WF_ERR_FIT,     /* does not fit: memory or mesh */
    WF_ERR_STOPPED, /* stopped on request */
};

/* Plain storage of the caller: nothing is allocated. The first failure stays: zero it before going on. */
struct wf_err {
    enum wf_err_code code;
    bool is_shared;  /* every rank has it */
    char text[1024]; /* a sentence for people: what failed, and what to do */
};

/* --- messages: for a log of yours --- */

enum wf_log_level { WF_LOG_QUIET, WF_LOG_ERROR, WF_LOG_WARN, WF_LOG_INFO, WF_LOG_DEBUG };

/* Takes one message, without a line's end. */
typedef void wf_log_fn(enum wf_log_level level, const char *text, void *user);

/* --- dtypes: element types --- */

enum wf_dtype { WF_F32, WF_BF16, WF_F16, WF_F64, WF_I32, WF_I64, WF_U8, WF_DTYPES };

/* --- shapes: extents and boxes --- */

/* Every tensor of a graph has five axes, channels last. A 2D image has D = 1, a signal D = H = 1, a
 * vector D = H = W = 1. */
enum wf_axis { WF_N, WF_D, WF_H, WF_W, WF_C, WF_AXES };

struct wf_shape {
    int64_t at[WF_AXES];
};

/* A box, half open: [lo, hi) along each axis. */
struct wf_region {
    int64_t lo[WF_AXES], hi[WF_AXES];
};

/* The shape of `n` samples of `d` x `h` x `w` positions with `c` channels. */
static inline struct wf_shape wf_shape_make(int64_t n, int64_t d, int64_t h, int64_t w, int64_t c)
{
    struct wf_shape shape;
    shape.at[WF_N] = n;
    shape.at[WF_D] = d;
    shape.at[WF_H] = h;
    shape.at[WF_W] = w;
    shape.at[WF_C] = c;
    return shape;
}

#endif
