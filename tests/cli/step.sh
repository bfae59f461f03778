# One step: what it writes, that the result does not depend on the mesh, and malformed files.
. "$SOURCE_DIR/tests/cli/common.bash"
cp "$SOURCE_DIR/tests/cli/tensors.py" .

cat >a.yaml <<'YAML'
model: { name: unet, base: 4, depth: 1, in: 2, classes: 3 }
data: { size: [1, 2, 16, 12] }
train: { optimizer: sgd, lr: 0.5 }
YAML

expect 0 step a.yaml --dump whole.safetensors --json
json 'abs(j["loss"] - 1.0986) < 0.7 and j["dump"] == "whole.safetensors"'
expect 0 step a.yaml --mesh space=2x3 --dump cut.safetensors --quiet
expect 0 step a.yaml --seed 2 --dump other.safetensors
python3 - <<'PYTHON' || fail "the dump is not right"
import json, subprocess, os, sys
from tensors import read_safetensors, apart
whole, cut, other = (read_safetensors(n + ".safetensors") for n in ("whole", "cut", "other"))
show = json.loads(subprocess.run([os.environ["WIDEFIELD"], "model", "show", "unet", "model.base=4",
    "model.depth=1", "model.in=2", "model.classes=3", "--json"], capture_output=True, check=True).stdout)
trained = {t["name"]: t["shape"] for t in show["tensors"] if t["kind"] == "trained"}
assert whole["loss"][0] == [], whole["loss"]
assert whole["pred"][0] == [1, 3, 16, 12]
for name, shape in trained.items():
    assert whole["grad." + name][0] == shape, name
    assert whole["param." + name][0] == shape, name
assert sorted(whole) == sorted(cut)
for name in whole:
    assert apart(cut[name], whole[name]) < 1e-5, (name, apart(cut[name], whole[name]))
assert apart(other["pred"], whole["pred"]) > 1e-2, "another seed gives other numbers"
PYTHON

# SGD by hand: the same weights, one learning rate of zero
expect 0 step a.yaml train.lr=0 --dump start.safetensors
python3 - <<'PYTHON' || fail "the update is not p - lr * g"
from tensors import read_safetensors
start, after = read_safetensors("start.safetensors"), read_safetensors("whole.safetensors")
seen = 0
for name, (shape, values) in after.items():
    if name.startswith("param."):
        g = after["grad." + name[6:]][1]
        p = start[name][1]
        for a, b, c in zip(values, p, g):
            assert abs(a - (b - 0.5 * c)) <= 1e-6 * (abs(b) + abs(0.5 * c)) + 1e-12, name
            seen += 1
assert seen > 100
PYTHON

# weights and data from files give the same numbers as the random ones they hold
python3 - <<'PYTHON'
from tensors import *
start = read_safetensors("start.safetensors")
write_safetensors("w.safetensors", {k[6:]: v for k, v in start.items() if k.startswith("param.")})
write_npy("x.npy", "<f4", [1, 2, 16, 12], [((i * 37) % 101) / 50 - 1 for i in range(2 * 16 * 12)])
write_npy("y.npy", "<i8", [1, 16, 12], [(i * 7) % 3 for i in range(16 * 12)])
write_npy("y4.npy", "<i4", [1, 16, 12], [(i * 7) % 3 for i in range(16 * 12)])
PYTHON
expect 0 step a.yaml --seed 77 --weights w.safetensors --input x.npy --target y.npy --dump f1.safetensors
expect 0 step a.yaml --seed 78 --weights w.safetensors --input x.npy --target y4.npy --mesh space=2x2 --dump f2.safetensors
# without data.size the size is that of the image
expect 0 step model.base=4 model.depth=1 model.classes=3 train.optimizer=sgd train.lr=0.5 \
    --weights w.safetensors --input x.npy --target y.npy --dump f3.safetensors
python3 - <<'PYTHON' || fail "files do not give the same numbers on a mesh"
from tensors import read_safetensors, apart
f1, f2, f3 = (read_safetensors(f"f{i}.safetensors") for i in (1, 2, 3))
for name in f1:
    assert apart(f2[name], f1[name]) < 1e-5, name
    assert f3[name] == f1[name], name
PYTHON

