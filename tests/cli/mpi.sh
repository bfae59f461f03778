# Under a launcher: its ranks, messages from one of them.
. "$SOURCE_DIR/tests/cli/common.bash"
[ -n "${MPIRUN:-}" ] || skip "no mpirun here: nothing to test"
read -r -a launcher <<<"$MPIRUN"

launched() { # launched STATUS RANKS ARGUMENTS...
    local want=$1 ranks=$2 got=0
    shift 2
    "${launcher[@]}" -n "$ranks" "$wf" "$@" >out 2>err || got=$?
    [ "$got" -eq "$want" ] || fail "'mpirun -n $ranks widefield $*' ended with $got, expected $want"
}

args=(model.name=unet model.base=4 model.depth=1 data.size=1,3,32,32)
launched 0 3 verify "${args[@]}" --mesh space=3 --json --quiet
json 'j["ranks"] == 3 and j["pass"] is True'
launched 0 2 model list --json
json 'len(j["models"]) > 0'

# the same weights on threads and under MPI
launched 0 4 step "${args[@]}" --mesh space=2x2 --dump mpi.safetensors --quiet
expect 0 step "${args[@]}" --mesh space=2x2 --dump threads.safetensors --quiet
cp "$SOURCE_DIR/tests/cli/tensors.py" .
python3 - <<'PYTHON' || fail "mpi and threads differ"
from tensors import read_safetensors, apart
a, b = read_safetensors("mpi.safetensors"), read_safetensors("threads.safetensors")
assert sorted(a) == sorted(b)
for name in a:
    assert apart(a[name], b[name]) < 1e-5, name
PYTHON

# Machines that differ plan alike: by the figures that suit rank 0's. Its name ends with its cores.
if [[ $MPIRUN == *oversubscribe* ]] && type taskset >/dev/null; then
    for limit in 12M 13M 14M 15M; do
        tight=(step model.name=unet model.base=8 data.size=1,3,192,192 memory.limit=$limit --mesh space=2x1 --quiet)
        OMP_NUM_THREADS=1 timeout 60 "${launcher[@]}" -n 1 "$wf" "${tight[@]}" : \
            -n 1 taskset -c "$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')" "$wf" "${tight[@]}" \
            >out 2>err || fail "ranks on machines that differ, memory.limit=$limit: ended with $?"
    done
fi

# Ranks that the launcher binds to a core each have cores of their own: none waits for another's turn, and the figures
# are the machine's.
if [[ $MPIRUN == *oversubscribe* ]] && [ "$(nproc)" -gt 1 ]; then
    bench=(bench "${args[@]}" --mesh space=2 --threads 1 --steps 1 --warmup 0 --json)
    launched 0 2 "${bench[@]}"
    foretold=$(python3 -c 'import json; print(json.load(open("out"))["foretold_ms"])')
    "${launcher[@]}" --bind-to core -n 2 "$wf" "${bench[@]}" >out 2>err || fail "ranks that are bound to cores"
    json "j['foretold_ms'] == $foretold"
fi

launched 3 2 verify "${args[@]}" --mesh space=2x2
[ "$(grep -c 'widefield: error: ' err)" -eq 1 ] || fail "one message"
says "space=2x2"
launched 2 2 verify "${args[@]}" model.bsae=3
[ "$(grep -c 'widefield: error: ' err)" -eq 1 ] || fail "one message"
launched 1 2 verify "${args[@]}" --mesh space=2 --tolerance 0

# --- a rank that fails stops all, with its message ---
# On a machine with nothing else to do that takes a second or two: WF_STOP_SECONDS=10 holds it to ten.
# Otherwise only a hang fails, for a loaded machine takes its time to start processes.
stop_seconds=${WF_STOP_SECONDS:-60}
cat >as.sh <<'BASH'
#!/usr/bin/env bash
# On rank $ODD the command runs under a limit of $LIMIT kB a file, or with the arguments $MORE added, or
# the call $FAULT fails (tests/campaign/faults.c).
if [ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}" = "$ODD" ]; then
    [ -z "${LIMIT:-}" ] || ulimit -f "$LIMIT"
    [ -z "${FAULT:-}" ] || export LD_PRELOAD=$PWD/faults.so FAULTS_FAIL=$FAULT
    # shellcheck disable=SC2086
    set -- "$@" ${MORE:-}
fi
exec "$@"
BASH
chmod +x as.sh
soon() { # soon SECONDS-AT-START
    [ $((SECONDS - $1)) -le "$stop_seconds" ] || fail "it took $((SECONDS - $1)) s to stop"
    [ "$(grep -c 'widefield: error: ' err)" -eq 1 ] || fail "one message"
}

# another command line, or another command, on one rank
for more in model.base=5 --tolerance=1; do
    at=$SECONDS
    ODD=1 MORE=$more "${launcher[@]}" -n 2 ./as.sh "$wf" verify "${args[@]}" --mesh space=2 >out 2>err &&
        fail "'$more' on one rank only"
    says "rank 1: started with " "rank 0 with " "give all ranks the same command line"
    soon "$at"
