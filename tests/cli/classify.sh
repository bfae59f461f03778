# Classifiers: shapes and class folders, from files to scores, confusion and report; the same on any mesh.
. "$SOURCE_DIR/tests/cli/common.bash"

expect 0 data synth shapes --out shapes --count 600 --json
json 'j["kind"] == "shapes" and j["count"] == 600 and j["size"] == [32, 32] and j["classes"] == 10'
expect 0 data inspect shapes --json
json 'j["format"] == "cifar10" and j["samples"] == 600 and j["labels"] == "image"'
json 'len(j["classes"]) == 10 and all(c["count"] == 60 for c in j["classes"])'

cat >a.yaml <<'YAML'
model: { name: alexnet_cifar, base: 8 }
data:  { path: shapes, pad: 4, augment: [mirror] }
train: { epochs: 2, batch: 48, optimizer: adam, lr: 2e-3, seed: 1 }
YAML
expect 0 train a.yaml --out one --quiet --json
last_line 'j["epochs"] == 2 and j["steps"] == 22 and 0 <= j["metric"]["accuracy"] <= j["metric"]["top5"] <= 1'
python3 - <<'PYTHON' || fail "the log or the report does not add up"
import json, re
events = [json.loads(line) for line in open("one/log.jsonl")]
start = next(e for e in events if e["event"] == "start")
assert start["per_image"] and start["val_images"] == 100 and start["classes"][9] == "arrow"
confusion = [e for e in events if e["event"] == "confusion"][-1]["counts"] # the last epoch's
assert [sum(row) for row in confusion] == [10] * 10
end = next(e for e in events if e["event"] == "end")["metric"]
assert abs(sum(confusion[i][i] for i in range(10)) / 100 - end["accuracy"]) < 1e-9
samples = [e for e in events if e["event"] == "sample"]
assert len(samples) == 8 and all(s["truth"] in start["classes"] for s in samples)
assert all(s["truth"] != s["guess"] for s in samples), "the worst are wrong"
run = json.loads(re.search('id="run">([^<]*)<', open("one/report.html").read())[1])
assert run["per_image"] and "top5" in run["figures"] and "mean_iou" not in run["figures"], run["figures"]
assert len(run["confusion"]) == 10 and len(run["scores"]["dice"]) == 10
assert [(s["truth"], s["guess"]) for s in run["samples"]] == [(s["truth"], s["guess"]) for s in samples]
PYTHON

# A mesh changes no number but by rounding; 500 images in batches of 48 over 3 ranks leave odd rests.
expect 0 train a.yaml --out three --mesh data=3 --quiet --json
python3 - <<'PYTHON' || fail "data=3 trains another network"
import json
def losses(run):
    return [e["train_loss"] for e in map(json.loads, open(f"{run}/log.jsonl")) if e["event"] == "epoch"]
for a, b in zip(losses("one"), losses("three"), strict=True):
    assert abs(a - b) < 1e-3 * a, (a, b)
PYTHON
expect 0 eval one shapes --part valid --json
cp out whole.json
expect 0 eval one shapes --part valid --mesh data=2 --json
python3 -c 'import json; a, b = json.load(open("whole.json")), json.load(open("out")); assert abs(a["loss"] - b["loss"]) < 1e-5 and a["accuracy"] == b["accuracy"] and a["top5"] == b["top5"]' ||
    fail "eval depends on the mesh"
expect 0 eval one shapes
prints "recall" "precision" "accuracy" "top-5"

# Folders as of ImageNet: train/CLASS and val/CLASS.
cp "$SOURCE_DIR/tests/cli/pictures.py" .
python3 - <<'PYTHON'
import os
from pictures import write_png
for part, count in (("train", 12), ("val", 4)):
    for label, name in enumerate(("blue", "red")):
        os.makedirs(f"folders/{part}/{name}")
        for i in range(count):
            pixels = bytes((200 if c == 2 - 2 * label else 20 + 7 * i) for _ in range(32 * 32) for c in range(3))
            write_png(f"folders/{part}/{name}/{i}.png", 32, 32, 3, pixels)
PYTHON
expect 0 train model.name=alexnet_cifar model.base=4 data.path=folders train.epochs=12 train.batch=8 \
    train.lr=3e-3 --out folders.run --quiet --json
last_line 'j["metric"]["accuracy"] == 1 and "top5" not in j["metric"]'
refused 2 train a.yaml data.path=folders model.name=unet model.base=4 --out w -- "unet" "model.name"
# classes are numbered by their names: those of another set are no labels, unless the folders are the same
cp -r folders some
rm -r some/*/blue
refused 1 eval folders.run some -- "class 0 of 'some' is red, but blue" "a folder for each class"
mkdir some/train/blue some/val/blue
expect 0 eval folders.run some --json --quiet
json 'j["accuracy"] == 1 and j["images"] == 16'
rm -r folders/train/red
refused 1 train a.yaml data.path=folders --out w -- "no class 'red'"
