# Network files: every command takes one where it takes a network, and checkpoints hold it.
. "$SOURCE_DIR/tests/cli/common.bash"
cp "$SOURCE_DIR/tests/cli/pictures.py" "$SOURCE_DIR/tests/cli/tensors.py" .
python3 pictures.py set 8 48 40
mkdir -p jobs
cat >jobs/tiny.yaml <<'YAML'
name: tiny
dims: 2
layers:
  - { name: enc0.conv0, kind: conv, out: 8, kernel: 3, pad: 1 }
  - { name: enc0.bn0, kind: batch_norm, act: relu }
  - { name: pool, kind: max_pool, kernel: 2 }
  - { name: enc1.conv0, kind: conv, out: 16, kernel: 3, pad: same }
  - { name: enc1.bn0, kind: batch_norm, act: relu }
  - { name: up, kind: upsample, like: enc0.bn0, mode: linear }
  - { name: cat, kind: concat, in: [enc0.bn0, up] }
  - { name: out, kind: conv, kernel: 1, bias: true } # as many channels as classes
YAML
cat >jobs/a.yaml <<'YAML'
model: { name: tiny.yaml }
data: { path: set, crop: [32, 32], augment: [flip], validation: 0.25, repeat: 2 }
train: { epochs: 2, batch: 2, lr: 1e-2, samples: 2, checkpoint_seconds: 0 }
YAML

# --- looking at it ---
expect 0 model show jobs/tiny.yaml --json
# by hand: 8*3*9 + 16 + 16*8*9 + 32 + 2*24 + 2
json 'j["name"] == "tiny" and j["parameters"] == 216 + 16 + 1152 + 32 + 48 + 2'
json '"enc1.conv0.weight" in [t["name"] for t in j["tensors"]]'
expect 0 model show jobs/tiny.yaml model.in=1 model.classes=5 --json
json 'j["parameters"] == 72 + 16 + 1152 + 32 + 120 + 5'
expect 0 plan jobs/a.yaml data.size=2,3,64,64 --mesh space=2x1 --json
json 'j["ranks"] == 2 and j["parameters"] == 1466'
for mesh in space=2x2 data=2 pipe=2; do
    expect 0 verify jobs/a.yaml data.size=2,3,37,50 --mesh $mesh --json
    json 'j["pass"] and j["ranks"] > 1'
done
expect 0 step jobs/a.yaml data.size=2,3,37,50 --dump step.safetensors
expect 0 bench jobs/a.yaml data.size=1,3,64,64 --json
json 'j["ms"] > 0'

