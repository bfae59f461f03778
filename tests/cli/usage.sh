# Commands, flags and help.
. "$SOURCE_DIR/tests/cli/common.bash"

expect 0 --version
prints "widefield "
[ "$(wc -l <out)" -eq 1 ] || fail "--version is one line"
expect 0 --help
for command in data train eval predict plan verify step model bench check report config; do
    prints "  $command "
    expect 0 $command --help
    prints "usage: widefield $command" "--json" "--help"
    expect 0 help $command
    prints "usage: widefield $command"
    expect 0 $command --version
    expect 0 --help
done

expect 2
says "no command given" "usage: widefield"
refused 2 pln x.yaml -- "unknown command 'pln'" "did you mean 'plan'?"
refused 2 verfiy x.yaml -- "did you mean 'verify'?"
refused 2 zzzzzz -- "unknown command 'zzzzzz'" "widefield --help"
refused 2 plan --explan -- "--explan" "did you mean '--explain'?"
refused 2 plan --msh space=2 -- "did you mean '--mesh'?"
refused 2 train a.yaml --epochs 3 -- "did you mean the key 'train.epochs=...'?"
refused 2 plan a.yaml train.epochs:3 -- "one config at a time" "settings are key=value"
refused 2 plan -x -- "unknown option"
refused 2 plan --seed -- "'--seed' needs a value"
refused 2 plan --json=yes -- "'--json' takes no value"
refused 2 plan a.yaml b.yaml -- "one config at a time" "a.yaml" "b.yaml"
refused 2 plan missing.yaml -- "missing.yaml" "No such file"
refused 2 plan "$WORKDIR" -- "cannot read config"
refused 2 check more -- "more"
refused 2 check --seconds 5 -- "'--seconds' is for --calibrate"
refused 2 check --out figures -- "'--out' is for --calibrate"
refused 1 check --calibrate --seconds 1 --out missing/figures -- "missing/figures"
! grep -q calibration err || fail "measured before the file was tried"
refused 2 config -- "show CONFIG" "schema"
refused 2 model -- "list" "show NAME"

expect 0 check
prints "cpu" "oneDNN" "MPI"
expect 0 check --json
json 'j["device"]["cpu"]["available"] is True and j["cores"] >= 1 and "comm" in j'
[ ! -s err ] || fail "check prints on stderr"

# Output that cannot be written is an error.
if [ -e /dev/full ]; then
    got=0
    "$wf" model list >/dev/full 2>err || got=$?
    [ "$got" -eq 1 ] || fail "a full disk ended with $got"
    says "cannot write to stdout"
fi
