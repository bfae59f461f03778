# Pixels in which nothing was measured (GDAL's tag): not in statistics, not in the loss, marked in what predict
# writes; the same numbers on any mesh.
. "$SOURCE_DIR/tests/cli/common.bash"

cat >tiffs.py <<'PYTHON'
import math, os, random, struct, sys

def write_tiff(path, width, height, values, code, nodata=None):
    """One strip, one channel; code: B (u8) or f (f32)."""
    data = struct.pack(f"<{len(values)}{code}", *values)
    text = (nodata or "").encode() + b"\0"
    tags = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8 * struct.calcsize(code)), (259, 3, 1, 1),
            (262, 3, 1, 1), (273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, len(data)),
            (339, 3, 1, 3 if code == "f" else 1)]
    if nodata:
        tags.append((42113, 2, len(text), 8 + len(data)))
    head = struct.pack("<2sHI", b"II", 42, 8 + len(data) + 64)
    body = head + data + text.ljust(64, b"\0") + struct.pack("<H", len(tags))
    body += b"".join(struct.pack("<HHII", *tag) for tag in tags) + struct.pack("<I", 0)
    with open(path, "wb") as file:
        file.write(body)

def read_tags(path):
    """Tags of the first page of a little-endian TIFF: number to (type, count, bytes)."""
    with open(path, "rb") as file:
        all = file.read()
    place, = struct.unpack_from("<I", all, 4)
    count, = struct.unpack_from("<H", all, place)
    tags = {}
    for i in range(count):
        tag, kind, n, at = struct.unpack_from("<HHII", all, place + 2 + 12 * i)
        size = n * {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 12: 8}[kind]
        tags[tag] = all[place + 10 + 12 * i:][:size] if size <= 4 else all[at:at + size]
    return tags

if __name__ == "__main__":
    for name, nodata, under in (("plain", "-9999", 0), ("nan", "nan ", 0), ("other", "-9999", 1)):
        random.seed(1)
        os.makedirs(f"{name}/images")
        os.makedirs(f"{name}/masks")
        for i in range(5):
            image, mask = [], []
            for y in range(32):
                for x in range(40):
                    inside = (x - 8 * i) ** 2 + (y - 16) ** 2 < 64
                    value = random.gauss(110 if inside else 100, 2)
                    image.append(float(nodata) if x < 10 else value)
                    mask.append(under if x < 10 else int(inside)) # what the mask has there does not matter
            write_tiff(f"{name}/images/{i}.tif", 40, 32, image, "f", nodata)
            write_tiff(f"{name}/masks/{i}.tif", 40, 32, mask, "B")
PYTHON
python3 tiffs.py
for set in plain nan; do
    expect 0 data inspect $set --json
    json '98 < j["mean"][0] < 106 and j["std"][0] < 8 and j["problems"] == []'
    json 'any("hold nothing" in w for w in j["warnings"])'
done

refused 2 train model.name=unet data.path=plain train.loss=mse --out mse -- "hold nothing" "train.loss=mse" "-unsetnodata"

train=(train model.name=unet model.base=4 model.depth=2 data.path=plain data.crop=32x40 train.batch=2 train.epochs=2
       train.seed=3 --json --quiet)
expect 0 "${train[@]}" --out one
expect 0 "${train[@]}" --out two --mesh space=1x2
expect 0 "${train[@]}" data.path=other --out under
for run in one two under; do
    python3 -S - "$run" <<'PYTHON' || fail "no losses in $run"
import glob, json, math, sys
rows = [json.loads(line) for name in glob.glob(sys.argv[1] + "/*.jsonl") for line in open(name)]
losses = {row["epoch"]: row["train_loss"] for row in rows if "train_loss" in row}  # steps are left out by time
assert losses and all(math.isfinite(v) and v < 2 for v in losses.values()), losses
json.dump(losses, open(sys.argv[1] + ".losses", "w"))
PYTHON
done
python3 -S -c '
import json
a, b = (json.load(open(n)) for n in ("one.losses", "two.losses"))
both = a.keys() & b.keys()
assert len(both) == 2 and all(abs(a[s] - b[s]) < 1e-5 * a[s] for s in both), (a, b)' || fail "meshes differ"
cmp one.losses under.losses || fail "a mask counts where the image has nodata"

# The prediction of a pixel without data has none either, in one window and in many.
expect 0 predict one plain/images/0.tif --out p1 --probabilities --overlay --quiet
expect 0 predict one plain/images/0.tif --out p2 --probabilities --window 16x16 --ranks 2 --quiet
python3 -S - <<'PYTHON' || fail "the prediction does not carry nodata"
from tiffs import read_tags
for folder in ("p1", "p2"):
    assert read_tags(f"{folder}/0_classes.tif")[42113] == b"255\0"
    assert read_tags(f"{folder}/0_probabilities.tif")[42113] == b"nan\0"
assert 42113 not in read_tags("p1/0_overlay.tif")
PYTHON
mkdir -p check/images check/masks
cp p1/0_classes.tif check/images/a.tif
cp p1/0_classes.tif check/masks/a.tif
expect 0 data inspect check --json
json '[c["count"] for c in j["classes"]][:2] != [] and j["scanned"] == 1280'
json 'sum(c["count"] for c in j["classes"]) + j["other"] == 1280'
json 'j["other"] == 320 or any(c["in_file"].startswith("255") and c["count"] == 320 for c in j["classes"])'

# An image of which nothing is known beside the others, and one that is all nodata: nothing stops.
python3 -S -c '
from tiffs import write_tiff
write_tiff("plain/images/9.tif", 40, 32, [-9999.0] * 1280, "f", "-9999")
write_tiff("plain/masks/9.tif", 40, 32, [1] * 1280, "B")'
expect 0 data inspect plain --json
json '98 < j["mean"][0] < 106'
expect 0 "${train[@]}" --out three
expect 0 eval three plain --json --quiet