# --- training: a checkpoint needs the file no longer ---
expect 0 train jobs/a.yaml --out run --json
last_line 'j["epochs"] == 2 and j["run"] == "run"'
[ -s run/network.yaml ] || fail "no copy of the network in the run folder"
expect 0 model show run/network.yaml --json
json 'j["parameters"] == 1466 and j["name"] == "tiny"'
mv jobs/tiny.yaml kept.yaml
image=$(ls set/images/* | head -1)
expect 0 predict run "$image" --out predicted --quiet
expect 0 eval run set --json
json 'len(j["iou"]) == 2 or len(j["metric"]["iou"]) == 2'
expect 0 report run
# without a config the run's own is taken, with the network in it
expect 0 train --resume run train.epochs=3 --json
last_line 'j["epochs"] == 3'
refused 2 train jobs/a.yaml --out other -- "tiny.yaml"

# --- another network is another run ---
sed 's/kernel: 2 }/kernel: 2, ceil: true }/' kept.yaml >jobs/tiny.yaml # the weights would fit
refused 2 train jobs/a.yaml --out run --resume auto train.epochs=4 -- "is not that of the checkpoint"
sed 's/# as many.*//; s/name: tiny/name:   tiny/' kept.yaml >jobs/tiny.yaml # the same, written otherwise
expect 0 train jobs/a.yaml --out run --resume auto train.epochs=4 --json
last_line 'j["epochs"] == 4'

# --- what does not fit together ---
refused 2 model show jobs/tiny.yaml model.dims=3 -- "dims"
refused 2 model show jobs/tiny.yaml model.base=3 -- "model.base"
refused 2 model show jobs/absent.yaml -- "cannot read network file 'jobs/absent.yaml'"
refused 2 model show net.onnx -- "model import"
sed 's/kernel: 1, bias/out: 3, kernel: 1, bias/' kept.yaml >three.yaml
expect 0 model show three.yaml --json
refused 2 model show three.yaml model.classes=2 -- "predicts 3 classes" "out: classes"
sed 's/^dims: 2/dims: 2\nin: 4/' kept.yaml >four.yaml
refused 2 model show four.yaml model.in=1 -- "takes 4 channels"
sed '/kind: upsample/d; s/\[enc0.bn0, up\]/[enc1.bn0, enc1.bn0]/' kept.yaml >coarse.yaml
refused 2 model show coarse.yaml -- "coarse.yaml:10:7: layer 'out'" "1 x 128 x 128" "like: image"
sed 's/kind: concat, in: \[enc0.bn0, up\]/kind: add, in: [enc0.bn0, up]/' kept.yaml >add.yaml
refused 2 model show add.yaml -- "add.yaml:10:7: layer 'cat'" "'enc0.bn0' (8 x " "'up' (16 x "
sed 's/kind: max_pool/kind: maxpool/' kept.yaml >kind.yaml
refused 2 model show kind.yaml -- "kind.yaml:6:25: layer 'pool': " "did you mean 'max_pool'?"

# --- a built-in network as a file: the same tensors, the same numbers ---
expect 0 model show unet model.base=4 model.depth=2 --net
prints "  - { name: enc0.conv0, kind: conv, in: image, out: 4, kernel: 3, pad: 1 }" "heads: [out]"
cp out unet.yaml
"$wf" model show unet.yaml --net >again.yaml
cmp unet.yaml again.yaml || fail "a network file is not printed as it was"
expect 0 step model.base=4 model.depth=2 data.size=1,3,37,50 --dump built.safetensors
expect 0 step model.name=unet.yaml data.size=1,3,37,50 --dump file.safetensors
cmp built.safetensors file.safetensors || fail "the step of a built-in network and that of its file differ"
expect 0 model show unet model.base=4 model.depth=2 --net --json
python3 -c "import json; assert json.load(open('out'))['net'] == open('unet.yaml').read()" || fail "--net --json"
refused 2 model show minkunet14 --net -- "network 'minkunet14' is of points"

# --- the drawing: levels downwards, four skips of a U-Net, hundreds of layers in a few boxes ---
cat >drawing.py <<'PYTHON'
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
name = lambda e: e.tag.split("}")[1]
boxes = [e for e in root if name(e) == "rect" and e.get("rx")]
skips = [e for e in root if name(e) == "path" and e.get("class") == "skip"]
levels = {e.get("y") for e in boxes}
print(len(boxes), len(skips), len(levels))
assert all(float(e.get("x")) + float(e.get("width")) <= float(root.get("width")) for e in boxes)
PYTHON
expect 0 model show unet --draw unet.svg
[ ! -s out ] || fail "the drawing is a file, and something is printed"
# enc0..enc4, four times up and dec, out
[ "$(python3 drawing.py unet.svg)" = "14 4 5" ] || fail "unet is drawn with $(python3 drawing.py unet.svg)"
expect 0 model show densenet121_seg data.size=1,3,512,512 --draw dense.svg
read -r boxes skips levels <<<"$(python3 drawing.py dense.svg)"
[ "$boxes" -le 40 ] && [ "$boxes" -ge 8 ] && [ "$levels" = 6 ] || fail "densenet121_seg is drawn with $boxes $levels"
grep -q '"network":"data:image/svg' run/report.html || fail "no drawing in the report"
! grep -q 'kind: conv' run/report.html || fail "the text of the network is in the report's config"

# --- a classifier is seen as one ---
cat >class.json <<'JSON'
{ "layers": [
  { "name": "conv", "kind": "conv", "out": 4, "kernel": 3, "stride": 2 },
  { "name": "relu", "kind": "relu" },
  { "name": "mean", "kind": "global_pool" },
  { "name": "fc", "kind": "linear", "bias": true } ] }
JSON
expect 0 verify model.name=class.json data.size=4,3,32,32 --mesh space=2x1 --json
json 'j["pass"]'
expect 0 step model.name=class.json data.size=4,3,32,32 --dump class.safetensors

# --- heads: the loss of a coarse one is that of a network on a coarse image, with every second label ---
cat >heads.py <<'PYTHON'
import random, sys
from tensors import read_safetensors, write_npy as npy
def tensors(path):
    return {name: values for name, (_, values) in read_safetensors(path).items()}
if sys.argv[1] == "make":
    random.seed(1)
    h, w = 8, 12
    x = [[[[random.random() for _ in range(w)] for _ in range(h)] for _ in range(3)] for _ in range(2)]
    y = [[[random.randrange(2) for _ in range(w)] for _ in range(h)] for _ in range(2)]
    npy("x.npy", "<f4", (2, 3, h, w), [v for n in x for c in n for r in c for v in r])
    npy("y.npy", "<i4", (2, h, w), [v for n in y for r in n for v in r])
    npy("x2.npy", "<f4", (2, 3, h // 2, w // 2),
        [(c[i][j] + c[i + 1][j] + c[i][j + 1] + c[i + 1][j + 1]) / 4
         for n in x for c in n for i in range(0, h, 2) for j in range(0, w, 2)])
    npy("y2.npy", "<i4", (2, h // 2, w // 2), [n[i][j] for n in y for i in range(0, h, 2) for j in range(0, w, 2)])
else:
    both, fine, coarse = (tensors(p) for p in sys.argv[2:5])
    def near(a, b):
        return all(abs(p - q) <= 1e-5 * max(abs(q), 1e-2) for p, q in zip(a, b))
    assert near(both["loss"], [2 * fine["loss"][0] + 0.5 * coarse["loss"][0]]), (both["loss"], fine["loss"], coarse["loss"])
    for name, factor, of in (("main", 2, fine), ("aux", 0.5, coarse)):
        for part in ("weight", "bias"):
            key = "grad.%s.%s" % (name, part)
            assert any(v != 0 for v in both[key])
            assert near(both[key], [factor * v for v in of[key]]), key
PYTHON
python3 heads.py make
one='{ name: pool, kind: avg_pool, in: image, kernel: 2 }'
echo "layers: [{ name: main, kind: conv, kernel: 1, bias: true }, $one, { name: aux, kind: conv, kernel: 1, bias: true }]
heads: [{ layer: main, weight: 2 }, { layer: aux, weight: 0.5 }]" >both.yaml
echo 'layers: [{ name: main, kind: conv, kernel: 1, bias: true }]' >fine.yaml
echo 'layers: [{ name: aux, kind: conv, kernel: 1, bias: true }]' >coarse.yaml
expect 0 step model.name=both.yaml --input x.npy --target y.npy --dump both.safetensors
expect 0 step model.name=fine.yaml --input x.npy --target y.npy --dump fine.safetensors
expect 0 step model.name=coarse.yaml --input x2.npy --target y2.npy --dump coarse.safetensors
python3 heads.py compare both.safetensors fine.safetensors coarse.safetensors || fail "the losses of heads"
for mesh in space=2x2 data=2; do
    expect 0 verify model.name=both.yaml data.size=2,3,30,41 train.loss=ce+dice --mesh $mesh --json
    json 'j["pass"]'
done
sed 's/layer: aux, weight: 0.5/layer: pool/; s/name: aux, kind: conv/&, out: classes/' both.yaml >unlike.yaml
refused 2 verify model.name=unlike.yaml data.size=2,3,30,41 --mesh data=2 -- "head 'pool' has 3 channels, the first 2"
expect 0 train jobs/a.yaml model.name=both.yaml --out heads --quiet
expect 0 predict heads "$image" --out heads-predicted --quiet
expect 0 eval heads set --json