done

# NaN in the window of one rank. (Where a run begins, rank 0 would meet it first, measuring the images.)
python3 - <<'PYTHON'
import array, os, struct
def save(path, kind, shape, values):
    head = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, shape)).encode()
    head += b" " * (-(11 + len(head)) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head + values.tobytes())
for folder in ("set/images", "set/masks"):
    os.makedirs(folder, exist_ok=True)
for i in range(3):
    pixels = array.array("f", ((k * 37 + i) % 101 / 100 for k in range(64 * 64 * 3)))
    save(f"set/images/{i}.npy", "<f4", (64, 64, 3), pixels)
    save(f"set/masks/{i}.npy", "|u1", (64, 64), array.array("B", (pixels[3 * k] > 0.5 for k in range(64 * 64))))
PYTHON
train=(train model.name=unet model.base=4 model.depth=1 data.path=set data.threads=0 train.batch=1
    --mesh space=2x2 --quiet --out run)
launched 0 4 "${train[@]}" train.epochs=1 --json
# Each rank has read its own quarter and its halo.
json 'len(j["per_rank"]) == 4 and all(0 < r["read_bytes"] < 0.7 * 3 * 64 * 64 * 13 for r in j["per_rank"])'
json 'all(r["used_bytes"] == r["planned_bytes"] < r["process_bytes"] for r in j["per_rank"])'
python3 - <<'PYTHON'
for i in range(3):
    with open(f"set/images/{i}.npy", "r+b") as file:
        file.seek(-4 * (3 * 64 * 2 + 9), 2) # row 61, column 61, channel 0: in the last quarter
        file.write(b"\0\0\xc0\x7f")
PYTHON
at=$SECONDS
launched 1 4 "${train[@]}" train.epochs=2 --resume auto --changed-data
says "rank 3: " "NaN at plane 0, row 61, column 61" "give such pixels a number"
soon "$at"

# a file that one rank cannot read to its end
truncate -s -2000 set/images/0.npy
at=$SECONDS
launched 1 4 "${train[@]}" train.epochs=2 --resume auto --changed-data
says "set/images/0.npy" "copy it again"
soon "$at"

# a disk that is full for one rank (shared memory of MPI has files too: without it)
if [[ $MPIRUN == *oversubscribe* ]]; then
    expect 0 data synth nuclei --out big --count 1 --size 400x500 --quiet
    at=$SECONDS
    ODD=1 LIMIT=64 PMIX_MCA_gds=hash "${launcher[@]}" --mca btl tcp,self -n 2 ./as.sh "$wf" \
        predict run big/images/* --out full --probabilities --window 64 --quiet >out 2>err &&
        fail "a full disk"
    says "rank 1: cannot write 'full/nuclei_00000_probabilities.tif': File too large"
    soon "$at"
    [ -z "$(ls -A full)" ] || fail "something is left of a failed prediction"
fi

# a rank without memory, while MPI starts and after that
if ! ldd "$wf" | grep -qE 'lib(a|t|ub)san'; then
    "${CC:-cc}" -O1 -shared -fPIC -o faults.so "$SOURCE_DIR/tests/campaign/faults.c" -ldl -pthread
    ODD=1 FAULT=memory:0 FAULTS_COUNT=$PWD/counts "${launcher[@]}" -n 2 ./as.sh "$wf" verify "${args[@]}" \
        --mesh space=2 >out 2>err
    for call in 1000 $(($(sed -n 's/memory //p' counts) - 1000)); do
        got=0 at=$SECONDS
        ODD=1 FAULT=memory:$call+ "${launcher[@]}" -n 2 ./as.sh "$wf" verify "${args[@]}" --mesh space=2 \
            >out 2>err || got=$?
        [ "$got" -eq 3 ] || fail "no memory on one rank ended with $got, expected 3"
        says "out of memory: " "more ranks"
        soon "$at"
    done
    says "widefield: error: rank 1: out of memory"
fi

# a rank that is killed
expect 0 data synth nuclei --out many --count 4 --size 200x200 --quiet
"${launcher[@]}" -n 3 "$wf" train model.name=unet model.base=4 data.path=many train.epochs=1000 \
    train.validate_every=1000 --mesh space=3x1 --out killed --quiet >out 2>err &
job=$!
appears '"event":"step"' killed/log.jsonl
victim=$(pgrep -P "$(pgrep -P "$job" -x orted || echo "$job")" -n -x widefield || pgrep -P "$job" -n || true)
[ -n "$victim" ] || fail "no rank to kill"
at=$SECONDS
kill -9 "$victim"
wait "$job" && fail "a killed rank, but the exit status is 0"
[ $((SECONDS - at)) -le "$stop_seconds" ] || fail "it took $((SECONDS - at)) s to stop after a kill"