# malformed files: refused with their name, status 1, and no dump is left
bad() { # bad FLAG FILE TEXT...
    local flag=$1 file=$2
    shift 2
    rm -f bad.out
    refused 1 step a.yaml "$flag" "$file" --mesh space=2 --dump bad.out -- "$file" "$@"
    [ ! -e bad.out ] || fail "'$file' was refused, but a dump was written"
}
python3 - <<'PYTHON'
import json, struct
from tensors import *
w = read_safetensors("w.safetensors")
name = "out.bias"
assert name in w
write_safetensors("missing.safetensors", {k: v for k, v in w.items() if k != name})
write_safetensors("more.safetensors", w | {"extra.weight": ([2], [1.0, 2.0])})
write_safetensors("shape.safetensors", w | {name: ([1, 3], w[name][1])})
write_safetensors("torch.safetensors", w | {"enc0.bn0.num_batches_tracked": ([], [3.0])})
raw = open("w.safetensors", "rb").read()
n, = struct.unpack("<Q", raw[:8])
open("short.safetensors", "wb").write(raw[:-8])
open("tiny.safetensors", "wb").write(raw[:5])
open("header.safetensors", "wb").write(struct.pack("<Q", 1 << 60) + raw[8:])
open("notjson.safetensors", "wb").write(raw[:8] + b"x" * n + raw[8 + n:])
head = json.loads(raw[8:8 + n])
head[name]["data_offsets"][1] += 1 << 40
text = json.dumps(head).encode()
open("offsets.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + raw[8 + n:])
x = open("x.npy", "rb").read()
open("short.npy", "wb").write(x[:-4])
open("magic.npy", "wb").write(b"NUMPY!" + x[6:])
open("huge.npy", "wb").write(x.replace(b"(1, 2, 16, 12)", b"(1, 2, 16, 10000000000000)"))
write_npy("axes.npy", "<f4", [384], [0.0] * 384)
write_npy("label.npy", "<i8", [1, 16, 12], [3 if i == 100 else 0 for i in range(16 * 12)])
write_npy("negative.npy", "<i8", [1, 16, 12], [-1 if i == 100 else 0 for i in range(16 * 12)])
write_npy("reals.npy", "<f4", [1, 16, 12], [0.5] * 192)
write_npy("small.npy", "<i8", [1, 16, 11], [0] * 176)
PYTHON
bad --weights missing.safetensors "out.bias"
bad --weights more.safetensors "extra.weight"
bad --weights shape.safetensors "out.bias"
for file in short tiny header notjson offsets; do
    bad --weights $file.safetensors
done
bad --weights nowhere.safetensors
bad --input short.npy
bad --input magic.npy
bad --input huge.npy
bad --input axes.npy "axes"
bad --target label.npy "label 3" "model.classes"
bad --target negative.npy "label -1" "train.ignore"
bad --target reals.npy
bad --target small.npy "1 x 16 x 11" "1 x 16 x 12"
expect 0 step a.yaml --weights torch.safetensors --quiet
expect 0 step a.yaml train.ignore=-1 --target negative.npy --quiet
write="import sys; from tensors import *; write_npy('wide.npy', '<f4', [1, 2, 16, 13], [0.0] * 416)"
python3 -c "$write"
refused 2 step a.yaml --input wide.npy -- "wide.npy" "1 x 2 x 16 x 13" "data.size"
refused 1 step a.yaml --dump no/such/folder/x.safetensors -- "no/such/folder"

# a file to start from: matching tensors are loaded, the rest is initialised as usual
python3 - <<'PYTHON'
from tensors import *
write_safetensors("part.safetensors", {"out.bias": ([3], [5.0, 6.0, 7.0]), "fc.weight": ([1], [1.0])})
write_safetensors("wrong.safetensors", {"out.bias": ([2], [5.0, 6.0])})
write_safetensors("other.safetensors", {"fc.weight": ([1], [1.0])})
PYTHON
expect 0 step a.yaml model.weights=part.safetensors train.lr=1e-12 --dump started.safetensors --quiet
expect 0 step a.yaml train.lr=1e-12 --dump usual.safetensors --quiet
python3 - <<'PYTHON' || fail "weights to start from"
from tensors import read_safetensors, apart
a, b = read_safetensors("started.safetensors"), read_safetensors("usual.safetensors")
assert apart(a["param.out.bias"], ([3], [5.0, 6.0, 7.0])) < 1e-6
same = lambda n: all(abs(x - y) < 1e-6 for x, y in zip(a[n][1], b[n][1]))
assert all(same(n) for n in b if n.startswith("param.") and n != "param.out.bias")
PYTHON
refused 1 step a.yaml model.weights=wrong.safetensors -- "out.bias"
refused 1 step a.yaml model.weights=other.safetensors -- "no tensor of network"
