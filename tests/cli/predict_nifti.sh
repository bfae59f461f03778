# Predictions of NIfTI volumes are NIfTI volumes with the geometry of their source.
. "$SOURCE_DIR/tests/cli/common.bash"

# Volumes of two channels in nnU-Net's layout, 12 x 10 x 7 voxels, oblique; and the same case in other
# forms: plain, with a big-endian header, as a series of two time points.
cat >volumes.py <<'PYTHON'
import gzip, json, os, random, struct
SIZE = (12, 10, 7)
PIXDIM = (-1.0, 0.75, 0.5, 2.5, 3.0, 1.0, 1.0, 1.0)
QUATERN = (0.125, -0.25, 0.375, -90.5, 126.25, -72.125)
AFFINE = (0.75, 0.125, -0.25, -90.5, -0.125, 0.5, 0.375, 126.25, 0.0625, -0.1875, 2.5, -72.125)

def head(order, dim, kind, bits):
    h = bytearray(352)
    struct.pack_into(order + "i", h, 0, 348)
    struct.pack_into(order + "8h", h, 40, *(len(dim), *dim, *[1] * (7 - len(dim))))
    struct.pack_into(order + "2h", h, 70, kind, bits)
    struct.pack_into(order + "8f", h, 76, *PIXDIM)
    struct.pack_into(order + "f", h, 108, 352)
    h[123] = 10
    struct.pack_into(order + "2h", h, 252, 1, 2)
    struct.pack_into(order + "6f", h, 256, *QUATERN)
    struct.pack_into(order + "12f", h, 280, *AFFINE)
    h[344:348] = b"n+1\0"
    return bytes(h)

def write(path, values, dim=SIZE, order="<"):
    kind, code = ((16, "f") if isinstance(values[0], float) else (2, "B"))
    data = head(order, dim, kind, 32 if kind == 16 else 8) + struct.pack(f"{order}{len(values)}{code}", *values)
    with (gzip.open if path.endswith(".gz") else open)(path, "wb") as file:
        file.write(data)

random.seed(3)
for folder in ("set/imagesTr", "set/labelsTr", "plain", "big", "series"):
    os.makedirs(folder)
