# train.sync: a server gives the numbers of a sum over ranks; an asynchronous one keeps its bound.
. "$SOURCE_DIR/tests/cli/common.bash"

expect 0 data synth discs --count 50 --out set --quiet
args=(model.name=unet model.base=4 model.depth=1 data.path=set data.crop=16,32 train.batch=6
    train.epochs=2 train.samples=0 --quiet --json)

# Bit for bit, with a last batch that is smaller, cut images, clipping and Adam.
for mesh in data=3 data=2,space=1x2; do
    run=${mesh//[=,]/-}
    more=(train.optimizer=adam train.clip=0.5)
    expect 0 train "${args[@]}" "${more[@]}" --mesh "$mesh" --out "sum-$run"
    expect 0 train "${args[@]}" "${more[@]}" --mesh "$mesh" train.sync=server --out "server-$run"
    same_weights "sum-$run" "server-$run"
done

# Asynchronous: every gradient is applied once, none too late; each worker has ranks of its own.
expect 0 train "${args[@]}" --mesh data=2,space=1x2 train.sync=async train.staleness=1 --out async
python3 - <<'PYTHON' || fail "async/log.jsonl"
import json
epochs = [e for e in map(json.loads, open("async/log.jsonl")) if e["event"] == "epoch"]
s = epochs[-1]["staleness"]
items = 50 - 10  # a fifth is validated on
assert len(s) <= 2 and sum(s) == 2 * 2 * (items // 3 // 2), s
PYTHON
expect 0 train "${args[@]}" train.epochs=3 --mesh data=2,space=1x2 train.sync=async --resume async
json 'j["epochs"] == 3'

# Ranks beside the mesh, and what cannot be.
expect 0 train "${args[@]}" --ranks 3 train.sync=async train.epochs=1 --out three
refused 3 train "${args[@]}" --ranks 3 --mesh data=3 train.sync=server --out no -- "4 ranks"
refused 2 train "${args[@]}" --mesh data=4 train.sync=async --out no -- "multiple of 4"
refused 2 train "${args[@]}" --mesh data=2 train.sync=async train.reduction=rank_mean --out no -- "rank_mean"

[ -n "${MPIRUN:-}" ] || skip "no mpirun here: its part was not tested"
read -r -a launcher <<<"$MPIRUN"
"${launcher[@]}" -n 4 "$wf" train "${args[@]}" --mesh data=3 train.sync=server train.optimizer=adam \
    train.clip=0.5 --out mpi >out 2>err || fail "server under mpirun"
same_weights mpi server-data-3

# A worker that is asked to stop stops all of them, with a checkpoint that goes on.
"${launcher[@]}" -n 3 "$wf" train "${args[@]}" train.sync=async train.epochs=1000 --out stopped >out 2>err &
job=$!
appears '"event":"step"' stopped/log.jsonl
for pid in $(pgrep -P "$job"); do kill -USR1 "$pid"; done
status=0
wait "$job" || status=$?
[ "$status" -eq 75 ] || fail "stopped by a signal: $status"
[ -s stopped/checkpoints/last.safetensors ] || fail "no checkpoint"

# A server that dies ends all workers, with a message.
for sync in server async; do
    "${launcher[@]}" -n 3 "$wf" train "${args[@]}" train.sync=$sync train.epochs=100000 --out dies-$sync >out 2>err &
    job=$!
    appears '"event":"step"' dies-$sync/log.jsonl
    server=
    for pid in $(pgrep -P "$job"); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx 'OMPI_COMM_WORLD_RANK=2' && server=$pid
    done
    if [ -z "$server" ]; then # no Open MPI: its ranks are not known by that name
        kill "$job"
        wait "$job" || true
        continue
    fi
    start=$SECONDS
    kill -9 "$server"
    status=0
    wait "$job" || status=$?
    [ "$status" -ne 0 ] || fail "the server died, but the exit status is 0"
    [ $((SECONDS - start)) -le "${WF_STOP_SECONDS:-60}" ] || fail "the others went on for $((SECONDS - start)) s"
    grep -q "rank 2" err || fail "no message that rank 2 has died"
done
