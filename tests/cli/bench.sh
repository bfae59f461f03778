# bench: its keys, and that what was planned is what is used.
. "$SOURCE_DIR/tests/cli/common.bash"

args=(model.name=unet model.base=4 model.depth=1 data.size=2,3,32,32 --quiet)
expect 0 bench "${args[@]}" --steps 3 --warmup 1 --json
json 'j["ms"] > 0 and j["ranks"] == 1 and j["device"] == "cpu" and j["precision"] == "f32"'
json 'j["planned_bytes"] == j["peak_bytes"] > 0 and j["rss_bytes"] > j["peak_bytes"]'
json 'abs(j["mpx_per_s"] - 2 * 32 * 32 / j["ms"] / 1e3) < 1e-6 * j["mpx_per_s"]'
json '0 <= j["compute_ms"] <= 1.5 * j["ms"] and j["comm_ms"] >= 0'
expect 0 bench "${args[@]}" --steps 2 --warmup 0 --mesh data=2,space=2 --json
json 'j["ranks"] == 4 and j["planned_bytes"] == j["peak_bytes"] and j["comm_ms"] > 0'
# it is foretold what 'plan' says, or more where ranks share cores
for mesh in space=1 data=2,space=2; do
    expect 0 plan "${args[@]}" --mesh $mesh --json
    ms=$(python3 -c 'import json; print(1e3 * json.load(open("out"))["step_seconds"])')
    expect 0 bench "${args[@]}" --steps 1 --warmup 0 --mesh $mesh --json
    json "0.999 * $ms <= j['foretold_ms'] <= 1.001 * $ms * j['ranks']"
done
expect 0 bench "${args[@]}" --steps 1 --warmup 0
prints "Mpx/s" "planned" "foretold"
OMP_NUM_THREADS=3 expect 0 bench "${args[@]}" --steps 1 --warmup 0 --json
json 'j["threads"] == 3'
OMP_NUM_THREADS=3 expect 0 bench "${args[@]}" --threads 2 --steps 1 --warmup 0 --json
json 'j["threads"] == 2'
refused 2 bench "${args[@]}" --steps 0 -- "--steps"
refused 2 bench "${args[@]}" --steps 1.5 -- "--steps"

# sums over ranks: every algorithm, every size, and the default marked
expect 0 bench allreduce --steps 1 --json
json 'j["ranks"] == 2 and j["comm"] == "threads" and len(j["sizes"]) == 9'
json 'j["sizes"][0]["bytes"] == 1024 and j["sizes"][-1]["bytes"] == 64 << 20'
json 'all(set(s["us"]) == {"library", "ring", "tree", "nodes"} and min(s["us"].values()) > 0 for s in j["sizes"])'
json 'all(s["fastest"] == min(s["us"], key=s["us"].get) and s["default"] in s["us"] for s in j["sizes"])'
refused 2 bench allreduce nosuch.yaml -- "one config at a time"

# the same numbers however they are summed; gradients sent as bf16 are close
args=(model.name=unet model.base=4 model.depth=1 data.size=4,3,16,16 --mesh data=2,space=2 --quiet)
for way in library ring tree nodes; do
    expect 0 verify "${args[@]}" comm.allreduce=$way comm.node_ranks=2 --json
    json 'j["pass"] is True'
done
expect 1 verify "${args[@]}" comm.precision=bf16
expect 0 verify "${args[@]}" comm.precision=bf16 --tolerance 0.02 --json
json 'j["grad_rel"] > 1e-5'
refused 2 verify "${args[@]}" comm.allreduce=star -- "tree"

# With and without overlap, on threads; the timeline of every rank, as a trace and as a picture.
expect 0 bench "${args[@]}" --steps 2 --warmup 0 --mesh space=2x1 --overlap --json
json 'j["ms"] > 0 and j["ms_without"] > 0 and j["comm_ms"] >= 0 and j["comm_ms_without"] > 0'
json 'abs(j["hidden"] - (1 - j["comm_ms"] / j["comm_ms_without"])) < 1e-9 and j["ranks"] == 2'
expect 0 bench "${args[@]}" --steps 1 --warmup 0 --mesh data=2 --overlap
prints "with overlap" "without" "hidden"
expect 0 bench "${args[@]}" --steps 1 --warmup 0 --mesh space=2x1 --timeline t.json --json
expect 0 bench "${args[@]}" --steps 1 --warmup 0 --mesh space=2x1 --timeline t.svg --json
python3 - . <<'END' || fail "the timeline is not what it should be"
import json, sys
import xml.etree.ElementTree as xml
events = json.load(open(sys.argv[1] + "/t.json"))["traceEvents"]
assert {e["pid"] for e in events} == {0, 1}
assert {e["cat"] for e in events if "cat" in e} >= {"forward", "backward", "waiting", "halos in flight",
                                                    "sums in flight"}
begins = [(e["cat"], e["id"]) for e in events if e["ph"] == "b"]
assert begins and sorted(begins) == sorted((e["cat"], e["id"]) for e in events if e["ph"] == "e")
assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")
assert len(xml.parse(sys.argv[1] + "/t.svg").getroot().findall("{http://www.w3.org/2000/svg}rect")) > 50
END
# the sweep uses what was planned, at every point
expect 0 bench model.name=cnn2d --sweep --sides 32,48 --over 1,3 --quiet --json
json 'len(j["points"]) == 4 and all(p["peak_bytes"] == p["planned_bytes"] > 0 and p["ms"] > 0 for p in j["points"])'
expect 0 bench model.name=cnn2d --sweep --sides 32,64 --over 1 memory.limit=1K --quiet
prints "too large here"

# scaling: a batch for each rank, and one for all
small=(model.name=unet model.base=4 model.depth=1 --quiet --steps 1 --warmup 0)
expect 0 bench "${small[@]}" data.size=2,3,16,16 --scaling 1,2,3 --svg scaling.svg --json
json '[p["batch"] for p in j["weak"]] == [2, 4, 6] and [p["batch"] for p in j["strong"]] == [2, 2]'
json 'all(abs(p["images_per_s"] - 1e3 * p["batch"] / p["ms"]) < 1e-6 * p["images_per_s"] for p in j["weak"] + j["strong"])'
json 'abs(j["strong"][1]["efficiency"] * 2 * j["strong"][0]["images_per_s"] / j["strong"][1]["images_per_s"] - 1) < 1e-9'
json 'abs(j["strong"][0]["loss"] - j["strong"][1]["loss"]) < 1e-5 * j["strong"][0]["loss"]'
python3 -c 'import xml.dom.minidom; xml.dom.minidom.parse("scaling.svg")' || fail "scaling.svg is no XML"
expect 0 data synth discs --count 24 --out set --quiet
expect 0 bench "${small[@]}" data.path=set data.crop=16,16 train.batch=4 train.epochs=1 --scaling 1,2 --out trained
prints "train loss" "strong"
[ -s trained/weak-2/checkpoints/last.safetensors ] || fail "nothing was trained"
expect 0 bench model.name=unet model.base=2 model.depth=1 data.size=1,3,16,16 --scaling 1,2 --steps 1
says "strong-2 is left out: a batch of 1"
refused 2 bench "${small[@]}" data.size=2,3,16,16 --scaling 1,x -- "1,2,4"
refused 2 bench "${small[@]}" data.size=2,3,16,16 --scaling 1 --out no -- "data.path"

# what draws its own data takes none
expect 2 bench model.name=cnn2d --sweep --input x.npy
says "--sweep draws its own data: leave --input out"
