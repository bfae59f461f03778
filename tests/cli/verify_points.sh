# Networks of points with their samples on several ranks, in two, three and four dimensions.
. "$SOURCE_DIR/tests/cli/verify_models.bash"

points() { # points MESH ARGUMENTS...
    on_threads "$@"
    on_threads "$@" data.points=1
}

for mesh in data=2 data=3; do
    points $mesh model.name=minkresnet model.base=4 data.size=3,3,24,24,24 data.points=300
    points $mesh model.name=minkresnet model.base=4 model.dims=2 model.blocks=1,1 data.size=4,2,32,32 data.points=200
    points $mesh model.name=sparse_course model.base=8 data.size=5,1,16,16,16 data.points=100
    points $mesh model.name=minkunet14 model.base=4 data.size=3,2,12,12,12,6 data.points=200
done
# Cut into boxes of the grid: one axis, two, three, a rank between two others, ranks without points.
for mesh in space=2x1x1 space=2x2x1 space=1x1x3 data=2,space=2 space=2x2x2; do
    points $mesh model.name=minkunet14 model.base=4 data.size=2,3,40,40,40 data.points=1500
    points $mesh model.name=minkresnet model.base=4 model.blocks=1,1,1 data.size=2,3,48,48,48 data.points=1500
done
# Of full width: millions of ReLUs, of which none may turn, so the forward pass has to agree in every bit.
on_threads space=2x1x1 model.name=minkresnet data.size=2,3,48,48,48 data.points=1500
points space=2x2 model.name=minkunet14 model.base=4 model.dims=2 data.size=2,2,64,64 data.points=600
points space=2x1x2 model.name=minkunet14 model.base=4 data.size=2,2,32,16,32,4 data.points=300
points space=2x1x1 model.name=minkunet14 model.base=4 data.size=2,3,40,40,40 data.points=900 train.accumulate=2
# The prediction has the order of the points, whatever ranks have them; 4 dimensions as well as 3.
python3 - <<'PYTHON'
import io, random, struct, zipfile
random.seed(3)
def npy(kind, rows):
    head = f"{{'descr': '<{kind}4', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + b"".join(
        struct.pack(f"<{len(r)}{kind}", *r) for r in rows)
# Places at both ends of int32, and cuts that would lie beyond them.
ends = [[0, s * (2 ** 31 - 1 - x) - (s < 0), y, 0] for s in (-1, 1) for x in range(9) for y in range(3)]
with zipfile.ZipFile("ends.npz", "w") as z:
    z.writestr("coords.npy", npy("i", ends))
    z.writestr("features.npy", npy("f", [[random.uniform(-1, 1)] for _ in ends]))
for dims in 3, 4:
    places = random.sample(range(2 * 24 ** dims), 300)
    coords = [[p // 24 ** dims] + [p // 24 ** d % 24 for d in range(dims)] for p in places]
    features = [[random.uniform(-1, 1)] for _ in places]
    turned = list(range(len(places)))[::-1]
    for name, order in ("as_is", range(len(places))), ("turned", turned):
        with zipfile.ZipFile(f"{name}{dims}.npz", "w") as z:
            z.writestr("coords.npy", npy("i", [coords[i] for i in order]))
            z.writestr("features.npy", npy("f", [features[i] for i in order]))
PYTHON
for mesh in space=1 space=2x1x1 space=3x2x1; do
    expect 0 step --quiet --mesh $mesh --input ends.npz --dump ends.$mesh model.name=minkunet14 model.base=2 train.loss=mse
done
for dims in 3 4; do
    for name in as_is turned; do
        for mesh in data=2 space=2x2x1; do
            expect 0 step --quiet --mesh $mesh --input $name$dims.npz --dump $name.$mesh model.name=minkunet14 \
                model.base=2 model.dims=$dims train.loss=mse
        done
    done
    python3 - <<'PYTHON' || fail "the order of predictions in $dims dimensions"
import json, struct
def pred(path, points=300):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    lo, hi = head["pred"]["data_offsets"]
    assert head["pred"]["shape"] == [points, 2], head["pred"]
    return list(struct.iter_unpack("<2f", data[lo:hi]))
for mesh in "2x1x1", "3x2x1":
    for x, y in zip(pred("ends.space=1", 54), pred(f"ends.space={mesh}", 54)):
        assert max(abs(a - b) for a, b in zip(x, y)) < 1e-4
whole = pred("as_is.data=2")
for other in pred("as_is.space=2x2x1"), pred("turned.data=2")[::-1], pred("turned.space=2x2x1")[::-1]:
    assert max(abs(a - b) for x, y in zip(whole, other) for a, b in zip(x, y)) < 1e-4
PYTHON
done
expect 3 verify --mesh pipe=2 model.name=minkunet14 data.size=2,2,64,64,64 data.points=600
expect 3 verify --mesh space=2x1x1 model.name=minkunet14 model.dims=2 data.size=2,2,64,64 data.points=600
if [ -n "${launcher[*]}" ]; then
    "${launcher[@]}" -n 4 "$wf" verify --mesh data=2,space=2 --json --quiet model.name=minkunet14 model.base=4 \
        data.size=2,3,40,40,40 data.points=900 >out 2>err || fail "verify under mpirun"
    holds mpirun
    "${launcher[@]}" -n 2 "$wf" verify --mesh data=2 --json --quiet model.name=minkresnet model.base=4 \
        data.size=3,3,24,24,24 data.points=300 >out 2>err || fail "verify under mpirun"
    holds mpirun
fi
# A level with a single point has no statistics.
refused 1 step --dump o.safetensors model.name=minkresnet model.base=4 data.size=1,3,8,8,8 data.points=20 -- \
    "layer 'layer1.0.norm1'" "batch norm over 1 point"
