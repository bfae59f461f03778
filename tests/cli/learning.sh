# What a step is made of, from the command: optimizers, schedules, passes, precision, reductions, the last
# batch; and that a run which was stopped goes on with all of it.
. "$SOURCE_DIR/tests/cli/common.bash"
cp "$SOURCE_DIR/tests/cli/pictures.py" .
python3 pictures.py set 8 32 32
# 6 pictures to train on, 3 crops of each: 18 samples, batches of 4, 4, 4, 4 and 2
cat >a.yaml <<'YAML'
model: { name: unet, base: 4, depth: 1 }
data: { path: set, crop: [16, 16], augment: [flip, rot90], validation: 0.25, repeat: 3 }
train: { epochs: 2, batch: 4, lr: 1e-2, samples: 0 }
run: { threads: 1 }
YAML

# --- every optimizer trains; 5 steps an epoch, of which the last has 2 samples ---
for rule in sgd momentum nesterov adagrad rmsprop adam adamw lamb lars; do
    expect 0 train a.yaml train.optimizer=$rule --out "rule-$rule" --json --quiet
    json 'j["steps"] == 10 and j["skipped"] == 0 and 0 < j["loss"] < 2'
done
other_weights rule-adam rule-adamw

# --- a momentum of 0 is 0 ---
expect 0 train a.yaml train.optimizer=momentum train.momentum=0 --out none --quiet
python3 - <<'PYTHON' || fail "momentum 0 is not plain descent"
import json, struct
def params(run):
    with open(run + "/checkpoints/last.safetensors", "rb") as file:
        raw = file.read()
    size = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + size])
    return {k: raw[8 + size:][v["data_offsets"][0]:v["data_offsets"][1]] for k, v in head.items() if k.startswith("param.")}
assert params("none") == params("rule-sgd")
PYTHON

# --- schedules: warm-up to twice the rate on two ranks, then a cosine; and going on in the middle ---
warm=(train.schedule=cosine train.schedule_by=step train.warmup=1 train.lr_scaling=linear --mesh data=2)
expect 0 train a.yaml "${warm[@]}" --out warm --json --quiet
events 'abs(s[0]["lr"] - 0.02 * (0.5 + 0.5 / 5)) < 1e-9 and s[-1]["lr"] < 0.0006' warm
expect 0 train a.yaml "${warm[@]}" train.epochs=1 --out half --quiet
grep -q '"lr"' half/log.jsonl || fail "no rate in the log"
sed -i 's/epochs: 1/epochs: 2/' half/config.yaml
expect 0 train --resume half train.schedule=step train.gamma=0.5 train.schedule_every=1 train.schedule_by=epoch --json
says "train.schedule was cosine and is now step"
events 's[-1]["lr"] == 0.01' half

# --- passes: 18 samples as 9 batches of 2, two of them a step ---
expect 0 train a.yaml train.batch=2 train.accumulate=2 --out passes --json --quiet
json 'j["steps"] == 10 and j["per_rank"][0]["planned_bytes"] == j["per_rank"][0]["used_bytes"]'

# --- f16 from a scale that overflows, and back to it after a stop ---
f16=(train.loss_scale=134217728 --precision f16)
expect 0 train a.yaml "${f16[@]}" --out f16 --json --quiet
json '1 <= j["skipped"] < 8 and j["steps"] == 10 and j["loss"] < 1'
events '[x for x in s if x.get("skip")] and s[-1]["skipped"] == e[-1]["skipped"] and s[-1]["loss_scale"] < 134217728' f16
# a run in which nothing is learned is no success, but it has its log and report, and it can go on
refused 1 train a.yaml "${f16[@]}" train.epochs=1 --out f16part --quiet -- "every step was skipped" \
    "5 of 5 steps" "train.precision=bf16"
grep -q '"end"' f16part/log.jsonl && [ -s f16part/report.html ] || fail "the log has no end, or there is no report"
expect 0 train a.yaml "${f16[@]}" --resume f16part
same_weights f16 f16part
prints "steps skipped: a gradient was not finite"

# --- reductions: the same where ranks have the same, not otherwise ---
for reduction in global rank_mean; do
    expect 0 train a.yaml train.reduction=$reduction train.epochs=1 train.optimizer=sgd --mesh data=3 --out "mesh-$reduction" --quiet
done
other_weights mesh-global mesh-rank_mean # of 2, 1 and 1 samples

refused 2 train a.yaml train.schedule=cosin --out no -- "train.schedule" "cosine"
refused 2 train a.yaml train.accumulate=0 --out no -- "train.accumulate"

# --- one class has no cross-entropy; classes without a label are reported, and have no score ---
refused 2 train a.yaml model.classes=1 --out nothing -- "train.loss=bce"
refused 2 verify model.name=unet model.base=4 model.depth=1 model.classes=1 data.size=1,3,16,16 -- "model.classes=1"
expect 0 train a.yaml model.classes=5 train.epochs=1 --out five --json
says "model.classes is 5" "labels of 2 classes"
json 'j["metric"]["iou"][2:] == [None] * 3 and 0 < j["metric"]["mean_iou"] <= 1'
