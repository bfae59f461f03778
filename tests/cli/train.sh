# Training: the run folder, resuming after kills and signals, full disks, wrong usage; and eval.
. "$SOURCE_DIR/tests/cli/common.bash"
cp "$SOURCE_DIR/tests/cli/pictures.py" "$SOURCE_DIR/tests/cli/tensors.py" .
python3 pictures.py set 8 48 40
cat >a.yaml <<'YAML'
model: { name: unet, base: 4, depth: 1 }
data: { path: set, crop: [32, 32], augment: [flip, rot90], validation: 0.25, repeat: 2 }
train: { epochs: 3, batch: 2, lr: 1e-2, samples: 2, checkpoint_seconds: 0 }
YAML

# --- the run folder ---
begun=$(date +%s.%N)
expect 0 train a.yaml --out one --json
ended=$(date +%s.%N)
# the parts of its wall time add up to the whole
last_line 'set(j["seconds_by"]) == {"startup", "steps", "input", "validation", "checkpoints", "rest"}'
last_line 'all(v >= 0 for v in j["seconds_by"].values())'
last_line 'abs(sum(j["seconds_by"].values()) - j["seconds"]) <= 0.02 * j["seconds"]'
last_line 'abs(sum(j["startup_by"].values()) - j["seconds_by"]["startup"]) <= 0.02 * j["seconds"]'
last_line 'abs(sum(j["steps_by"].values()) - j["seconds_by"]["steps"]) <= 0.02 * j["seconds"]'
last_line 'abs(sum(j["rest_by"].values()) - j["seconds_by"]["rest"]) <= 0.02 * j["seconds"] and j["rest_by"]["report"] > 0'
last_line "0 <= $ended - $begun - j['seconds'] <= 0.02 * j['seconds'] + 1" # and what a process takes to start
last_line 'abs(j["mpx_per_s"] * j["seconds"] - 18 * 2 * 32 * 32 / 1e6) <= 1e-6'
events 'abs(sum(e[-1]["seconds_by"].values()) - e[-1]["seconds"]) <= 0.02 * e[-1]["seconds"]' one
last_line 'j["epochs"] == 3 and j["steps"] == 18 and j["loss"] < 0.6 and j["run"] == "one"'
last_line 'len(j["metric"]["iou"]) == 2 and j["metric"]["mean_iou"] > 0.6 and j["mpx_per_s"] > 0'
says "epoch 1" "epoch 3"
for file in config.yaml log.jsonl report.html checkpoints/last.safetensors checkpoints/best.safetensors; do
    [ -s "one/$file" ] || fail "no '$file' in the run folder"
