# The plan, and meshes that do not fit.
. "$SOURCE_DIR/tests/cli/common.bash"

cat >a.yaml <<'YAML'
model: { name: unet, base: 4, depth: 2, in: 3, classes: 2 }
data: { size: [2, 3, 64, 48] }
YAML

expect 0 plan a.yaml --quiet --json
json 'j["ranks"] == 1 and len(j["per_rank"]) == 1 and j["per_rank"][0]["fetch_bytes"] == 0'
[ ! -s err ] || fail "--quiet, but something on stderr"

expect 0 plan a.yaml --mesh data=2,space=2x3 --json
json 'j["ranks"] == 12 and [r["rank"] for r in j["per_rank"]] == list(range(12))'
json 'all(r["live_bytes"] <= r["arena_bytes"] <= 1.01 * r["live_bytes"] + 65536 for r in j["per_rank"])'
json 'all(r["fetch_bytes"] > 0 and r["reduce_bytes"] > 0 and r["steps"] > 0 for r in j["per_rank"])'
json 'j["flops"] > 0 and j["step_seconds"] > 0'
# weights, gradients and Adam's two moments: four times the parameters, and a little
json 'all(r["param_bytes"] >= 16 * j["parameters"] for r in j["per_rank"])'
adam=$(python3 -c 'import json; print(json.load(open("out"))["per_rank"][0]["param_bytes"])')
expect 0 plan a.yaml --mesh data=2,space=2x3 train.optimizer=sgd --json
json "j['per_rank'][0]['param_bytes'] < $adam"

# on a GPU the process takes host memory for its libraries, and for inputs on their way: images of f32, labels of i32
expect 0 plan a.yaml --json
json 'j["library_bytes"] == 0 and j["process_bytes"] > j["bytes_with_validation"]'
expect 0 plan a.yaml data.size=2,3,512,512 --device cuda --json
json 'j["library_bytes"] == 768 << 20'
json '(3 + 1) * 4 * 2 * 512**2 < j["process_bytes"] - j["library_bytes"] - (25 << 20) < 1.5 * (3 + 1) * 4 * 2 * 512**2'
expect 0 plan a.yaml --device cuda
prints "of which its libraries take at most some 768 MiB"

# half the image needs about half the memory
expect 0 plan a.yaml data.size=1,3,256,256 --json
whole=$(python3 -c 'import json; print(json.load(open("out"))["per_rank"][0]["arena_bytes"])')
expect 0 plan a.yaml data.size=1,3,256,256 --mesh space=2x1 --json
json "j['per_rank'][0]['arena_bytes'] < 0.65 * $whole"

# a chosen mesh: whole samples first, then the lowest predicted time
expect 0 plan a.yaml --ranks 2 --json
json 'j["mesh"] == "data=2"'
says "chosen for 2 ranks"
expect 0 plan a.yaml data.size=1,3,64,64 --ranks 4 --json
seconds=$(python3 -c 'import json; print(json.load(open("out"))["step_seconds"])')
for mesh in 4x1 2x2 1x4; do
    expect 0 plan a.yaml data.size=1,3,64,64 --mesh space=$mesh --json
    json "j['step_seconds'] >= 0.99 * $seconds"
done
# a slow network favours small halos; a wide image is cut along its width
expect 0 plan a.yaml data.size=1,3,64,64 --mesh auto --ranks 4 comm.bandwidth=1M --json
json 'j["ranks"] == 4 and j["mesh"] == "space=2x2"'
expect 0 plan a.yaml data.size=1,3,32,128 --ranks 4 comm.bandwidth=1M --json
json 'j["mesh"] == "space=4"'
# lower bandwidth and longer latency cost time
expect 0 plan a.yaml --mesh space=2x2 --json
json 'j["per_rank"][0]["host_bytes"] >= 12 * j["parameters"] and all(r["host_bytes"] == 0 for r in j["per_rank"][1:])'
seconds=$(python3 -c 'import json; print(json.load(open("out"))["step_seconds"])')
expect 0 plan a.yaml --mesh space=2x2 comm.bandwidth=1M --json
json "j['step_seconds'] > 2 * $seconds"
expect 0 plan a.yaml --mesh space=2x2 comm.latency=1000 --json
json "j['step_seconds'] > 2 * $seconds"

