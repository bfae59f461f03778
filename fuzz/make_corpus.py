#!/usr/bin/env python3
"""Writes the hand-made part of fuzz/corpus/safetensors, fuzz/corpus/npy, fuzz/corpus/idx, fuzz/corpus/cloud, fuzz/corpus/net
and fuzz/corpus/onnx: files as they should
be, and files that lie. What the fuzzer found stands beside them as found-*. Needs no packages.

    python3 fuzz/make_corpus.py
"""
import gzip
import io
import json
import os
import struct
import zipfile

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def put(kind, name, data):
    os.makedirs(os.path.join(HERE, kind), exist_ok=True)
    with open(os.path.join(HERE, kind, name), "wb") as file:
        file.write(data)


def st(header, data=b"", length=None, pad=True):
    """A safetensors file from a header (text, bytes or an object) and data."""
    if not isinstance(header, (str, bytes)):
        header = json.dumps(header, separators=(",", ":"))
    if isinstance(header, str):
        header = header.encode()
    if pad:
        header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def idx():
    def file(shape, data, kind=8, zeros=0, counted=None):
        """An IDX file: two zeros, the type, the number of axes, extents, numbers."""
        axes = shape if counted is None else counted
        return struct.pack(">HBB", zeros, kind, len(axes)) + b"".join(struct.pack(">I", n) for n in axes) + data

    def pair(images, labels, packed=0):
        return struct.pack(">BH", packed, len(images)) + images + labels

    def gz(data):
        return gzip.compress(data, mtime=0)

    pixels, classes = bytes(range(2 * 4 * 3)), bytes([7, 2])
    images, labels = file([2, 4, 3], pixels), file([2], classes)
    files = {
        "good": pair(images, labels),
        "good-packed": pair(gz(images), gz(labels), 3),
        "good-images-packed": pair(gz(images), labels, 1),
        "lie-nothing": pair(b"", b""),
        "lie-no-labels": pair(images, b""),
        "lie-short-head": pair(images[:7], labels),
        "lie-truncated": pair(images[:-1], labels),
        "lie-trailing": pair(images + b"x", labels),
        "lie-fewer-labels": pair(images, file([1], classes[:1])),
        "lie-more-labels": pair(images, file([3], classes + b"\1")),
        "lie-huge-count": pair(file([2, 4, 3], pixels, counted=[2**32 - 1, 4, 3]), labels),
        "lie-huge-extents": pair(file([2, 4, 3], pixels, counted=[2, 2**31, 2**31]), labels),
        "lie-zero-extent": pair(file([2, 0, 3], b""), labels),
        "lie-no-pictures": pair(file([0, 4, 3], b""), file([0], b"")),
        "lie-floats": pair(file([2, 4, 3], pixels, kind=13), labels),
        "lie-magic": pair(file([2, 4, 3], pixels, zeros=1), labels),
        "lie-axes": pair(file([2, 12], pixels), labels),
        "lie-swapped": pair(labels, images),
        "lie-not-packed": pair(images, labels, 3),
        "lie-packed-truncated": pair(gz(images)[:-9], labels, 1),
        "lie-packed-damaged": pair(gz(images)[:14] + b"\xff" + gz(images)[15:], labels, 1),
        "lie-packed-claim": pair(gz(images)[:-4] + b"\xff\xff\xff\xff", labels, 1),
    }
    for name, data in files.items():
        put("idx", name, data)


