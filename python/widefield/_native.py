"""The C interface: structures and functions of include/widefield*.h, as ctypes sees them.

tests/test_layout.py compares the structures with the headers.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any

from . import errors
from ._library import open_library

AXES = 5
LOG_LEVELS = {"QUIET": 0, "ERROR": 1, "WARN": 2, "INFO": 3, "DEBUG": 4}
F32, BF16, F16, F64, I32, I64, U8 = range(7)


class Err(ctypes.Structure):
    _fields_ = [("code", c_int), ("is_shared", c_bool), ("text", c_char * 1024)]


class Shape(ctypes.Structure):
    _fields_ = [("at", c_int64 * AXES)]


class Region(ctypes.Structure):
    _fields_ = [("lo", c_int64 * AXES), ("hi", c_int64 * AXES)]


class DeviceInfo(ctypes.Structure):
    _fields_ = [
        ("name", c_char * 32),
        ("index", c_int),
        ("about", c_char * 256),
        ("bytes", c_size_t),
        ("free_bytes", c_size_t),
    ]


class PlanInfo(ctypes.Structure):
    _fields_ = [
        ("ranks", c_int),
        ("mesh", c_char * 64),
        ("bytes", c_size_t),
        ("seconds", c_double),
        ("messages", c_int64),
        ("fetched", c_size_t),
        ("summed", c_size_t),
        ("parameters", c_int64),
        ("flops", c_double),
        ("rank_bytes", c_size_t * 16),
        ("rank_seconds", c_double * 16),
    ]


class VerifyInfo(ctypes.Structure):
    _fields_ = [
        ("same", c_bool),
        ("loss", c_double),
        ("predictions", c_double),
        ("gradients", c_double),
        ("weights", c_double),
    ]


class Arrays(ctypes.Structure):
    _fields_ = [
        ("samples", c_int64),
        ("dims", c_int),
        ("extents", POINTER(c_int64)),
        ("sizes_differ", c_bool),
        ("channels", c_int64),
        ("image_dtype", c_int),
        ("images", POINTER(c_void_p)),
        ("image_block", c_void_p),
        ("label_dtype", c_int),
        ("labels", POINTER(c_void_p)),
        ("label_block", c_void_p),
        ("image_labels", c_void_p),
        ("validation", c_void_p),
        ("raw", c_bool),
    ]


class DataInfo(ctypes.Structure):
    _fields_ = [
        ("samples", c_int64),
        ("dims", c_int),
        ("channels", c_int),
        ("classes", c_int),
        ("per_image", c_bool),
    ]


class StepInfo(ctypes.Structure):
    _fields_ = [
        ("step", c_int64),
        ("epoch", c_int64),
        ("loss", c_double),
        ("lr", c_double),
        ("norm", c_double),
        ("skipped", c_bool),
        ("seconds", c_double),
        ("ended", c_bool),
    ]


class EpochInfo(ctypes.Structure):
    _fields_ = [
        ("epoch", c_int64),
        ("step", c_int64),
        ("loss", c_double),
        ("validated", c_bool),
        ("validation", c_double),
        ("metric", c_double),
        ("is_best", c_bool),
        ("ended", c_bool),
    ]


class ScoresInfo(ctypes.Structure):
    _fields_ = [
        ("loss", c_double),
        ("accuracy", c_double),
        ("mean_iou", c_double),
        ("mean_dice", c_double),
        ("counted", c_int64),
        ("classes", c_int),
    ]


class PredictArrays(ctypes.Structure):
    _fields_ = [
        ("dims", c_int),
        ("extents", c_int64 * 3),
        ("image", c_void_p),
        ("labels", c_void_p),
        ("probabilities", c_void_p),
    ]


class PredictFiles(ctypes.Structure):
    _fields_ = [
        ("image", c_char_p),
        ("labels", c_char_p),
        ("probabilities", c_char_p),
        ("overlay", c_char_p),
    ]


class GraphOptions(ctypes.Structure):
    _fields_ = [("training", c_bool), ("compute", c_int)]


# By the names of the headers; tests/test_layout.py goes over it.
STRUCTURES: dict[str, type[ctypes.Structure]] = {
    "wf_err": Err,
    "wf_shape": Shape,
    "wf_region": Region,
    "wf_device_info": DeviceInfo,
    "wf_plan_info": PlanInfo,
    "wf_verify_info": VerifyInfo,
    "wf_arrays": Arrays,
    "wf_data_info": DataInfo,
    "wf_step_info": StepInfo,
    "wf_epoch_info": EpochInfo,
    "wf_scores_info": ScoresInfo,
    "wf_predict_arrays": PredictArrays,
    "wf_predict_files": PredictFiles,
    "wf_graph_options": GraphOptions,
}

LogFn = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
ProgressFn = ctypes.CFUNCTYPE(None, c_double, c_void_p)

_handle = c_void_p
_err = POINTER(Err)
_size = POINTER(c_int64)

# Name: result, arguments.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "wf_version": (c_char_p, []),
    "wf_options_new": (_handle, []),
    "wf_options_free": (None, [_handle]),
    "wf_options_set": (c_bool, [_handle, c_char_p, c_char_p, _err]),
    "wf_options_read_file": (c_bool, [_handle, c_char_p, _err]),
    "wf_options_value": (c_char_p, [_handle, c_char_p]),
    "wf_options_key": (c_char_p, [c_int]),
    "wf_model_count": (c_int, []),
    "wf_model_name": (c_char_p, [c_int]),
    "wf_model_about": (c_char_p, [c_int]),
    "wf_model_add": (_handle, [_handle, _handle, _handle]),
    "wf_model_text": (c_void_p, [_handle, _err]),
    "wf_graph_new": (_handle, [POINTER(GraphOptions)]),
    "wf_graph_free": (None, [_handle]),
    "wf_graph_ok": (c_bool, [_handle, _err]),
    "wf_graph_parameters": (c_int64, [_handle, c_bool]),
    "wf_input": (_handle, [_handle, c_char_p, c_int, Shape]),
    "wf_graph_output": (None, [_handle, _handle]),
    "wf_graph_find": (_handle, [_handle, c_char_p]),
    "wf_graph_grad": (c_bool, [_handle, _handle, _handle, c_int, POINTER(c_void_p), POINTER(c_void_p), _err]),
    "wf_value_name": (c_char_p, [_handle]),
    "wf_value_shape": (Shape, [_handle]),
    "wf_device_count": (c_int, []),
    "wf_device_get": (c_bool, [c_int, POINTER(DeviceInfo)]),
    "wf_session_new": (_handle, [_handle, _err]),
    "wf_session_free": (None, [_handle]),
    "wf_session_rank": (c_int, [_handle]),
    "wf_session_size": (c_int, [_handle]),
    "wf_session_stop": (None, [_handle]),
    "wf_session_on_log": (None, [_handle, c_int, LogFn, c_void_p]),
    "wf_session_plan": (c_bool, [_handle, c_int, _size, POINTER(PlanInfo), _err]),
    "wf_session_explain": (c_void_p, [_handle, c_int, _size, c_int, _err]),
    "wf_text_free": (None, [c_void_p]),
    "wf_session_verify": (c_bool, [_handle, c_int, _size, POINTER(VerifyInfo), _err]),
    "wf_exec_new": (_handle, [_handle, _handle, _err]),
    "wf_exec_free": (None, [_handle]),
    "wf_exec_put": (c_bool, [_handle, c_char_p, c_void_p, c_size_t, _err]),
    "wf_exec_step": (c_bool, [_handle, _err]),
    "wf_exec_get": (c_bool, [_handle, c_char_p, c_void_p, c_size_t, _err]),
    "wf_exec_put_device": (c_bool, [_handle, c_char_p, c_void_p, c_size_t, _err]),
    "wf_exec_get_device": (c_bool, [_handle, c_char_p, c_void_p, c_size_t, _err]),
    "wf_data_open": (_handle, [c_char_p, _handle, _err]),
    "wf_data_arrays": (_handle, [POINTER(Arrays), _err]),
    "wf_data_free": (None, [_handle]),
    "wf_data_describe": (None, [_handle, POINTER(DataInfo)]),
    "wf_data_class": (c_char_p, [_handle, c_int]),
    "wf_trainer_new": (_handle, [_handle, _handle, c_char_p, _err]),
    "wf_trainer_free": (None, [_handle]),
    "wf_trainer_step": (c_bool, [_handle, POINTER(StepInfo), _err]),
    "wf_trainer_epoch": (c_bool, [_handle, POINTER(EpochInfo), _err]),
    "wf_trainer_last_epoch": (c_bool, [_handle, POINTER(EpochInfo)]),
    "wf_trainer_evaluate": (c_bool, [_handle, POINTER(ScoresInfo), _err]),
    "wf_trainer_iou": (c_double, [_handle, c_int]),
    "wf_trainer_save": (c_bool, [_handle, c_char_p, _err]),
    "wf_trainer_load": (c_bool, [_handle, c_char_p, _err]),
    "wf_trainer_tensor": (c_char_p, [_handle, c_int, POINTER(c_int64 * AXES), POINTER(c_int)]),
    "wf_trainer_get": (c_bool, [_handle, c_char_p, c_void_p, c_size_t, _err]),
    "wf_trainer_set": (c_bool, [_handle, c_char_p, c_void_p, c_size_t, _err]),
    "wf_predictor_new": (_handle, [_handle, c_char_p, _err]),
    "wf_predictor_of": (_handle, [_handle, _err]),
    "wf_predictor_free": (None, [_handle]),
    "wf_predictor_channels": (c_int, [_handle]),
    "wf_predictor_window": (None, [_handle, POINTER(c_int64 * 3)]),
    "wf_predictor_on_progress": (None, [_handle, ProgressFn, c_void_p]),
    "wf_predictor_array": (c_bool, [_handle, POINTER(PredictArrays), _err]),
    "wf_predictor_file": (c_bool, [_handle, POINTER(PredictFiles), _err]),
}

lib = open_library()
for _name, (_result, _arguments) in FUNCTIONS.items():
    try:
        _function = getattr(lib, _name)
    except AttributeError:
        raise ImportError(f"'{lib._name}' has no {_name}(): it is older than this package; build it again") from None
    _function.restype = _result
    _function.argtypes = _arguments


def fail(err: Err) -> None:
    """Raises the exception of an error that is filled."""
    text = err.text.decode(errors="replace")
    raise errors.BY_CODE.get(err.code, errors.Error)(text)


def sizes(size: tuple[int, ...] | None) -> tuple[int, Any]:
    """A size as count and array."""
    numbers = [int(n) for n in size or ()]
    return len(numbers), (c_int64 * max(1, len(numbers)))(*numbers)


__all__ = ["c_float", "c_int32", "c_int64", "lib", "fail", "sizes"]
