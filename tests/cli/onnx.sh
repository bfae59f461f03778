# ONNX: networks that PyTorch exported are imported and train as PyTorch trains them, and trained ones are exported.
. "$SOURCE_DIR/tests/cli/common.bash"
cp "$SOURCE_DIR/tests/cli/pictures.py" "$SOURCE_DIR/tests/cli/tensors.py" .
files=$SOURCE_DIR/tests/fixtures/onnx
"$wf" model import "$files/unet.onnx" --out probe >out 2>err || {
    grep -q "build reads no ONNX" err && skip "built without libprotobuf-c"
    fail "model import"
}

# --- what PyTorch computes in f64, by tests/interop/make_onnx.py ---
cat >compare.py <<'PY'
"""compare.py make N C extents... : the image and labels of the golden files; compare.py GOLDEN DUMP: compares."""
import math
import sys

from tensors import apart, read_safetensors, write_npy

if sys.argv[1] == "make":
    classes, *shape = map(int, sys.argv[2:])
    count = math.prod(shape)
    write_npy("x.npy", "<f4", shape, [math.sin(0.37 * i + 0.001 * i * i) for i in range(count)])
    label = [shape[0], *shape[2:]] if classes > 0 else [shape[0]]
    write_npy("y.npy", "<i4", label, [i // 5 % abs(classes) for i in range(math.prod(label))])
    sys.exit()
want, got = read_safetensors(sys.argv[1]), read_safetensors(sys.argv[2])
worst, missing = {"pred": 0.0, "grad": 0.0}, []
size = max(math.sqrt(sum(v * v for v in t[1]) / len(t[1])) for n, t in want.items() if n != "pred")
for name, (shape, values) in want.items():
    # a parameter that is no module's has a layer of its own
    name = next((n for n in (name, name + ".weight", name + ".bias") if n in got), name)
    if name not in got:
        missing.append(name)
        continue
    assert math.prod(got[name][0]) == math.prod(shape), name
    norm = math.sqrt(sum(v * v for v in values))
    # a bias in front of a norm has no gradient but rounding
    error = apart((shape, got[name][1]), (shape, values)) * norm / max(norm, 1e-3 * size * math.sqrt(len(values)))
    worst[name[:4]] = max(worst[name[:4]], error)
    if error > (1e-5 if name == "pred" else 1e-4):
        print(name, error)
print(worst, "missing", missing)
# this one has no path
assert set(missing) <= {"grad.gamma"} and worst["pred"] <= 1e-5 and worst["grad"] <= 1e-4, (worst, missing)
PY

# one_step NAME GOLDEN CLASSES EXTENTS...: classes negative for one label per image
one_step() {
    local name=$1 golden=$2
    shift 2
    python3 compare.py make "$@"
    shift
    expect 0 model import "$files/$name.onnx" --out "$name" --json
    json 'j["layers"] > 1 and j["tensors"] > 1'
    cat >"$name/job.yaml" <<YAML
model: { name: $name/net.yaml }
data: { size: [$(IFS=,; echo "$*")] }
train: { loss: ce, optimizer: sgd }
YAML
    expect 0 step "$name/job.yaml" --weights "$name/weights.safetensors" --input x.npy --target y.npy \
        --dump "$name/step.safetensors"
    python3 compare.py "$files/$golden.safetensors" "$name/step.safetensors" >out 2>err || fail "$name differs from PyTorch"
}
one_step unet unet 3 2 3 8 12
one_step unet-dynamo unet 3 2 3 8 12
one_step mixed mixed 3 2 3 8 12
one_step mixed-dynamo mixed 3 2 3 8 12
one_step attention attention 3 2 3 8 12
one_step classifier classifier -5 2 3 8 12
one_step volume volume 2 1 1 4 6 8
one_step external volume 2 1 1 4 6 8
one_step gates gates 3 2 3 8 12
one_step gates-dynamo gates 3 2 3 8 12
one_step odd odd 3 2 3 9 13
one_step odd-fixed odd 3 2 3 9 13
cmp volume/weights.safetensors external/weights.safetensors || fail "weights of another file differ"

# extents are those of another layer, or a factor; an activation belongs to its norm
grep -q 'kind: upsample, .*mode: linear, like: norm' unet/net.yaml || fail "no 'like' in $(cat unet/net.yaml)"
grep -q 'name: norm, kind: batch_norm, act: relu' unet/net.yaml || fail "no activation in a norm"
grep -q 'kind: upsample, mode: linear_corners, scale: 2' volume/net.yaml || fail "no scale"
[ "$(wc -l <unet/net.yaml)" -eq "$(wc -l <unet-dynamo/net.yaml)" ] || fail "two exporters, two networks"

# weights keep their names, and a bias of zeros that the exporter put in is none
for name in mixed mixed-dynamo; do
    grep -q 'name: norm, kind: group_norm, groups: 2' $name/net.yaml || fail "names of $name"
done
grep -q 'name: first, kind: conv, in: image, out: 4, kernel: 3, pad: 1 }' unet-dynamo/net.yaml || fail "a bias"

grep -q 'kind: matmul' attention/net.yaml || fail "attention without a product"
grep -q 'kind: reshape, like: ' attention/net.yaml || fail "a reshape that fixes extents"

# cut over ranks, and at other extents
for mesh in space=2x2 data=2; do
    expect 0 verify unet/job.yaml data.size=2,3,33,46 --mesh $mesh --json
    json 'j["pass"] and j["ranks"] > 1'
    expect 0 verify attention/job.yaml data.size=2,3,17,22 --mesh $mesh --json
    json 'j["pass"] and j["ranks"] > 1'
done

# every second position of odd extents makes images that do not meet
expect 0 model import "$files/gates.onnx" --out gates
grep -q "multiples of 64" err || fail "no warning of the extents that it takes"
expect 0 model import "$files/odd.onnx" --out odd
! grep -q "multiples of" out err || fail "odd.onnx takes any extents"

# modules that are used twice share their weights; a file of fixed extents says which
for layer in squeeze excite again.0 again.1; do
    [ "$(grep -c "weights: $layer[ ,]" gates/net.yaml)" = 1 ] || fail "the weights of $layer: $(cat gates/net.yaml)"
done
grep -q 'name: scales.gain, kind: channel_scale, .*shared: true' gates/net.yaml || fail "no parameter of one number"
grep -q '^size: \[9, 13\]' odd-fixed/net.yaml || fail "no size in $(cat odd-fixed/net.yaml)"
[ "$(grep -c 'kind: fit, .*like: ' odd/net.yaml)" = 2 ] || fail "no 'like' in $(cat odd/net.yaml)"
expect 0 verify odd/job.yaml data.size=2,3,16,21 --mesh space=2x2 --json
json 'j["pass"] and j["ranks"] > 1'
expect 0 verify gates/job.yaml data.size=2,3,18,24 --mesh space=2x2 --json
json 'j["pass"] and j["ranks"] > 1'

# --- other types of numbers, an If whose condition is known ---
expect 0 model import "$files/types.onnx" --out types --json
python3 - <<'PY'
from tensors import read_safetensors
t = read_safetensors("types/weights.safetensors")
ones = [0.5, -1.0, 2.0, 0.25]
assert [t[k + ".weight"][1] for k in ("half", "brain", "long")] == [ones] * 3, t
assert t["brain.bias"][1] == [0.5, -0.5]
PY
grep -q 'kind: relu' types/net.yaml || fail "the branch of If is missing"

# --- refused, with the place ---
refused 1 model import "$files/refused-operator.onnx" --out no -- "node 'where' (NonZero, operator set 18)" "no rule"
refused 1 model import "$files/refused-loop.onnx" --out no -- "node 'again' (Loop, operator set 18)" "control flow"
refused 1 model import "$files/refused-opset.onnx" --out no -- "operator set 11" "13 to 21" "opset_version"
refused 1 model import "$files/refused-weights.onnx" --out no -- "node 'conv'" "weight 'w'" "3 channels"
refused 1 model import "$files/refused-short.onnx" --out no -- "tensor 'w' should have 108 elements" "has 50"
refused 1 model import "$files/refused-outside.onnx" --out no -- "'../secret.bin'" "not inside the model's folder"
head -c 4000 "$files/unet.onnx" >cut.onnx
refused 1 model import cut.onnx --out no -- "'cut.onnx'" "truncated"
refused 1 model import none.onnx --out no -- "none.onnx"
refused 2 model import "$files/unet.onnx" -- "--out DIR"
refused 1 model import "$files/unet.onnx" --out no --outputs nothing -- "output 'nothing'"
mkdir lonely
cp "$files/external.onnx" lonely/
refused 1 model import lonely/external.onnx --out no -- "external.bin"
head -c 100 "$files/external.bin" >lonely/external.bin
refused 1 model import lonely/external.onnx --out no -- "lonely/external.bin" "ends before tensor"

# --- export ---
expect 0 export unet/job.yaml --weights unet/weights.safetensors --out unet.onnx --json
json 'j["opset"] == 18 and j["nodes"] > 10'
expect 0 model import unet.onnx --out again
# what comes back computes the same: the same layers, and bit for bit the same weights
python3 - <<'PY'
from tensors import read_safetensors
a, b = read_safetensors("unet/weights.safetensors"), read_safetensors("again/weights.safetensors")
assert a == b, set(a) ^ set(b)
PY
python3 compare.py make 3 2 3 8 12
sed s/unet.net.yaml/again\\/net.yaml/ unet/job.yaml >again/job.yaml
expect 0 step again/job.yaml --weights again/weights.safetensors --input x.npy --target y.npy --dump again/step.safetensors
python3 compare.py "$files/unet.safetensors" again/step.safetensors >out 2>err || fail "what was exported differs"
expect 0 export gates/job.yaml --weights gates/weights.safetensors --out gates.onnx --json
expect 0 model import gates.onnx --out gates-again
sed s/gates.net.yaml/gates-again\\/net.yaml/ gates/job.yaml >gates-again/job.yaml
expect 0 step gates-again/job.yaml --weights gates-again/weights.safetensors --input x.npy --target y.npy \
    --dump gates-again/step.safetensors
python3 - <<'PY'
from tensors import apart, read_safetensors
a, b = (read_safetensors(f"{name}/step.safetensors")["pred"] for name in ("gates", "gates-again"))
assert apart(a, b) < 1e-6, apart(a, b)
PY
refused 1 export mixed/job.yaml --weights unet/weights.safetensors --out no.onnx -- "no weight" "unet/weights.safetensors"
refused 2 export unet/job.yaml -- "--out NET.onnx"
[ ! -e no.onnx ] || fail "a file of a failed export"

# a checkpoint of a built-in network, with the normalisation of its data
python3 pictures.py set 6 48 40
expect 0 train /dev/stdin --out run --quiet <<'YAML'
model: { name: unet, base: 4, depth: 2 }
data: { path: set, crop: [32, 32], validation: 0.34 }
train: { epochs: 1, batch: 2 }
YAML
expect 0 export run --out run.onnx
prints "run.onnx: operator set 18"
expect 0 model import run.onnx --out back

# --- the standard's own checks, where Python has them ---
if python3 -c 'import onnx, onnxruntime, numpy' 2>/dev/null; then
    python3 - <<'PY'
import onnx, onnxruntime, numpy
for path in ("unet.onnx", "run.onnx"):
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for h, w in ((16, 24), (32, 48)):
        y = session.run(None, {"image": numpy.zeros((2, 3, h, w), "f4")})[0]
        assert y.shape[0] == 2 and y.shape[2:] == (h, w), y.shape
PY
else
    skip "the checks of Python's onnx and onnxruntime: not installed; all else passed"
fi