def cloud():
    """The first byte is the format: 0 PLY, 1 npz, 2 npy, 3 OFF, 4 KITTI's scan, 5 LAS."""
    def ply(form, vertices, props, data, after=""):
        return (b"\0ply\nformat " + form + b" 1.0\nelement vertex %d\n" % vertices +
                b"".join(b"property " + p + b"\n" for p in props) + after.encode() + b"end_header\n" + data)

    def las(version=2, kind=2, record=26, count=1, start=227, data=b""):
        head = bytearray(227 if version < 4 else 375)
        head[0:4], head[24], head[25], head[104] = b"LASF", 1, version, kind
        struct.pack_into("<HI", head, 94, len(head), start)
        struct.pack_into("<HI", head, 105, record, count)
        struct.pack_into("<6d", head, 131, 1, 1, 1, 0, 0, 0)
        if version >= 4:
            struct.pack_into("<Q", head, 247, count)
        return b"\5" + bytes(head) + data

    def npy(shape, data, dtype="<f4"):
        head = b"{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (dtype.encode(), str(shape).encode())
        head += b" " * (-(len(head) + 11) % 64) + b"\n"
        return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + data

    def npz(**arrays):
        room = io.BytesIO()
        with zipfile.ZipFile(room, "w") as archive:
            for name, array in arrays.items():
                archive.writestr(zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0)), array)
        return b"\1" + room.getvalue()

    xyz = [b"float x", b"float y", b"float z"]
    f3 = struct.pack("<6f", 1, 2, 3, -4, 5, 6)
    off = b"\3OFF\n4 2 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n4 0 1 2 3 255 0 0\n"
    files = {
        "good-ascii": ply(b"ascii", 1, xyz + [b"int label"], b"1 2 3 4\n"),
        "good-little": ply(b"binary_little_endian", 2, xyz, f3),
        "good-big": ply(b"binary_big_endian", 2, xyz, f3),
        "good-list": ply(b"ascii", 1, [b"list uchar int n"] + xyz, b"2 7 8 1 2 3\n"),
        "good-faces": ply(b"ascii", 1, xyz, b"1 2 3\n3 0 0 0\n", "element face 1\nproperty list uchar int v\n"),
        "lie-count": ply(b"ascii", 10**15, xyz, b"1 2 3\n"),
        "lie-short": ply(b"binary_little_endian", 2, xyz, f3[:-1]),
        "lie-list-count": ply(b"binary_little_endian", 1, [b"list uint double n"] + xyz, b"\xff" * 40),
        "lie-label": ply(b"ascii", 1, xyz + [b"double label"], b"1 2 3 1e300\n"),
        "lie-nan": ply(b"ascii", 1, xyz, b"1 nan 3\n"),
        "lie-no-header": b"\0ply\n" + b"comment x\n" * 9,
        "good-npz": npz(points=npy((2, 3), f3), labels=npy((2,), b"\1\0\0\0\2\0\0\0", "<i4")),
        "lie-npz-rows": npz(points=npy((2, 3), f3), labels=npy((1,), b"\1\0\0\0", "<i4")),
        "good-npy": b"\2" + npy((2, 3), f3),
        "lie-npy": b"\2" + npy((2, 3), f3[:-4]),
        "lie-npy-width": b"\2" + npy((1, 5), f3[:20]),
        "good-off": off,
        "good-off-glued": off.replace(b"OFF\n4", b"OFF4"),
        "lie-off-vertex": off.replace(b"3 0 1 2", b"3 0 1 9"),
        "lie-off-flat": off.replace(b"0 1 0\n0 0 1", b"2 0 0\n3 0 0"),
        "lie-off-count": off.replace(b"4 2 0", b"4 1e9 0"),
        "good-bin": b"\4" + f3[:16],
        "lie-bin": b"\4" + f3[:15],
        "good-las": las(data=bytes(26)),
        "good-las-14": las(4, 7, 36, 1, 375, bytes(36)),
        "lie-las-count": las(count=2**31, data=bytes(26)),
        "lie-las-start": las(start=2**32 - 1, data=bytes(26)),
        "lie-las-record": las(record=3, data=bytes(26)),
        "lie-las-packed": las(kind=0x82, data=bytes(26)),
        "lie-las-format": las(kind=63, data=bytes(26)),
    }
    for name, data in files.items():
        put("cloud", name, data)


