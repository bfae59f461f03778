# Kills at random moments: a short form of tests/campaign/kills.
. "$SOURCE_DIR/tests/cli/common.bash"
unset WORKDIR
"$SOURCE_DIR/tests/campaign/kills" 10 1 >out 2>err || fail "tests/campaign/kills failed"
tail -n 1 out
