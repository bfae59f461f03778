# Stages and micro-batches: the numbers of one rank with the same train.accumulate, from the command to the checkpoint.
. "$SOURCE_DIR/tests/cli/common.bash"
export OMP_NUM_THREADS=1

cat >unet.yaml <<'YAML'
model: { name: unet, base: 4 }
data: { size: [2, 3, 32, 40] }
train: { accumulate: 4 }
YAML
cat >alexnet.yaml <<'YAML'
model: { name: alexnet_cifar, base: 4 }
data: { size: [2, 3, 32, 32] }
train: { accumulate: 6, ignore: 1 }
YAML
cat >domains.yaml <<'YAML'
model: { name: dsn_conv, base: 2, depth: 2, targets: 2, head: segments }
data: { size: [2, 3, 16, 20] }
train: { accumulate: 2 }
YAML

# stages alone: bit for bit, dropout and running statistics included
for schedule in 1f1b interleaved zero_bubble; do
    for stages in 2 3 4; do
        micro=4
        [ $stages != 3 ] || micro=6
        expect 0 verify unet.yaml --mesh pipe=$stages pipe.schedule=$schedule train.accumulate=$micro --json --quiet
        json "j['pass'] is True and j['loss_rel'] == j['pred_rel'] == j['grad_rel'] == j['param_rel'] == 0"
    done
    expect 0 verify alexnet.yaml --mesh pipe=2 pipe.schedule=$schedule --json --quiet
    json "j['pass'] is True and j['grad_rel'] == j['param_rel'] == 0"
    expect 0 verify unet.yaml --mesh pipe=2,space=2x1 pipe.schedule=$schedule --json --quiet
    json "j['pass'] is True and j['grad_rel'] <= 1e-5"
done
expect 0 verify unet.yaml --mesh data=2,pipe=2,space=2 --json --quiet
expect 0 verify domains.yaml --mesh domain=2,data=2,pipe=2,space=1x2 --json --quiet
json "j['ranks'] == 16 and j['pass'] is True and j['grad_rel'] <= 1e-5"
expect 0 verify unet.yaml --mesh pipe=2 --precision f16 --json --quiet
expect 0 verify unet.yaml --mesh pipe=2 pipe.cut=up1 --json --quiet
expect 0 verify unet.yaml --mesh pipe=2 memory.limit=2000KiB --json --quiet
json "j['pass'] is True"

# one rank and micro-batches are one batch, where no norm looks at the batch
expect 0 step unet.yaml model.name=cnn2d data.size=8,3,32,64 train.accumulate=1 --dump one.safetensors --quiet
expect 0 step unet.yaml model.name=cnn2d data.size=2,3,32,64 --mesh pipe=2 --dump four.safetensors --quiet
PYTHONPATH=$SOURCE_DIR/tests/cli python3 - <<'PY' || fail "four micro-batches are not one batch"
import math, tensors
a, b = map(tensors.read_safetensors, ("one.safetensors", "four.safetensors"))
assert a.keys() == b.keys() and a["pred"][0][0] == 8
for name, (shape, x) in a.items():
    assert shape == b[name][0] and math.dist(x, b[name][1]) <= 1e-5 * math.hypot(*x) + 1e-7, name
PY

# what is foretold, and what is held
expect 0 plan unet.yaml --mesh pipe=2 --json
json "[r['stage'] for r in j['per_rank']] == [0, 1] and 0.05 < j['bubble'] < 0.5 and j['micro_batches'] == 4"
usual=$(python3 -c 'import json; j = json.load(open("out")); print(max(r["arena_bytes"] + r["param_bytes"] for r in j["per_rank"]), j["bubble"])')
expect 0 plan unet.yaml --mesh pipe=2 pipe.schedule=zero_bubble --json
json "max(r['arena_bytes'] + r['param_bytes'] for r in j['per_rank']) <= ${usual% *} and j['bubble'] < ${usual#* }"
expect 0 bench unet.yaml --mesh pipe=2 --steps 1 --timeline line.json --json --quiet
json "j['planned_bytes'] == j['peak_bytes'] and 0 <= j['bubble'] <= 1 and j['micro_batches'] == 4"
grep -q "forward part 0, micro-batch 3" line.json || fail "the timeline has no turn of the last micro-batch"