# memory: a mesh that fits is taken, otherwise the message names one that does
expect 0 plan a.yaml data.size=1,3,256,256 --ranks 4 memory.limit=8MiB --json
json 'all(r["arena_bytes"] + r["param_bytes"] <= 8 << 20 for r in j["per_rank"]) and j["recomputed"] == []'
seconds=$(python3 -c 'import json; print(json.load(open("out"))["step_seconds"])')
expect 0 plan a.yaml data.size=1,3,256,256 --ranks 4 memory.limit=3MiB --json
json 'all(r["arena_bytes"] + r["param_bytes"] <= 3 << 20 for r in j["per_rank"])'
json "len(j['recomputed']) > 0 and j['per_rank'][0]['recompute_seconds'] > 0 and j['step_seconds'] > $seconds"
expect 0 plan a.yaml data.size=1,3,256,256 --mesh space=2x2 memory.limit=3MiB --explain
prints "recomputed for memory.limit" "(recomputed, for the limit)" "fullest at step"
# Less than recomputation reaches: layers in strips, and the numbers of a step without a limit.
expect 0 plan model.name=unet model.base=8 train.optimizer=sgd data.size=1,3,256,256 memory.limit=14MiB --json --explain
json 'j["in_strips"] and all(s["strips"] > 1 and s["items"] > 1 for s in j["in_strips"])'
json '"(strip 1)" in j["explain"] and all(r["arena_bytes"] + r["param_bytes"] <= 14 << 20 for r in j["per_rank"])'
expect 0 plan model.name=unet model.base=8 train.optimizer=sgd data.size=1,3,256,256 memory.limit=14MiB
prints "in strips for memory.limit"
expect 0 verify model.name=unet model.base=8 train.optimizer=sgd data.size=1,3,256,256 memory.limit=14MiB --json --quiet
json 'j["pass"] is True and j["loss_rel"] == 0 and 0 < j["grad_rel"] <= 1e-5'
refused 3 plan a.yaml data.size=1,3,256,256 --ranks 4 memory.limit=1MB -- "4 ranks" "memory.limit" "use 8 ranks"
refused 3 plan a.yaml data.size=1,3,256,256 --ranks 4 memory.limit=50K -- "smaller image"
refused 3 plan a.yaml data.size=1,3,256,256 --mesh space=2x2 memory.limit=1MB -- "space=2x2" "raise it to" "use 8 ranks"
# a refusal names the smallest limit that fits, and it does
least=$(sed -n 's/.*raise it to \([0-9]*\),.*/\1/p' err)
expect 0 plan a.yaml data.size=1,3,256,256 --mesh space=2x2 memory.limit="$least" --json
json "all(r['arena_bytes'] + r['param_bytes'] <= $least for r in j['per_rank'])"
refused 3 step a.yaml data.size=1,3,256,256 memory.limit=1MB -- "memory.limit"
# one step with the limit against one without, on one rank
expect 0 verify a.yaml data.size=1,3,256,256 --mesh space=2x2 memory.limit="$least"
refused 3 plan a.yaml data.size=1,3,64,64 --mesh auto --ranks 127 -- "127 ranks" "another number"

expect 0 plan a.yaml --mesh space=2 --explain --rank 1
prints "rank 1" "fetch"
refused 2 plan a.yaml --explain --rank 1 -- "--rank"

# does not fit: 3
refused 3 plan a.yaml --mesh space=2x2 --ranks 3 -- "space=2x2" "4 ranks" "3"
refused 3 plan a.yaml --mesh space=50 -- "50 ranks" "48"
refused 3 verify a.yaml --mesh space=2,data=3 -- "3 ranks"
refused 3 verify a.yaml --mesh domain=2 -- "axis domain is for networks of several domains"
refused 3 step a.yaml data.size=1,3,200000,200000 -- "a rank needs" "this machine has" "use a smaller image"
expect 0 plan a.yaml --device cuda --json # also in a build without CUDA
json 'j["step_seconds"] > 0'
refused 2 plan a.yaml --precision tf32 -- "tf32"

# data.size must match the network
refused 2 plan model.name=unet -- "data.size"
refused 2 plan a.yaml data.size=1,1,64,64 -- "model.in" "channels"
refused 2 plan a.yaml model.dims=3 -- "model.dims"
refused 2 plan a.yaml train.loss=ce+mse -- "ce+mse" "target"
expect 0 plan model.name=unet model.base=4 data.crop=64,64 train.batch=2 --json
json 'j["parameters"] > 0'