count = SIZE[0] * SIZE[1] * SIZE[2]
for case in "abc":
    mask = [int((i % 12) > 6) + int((i // 12) % 10 > 7) for i in range(count)]
    one = [float(v) + random.gauss(0, 0.2) for v in mask]
    two = [random.gauss(0, 1) for v in mask]
    write(f"set/imagesTr/{case}_0000.nii.gz", one)
    write(f"set/imagesTr/{case}_0001.nii.gz", two)
    write(f"set/labelsTr/{case}.nii.gz", mask)
for folder, order in (("plain", "<"), ("big", ">")):
    write(f"{folder}/c_0000.nii", one, order=order)
    write(f"{folder}/c_0001.nii", two, order=order)
write("series/c.nii.gz", one + two, SIZE + (2,), ">")
with open("set/dataset.json", "w") as file:
    json.dump({"channel_names": {"0": "T1", "1": "T2"}, "labels": {"background": 0, "left": 1, "right": 2},
               "numTraining": 3, "file_ending": ".nii.gz"}, file)
PYTHON
python3 volumes.py
cat >job.yaml <<'YAML'
model: { name: unet, dims: 3, in: 2, base: 4, depth: 1, classes: 3 }
data: { path: set, crop: [4, 8, 8] }
train: { epochs: 4, batch: 1, lr: 0.02 }
YAML
expect 0 train job.yaml --out run --quiet

# like FOLDER ENDING: classes and probabilities are those of the .npy files in `npy`, with the geometry of the source.
cat >like.py <<'PYTHON'
import array, ast, gzip, struct, sys

def npy(path):
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[8:10], "little")
    shape = ast.literal_eval(data[10:10 + size].decode())
    return shape["shape"], array.array({"<f4": "f", "|u1": "B"}[shape["descr"]], data[10 + size:])

def fields(h, order):
    return {"pixdim": struct.unpack_from(order + "8f", h, 76), "units": h[123],
            "codes": struct.unpack_from(order + "2h", h, 252),
            "quatern": struct.unpack_from(order + "6f", h, 256),
            "affine": struct.unpack_from(order + "12f", h, 280)}

def nii(path):
    with open(path, "rb") as file:
        data = file.read()
    assert (data[:2] == b"\x1f\x8b") == path.endswith(".gz"), path
    return gzip.decompress(data) if path.endswith(".gz") else data

source = fields(nii("set/imagesTr/c_0000.nii.gz"), "<")
assert source["affine"][3] == -90.5 and source["codes"] == (1, 2)
folder, end = sys.argv[1:]
for what, kind, code, channels in (("classes", 2, "B", 1), ("probabilities", 16, "f", 3)):
    data = nii(f"{folder}/c_{what}.{end}")
    assert struct.unpack_from("<i", data)[0] == 348 and data[344:348] == b"n+1\0"
    dim = struct.unpack_from("<8h", data, 40)
    assert dim == ((3, 12, 10, 7, 1, 1, 1, 1) if channels == 1 else (4, 12, 10, 7, 3, 1, 1, 1)), dim
    assert struct.unpack_from("<2h", data, 70) == (kind, 32 if kind == 16 else 8)
    want = dict(source)
    if channels > 1: # the fourth axis is not the source's time
        want["pixdim"] = want["pixdim"][:4] + (1.0,) + want["pixdim"][5:]
    assert fields(data, "<") == want, what
    got = array.array(code, data[352:])
    shape, values = npy(f"npy/c_{what}.npy")
    assert shape[:3] == (7, 10, 12) and len(got) == len(values) == 840 * channels, shape
    for i, v in enumerate(values): # channels last there, slowest here
        assert abs(got[i % channels * 840 + i // channels] - v) <= 1e-5, (what, i)
    assert len(set(got)) > 1, "a single value proves nothing"
PYTHON
like() {
    python3 like.py "$1" "$2" || fail "'$1' is not as its source"
}
expect 0 predict run set/imagesTr/c_0000.nii.gz --out npy --format npy --probabilities --quiet
expect 0 predict run set/imagesTr/c_0000.nii.gz --out one --probabilities --json
json 'j["classes"] == "one/c_classes.nii.gz" and j["probabilities"] == "one/c_probabilities.nii.gz"'
like one nii.gz
expect 0 predict run set/imagesTr --out two --ranks 2 --window 3x5x7 --probabilities --overlay --quiet
like two nii.gz
[ "$(ls two | wc -l)" -eq 9 ] || fail "not three files for each case"
expect 0 predict run plain --out plain_out --ranks 2 --window 4 --probabilities --quiet
like plain_out nii
expect 0 predict run big/c_0000.nii --out big_out --probabilities --quiet
like big_out nii
expect 0 predict run series/c.nii.gz --out series_out --probabilities --quiet
like series_out nii.gz
if [ -n "${MPIRUN:-}" ]; then
    read -r -a launcher <<<"$MPIRUN"
    "${launcher[@]}" -n 2 "$wf" predict run set/imagesTr/c_0000.nii.gz --out mpi --probabilities \
        --window 3x5x7 --quiet >out 2>err || fail "predict on two MPI ranks"
    like mpi nii.gz
fi

# Other formats are available, and NIfTI for other images.
expect 0 predict run plain/c_0000.nii --out tiff --format tiff --quiet
[ "$(ls tiff)" = c_classes.tif ] || fail "--format tiff gave $(ls tiff)"

# An existing file is unchanged when the disk is full; the error is reported once.
for ranks in 1 2; do
    cp one/c_classes.nii.gz before
    (
        ulimit -f 1
        exec "$wf" predict run set/imagesTr/c_0000.nii.gz --out one --ranks $ranks --probabilities
    ) >out 2>err && fail "a full disk was not noticed"
    says "widefield: error: " "one/c_classes.nii.gz" "File too large"
    [ "$(grep -c 'File too large' err)" -eq 1 ] || fail "reported more than once"
    [ "$(ls one)" = "c_classes.nii.gz
c_probabilities.nii.gz" ] || fail "left behind: $(ls one)"
    cmp -s before one/c_classes.nii.gz || fail "a failed run changed the file of the last one"
done