def safetensors():
    f32 = struct.pack("<4f", 1, -2, 0.5, float("inf"))
    good = {"a": entry("F32", [2, 2], 0, 16)}
    size = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1, "I8": 1,
            "I16": 2, "U16": 2, "U32": 4, "U64": 8, "C64": 8, "F8_E4M3": 1, "F8_E5M2": 1}
    many, at = {"__metadata__": {"format": "pt", "unicode": "\u00e9\u4e16", "line": "a\nb"}}, 0
    for i, (dtype, bytes_each) in enumerate(sorted(size.items(), key=lambda item: -item[1])):
        many[f"layer{i}.{dtype}"] = entry(dtype, [3, 1], at, at + 3 * bytes_each)
        at += 3 * bytes_each
    files = {
        "good": st(good, f32),
        "good-empty": st({}),
        "good-many": st(many, bytes(range(at))),
        "good-scalar": st({"s": entry("F64", [], 0, 8)}, struct.pack("<d", 1e300)),
        "good-zero-extent": st({"z": entry("F32", [0, 7], 0, 0), "a": entry("U8", [1], 0, 1)}, b"x"),
        "good-half": st({"h": entry("F16", [3], 0, 6), "b": entry("BF16", [3], 6, 12)}, bytes(range(12))),
        "good-sub-byte": st({"f": entry("F4", [4], 0, 2), "g": entry("F6_E2M3", [4], 2, 5)}, bytes(5)),
        "lie-empty-file": b"",
        "lie-seven-bytes": b"\0" * 7,
        "lie-huge-header": st(good, f32, length=2**63),
        "lie-header-past-file": st(good, f32, length=4096),
        "lie-header-over-limit": st(good, f32, length=100_000_001),
        "lie-header-zero": st("", length=0),
        "lie-not-object": st("[1,2]"),
        "lie-leading-space": st(" {}"),
        "lie-after-object": st("{} {}"),
        "lie-half-json": st('{"a":{"dtype":"F32","sha', pad=False),
        "lie-half-escape": st('{"a\\', pad=False),
        "lie-half-unicode": st('{"a\\u00', pad=False),
        "lie-lone-surrogate": st('{"\\ud800":{}}'),
        "lie-overlap": st({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, f32[:12]),
        "lie-gap": st({"a": entry("F32", [1], 0, 4), "b": entry("F32", [2], 8, 16)}, f32),
        "lie-trailing": st(good, f32 + b"x"),
        "lie-truncated": st(good, f32[:-1]),
        "lie-unknown-dtype": st({"a": entry("F31", [4], 0, 16)}, f32),
        "lie-dtype-number": st({"a": entry(32, [4], 0, 16)}, f32),
        "lie-wrong-size": st({"a": entry("F64", [4], 0, 16)}, f32),
        "lie-sub-byte-odd": st({"f": entry("F4", [3], 0, 1)}, bytes(1)),
        "lie-negative-shape": st({"a": entry("F32", [-2, -2], 0, 16)}, f32),
        "lie-fraction-shape": st({"a": entry("F32", [2.5], 0, 16)}, f32),
        "lie-text-shape": st({"a": entry("F32", ["4"], 0, 16)}, f32),
        "lie-shape-object": st({"a": entry("F32", {"0": 4}, 0, 16)}, f32),
        "lie-product-overflow": st({"a": entry("F32", [2**53, 2**53, 2**53], 0, 16)}, f32),
        "lie-bytes-overflow": st({"a": entry("F64", [2**32, 2**28], 0, 16)}, f32),
        "lie-number-huge": st('{"a":{"dtype":"F32","shape":[1e400],"data_offsets":[0,1e999]}}'),
        "lie-offsets-reversed": st({"a": entry("F32", [4], 16, 0)}, f32),
        "lie-offsets-negative": st({"a": entry("F32", [4], -16, 0)}, f32),
        "lie-offsets-three": st('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}', f32[:4]),
        "lie-offsets-one": st('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}', f32[:4]),
        "lie-no-dtype": st('{"a":{"shape":[4],"data_offsets":[0,16]}}', f32),
        "lie-extra-field": st('{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"x":1}}', f32),
        "lie-field-twice": st('{"a":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]}}', f32),
        "lie-entry-number": st('{"a":3}'),
        "lie-duplicate-name": st('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                                 '"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"xy"),
        "lie-metadata-number": st('{"__metadata__":{"a":1}}'),
        "lie-metadata-list": st('{"__metadata__":[]}'),
        "lie-metadata-twice": st('{"__metadata__":{},"__metadata__":{}}'),
        "lie-metadata-key-twice": st('{"__metadata__":{"a":"1","a":"2"}}'),
        "lie-deep": st('{"a":' * 300 + "1" + "}" * 300),
        "lie-deep-lists": st('{"a":' + "[" * 1500),
        "lie-not-utf8": st(b'{"\xff\xfe":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        "lie-zero-in-name": st('{"a\\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        "lie-control-in-name": st('{"a\\u001b[2J":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        "lie-raw-zero": st(b'{"a":\0}'),
        "lie-zip": b"PK\x03\x04" + bytes(60),
        "lie-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n",
    }
    for name, data in files.items():
        put("safetensors", name, data)


def npy(text, data=b"", version=1, length=None, magic=b"\x93NUMPY", minor=0):
    if isinstance(text, str):
        text = text.encode("latin1")
    form = "<H" if version == 1 else "<I"
    lead = magic + bytes([version, minor])
    size = len(lead) + struct.calcsize(form)
    text += b" " * (-(size + len(text) + 1) % 64) + b"\n"
    return lead + struct.pack(form, len(text) if length is None else length) + text + data


def head(descr="<f4", shape="(2, 2)", order="False"):
    return f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}"


def arrays():
    f32 = struct.pack("<4f", 1, -2, 0.5, float("nan"))
    files = {f"good-{d[1:]}-{'be' if d[0] == '>' else 'le'}": npy(head(d), bytes(range(1, 1 + 4 * int(d[2:]))))
             for d in ["<f4", "<f8", "<f2", "<i4", "<i8", "|u1", "|b1", "<i2", "<u2", "|i1", "<u4",
                       ">f4", ">f8", ">i8", ">u2"]}
    files |= {
        "good-v2": npy(head(), f32, 2),
        "good-v3": npy(head(), f32, 3),
        "good-scalar": npy(head(shape="()"), f32[:4]),
        "good-vector": npy(head(shape="(4,)"), f32),
        "good-rank5": npy(head(shape="(1, 1, 2, 2, 1)"), f32),
        "good-empty": npy(head(shape="(0, 3)")),
        "good-fortran-vector": npy(head(shape="(4, 1)", order="True"), f32),
        "good-python2": npy(head(shape="(2L, 2L)"), f32),
        "good-keys-turned": npy("{\"shape\": (4,), \"fortran_order\": False, \"descr\": \"<f4\"}", f32),
        "good-big-i8": npy(head("<i8", "(1,)"), struct.pack("<q", -2**63)),
        "good-big-f8": npy(head("<f8", "(1,)"), struct.pack("<d", 1e300)),
        "lie-empty-file": b"",
        "lie-magic-only": b"\x93NUMPY",
        "lie-nine-bytes": b"\x93NUMPY\x01\0\0",
        "lie-v2-eleven-bytes": b"\x93NUMPY\x02\0\0\0\0",
        "lie-wrong-magic": npy(head(), f32, magic=b"\x92NUMPY"),
        "lie-version-0": npy(head(), f32, 0),
        "lie-version-4": npy(head(), f32, 4),
        "lie-version-1.1": npy(head(), f32, minor=1),
        "lie-header-past-file": npy(head(), f32, length=65535),
        "lie-header-huge": npy(head(), f32, 2, length=2**32 - 1),
        "lie-header-zero": npy(head(), f32, length=0),
        "lie-truncated": npy(head(), f32[:-1]),
        "lie-trailing": npy(head(), f32 + b"x"),
        "lie-fortran": npy(head(order="True"), f32),
        "lie-order-number": npy(head(order="0"), f32),
        "lie-negative-shape": npy(head(shape="(-2, -2)"), f32),
        "lie-product-overflow": npy(head(shape="(4294967296, 4294967296)"), f32),
        "lie-bytes-overflow": npy(head("<f8", "(2305843009213693952,)"), f32),
        "lie-number-overflow": npy(head(shape="(99999999999999999999,)"), f32),
        "lie-rank6": npy(head(shape="(1, 1, 1, 1, 2, 2)"), f32),
        "lie-shape-list": npy(head(shape="[2, 2]"), f32),
        "lie-shape-no-comma": npy(head(shape="(2 2)"), f32),
        "lie-shape-open": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2", f32),
        "lie-shape-text": npy(head(shape="('2', 2)"), f32),
        "lie-records": npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (4,), }", f32),
        "lie-complex": npy(head("<c8", "(2,)"), f32),
        "lie-object": npy(head("|O", "(2,)"), f32),
        "lie-text": npy(head("<U4", "(1,)"), f32),
        "lie-u8": npy(head("<u8", "(2,)"), f32),
        "lie-no-order": npy(head("f4"), f32),
        "lie-native-order": npy(head("=f4"), f32),
        "lie-empty-descr": npy(head(""), f32),
        "lie-escape-descr": npy(head("\x1b[2J"), f32),
        "lie-long-descr": npy(head("<f4" + "4" * 100), f32),
        "lie-missing-shape": npy("{'descr': '<f4', 'fortran_order': False, }", f32),
        "lie-key-twice": npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", f32),
        "lie-unknown-key": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'x': 1}", f32),
        "lie-open-text": npy("{'descr': '<f4", f32),
        "lie-no-dict": npy("(1, 2)", f32),
        "lie-after-dict": npy(head() + "x", f32),
        "lie-zero-byte": npy(head() + "\0", f32),
        "lie-not-ascii": npy("{'descr': '\xff\xfe', 'fortran_order': False, 'shape': (4,), }", f32),
    }
    for name, data in files.items():
        put("npy", name, data)


def net():
    """Network files: one layer of each kind, and files that lie."""
    every = """name: every
dims: 2
in: 4
classes: 3
layers:
  - { name: conv, kind: conv, in: image, out: 8, kernel: [3, 5], stride: 2, pad: [[1, 2], [2, 1]], groups: 2, bias: true }
  - { name: norm, kind: batch_norm, act: leaky_relu, slope: 0.2, eps: 1e-3, momentum: 0.05 }
  - { name: max, kind: max_pool, kernel: 3, stride: 2, pad: 1, ceil: true }
  - { name: up, kind: upsample, like: norm, mode: linear }
  - { name: cat, kind: concat, in: [norm, up] }
  - { name: group, kind: group_norm, groups: 4, plain: true }
  - { name: back, kind: conv_transpose, out: 8, kernel: 4, stride: 2, pad: 1, like: image }
  - { name: part, kind: slice, from: -4 }
  - { name: sum, kind: add, in: [part, image] }
  - { name: drop, kind: dropout, p: 0.5 }
  - { name: scaled, kind: scale, factor: -0.25 }
  - { name: fitted, kind: fit, like: image, align: start }
  - { name: out, kind: conv, kernel: 1, out: classes }
heads: [out, { layer: out, weight: 0.5 }]
"""
    files = {
        "good-every": every,
        "good-json": '{"layers": [{"name": "a", "kind": "conv", "kernel": 1}]}',
        "good-classes": "layers: [{ name: a, kind: global_pool }, { name: b, kind: linear }]",
        "good-tiles": "dims: 3\nlayers: [{ name: a, kind: tile, tiles: [1, 2, 2] }, "
                      "{ name: b, kind: untile, tiles: [1, 2, 2], like: image }]",
        "good-shared": "in: 2\nlayers: [{ name: a, kind: conv, out: 2, kernel: 1, frozen: true }, "
                       "{ name: b, kind: conv, out: 2, kernel: 1, weights: a }]",
        "lie-nothing": "",
        "lie-cycle": "layers: [{ name: a, kind: relu, in: b }, { name: b, kind: relu, in: a }]",
        "lie-itself": "layers: [{ name: a, kind: relu, in: a }]",
        "lie-later": "layers: [{ name: a, kind: relu, in: b }, { name: b, kind: relu, in: image }]",
        "lie-kind": "layers: [{ name: a, kind: rellu }]",
        "lie-twice": "layers: [{ name: a, kind: relu }, { name: a, kind: relu }]",
        "lie-shapes": "layers: [{ name: a, kind: conv, out: 9, kernel: 5 }, { name: b, kind: add, in: [a, image] }]",
        "lie-huge": "layers: [{ name: a, kind: conv, out: 1000000000, kernel: 1000000, pad: 1000000 }]",
        "lie-huge-scale": "layers: [{ name: a, kind: upsample, scale: 1e6 }, { name: b, kind: upsample, scale: 1e6 }]",
        "lie-number": "layers: [{ name: a, kind: conv, out: 99999999999999999999, kernel: 1 }]",
        "lie-alias": "layers: [{ name: &a a, kind: conv, out: *a, kernel: 1 }]",
        "lie-deep": "layers: " + "[" * 200,
        "lie-heads": "layers: [{ name: a, kind: relu }]\nheads: [[a]]",
        "lie-merge": "layers: [{ <<: { name: a }, kind: relu }]",
        "lie-directive": "%YAML 1.2\n",
        "lie-tag": "%TAG ! x\n---\nlayers: [{ name: !a a, kind: relu }]",
    }
    for name, text in files.items():
        put("net", name, text.encode())
    put("net", "found-hang-directive", b"%\x80")


def field(number, value):
    """A field of a protobuf message: an integer, a float (fixed32), or bytes and text."""
    def varint(n):
        n &= (1 << 64) - 1
        out = b""
        while n > 127:
            out += bytes([n & 127 | 128])
            n >>= 7
        return out + bytes([n])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def onnx():
    """ONNX files: ModelProto and what is in it, by the field numbers of the standard."""
    def node(op, inputs, outputs, attributes=b"", name="n"):
        return field(1, b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) +
                     field(3, name) + field(4, op) + attributes)

    def attribute(name, **value):
        kinds = {"f": 2, "i": 3, "s": 4, "t": 5, "g": 6}
        lists = {"ints": 8}
        return field(5, field(1, name) + b"".join(field(kinds[k], v) for k, v in value.items() if k in kinds) +
                     b"".join(field(lists[k], i) for k, v in value.items() if k in lists for i in v))

    def tensor(name, dims, data=None, kind=1):
        raw = b"" if data is None else field(9, data)
        return b"".join(field(1, d) for d in dims) + field(2, kind) + field(8, name) + raw

    def value(name, dims):
        shape = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in dims)
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))

    def model(nodes, tensors=(), dims=("n", 2, "h", "w"), opset=18, output="y"):
        graph = b"".join(nodes) + b"".join(field(5, t) for t in tensors) + field(11, value("x", dims)) + \
            field(12, field(1, output))
        return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, opset))

    weight = tensor("w", [3, 2, 1, 1], struct.pack("<6f", *range(6)))
    ints = lambda name, values: tensor(name, [len(values)], struct.pack(f"<{len(values)}q", *values), 7)
    conv = node("Conv", ["x", "w"], ["y"])
    whole = model([conv], [weight])
    deep = b""
    for _ in range(500):
        deep = node("If", ["c"], ["y"], attribute("then_branch", g=deep))
    sizes = [node("Shape", ["x"], ["s"]), node("Div", ["s", "two"], ["half"]),
             node("Resize", ["x", "", "", "half"], ["y"], attribute("mode", s="linear"))]
    files = {
        "good-conv": whole,
        "good-resize": model(sizes, [ints("two", [1, 1, 2, 2])]),
        "good-gelu": model([node("Div", ["x", "r"], ["a"]), node("Erf", ["a"], ["b"]), node("Add", ["b", "one"], ["c"]),
                            node("Mul", ["x", "c"], ["d"]), node("Mul", ["d", "half"], ["y"])],
                           [tensor(n, [], struct.pack("<f", v)) for n, v in (("r", 2 ** 0.5), ("one", 1), ("half", 0.5))]),
        "good-shuffle": model([node("Reshape", ["x", "s"], ["a"]), node("Transpose", ["a"], ["b"], attribute("perm", ints=[0, 2, 1, 3, 4])),
                               node("Reshape", ["b", "t"], ["y"])], [ints("s", [0, 2, 4, 16, 16]), ints("t", [0, 8, 16, 16])], (2, 8, 16, 16)),
        "lie-nothing": b"",
        "lie-cut": whole[:-20],
        "lie-no-graph": field(1, 8) + field(8, field(2, 18)),
        "lie-nested": model([deep]),
        "lie-bytes": model([conv], [tensor("w", [3, 2, 1, 1], b"1234")]),
        "lie-huge": model([conv], [tensor("w", [1 << 40, 1 << 40], b"1234")]),
        "lie-negative": model([conv], [tensor("w", [-3, 2, 1, 1], b"1234")]),
        "lie-itself": model([node("Relu", ["y"], ["y"])]),
        "lie-expand": model([node("ConstantOfShape", ["s"], ["a"]), node("Add", ["x", "a"], ["y"])], [ints("s", [1 << 40, 9])]),
        "lie-many": model([node("Range", ["z", "m", "o"], [f"a{i}"]) for i in range(600)] + [conv],
                          [weight, tensor("z", [], struct.pack("<q", 0), 7), tensor("m", [], struct.pack("<q", 4095), 7),
                           tensor("o", [], struct.pack("<q", 1), 7)]),
        "lie-perm": model([node("Transpose", ["s"], ["t"], attribute("perm", ints=[0, 0])), conv],
                          [weight, tensor("s", [2, 2], struct.pack("<4q", 1, 2, 3, 4), 7)]),
        "lie-reshape": model([node("Reshape", ["x", "s"], ["y"])], [ints("s", [-1, -1, 0, 1 << 62])]),
        "lie-pads": model([node("Pad", ["x", "p"], ["y"])], [ints("p", [0, 0, -(1 << 40), 0, 0, 0, 1 << 40, 0])]),
        "lie-stride": model([node("Conv", ["x", "w"], ["y"], attribute("strides", ints=[0, -1]))], [weight]),
        "lie-slice": model([node("Slice", ["x", "a", "b"], ["y"])], [ints("a", [0, -(1 << 63)]), ints("b", [(1 << 63) - 1, -1])]),
    }
    for name, data in files.items():
        put("onnx", name, data)


safetensors()
arrays()
cloud()
idx()
net()
onnx()
