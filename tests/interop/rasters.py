#!/usr/bin/env python3
"""Can other programs read images that Widefield wrote? It reads every fixture and writes it as TIFF, PNG, .npy
and NIfTI; tifffile, Pillow, numpy, nibabel and tiffinfo find the same values, palettes, tags and affines
in them.

    python3 tests/interop/rasters.py      (needs numpy, tifffile, imagecodecs, pillow, nibabel and a C compiler)
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

import nibabel
import numpy
import tifffile
from PIL import Image

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
IMAGES = os.path.join(ROOT, "tests", "fixtures", "image")
checks = 0


def build(folder):
    program = os.path.join(folder, "rasters")
    sources = [os.path.join(ROOT, "tests/interop/rasters.c")]
    for pattern in ["base/*.c", "tensor/*.c", "image/*.c"]:
        sources += glob.glob(os.path.join(ROOT, "src", pattern))
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libtiff-4", "libpng", "libjpeg", "zlib", "expat", "libcjson"],
                           check=True, capture_output=True, text=True).stdout.split()
    subprocess.run([os.environ.get("CC", "cc"), "-std=c2x", "-O1", "-D_GNU_SOURCE=", "-DWF_HAVE_PNG", "-DWF_HAVE_JPEG",
                    "-DWF_HAVE_TIFF", "-DWF_HAVE_ZLIB", "-DWF_HAVE_EXPAT", "-I" + os.path.join(ROOT, "src"), *sources, "-o", program,
                    *flags, "-lm"], check=True)
    return program


def same(got, want, what):
    global checks
    checks += 1
    want = numpy.asarray(want, numpy.float64)
    got = numpy.asarray(got, numpy.float64).reshape(want.shape)
    if not numpy.array_equal(got, want, equal_nan=True):
        sys.exit(f"{what}: values differ")


def check_tiff(path, want, name):
    with tifffile.TiffFile(path) as file:
        pages = [page.asarray() for page in file.pages]
        same(numpy.stack(pages), want, f"{name}: tifffile")
        tags = {tag.code: tag.value for tag in file.pages[0].tags}
        assert 322 in tags and tags[259] in (8, 32946), "tiled and deflate"
    if name == "tiff_tile_f32_big.tif":
        assert tags[33550] == (0.5, 0.25, 0.0) and tags[34737].startswith("UTM Zone 11"), tags
        assert tags[33922][3] == 440720.0 and tags[34735][4] == 1024, tags
    if name == "tiff_tile_rgb8_deflate.tif":
        assert tags[282] == (300, 1) and tags[283] == (150, 1) and tags[296] == 2, tags
    if name in ("tiff_palette.tif", "png_classes.png"):
        assert Image.open(path).getpalette()[3:9] == [255, 0, 0, 0, 255, 0], name
    if shutil.which("tiffinfo"):
        info = subprocess.run(["tiffinfo", "-D", path], capture_output=True, text=True)
        assert info.returncode == 0 and "rror" not in info.stderr, info.stderr


def check_nifti(path, want, name):
    image = nibabel.load(path)
    raw = numpy.asanyarray(image.dataobj)
    if raw.dtype.names:  # colours
        raw = numpy.stack([raw[c] for c in raw.dtype.names], axis=-1)
    raw = raw.reshape(want.shape[2], want.shape[1], want.shape[0], want.shape[3])
    same(raw.transpose(2, 1, 0, 3), want, f"{name}: nibabel")
    if name.startswith("nifti_"):
        source = nibabel.load(os.path.join(IMAGES, name)).header
        got = image.header
        assert numpy.array_equal(got.get_best_affine(), source.get_best_affine().astype(numpy.float32)), name
        for field in ("qform_code", "sform_code", "xyzt_units"):
            assert got[field] == source[field], (name, field)
        assert numpy.array_equal(got["pixdim"][:4], source["pixdim"][:4].astype(numpy.float32)), name


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder)
        for line in open(os.path.join(IMAGES, "list.txt")):
            name, truth = line.split()
            want = numpy.load(os.path.join(IMAGES, "truth", truth + ".npy"))
            if want.dtype != numpy.float16:
                want = want.astype(numpy.float32) if want.dtype == numpy.float64 else want
            for end in ("tif", "png", "npy", "nii", "nii.gz"):
                path = os.path.join(folder, "out." + end)
                png = want.dtype in (numpy.uint8, numpy.uint16) and want.shape[0] == 1 and want.shape[3] <= 4
                if end == "png" and (not png or "bool" in name):  # signed in HDF5
                    continue
                subprocess.run([program, os.path.join(IMAGES, name), path], check=True)
                if end == "tif":
                    check_tiff(path, want, name)
                elif end.startswith("nii"):
                    check_nifti(path, want, name)
                elif end == "npy":
                    same(numpy.load(path), want, f"{name}: numpy")
                elif want.dtype == numpy.uint8 or want.shape[3] == 1:
                    same(numpy.asarray(Image.open(path)), want, f"{name}: Pillow")
    print(f"rasters: {checks} images are the same elsewhere")


main()
