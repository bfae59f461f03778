# memory.limit bounds all memory of a rank: the step, the optimiser's states, validation.
. "$SOURCE_DIR/tests/cli/common.bash"

expect 0 data synth nuclei --out set --count 8 --size 96x96 --quiet
net=(model.name=unet model.base=8 model.depth=3 data.path=set data.crop=96,96 data.validation=0.25 train.epochs=1
    train.batch=4 train.optimizer=adam --quiet --json)
held='max(r["used_bytes"] for r in j["per_rank"])'

expect 0 train "${net[@]}" --out free
json "$held == max(r[\"planned_bytes\"] for r in j[\"per_rank\"])"
json 'j["per_rank"][0]["host_bytes"] > 0'
most=$(python3 -c "import json; j = json.load(open('out')); print($held - j['per_rank'][0]['host_bytes'])")
# Room for all but the copy of a checkpoint: there is none, and training waits for the writing.
expect 0 train "${net[@]}" --out waits memory.limit=$((most + 4096))
json "$held <= $most + 4096 and j['per_rank'][0]['host_bytes'] == 0"
[ -s waits/checkpoints/last.safetensors ] || fail "no checkpoint without a copy"
# A little less than all of it: the step recomputes, and used memory is within the limit.
limit=$((most * 9 / 10))
expect 0 train "${net[@]}" --out tight memory.limit=$limit
json "$held <= $limit and $held == max(r[\"planned_bytes\"] for r in j[\"per_rank\"])"
# A step that cannot fit is refused before anything is written.
refused 3 train "${net[@]}" --out never memory.limit=2MiB -- "memory.limit" "raise it to"
[ ! -e never ] || fail "a folder was made for a run that was refused"
