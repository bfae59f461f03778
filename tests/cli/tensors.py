"""Safetensors and .npy files without any package, for the tests of the command."""
import json
import math
import struct


def read_safetensors(path):
    """{name: (shape, flat list)} of an f32 file."""
    with open(path, "rb") as file:
        raw = file.read()
    n, = struct.unpack("<Q", raw[:8])
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        assert t["dtype"] == "F32", (name, t)
        begin, end = t["data_offsets"]
        assert end - begin == 4 * math.prod(t["shape"]), name
        values = struct.unpack(f"<{(end - begin) // 4}f", raw[8 + n + begin:8 + n + end])
        out[name] = (t["shape"], list(values))
    return out


def write_safetensors(path, tensors):
    head, data = {}, b""
    for name, (shape, values) in tensors.items():
        piece = struct.pack(f"<{len(values)}f", *values)
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_npy(path, descr, shape, values):
    shape_text = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape_text}, }}"
    head += " " * (-(10 + len(head) + 1) % 64) + "\n"
    letter = {"<f4": "f", "<i4": "i", "<i8": "q"}[descr]
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        file.write(struct.pack(f"<{len(values)}{letter}", *values))


def apart(a, b):
    """norm(a - b) / norm(b)"""
    assert a[0] == b[0]
    top = math.sqrt(sum((x - y) ** 2 for x, y in zip(a[1], b[1])))
    return top / (math.sqrt(sum(y * y for y in b[1])) or 1.0)
