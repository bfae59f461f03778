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
expect 0 bench "${args[@]}" --steps 1 --warmup 0
prints "Mpx/s" "planned"
refused 2 bench "${args[@]}" --steps 0 -- "--steps"
refused 2 bench "${args[@]}" --steps 1.5 -- "--steps"
