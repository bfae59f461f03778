# Networks of several domains: the same numbers whoever has which domain, from the command to the checkpoint.
. "$SOURCE_DIR/tests/cli/common.bash"

cat >digits.yaml <<'YAML'
model: { name: dsn, base: 4, code: 12, targets: 3 }
data: { size: [4, 1, 16, 16] }
YAML
cat >maps.yaml <<'YAML'
model: { name: dsn_conv, base: 2, depth: 2, targets: 2, head: segments }
data: { size: [2, 3, 16, 20] }
YAML

for mesh in domain=2 domain=3 domain=5 domain=2,space=1x2 data=2,domain=2; do
    expect 0 verify digits.yaml --mesh $mesh --json --quiet
    json "j['mesh'] == '$mesh'.replace('1x2', '2') and j['pass'] is True and j['grad_rel'] <= 1e-5"
done
for placement in domain encoder role domain_losses encoder_losses; do
    expect 0 verify maps.yaml --mesh domain=3 domain.placement=$placement --json --quiet
    json 'j["pass"] is True and j["grad_rel"] <= 1e-5'
done
# auto takes the cheapest of them, on a mesh that is given and on one that is chosen
expect 0 plan maps.yaml --mesh domain=3 --json
json "j['placement'] == 'domain'"
says "domain.placement=domain, chosen of 3"
expect 0 plan maps.yaml --mesh domain=6 --json
json "j['placement'] in ('encoder', 'role', 'encoder_losses')"
expect 0 verify maps.yaml --ranks 3 --mesh auto --json --quiet
for norm in instance none; do
    expect 0 verify maps.yaml --mesh domain=2,space=2x1 model.norm=$norm train.similarity=mmd --json --quiet
done

# a worker of one domain holds less than one that has all of them
expect 0 plan maps.yaml --json
whole=$(python3 -c 'import json; r, = json.load(open("out"))["per_rank"]; print(r["arena_bytes"] + r["param_bytes"])')
expect 0 plan maps.yaml --mesh domain=3 --json
json "max(r['arena_bytes'] + r['param_bytes'] for r in j['per_rank']) < 0.6 * $whole"
json "[r['domain'] for r in j['per_rank']] == [0, 1, 2]"

