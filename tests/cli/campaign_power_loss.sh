# Disks after a power loss: a short form of tests/campaign/power_loss.
. "$SOURCE_DIR/tests/cli/common.bash"
unset WORKDIR
"$SOURCE_DIR/tests/campaign/power_loss" 20 1 >out 2>err || fail "tests/campaign/power_loss failed"
tail -n 1 out