refused 3 plan unet.yaml --mesh pipe=999 -- "999 parts" "use pipe="
refused 2 plan unet.yaml --mesh pipe=3 pipe.schedule=interleaved -- "multiple of 3" "train.accumulate is 4: use 6"
refused 2 plan unet.yaml --mesh pipe=2 pipe.cut=nowhere -- "no layer 'nowhere'" "model show"
refused 2 plan unet.yaml --mesh pipe=3 pipe.cut=up1 -- "pipe.cut" "2 in all"

# training: 13 images make steps of 4, 4, 4 and 1 micro-batch; other meshes go on where stages stopped
expect 0 data synth nuclei --out set --count 15 --size 32x32 --quiet
cat >train.yaml <<'YAML'
model: { name: unet, base: 4, depth: 2 }
data: { path: set, crop: [32, 32], augment: [flip], validation: 0.14 }
train: { epochs: 3, batch: 1, accumulate: 4, samples: 0 }
YAML
losses() { python3 -c '
import json, sys
print([e["train_loss"] for e in map(json.loads, open(sys.argv[1] + "/log.jsonl")) if "train_loss" in e])' "$1"; }
same() { python3 - "$(losses "$1")" "$(losses "$2")" "$3" "$4" <<'PY' || fail "losses of $1 and $2"
import json, sys
a, b, count, tolerance = map(json.loads, sys.argv[1:])
assert len(a) == 3 and len(b) >= count and all(abs(x - y) <= tolerance * abs(x) for x, y in zip(a[-count:], b[-count:])), (a, b)
PY
}
expect 0 train train.yaml --out one --quiet
for schedule in 1f1b zero_bubble; do
    expect 0 train train.yaml --mesh pipe=2 pipe.schedule=$schedule --out $schedule --quiet
    same one $schedule 3 0
done
expect 0 train train.yaml --mesh pipe=2 --out part train.epochs=1 --quiet
for mesh in space=1 space=2 pipe=3 data=1; do
    rm -rf on
    cp -r part on
    expect 0 train train.yaml --mesh $mesh --resume on --out on --quiet
    same one on 2 "$([ $mesh = space=2 ] && echo 1e-4 || echo 0)"
done
# a batch that is smaller than the others has a plan of its own, also beside stages
for mesh in space=1 pipe=2; do
    expect 0 train train.yaml train.batch=2 train.accumulate=2 --mesh $mesh --out "rest-$mesh" --quiet
done
python3 - "$(losses rest-space=1)" "$(losses rest-pipe=2)" <<'PY' || fail "a smaller last batch"
import json, sys
a, b = map(json.loads, sys.argv[1:])
assert len(a) == 3 and a == b, (a, b)
PY
expect 0 eval one/checkpoints/last.safetensors set --mesh pipe=2 --json
refused 2 train train.yaml --mesh pipe=2 train.sync=server --out no -- "train.sync=server" "no axis pipe"
[ ! -e no ] || fail "a run folder of a refused run"

# one stage whose numbers overflow: all skip the step
expect 0 train train.yaml --mesh pipe=2 --precision f16 train.loss_scale=16777216 train.epochs=1 --out f16 --quiet
expect 0 train train.yaml --precision f16 train.loss_scale=16777216 train.epochs=1 --out f16one --quiet
python3 - <<'PY' || fail "steps that are skipped"
import json
a, b = ([(e["skipped"], e["loss_scale"]) for e in map(json.loads, open(r + "/log.jsonl")) if e["event"] == "step"] for r in ("f16", "f16one"))
assert a == b and any(s for s, _ in a), (a, b)
PY