done
ls one/samples/*-image.png one/samples/*-label.png one/samples/*-prediction.png >/dev/null || fail "no samples"
events '[x["event"] for x in e][0] == "start" and e[-1]["event"] == "end" and e[-1]["stopped"] == "done"' one
events 'e[0]["parameters"] > 1000 and e[0]["per_rank"][0]["planned_bytes"] == e[0]["per_rank"][0]["used_bytes"]' one
events '[x["epoch"] for x in e if x["event"] == "epoch"] == [1, 2, 3]' one
events 'all(len(x["val"]["iou"]) == 2 and x["val"]["loss"] > 0 for x in e if x["event"] == "epoch")' one
events '(lambda s: len(s) == 2 and s[0]["mean_iou"] <= s[1]["mean_iou"])([x for x in e if x["event"] == "sample"])' one
# what it will take is told before its first step: what 'plan' says, or more where ranks share cores
says "for 3 epochs of 6 steps: a step"
expect 0 plan a.yaml --json
foretold() {
    events '(lambda f, j: all(0.999 * j[k] <= f[k] <= 1.001 * j[k] * e[0]["ranks"] and j[k] > 0 for k in
        ("step_seconds", "epoch_seconds", "validation_seconds")))(e[0]["foretold"], json.load(open("out")))' "$1"
    # of validation, so many times more: ranks have a thread each at least, and cores run theirs in turns
    events 'abs(e[0]["foretold"]["validation_seconds"] / json.load(open("out"))["validation_seconds"]
        - -(-e[0]["ranks"] // len(__import__("os").sched_getaffinity(0)))) < 2e-3' "$1"
}
foretold one
# kernels that the CPU has none of its own for are named, and foretold to take long
expect 0 train a.yaml model.base=8 train.batch=4 train.epochs=1 --precision f16 --out slow
says "slow references: device 'cpu' has none of its own in f16"
events 'e[0]["foretold"]["step_seconds"] > 0.02' slow
# its config says the same again, and its checkpoints are safetensors in PyTorch's layout
expect 0 train one/config.yaml --out two --quiet
same_weights one two
python3 - <<'PYTHON' || fail "the checkpoint is not as promised"
import json
from tensors import read_safetensors
t = read_safetensors("one/checkpoints/last.safetensors")
assert t["param.enc0.conv0.weight"][0] == [4, 3, 3, 3]
assert t["optim.0.enc0.conv0.weight"][0] == t["optim.1.enc0.conv0.weight"][0] == [4, 3, 3, 3]
assert t["state.enc0.bn0.running_mean"][0] == [4]
raw = open("one/checkpoints/last.safetensors", "rb").read()
meta = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
assert meta["step"] == "18" and len(json.loads(meta["mean"])) == 3 and len(meta["xxh64"]) == 16
PYTHON
# a best that is held back is on the disk before the pictures, where a run may still be killed
expect 0 train a.yaml train.checkpoint_seconds=60 train.epochs=1 --out held --quiet
prints "1 epoch, 6 steps"
for file in held/samples/*; do
    [ ! held/checkpoints/last.safetensors -nt "$file" ] || fail "the last checkpoint was written after '$file'"
done

# --- cut over ranks: the same training ---
expect 0 train a.yaml --mesh data=2,space=2x1 --out cut --json
expect 0 plan a.yaml --mesh data=2,space=2x1 --json
foretold cut
python3 - <<'PYTHON' || fail "a cut run differs from a whole one"
from tensors import read_safetensors, apart
a, b = (read_safetensors(f"{run}/checkpoints/last.safetensors") for run in ("cut", "one"))
worst = max((apart(a[k], b[k]), k) for k in a if k.startswith("param."))
assert worst[0] < 1e-2, worst   # 18 steps of Adam, whose first ones follow the sign of the gradient
PYTHON

# --- stopped by signals, and going on ---
for signal in TERM INT USR1 USR2; do
    rm -rf stopped
    "$wf" train a.yaml train.epochs=400 --out stopped >out 2>err &
    pid=$!
    appears '"event":"step"' stopped/log.jsonl
    kill -s $signal $pid
    got=0
    wait $pid || got=$?
    [ $got -eq 75 ] || fail "SIG$signal ended it with $got, expected 75"
    says "stopped by SIG$signal" "--resume stopped"
    events 'e[-1]["event"] == "end" and e[-1]["stopped"] == "signal"' stopped
done
# without a config: that of the run; to the end of the epoch after next, as a run that was never stopped
epochs=$(python3 -c 'import json; print(json.loads(open("stopped/log.jsonl").readlines()[-1])["steps"] // 6 + 2)')
expect 0 train --resume stopped train.epochs="$epochs" --quiet --json
json "j['steps'] == 6 * $epochs"
expect 0 train a.yaml train.epochs="$epochs" --out whole --quiet
same_weights stopped whole
expect 0 train one/config.yaml --resume auto --out fresh --quiet # nothing to go on from is no error
same_weights fresh one

# --- a damaged checkpoint: the one before is taken ---
cp -r stopped damaged
rm -f damaged/checkpoints/best.safetensors
python3 - <<'PYTHON'
path = "damaged/checkpoints/last.safetensors"
raw = bytearray(open(path, "rb").read())
raw[-100] ^= 4
open(path, "wb").write(raw)
PYTHON
expect 0 train --resume damaged train.epochs=1
says "warning" "does not match its checksum" "going on from the one before" "previous.safetensors"
refused 1 eval damaged/checkpoints/last.safetensors set -- "is damaged"
refused 2 train --resume one/samples -- "no checkpoints/last.safetensors"
head -c 1000 one/checkpoints/last.safetensors >short.safetensors
refused 1 train a.yaml --resume short.safetensors --out new1 -- "short.safetensors"
[ ! -e new1 ] || fail "a folder was made for a run that could not start"
# a checkpoint in a new folder, which leaves the old one alone
before=$(cksum <one/log.jsonl)
expect 0 train --resume one/checkpoints/best.safetensors --out other train.epochs=4 --quiet --json
last_line 'j["epochs"] == 4 and j["run"] == "other"'
[ "$before" = "$(cksum <one/log.jsonl)" ] || fail "another run's log was changed"

# --- a full disk: a message, and the last checkpoint is kept ---
rm -rf full
expect 0 train a.yaml train.epochs=1 --out full --quiet
cp full/checkpoints/last.safetensors kept
if mkdir -p disk && mount -t tmpfs -o size=256k tmpfs disk 2>/dev/null; then
    trap 'umount disk' EXIT
    refused 1 train a.yaml model.base=24 --out disk/run -- "No space left on device" "make room"
    umount disk
    trap - EXIT
fi
got=0
(ulimit -f 8; trap '' XFSZ; exec "$wf" train --resume full train.epochs=3) >out 2>err || got=$?
[ $got -eq 1 ] || fail "a full disk ended it with $got, expected 1"
says "cannot write" "File too large"
cmp -s kept full/checkpoints/last.safetensors || fail "a full disk took the last checkpoint"
# all ranks end, though the epoch in which the write fails has a million steps
cp -r full long
got=0
(ulimit -f 8; trap '' XFSZ; exec timeout 100 "$wf" train --resume long train.epochs=3 data.repeat=1000000 \
    train.checkpoint_steps=1 --mesh data=2) >out 2>err || got=$?
[ $got -eq 1 ] || fail "a full disk ended it with $got, expected 1"
says "writing a checkpoint" "cannot write" "File too large"
cmp -s kept long/checkpoints/last.safetensors || fail "a full disk took the last checkpoint"
expect 0 train --resume full train.epochs=3 --quiet
same_weights full one

# --- names ---
rm -rf runs
expect 0 train a.yaml train.epochs=1 --json --quiet
last_line 'j["run"].startswith("runs/unet-")'
expect 0 train a.yaml train.epochs=2 --resume auto --json --quiet # finds it
last_line 'j["epochs"] == 2 and j["steps"] == 12'
[ "$(ls runs | wc -l)" -eq 1 ] || fail "--resume auto made a new folder"

# --- wrong uses ---
refused 2 train a.yaml --out one -- "'one' exists" "--resume auto"
refused 2 train model.base=4 -- "data.path"
refused 1 train a.yaml data.path=nowhere --out w -- "nowhere" "check the path"
mkdir empty
refused 1 train a.yaml data.path=empty --out w -- "empty"
refused 2 train a.yaml train.epoch=2 --out w -- "did you mean 'train.epochs'"
refused 2 train a.yaml data.crop=32 --out w -- "data.crop" "2 numbers"
refused 2 train a.yaml model.dims=3 --out w -- "model.dims" "set it to 2"
refused 2 train model.name=cnn2d data.path=set --out w -- "cnn2d" "model.name"
refused 1 train a.yaml data.crop=32,64 --out w -- "s0" # an image is smaller than the crop
refused 3 train a.yaml --mesh space=2 --ranks 3 --out w -- "--ranks 2"
cp -r set three
python3 - <<'PYTHON'
from pictures import write_png
write_png("three/masks/s03.png", 48, 40, 1, bytes([2] * 48 * 40))
PYTHON
expect 0 train a.yaml data.path=three train.epochs=1 --out three.run --quiet --json
last_line 'len(j["metric"]["iou"]) == 3'
expect 0 train a.yaml data.path=three train.ignore=2 train.epochs=1 --out ignored.run --quiet --json
last_line 'len(j["metric"]["iou"]) == 2'
refused 2 train a.yaml data.path=three model.classes=2 --out w -- "set model.classes=3"
refused 2 train a.yaml model.in=1 --out w -- "set model.in=3"
rm set/masks/s05.png
refused 1 train a.yaml --out w -- "s05" "has no mask" "add it, or take the image out"
python3 -c 'from pictures import write_png; write_png("set/masks/s05.png", 47, 40, 1, bytes(47 * 40))'
refused 1 train a.yaml --out w -- "s05" "47" "scale the mask"
python3 -c 'from pictures import write_png; write_png("set/masks/s05.png", 48, 40, 1, bytes(48 * 40))'
refused 1 train a.yaml train.lr=1e6 train.optimizer=sgd train.epochs=40 --out nan -- "train.lr"
[ ! -e w ] || fail "a folder was made for a run that could not start"

# --- another network than the run's: nothing of the run is touched ---
cp -r one foreign
refused 1 train a.yaml --resume foreign model.base=8 train.epochs=4 -- "not those of the checkpoint" "enc0.conv0.weight"
refused 1 train a.yaml --resume foreign model.depth=2 train.epochs=4 -- "not those of the checkpoint"
for file in config.yaml log.jsonl report.html; do
    cmp -s "one/$file" "foreign/$file" || fail "a run that could not go on has another '$file'"
done
# --- weights of a run to start from: with a rate of 0 they do not change ---
expect 0 train a.yaml model.weights=one/checkpoints/last.safetensors train.optimizer=sgd train.lr=0 train.epochs=1 \
    --out tuned --quiet
python3 - <<'PYTHON' || fail "the weights of a checkpoint were not taken"
from tensors import read_safetensors
a, b = (read_safetensors(run + "/checkpoints/last.safetensors") for run in ("one", "tuned"))
names = [n for n in b if n.startswith("param.")]
assert names and all(a[n] == b[n] for n in names)
PYTHON

# --- eval ---
expect 0 eval one set --part valid --json
json 'j["images"] == 2 and len(j["iou"]) == len(j["dice"]) == 2 and 0 < j["accuracy"] <= 1 and j["loss"] > 0'
cp out whole.json
expect 0 eval one set --part valid --mesh space=2x2 --json
python3 -c 'import json; a, b = json.load(open("whole.json")), json.load(open("out")); assert abs(a["loss"] - b["loss"]) < 1e-5 and abs(a["mean_iou"] - b["mean_iou"]) < 1e-3' ||
    fail "eval depends on the mesh"
expect 0 eval one/checkpoints/last.safetensors set
prints "class" "IoU" "Dice" "mean" "accuracy" "loss"
refused 2 eval one -- "CKPT DATA"
refused 2 eval one set --part some -- "--part"
refused 1 eval one nowhere -- "nowhere"
refused 1 eval set/images/s00.png set -- "s00.png"
# Whole images without validation; and colours are numbered as they are found: another set of them is not
# scored as if it were the same.
python3 - <<'PYTHON'
import os
from pictures import write_png
red, green, blue = b"\xff\0\0", b"\0\xff\0", b"\0\0\xff"
for name, colors in ("rgb", (red, green, blue)), ("rg", (red, green, red)):
    os.makedirs(name + "/images")
    os.makedirs(name + "/masks")
    for i in range(2):
        write_png(f"{name}/images/{i}.png", 24, 24, 3, bytes(range(192)) * 9)
        write_png(f"{name}/masks/{i}.png", 24, 24, 3, b"".join(c * 192 for c in colors))
PYTHON
expect 0 train model.name=unet model.base=2 model.depth=1 model.in=3 model.classes=4 data.path=rgb \
    data.validation=0 --out tinted --quiet
[ -s tinted/report.html ] || fail "no report without validation"
refused 1 eval tinted rgb --part valid -- "use --part all"
expect 0 eval tinted rgb
refused 1 eval tinted rg -- "class 0 of 'rg' is #00ff00, but #0000ff where" "rg/classes.txt"

# What is refused before the first step leaves no folder, so that the name is free for the next try.
refused 3 train model.name=unet model.base=65536 model.depth=1 data.path=set --out tried -- "this machine has"
[ ! -e tried ] || fail "a run that never began has a folder"
"$wf" model show unet --net model.base=2 >net.yaml
sed -i 's/out: 4,/out: 65536,/' net.yaml
refused 3 train model.name=net.yaml data.path=set --out tried -- "this machine has"
[ ! -e tried ] || fail "a run of a network file that never began has a folder: $(ls tried)"
expect 0 train model.name=unet model.base=2 model.depth=1 data.path=set --out tried --quiet
# A loss that is no number has no sign, and the tensor is named once.
refused 1 train model.name=unet model.base=2 model.depth=1 data.path=set train.optimizer=sgd train.lr=1e6 \
    train.epochs=3 --out far -- "writing a checkpoint: tensor '" "': it has the value "
! grep -q -- "-nan" err || fail "a nan with a sign"
