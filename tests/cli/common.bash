# Sourced by every test here. Environment: WIDEFIELD (the command), WORKDIR (a private scratch folder),
# SOURCE_DIR. A test stops at the first failure and prints it.
set -euo pipefail
cd "$WORKDIR"
wf=$WIDEFIELD
# Settings of the user's environment must not change the tests.
for name in $(compgen -e | grep '^WIDEFIELD_' || true); do unset "$name"; done

fail() {
    echo "FAILED: $*" >&2
    [ -s out ] && sed 's/^/  stdout: /' out >&2
    [ -s err ] && sed 's/^/  stderr: /' err >&2
    exit 1
}

# skip WHY: for ctest, the test was not run, or not all of it.
skip() {
    echo "skipped: $*"
    exit 77
}

# expect STATUS ARGUMENTS...: runs the command; its output is in the files out and err.
expect() {
    local want=$1 got=0
    shift
    "$wf" "$@" >out 2>err || got=$?
    [ "$got" -eq "$want" ] || fail "'widefield $*' ended with $got, expected $want"
}

# says TEXT...: stderr holds each of them.
says() {
    local text
    for text in "$@"; do
        grep -qF -- "$text" err || fail "stderr does not say '$text'"
    done
}

prints() {
    local text
    for text in "$@"; do
        grep -qF -- "$text" out || fail "stdout does not say '$text'"
    done
}

# refused STATUS ARGUMENTS... -- TEXT...: fails so, says so, prints no data.
refused() {
    local status=$1 args=()
    shift
    while [ "$1" != -- ]; do
        args+=("$1")
        shift
    done
    shift
    expect "$status" "${args[@]}"
    says "widefield: error: " "$@"
    [ ! -s out ] || fail "an error, but stdout is not empty"
}

# json EXPRESSION: stdout is exactly one JSON value j, and the Python expression is true of it.
json() {
    python3 -S - "$1" <<'PYTHON' || fail "not true of the JSON: $1"
import json, sys
with open("out") as file:
    text = file.read()
assert text.count("\n") == 1 and text.endswith("\n"), "one line"
j = json.loads(text)
sys.exit(0 if eval(sys.argv[1]) else 1)
PYTHON
}

# last_line EXPRESSION: the last line of stdout is JSON j, and the expression is true of it.
last_line() {
    tail -n 1 out >line
    python3 -S -c 'import json, sys; j = json.load(open("line")); sys.exit(0 if eval(sys.argv[1]) else 1)' "$1" ||
        fail "not true of the last line: $1"
}

# events EXPRESSION RUN: of the lines of log.jsonl as list e, and of the steps among them as s.
events() {
    python3 -S -c 'import json, sys
e = [json.loads(line) for line in open(sys.argv[2] + "/log.jsonl")]
s = [x for x in e if x["event"] == "step"]
sys.exit(0 if eval(sys.argv[1]) else 1)' "$1" "$2" || fail "not true of $2/log.jsonl: $1"
}

# appears TEXT FILE: waits until a line holds it; for what runs in the background.
appears() {
    local at=$SECONDS
    until grep -qsF -- "$1" "$2"; do
        [ $((SECONDS - at)) -le 60 ] || fail "no '$1' in '$2' after a minute"
        sleep 0.1
    done
}

# compare_weights RUN RUN: prints "same" when the tensors of their last checkpoints (weights, states and
# optimiser) are equal to the bit, otherwise "other".
compare_weights() {
    python3 -S - "$1" "$2" <<'PYTHON' || fail "no checkpoints of '$1' and '$2' to compare"
import json, sys
def tensors(run):
    with open(run + "/checkpoints/last.safetensors", "rb") as file:
        raw = file.read()
    size = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + size])
    data = raw[8 + size:]
    assert len(head) > 1, "tensors"
    return {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])]) for k, v in head.items() if k != "__metadata__"}
print("same" if tensors(sys.argv[1]) == tensors(sys.argv[2]) else "other")
PYTHON
}
same_weights() { [ "$(compare_weights "$1" "$2")" = same ] || fail "the weights of '$1' and '$2' differ"; }
other_weights() { [ "$(compare_weights "$1" "$2")" = other ] || fail "the weights of '$1' and '$2' do not differ"; }
