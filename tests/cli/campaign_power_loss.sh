# Disks after a power loss: a short form of tests/campaign/power_loss.
. got=0
"$SOURCE_DIR/tests/campaign/power_loss" 20 1 >out 2>err || got=$?
[ $got -ne 77 ] || skip "$(cat out)"
[ $got -eq 0 ] || fail "tests/campaign/power_loss failed"
tail -n 1 out