# a dataset for each domain; the targets are shorter than the source and wrap
expect 0 data synth nuclei --out source --count 6 --size 32x32 --quiet
expect 0 data synth nuclei --out target --count 3 --size 32x32 --seed 9 --quiet
cat >train.yaml <<'YAML'
model: { name: dsn_conv, base: 2, depth: 1, targets: 1, head: segments }
data: { domains: [source, target], crop: [16, 16], validation: 0.34 }
train: { epochs: 3, batch: 2, adapt_from: 2, samples: 0 }
YAML
expect 0 train train.yaml --out one --quiet
expect 0 train train.yaml --mesh domain=2 --out two --quiet
losses() { python3 -c '
import json, sys
print([e["train_loss"] for e in map(json.loads, open(sys.argv[1] + "/log.jsonl")) if "train_loss" in e])' "$1"; }
python3 - "$(losses one)" "$(losses two)" <<'PY'
import json, sys
a, b = map(json.loads, sys.argv[1:])
assert len(a) == 3 and all(abs(x - y) <= 1e-5 * abs(x) for x, y in zip(a, b)), (a, b)
PY
# workers that have no loss, no head, or nothing of the labelled domain: the same losses and scores
scores() { python3 -c '
import json, sys
print([(e["train_loss"], *(v[k] for v in (e["val"], *e["domains"]) for k in ("loss", "mean_iou")))
       for e in map(json.loads, open(sys.argv[1] + "/log.jsonl")) if "train_loss" in e])' "$1"; }
i=0
for arguments in "--mesh domain=2 domain.placement=domain_losses" "--mesh domain=3" "--mesh domain=6 domain.placement=role" \
                 "--mesh domain=2 train.accumulate=2" "--mesh domain=2 domain.placement=encoder_losses train.precision=f16"; do
    i=$((i + 1))
    # shellcheck disable=SC2086
    set -- $arguments
    expect 0 train train.yaml --out "cut$i" --quiet "$@"
    shift 2
    # shellcheck disable=SC2068
    expect 0 train train.yaml --out "whole$i" --quiet ${@/domain.placement=*/}
    python3 - "$(scores "cut$i")" "$(scores "whole$i")" <<'PY' || fail "$arguments"
import ast, sys
a, b = map(ast.literal_eval, sys.argv[1:])
assert len(a) == 3 and all(abs(x - y) <= 1e-4 * abs(y) for r, s in zip(a, b) for x, y in zip(r, s)), (a, b)
PY
done
expect 0 step maps.yaml --dump whole.safetensors --quiet
expect 0 step maps.yaml --mesh domain=3 domain.placement=domain_losses --dump cut.safetensors --quiet
PYTHONPATH=$SOURCE_DIR/tests/cli python3 - <<'PY' || fail "the dumps differ"
import math, tensors
a, b = map(tensors.read_safetensors, ("whole.safetensors", "cut.safetensors"))
assert a.keys() == b.keys() and len(a) > 100
for name, (shape, x) in a.items():
    off = math.dist(x, b[name][1])
    assert off <= 1e-4 * math.hypot(*x) + 1e-7, (name, off)
PY

# where it stopped, on another mesh
expect 0 train train.yaml --mesh domain=2 --out part train.epochs=2 --quiet
expect 0 train train.yaml --resume part --out part --quiet
python3 - "$(losses one)" "$(losses part)" <<'PY'
import json, sys
a, b = map(json.loads, sys.argv[1:])
assert abs(a[-1] - b[-1]) <= 1e-5 * abs(a[-1]), (a, b)
PY

# the losses of adaptation grow to their weights: a fourth of them in the first of four steps
first_loss() {
    expect 0 train train.yaml train.adapt_from=0 train.epochs=1 --out "$1" --quiet "${@:2}"
    python3 -c 'import json, sys; print(next(e["loss"] for e in map(json.loads, open(sys.argv[1])) if e["event"] == "step"))' "$1/log.jsonl"
}
none=$(first_loss grow0 train.weights.reconstruction=0 train.weights.difference=0 train.weights.similarity=0)
python3 - "$none" "$(first_loss grow1 train.adapt_over=4)" "$(first_loss grow2 train.adapt_over=1)" "$(first_loss grow3)" <<'PY' || fail "train.adapt_over"
import sys
none, fourth, one, all_at_once = map(float, sys.argv[1:])
assert one == all_at_once > none + 0.01 and abs(4 * (fourth - none) - (one - none)) <= 1e-5, sys.argv
PY

# the metrics of each domain: what eval finds, with the running statistics of the domain, and nobody's choice of
# the best epoch but the source's
expect 0 train train.yaml --out scored --json --quiet
json "[d['domain'] for d in j['domains']] == [1] and all(r['planned_bytes'] == r['used_bytes'] for r in j['per_rank'])"
cp out trained.json
expect 0 eval scored/checkpoints/last.safetensors --part valid --json --quiet
json "all(abs(x[k] - y[k]) <= 1e-6 for t in [json.load(open('trained.json'))]
          for x, y in ((j, t['metric']), (j['domains'][0], t['domains'][0])) for k in ('mean_iou', 'accuracy'))"
json "j['domains'][0]['data'] == 'target' and j['domains'][0]['domain'] == 1 and j['domains'][0]['images'] == 1"
json "abs(j['domains'][0]['loss'] - json.load(open('trained.json'))['domains'][0]['loss']) <= 1e-5"
python3 - <<'PY' || fail "the best epoch"
import json
epochs = [e for e in map(json.loads, open("scored/log.jsonl")) if e["event"] == "epoch"]
best = float("-inf")
for e in epochs:
    assert e["best"] == (e["val"]["mean_iou"] > best), e
    best = max(best, e["val"]["mean_iou"])
assert all("mean_iou" in e["domains"][0] for e in epochs)
PY
expect 0 eval scored source target --quiet
grep -q "^target 1 .* target$" out || fail "no table of domains"
refused 2 eval scored source target source -- "one for each domain"
# a target without labels is trained on, and has no metrics
mkdir bare && cp -r target/images bare/images
expect 0 train train.yaml data.domains=source,bare --out unlabelled --json --quiet
json "'domains' not in j and j['metric']['mean_iou'] > 0"
cmp_losses() { python3 - "$(losses "$1")" "$(losses "$2")" <<'PY' || fail "$1 and $2 differ"
import sys
assert sys.argv[1] == sys.argv[2], sys.argv[1:]
PY
}
cmp_losses one unlabelled
expect 0 eval unlabelled --json
grep -q "'bare' has no labels" err || fail "it is not said that a domain is left out"

# labels of images are numbered by the names of their folders: a target with others has no metrics
cp "$SOURCE_DIR/tests/cli/pictures.py" .
python3 - <<'PY'
import os
from pictures import write_png
for kind, names in (("all", "abc"), ("some", "bc"), ("same", "abc")):
    for name in names:
        os.makedirs(f"{kind}/{name}")
        for i in range(4):
            write_png(f"{kind}/{name}/{i}.png", 16, 16, 3, bytes((80 * ord(name) + i) % 256 for _ in range(16 * 16 * 3)))
PY
classes=(model.name=dsn model.base=4 model.code=12 model.targets=1 train.epochs=1 train.batch=4 train.samples=0 data.validation=0.5)
expect 0 train "${classes[@]}" data.domains=all,some --out other_classes --json
last_line "'domains' not in j"
says "the labels of 'some' are not used for metrics: class 0 is b, that of 'all' a"
expect 0 eval other_classes all some --json
json "'domains' not in j"
says "the labels of 'some' are not used for metrics: class 0 is b"
refused 1 eval other_classes some model.domain=1 -- "class 0 of 'some' is b, but a"
expect 0 train "${classes[@]}" data.domains=all,same --out same_classes --json --quiet
last_line "j['domains'][0]['domain'] == 1"

# pictures of what the decoder makes of each domain, and the codes as points: the same from every mesh
views() { python3 - "$@" <<'PY' || fail "views of $*"
import json, sys
PNG = b"\x89PNG\r\n\x1a\n"
def look(run):
    log = [json.loads(line) for line in open(run + "/log.jsonl")]
    rebuilt = [e for e in log if e["event"] == "reconstruction"]
    codes, = (e for e in log if e["event"] == "codes")
    files = [open(f"{run}/{e[k]}", "rb").read() for e in rebuilt for k in ("image", "shared", "private", "both")]
    assert all(f.startswith(PNG) for f in files) and len(set(files[::4])) == 4, "pictures"
    assert [e["domain"] for e in rebuilt] == [0, 0, 1, 1], rebuilt
    # two images of the source and one of the target are held back, of 32 x 32 in crops of 16 x 16
    assert [len(xy) for kind in ("shared", "private") for xy in codes[kind]] == [16, 8, 16, 8], codes
    assert all(0 < sum(codes[kind + "_share"]) <= 1 + 1e-9 for kind in ("shared", "private"))
    return codes
first, *others = map(look, sys.argv[1:])
for codes in others:
    for kind in ("shared", "private"):
        a, b = (sum(c[kind], []) for c in (first, codes))
        assert max(abs(x - y) for x, y in zip(a, b)) <= 1e-2 * max(map(abs, a)), kind
PY
}
i=0
for arguments in "" "--mesh data=2,domain=2" "--mesh domain=3,space=1x2 domain.placement=encoder_losses"; do
    i=$((i + 1))
    # shellcheck disable=SC2086
    expect 0 train train.yaml train.samples=2 --out "seen$i" --quiet $arguments
done
views seen1 seen2 seen3
# without a validation part they are of training images
expect 0 train train.yaml train.samples=2 train.epochs=1 data.validation=0 --out unvalidated --quiet
events '[x["domain"] for x in e if x["event"] == "reconstruction"] == [0, 0, 1, 1]' unvalidated
cp -r seen1 again # which a resumed run makes anew
expect 0 train train.yaml train.samples=2 train.epochs=4 --resume again --out again --quiet
views again
python3 - <<'PY' || fail "the report's data"
import json, re
run = json.loads(re.search(r'id="run">(.*?)</script>', open("seen2/report.html").read(), re.S)[1])
epochs = [e for e in map(json.loads, open("seen2/log.jsonl")) if e["event"] == "epoch"]
assert [d["data"] for d in run["domains"]] == ["source", "target"]
for curve, want in zip((d["curve"]["y"] for d in run["domains"]),
                       ([e["val"]["mean_iou"] for e in epochs], [e["domains"][0]["mean_iou"] for e in epochs])):
    assert all(abs(x - y) <= 1e-3 for x, y in zip(curve, want)) and len(curve) == 3
assert all(r[k].startswith("data:image/png") for r in run["reconstructions"] for k in ("image", "shared", "private", "both"))
assert len(run["reconstructions"]) == 4 and len(run["codes"]["private"][0]) == 16
PY

# another dataset of a target is noticed, as the source's is
cp -r target other
mv other/images/nuclei_00001.png other/images/z.png && mv other/masks/nuclei_00001.png other/masks/z.png
refused 2 train train.yaml data.domains=source,other train.epochs=4 --resume part --out part -- \
    "'other' is not the dataset" "the first sample that differs is" "nuclei_00002" "data.domains=..." "--changed-data"
expect 0 train train.yaml data.domains=source,other train.epochs=4 --resume part --out part --changed-data
grep -q "'other' is not the dataset" err || fail "no warning"

# an image of the target is encoded where its domain is, and scored there
for mesh in 1 domain=2 domain=2,space=2x1 domain=3; do
    expect 0 eval one target model.domain=1 --mesh "${mesh/#1/space=1}" --json --quiet
    json "'$mesh' == '1' or all(abs(j[k] - w[k]) <= 1e-5 for w in [json.load(open('whole.json'))] for k in ('loss', 'mean_iou'))"
    [ "$mesh" != 1 ] || cp out whole.json
done
mv target away # evaluation and prediction need the one dataset that they are given
expect 0 eval one source --quiet
expect 0 eval one away model.domain=1 --quiet
refused 2 eval one away model.domain=2 -- "model.domain is 2"
expect 0 predict one source/images/*00000.png --out maps --quiet

refused 3 verify model.name=unet model.base=2 data.size=2,3,32,32 --mesh domain=2 -- "axis domain" "unet"
refused 3 verify digits.yaml --mesh domain=13 -- "domain=12"
refused 2 train train.yaml model.targets=2 --out x -- "data.domains has 2" "3 domains"
mv away target
refused 2 train train.yaml train.sync=server --ranks 2 --out x -- "train.sync=server" "dsn_conv"
refused 1 train train.yaml "data.domains=source,nowhere" --out x -- "nowhere"

# a rank opens the data of its own domains only: here rank 0 has no folder of the target, and hears of a
# target that is not the checkpoint's from rank 1
[ -n "${MPIRUN:-}" ] || exit 0
read -r -a launcher <<<"$MPIRUN"
mkdir here there && cp -r source here/source && cp -r source target there/
both() { # both STATUS ARGUMENTS...
    local want=$1 got=0
    shift
    "${launcher[@]}" --wdir "$PWD/here" -n 1 "$wf" "$@" : --wdir "$PWD/there" -n 1 "$wf" "$@" >out 2>err || got=$?
    [ "$got" -eq "$want" ] || fail "'widefield $*' on two ranks ended with $got, expected $want"
}
train=(train "$PWD/train.yaml" --mesh domain=2 --out "$PWD/apart")
both 0 "${train[@]}" --quiet
python3 - "$(scores two)" "$(scores apart)" <<'PY' || fail "a rank without the target"
import ast, sys
a, b = map(ast.literal_eval, sys.argv[1:])
assert len(a) == 3 and all(abs(x - y) <= 1e-5 * abs(y) for r, s in zip(a, b) for x, y in zip(r, s)), (a, b)
PY
rm there/target/images/nuclei_00002.png there/target/masks/nuclei_00002.png
both 2 "${train[@]}" train.epochs=4 --resume "$PWD/apart"
says "'target' is not the dataset" "2 samples, 3 then"
