# Prediction: a network that was trained here, on an image larger than its windows.
. "$SOURCE_DIR/tests/cli/common.bash"

cat >job.yaml <<'YAML'
model: { name: unet, base: 4, depth: 2, classes: 2 }
data: { path: set, crop: [64, 64] }
train: { epochs: 1, batch: 2 }
YAML
expect 0 data synth nuclei --out set --count 4 --size 160x200 --quiet
image=$(ls set/images/* | head -1)
channels=$("$wf" data inspect set --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["channels"])')
expect 0 train job.yaml "model.in=$channels" --out run --quiet

# The image is one window in plenty of memory, and many otherwise: the numbers are the same.
cat >compare.py <<'PYTHON'
import ast, array, sys
def read(path):
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[8:10], "little")
    head = ast.literal_eval(data[10:10 + size].decode())
    values = array.array({"<f4": "f", "|u1": "B"}[head["descr"]])
    values.frombytes(data[10 + size:])
    return head["shape"], values
(shape, a), (other, b) = read(sys.argv[1]), read(sys.argv[2])
assert shape == other and len(a) == len(b) > 0, (shape, other)
worst = max(abs(x - y) for x, y in zip(a, b))
assert worst <= 1e-5, f"off by {worst}"
PYTHON
stem=$(basename "${image%.*}")
expect 0 predict run "$image" --out whole --probabilities --format npy --json
json 'j["windows"] == 1 and j["size"] == [160, 200] and j["passes"] == 1'
same() { # same FOLDER: as the whole image
    python3 compare.py "whole/${stem}_probabilities.npy" "$1/${stem}_probabilities.npy" ||
        fail "the probabilities in '$1' are not those of the whole image"
}
expect 0 predict run "$image" --out cut --probabilities --format npy --window 48x56 --json
json 'j["windows"] == 16 and j["window"] == [48, 56]'
same cut
expect 0 predict run/checkpoints/last.safetensors "$image" --out ranks --ranks 3 --probabilities \
    --format npy --window 40 --quiet
same ranks
expect 0 predict run "$image" --out limit --probabilities --format npy memory.limit=2M --json
json 'j["windows"] > 1 and j["window_bytes"] <= 2e6'
same limit
if [ -n "${MPIRUN:-}" ]; then
    read -r -a launcher <<<"$MPIRUN"
    "${launcher[@]}" -n 2 "$wf" predict run "$image" --out mpi --probabilities --format npy \
        --window 64 --json >out 2>err || fail "predict on two MPI ranks"
    json 'j["windows"] == 12'
    same mpi
fi

# Every format, a whole folder, and the overlay.
for format in tiff nifti png npy; do
    expect 0 predict run set/images --out "all_$format" --format $format --overlay --window 64 --quiet
    [ "$(ls "all_$format" | wc -l)" -eq 8 ] || fail "$format: not a class map and an overlay each"
done
python3 - "$stem" <<'PYTHON' || fail "another program does not read what was written"
import sys
try:
    import numpy
    from PIL import Image
except ImportError:
    print("no Pillow or numpy: not checked")
    sys.exit(0)
maps = [numpy.array(Image.open(f"all_{kind}/{sys.argv[1]}_classes.{end}"))
        for kind, end in (("tiff", "tif"), ("png", "png"))]
maps.append(numpy.load(f"all_npy/{sys.argv[1]}_classes.npy"))
assert all(m.shape == (160, 200) and (m == maps[0]).all() for m in maps)
assert set(numpy.unique(maps[0])) <= {0, 1}
assert numpy.array(Image.open(f"all_png/{sys.argv[1]}_overlay.png")).shape == (160, 200, 3)
PYTHON

# Images of several sizes one after the other; one that is damaged is left out with a message, and what was not
# complete is gone.
mkdir -p many
for i in 1 2 3 4 5 6; do
    cp "$image" "many/a$i.png"
done
expect 0 data synth nuclei --out other --count 2 --size 96x150 --quiet
cp "$(ls other/images/* | head -1)" many/a3_small.png
expect 0 predict run many --out several --format tiff --window 64 --quiet
[ "$(ls several | wc -l)" -eq 7 ] || fail "not a class map for each of seven images"
cmp -s several/a1_classes.tif several/a6_classes.tif || fail "the same image has another class map the second time"
cmp -s several/a1_classes.tif "all_tiff/${stem}_classes.tif" || fail "an image alone has another class map"
expect 0 predict run many --out several_ranks --format tiff --window 64 --ranks 2 --quiet
[ "$(ls several_ranks | wc -l)" -eq 7 ] || fail "two ranks: not a class map for each of seven images"
head -c $(($(wc -c <"$image") * 2 / 3)) "$image" >many/a5.png
for ranks in 1 2; do
    expect 1 predict run many --out "damaged$ranks" --format tiff --window 64 --ranks $ranks
    says "widefield: error: " "a5.png" "1 of 7 files were not predicted"
    [ "$(ls "damaged$ranks" | wc -l)" -eq 6 ] || fail "images beside the damaged one are missing"
    cmp -s "damaged$ranks/a6_classes.tif" several/a6_classes.tif || fail "another class map behind a damaged image"
    [ ! -e "damaged$ranks/a5_classes.tif" ] || fail "a class map of a damaged image"
    [ -z "$(ls -A "damaged$ranks" | grep partial)" ] || fail "half a class map was left"
done
python3 - "$image" <<'PYTHON'
import sys
with open(sys.argv[1], "rb") as file:
    data = bytearray(file.read())
for i in range(len(data) * 2 // 3, len(data) * 2 // 3 + 8):
    data[i] ^= 0x55
with open("many/a5.png", "wb") as file:
    file.write(data)
PYTHON
for ranks in 1 2; do # found by a thread that decodes ahead
    expect 1 predict run many --out "spoilt$ranks" --format tiff --window 64 --ranks $ranks
    says "widefield: error: " "a5.png" "1 of 7 files were not predicted"
    [ "$(ls "spoilt$ranks" | wc -l)" -eq 6 ] || fail "images beside the damaged one are missing"
    [ ! -e "spoilt$ranks/a5_classes.tif" ] || fail "a class map of a damaged image"
    [ -z "$(ls -A "spoilt$ranks" | grep partial)" ] || fail "half a class map was left"
done

# Numbered names are channels of nnU-Net only where there is a first one.
mkdir -p numbered
cp "$image" numbered/scan_0007.png
cp "$image" numbered/scan_0008.png
expect 0 predict run numbered --out numbered_all --quiet
[ "$(ls numbered_all | wc -l)" -eq 2 ] || fail "not a class map for each numbered image"
cp "$image" numbered/scan_0000.png
expect 0 predict run numbered --out numbered_first --quiet
[ "$(ls numbered_first)" = scan_classes.tif ] || fail "further channels were taken for images"

# An image that is not there is left out too; weights that do not fit end the command, for no image fits them.
expect 1 predict run many/a1.png many/none.png many/a3.png --out lacking
says "many/none.png" "1 of 3 files were not predicted"
prints "many/a1.png: " "many/a3.png: " "2 images in "
expect 1 predict run many/a1.png many/a3.png model.base=6 --out others
[ "$(grep -c 'widefield: error: ' err)" -eq 1 ] || fail "weights that do not fit are named once"
says "not those of the checkpoint"

# A classifier's table has the rows of all images but the damaged one.
mkdir -p kinds/a kinds/b
for file in set/images/*; do
    cp "$file" kinds/a/ && cp "$file" kinds/b/
done
cat >kinds.yaml <<'YAML'
model: { name: cnn2d, classes: 2 }
data: { path: kinds }
train: { epochs: 1, batch: 2 }
YAML
expect 0 train kinds.yaml "model.in=$channels" --out kinds_run --quiet
expect 1 predict kinds_run many --out table --quiet
says "a5.png"
[ "$(wc -l <table/predictions.csv)" -eq 7 ] || fail "not a header and a row for each of six images"

# An image with pixels that hold nothing, then a larger one without: the second reads no picture under its
# windows.
cat >plain.py <<'PYTHON'
import struct, sys
path, side, channels, nothing = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
pixels = bytes(i * 7 % 251 for i in range(side * side * channels))
bits = struct.pack(f"<{channels}H", *[8] * channels)
tags = [(256, 4, 1, side), (257, 4, 1, side), (258, 3, channels, 8 if channels == 1 else 8 + len(pixels)),
        (259, 3, 1, 1), (262, 3, 1, 2 if channels == 3 else 1), (273, 4, 1, 8), (277, 3, 1, channels),
        (278, 4, 1, side), (279, 4, 1, len(pixels))]
if nothing: # GDAL_NODATA
    tags.append((42113, 2, 2, ord(nothing[0])))
at = 8 + len(pixels) + len(bits)
at += at % 2
data = b"II*\0" + struct.pack("<I", at) + pixels + bits
with open(path, "wb") as file:
    file.write(data.ljust(at, b"\0") + struct.pack("<H", len(tags)) +
               b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4))
PYTHON
python3 plain.py nothing.tif 32 "$channels" 0
python3 plain.py plain.tif 512 "$channels"
expect 0 predict run plain.tif --out void_alone --format npy --quiet
for ranks in 1 2; do
    expect 0 predict run nothing.tif plain.tif --out "void$ranks" --format npy --ranks $ranks --quiet
    cmp -s void_alone/plain_classes.npy "void$ranks/plain_classes.npy" ||
        fail "after an image with pixels that hold nothing another one has other classes"
done

# Resolution and georeferencing of the source are those of the result.
if python3 - "$image" <<'PYTHON'; then
import sys
try:
    from PIL import Image
except ImportError:
    sys.exit(1)
Image.open(sys.argv[1]).save("placed.tif", dpi=(300, 150), tiffinfo={
    33550: (0.5, 0.5, 0.0), 33922: (0.0, 0.0, 0.0, 500000.0, 4000000.0, 0.0)})
PYTHON
    expect 0 predict run placed.tif --out placed --probabilities --overlay --window 64 --quiet
    python3 - <<'PYTHON' || fail "the tags were not copied"
from PIL import Image
for name in ("classes", "overlay"):
    with Image.open(f"placed/placed_{name}.tif") as image:
        assert image.tag_v2[33550] == (0.5, 0.5, 0.0), name
        assert image.tag_v2[33922] == (0.0, 0.0, 0.0, 500000.0, 4000000.0, 0.0), name
        assert [float(v) for v in image.info["dpi"]] == [300, 150], name
PYTHON
fi

expect 0 predict run "$image" --out told --blend --window 64x72
prints "in 20 windows of 64 x 72 (blended, not the result of the whole image; " " times its work)"
refused 2 predict run "$image" --out volume --window 8x64x64 -- "'8x64x64'" "HxW"
refused 1 predict set "$image" --out none -- "'set' is a folder without checkpoints" "give the run folder"
# Blended windows: said to be no result of the whole image; the same on several ranks, and of one window the image's.
expect 0 predict run "$image" --out blended --probabilities --format npy --blend --window 64x72 --json
json 'j["exact"] is False and j["windows"] == 20 and j["window"] == [64, 72] and 0.5 < j["halo"] < 0.8'
expect 0 predict run "$image" --out blended2 --probabilities --format npy --blend --window 64x72 --ranks 3 --quiet
expect 0 predict run "$image" --out blended1 --probabilities --format npy --blend --window 160x200 --quiet
cmp blended/"$stem"_probabilities.npy blended2/"$stem"_probabilities.npy || fail "blended on three ranks"
cmp -s blended/"$stem"_probabilities.npy blended1/"$stem"_probabilities.npy && fail "blended as the whole"
same blended1
# files of tiles, with steps that are no multiple of one
for ranks in 1 3; do
    expect 0 predict run "$image" --out "tiled$ranks" --blend --window 60x72 --overlap 0.3 --ranks $ranks --quiet
done
cmp tiled1/"$stem"_classes.tif tiled3/"$stem"_classes.tif || fail "blended in tiles on three ranks"
refused 2 predict run "$image" --out x --overlap 0.5 -- "--blend"
refused 2 predict run "$image" --out x --blend --overlap 0.95 -- "--overlap"

# Wrong use, each with what to do about it; nothing is left behind.
refused 2 predict run "$image" -- "--out DIR"
refused 2 predict run --out x -- "CKPT IMAGE"
refused 2 predict run "$image" --out x --format bmp -- "tiff, nifti, png, npy"
refused 2 predict run "$image" --out x --window 0x9 -- "HxW"
refused 2 predict run "$image" --out x --mesh space=2 -- "--ranks"
mkdir -p twin && cp "$image" twin/
refused 2 predict run "$image" twin --out x -- "the same file"
refused 1 predict nowhere.safetensors "$image" --out x -- "nowhere.safetensors"
refused 1 predict run nowhere.png --out x -- "nowhere.png"
refused 3 predict run "$image" --out x memory.limit=100k -- "memory.limit"
mkdir -p empty
refused 1 predict run empty --out x -- "no images"
cat >grey.py <<'PYTHON'
import struct, sys, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
color = 2 if sys.argv[1] == "1" else 0
row = b"\0" + b"\x40" * (32 * (3 if color == 2 else 1))
with open("other.png", "wb") as file:
    file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, color, 0, 0, 0)) +
               chunk(b"IDAT", zlib.compress(row * 32)) + chunk(b"IEND", b""))
PYTHON
python3 grey.py "$channels"
refused 1 predict run other.png --out x -- "other.png" "channels" "model.in="
[ -z "$(ls x 2>/dev/null)" ] || fail "refused, but a file was written"
