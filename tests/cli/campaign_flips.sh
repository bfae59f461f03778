# Damaged checkpoints: a short form of tests/campaign/flips.
. "$SOURCE_DIR/tests/cli/common.bash"
unset WORKDIR
"$SOURCE_DIR/tests/campaign/flips" 20 1 >out 2>err || fail "tests/campaign/flips failed"
tail -n 1 out
