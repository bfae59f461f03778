# Calibration that is cut off: what it did not reach stays from an older one of the same machine.
. "$SOURCE_DIR/tests/cli/common.bash"

# A place that cannot be written is named before anything is measured, and a number is all of it.
refused 1 check --calibrate --out no/such/figures -- "no/such/figures"
refused 1 check --calibrate --out "$WORKDIR" -- "$WORKDIR"
refused 2 check --calibrate --seconds 9x --out figures -- "9x"
refused 2 check --calibrate --seconds 0 --out figures -- "--seconds"
[ ! -e figures ] || fail "a refused calibration left a file"

# A load that no trial has, and a link of another transport.
odd="kernel 1 conv f32 - 1.235e+04 7 3 5 99 1 1.2e+06 0.0123"
expect 0 check --calibrate --seconds 1 --out figures --json --quiet
json 'j["file"] == "figures" and j["kernels"] > 0 and j["older_kernels"] == 0'
measured=$(grep -c ^kernel figures)
printf '%s\n' "$odd" "link mpi 5e+09 5e-06" >>figures
expect 0 check --calibrate --seconds 1 --out figures --json --quiet
json 'j["older_kernels"] >= 1'
grep -qxF "$odd" figures || fail "an older kernel that was not reached is gone"
grep -q "^link mpi 5e+09" figures || fail "an older link is gone"
[ "$(grep '^kernel' figures | sed 's/ [^ ]* [^ ]*$//' | sort | uniq -d | wc -l)" -eq 0 ] ||
    fail "a load stands there twice"
[ "$(grep -c ^kernel figures)" -gt "$measured" ] || fail "kernels were lost"
expect 0 check --calibrate --seconds 1 --precision bf16 --out figures --quiet
prints "older ones, which this calibration did not reach"
grep -qxF "$odd" figures || fail "a calibration of one type drops the others"

# Another machine's figures, and what is none, are replaced.
sed -i 's/^machine .*/machine another/' figures
expect 0 check --calibrate --seconds 1 --out figures --json --quiet
json 'j["older_kernels"] == 0'
! grep -qxF "$odd" figures || fail "figures of another machine were kept"
echo nonsense >figures
expect 0 check --calibrate --seconds 1 --out figures --json --quiet
json 'j["older_kernels"] == 0'
grep -q "^widefield figures 1" figures || fail "the file holds no figures"

# Killed: the file is as it was, or holds more.
printf '%s\n' "$odd" >>figures
before=$(grep -c ^kernel figures)
timeout -s INT 6 "$wf" check --calibrate --out figures --quiet >out 2>err || true
grep -qxF "$odd" figures || fail "a calibration that was killed drops older figures"
[ "$(grep -c ^kernel figures)" -ge "$before" ] || fail "a calibration that was killed loses kernels"
