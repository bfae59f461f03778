# Validation on whole images that do not fit beside the step: in windows, with the numbers of the whole image.
. "$SOURCE_DIR/tests/cli/common.bash"

expect 0 data synth nuclei --out set --count 8 --size 160x200 --quiet
channels=$("$wf" data inspect set --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["channels"])')
"$wf" model show unet --net model.base=8 model.depth=2 model.classes=2 "model.in=$channels" >batch.yaml
sed 's/batch_norm/instance_norm/' batch.yaml >instance.yaml
net=(data.path=set data.crop=64,64 train.epochs=3 train.batch=2 train.lr=0.01 train.loss=ce+dice train.validate_on=whole --json)
validated() { # validated RUN: its validations, one line each
    python3 - "$1" <<'EOF'
import json, sys
for line in open(sys.argv[1] + "/log.jsonl"):
    event = json.loads(line)
    if event["event"] == "epoch":
        print(event["val"]["loss"], event["val"]["mean_iou"], *event["val"]["iou"])
EOF
}
near() { # near RUN RUN TOLERANCE
    validated "$1" >one
    validated "$2" >two
    python3 - "$3" <<'EOF' || fail "$1: $(cat one); $2: $(cat two)"
import sys
one, two = ([float(x) for x in open(name).read().split()] for name in ("one", "two"))
sys.exit(len(one) != 12 or len(two) != 12 or any(abs(a - b) > float(sys.argv[1]) * abs(a) for a, b in zip(one, two)))
EOF
}
held='max(r["used_bytes"] for r in j["per_rank"])'
for kind in batch instance; do
    expect 0 train model.name=$kind.yaml "${net[@]}" --out $kind
    json "$held > 7000000"
    grep -q windows err && fail "windows without memory.limit"
    expect 0 train model.name=$kind.yaml "${net[@]}" --out $kind-4M memory.limit=4M
    json "$held <= 4 << 20 and all(r['used_bytes'] == r['planned_bytes'] for r in j['per_rank'])"
    grep -q "whole images in [2-9] windows" err || fail "no windows: $(cat err)"
    used=$(python3 -c "import json; j = json.load(open('out')); print($held)")
    near $kind $kind-4M 1e-5
    for picture in "$kind"/samples/*; do
        cmp "$picture" "$kind-4M/samples/${picture##*/}" || fail "another picture"
    done
    expect 0 plan model.name=$kind.yaml "${net[@]}" memory.limit=4M
    json "j['bytes_with_validation'] == $used and j['validation_seconds'] > 0"
    expect 0 train model.name=$kind.yaml "${net[@]}" --out $kind-3 --mesh space=3x1
    expect 0 train model.name=$kind.yaml "${net[@]}" --out $kind-3-2M --mesh space=3x1 memory.limit=2M
    json "$held <= 2 << 20 and len(j['per_rank']) == 3"
    grep -q "windows" err || fail "no windows: $(cat err)"
    near $kind-3 $kind-3-2M 1e-5
done

# Asynchronous workers, each with a step of its own.
expect 0 train model.name=batch.yaml "${net[@]}" --out async --mesh data=2 train.sync=async memory.limit=2500k
json "all(r['used_bytes'] == r['planned_bytes'] for r in j['per_rank'])"
grep -q "windows" err || fail "no windows: $(cat err)"

# What was validated in windows is so by eval.
expect 0 eval batch-4M/checkpoints/last.safetensors set --part valid memory.limit=2500k --json --quiet
read -r loss iou _ <<<"$(validated batch-4M | tail -1)"
json "abs(j['loss'] / $loss - 1) < 1e-5 and abs(j['mean_iou'] / $iou - 1) < 1e-5"

# Ranks of a pipeline have not got all weights; crops are planned beside the step.
refused 3 train model.name=unet model.base=8 model.depth=2 "${net[@]}" --out pipe --mesh pipe=2 memory.limit=4M -- "raise it"
refused 3 train model.name=batch.yaml "${net[@]}" --out none memory.limit=1M -- "raise it"