# pictures: well-formed, with every rank in every panel
expect 0 plan a.yaml --mesh space=2x3 --svg grid.svg --quiet --json
python3 - <<'PYTHON' || fail "the picture of the grid"
import xml.dom.minidom
d = xml.dom.minidom.parse("grid.svg")
parts = [r for r in d.getElementsByTagName("rect") if r.getAttribute("class") == "part"]
assert len(parts) == 3 * 6, len(parts)
first = parts[:6]
assert abs(sum(float(r.getAttribute("width")) * float(r.getAttribute("height")) for r in first) - 340 * 340 * 64 / 48) < 50
PYTHON
# memory of ranks that differs by less than 2% has one colour
expect 0 plan a.yaml data.size=1,3,256,256 --mesh space=2x2 --svg alike.svg --quiet --json
python3 - <<'PYTHON' || fail "colours of equal ranks"
import xml.dom.minidom
d = xml.dom.minidom.parse("alike.svg")
parts = [r for r in d.getElementsByTagName("rect") if r.getAttribute("class") == "part"]
assert len(parts) == 3 * 4 and len({r.getAttribute("fill-opacity") for r in parts}) == 1
PYTHON
# ranks of all stages are in it: each part has the most of its own
expect 0 plan a.yaml data.size=2,3,64,64 train.accumulate=2 --mesh pipe=2,space=2x1 --svg stages.svg --json
python3 - <<'PYTHON' || fail "the picture of stages"
import json, xml.dom.minidom
ranks = json.load(open("out"))["per_rank"]
text = open("stages.svg").read()
assert len(ranks) == 4 and "each with the most of its 2 ranks" in text
most = max(r["arena_bytes"] + r["param_bytes"] for r in ranks)
assert f"{most / 2**20:.3g}"[:3] in text or f"{most / 2**10:.3g}"[:3] in text, most
PYTHON
refused 1 plan a.yaml --svg missing/grid.svg -- "missing/grid.svg"

# memory against the side of the image: more ranks need less, larger images more
expect 0 plan model.name=cnn2d --sweep --sides 64,128,256 --over 1,4,6 --svg curve.svg --quiet --json
json 'j["model"] == "cnn2d" and len(j["points"]) == 9'
json 'all(j["points"][i]["planned_bytes"] < j["points"][i + 1]["planned_bytes"] for i in (0, 1, 3, 4, 6, 7))'
json 'all(j["points"][i]["planned_bytes"] > j["points"][i + 3]["planned_bytes"] for i in range(6))'
python3 -c 'import xml.dom.minidom; d = xml.dom.minidom.parse("curve.svg"); assert len(d.getElementsByTagName("circle")) == 12' || fail "the picture of the sweep"
expect 0 plan model.name=cnn1d --sweep --sides 1000,2000 --over 1,5 --quiet
prints "side" "5 ranks"
refused 2 plan model.name=cnn2d --sweep --sides 64,x -- "--sides"
refused 2 plan model.name=cnn2d --sweep --over 0 -- "--over"
refused 2 plan model.name=cnn2d --sweep --mesh space=2 -- "--over"

# shipped figures are those of the processor, whatever cores the process may use
if type taskset >/dev/null 2>&1; then
    expect 0 plan a.yaml run.cache=
    all=$(grep -o '(figures of .*)' out)
    taskset -c "$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')" "$wf" plan a.yaml run.cache= >out 2>err ||
        fail "a plan on one core"
    prints "$all"
fi

# over devices: rising and each once, whatever mesh the file has; on the command line a mesh is refused
cat >cut.yaml <<'YAML'
model: { name: unet, base: 2, depth: 1, in: 3, classes: 2 }
data: { size: [1, 3, 64, 64] }
mesh: { space: [2, 2] }
YAML
expect 0 plan cut.yaml --scaling 4,1,4 --json
python3 - <<'PYTHON' || fail "the rows of the devices"
import json
rows = [json.loads(line) for line in open("out")]
assert [row["devices"] for row in rows] == [1, 4], rows
assert rows[0]["mesh"] == "space=1" and abs(rows[0]["efficiency"] - 1) < 1e-9
PYTHON
expect 0 plan cut.yaml --scaling 1,2
prints "devices" "space=2"
! grep -q ' $' out || fail "blanks at the end of a line"
refused 2 plan cut.yaml --scaling 4 --mesh space=2 -- "leave --mesh and --ranks out"
refused 2 plan cut.yaml --scaling 4 --ranks 2 -- "leave --mesh and --ranks out"
refused 2 plan cut.yaml --scaling 4 --explain -- "give --mesh in place of --scaling"
for list in 0 -1 1,,2 2, 1.5 1x2 70000 word; do
    refused 2 plan cut.yaml --scaling $list -- "'$list'" "numbers of devices from 1 to 65536"
done

# a rank more than the machine has cores for is told
cores=$("$wf" check --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["cores"])')
if [ "$cores" -lt 16 ]; then
    expect 0 plan cut.yaml --mesh space=16
    prints "with a core for each thread: on this machine's $cores they take turns"
fi
expect 0 plan cut.yaml --mesh space=1
! grep -q "take turns" out || fail "one rank has the machine's cores"
