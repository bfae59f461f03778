# Under a launcher: its ranks, one voice.
. "$SOURCE_DIR/tests/cli/common.bash"
if [ -z "${MPIRUN:-}" ]; then
    echo "no mpirun here: nothing to test"
    exit 0
fi
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

# the same weights come out, whoever carries the ranks
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

launched 3 2 verify "${args[@]}" --mesh space=2x2
[ "$(grep -c 'widefield: error: ' err)" -eq 1 ] || fail "one rank speaks"
says "space=2x2"
launched 2 2 verify "${args[@]}" model.bsae=3
[ "$(grep -c 'widefield: error: ' err)" -eq 1 ] || fail "one rank speaks"
launched 1 2 verify "${args[@]}" --mesh space=2 --tolerance 0
