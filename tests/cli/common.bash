# Sourced by every test here. Given: WIDEFIELD (the command), WORKDIR (a scratch folder of our own),
# SOURCE_DIR. A test fails on the first thing that is not as it should be, and says what.
set -euo pipefail
cd "$WORKDIR"
wf=$WIDEFIELD
# What the person who runs the tests has set must not change them.
for name in $(compgen -e | grep '^WIDEFIELD_' || true); do unset "$name"; done

fail() {
    echo "FAILED: $*" >&2
    [ -s out ] && sed 's/^/  stdout: /' out >&2
    [ -s err ] && sed 's/^/  stderr: /' err >&2
    exit 1
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
    python3 -m json.tool <out >/dev/null || fail "stdout is not JSON"
    python3 - "$1" <<'PYTHON' || fail "not true of the JSON: $1"
import json, sys
with open("out") as file:
    text = file.read()
assert text.count("\n") == 1 and text.endswith("\n"), "one line"
j = json.loads(text)
sys.exit(0 if eval(sys.argv[1]) else 1)
PYTHON
}
