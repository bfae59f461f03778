# Calls that fail, memory first of all: a short form of tests/campaign/faults.
. "$SOURCE_DIR/tests/cli/common.bash"
ldd "$wf" | grep -qE 'lib(a|t|ub)san' && exit 0 # a sanitizer has a malloc of its own
unset WORKDIR
faults() {
    "$SOURCE_DIR/tests/campaign/faults" "$@" >out 2>err || fail "tests/campaign/faults $* failed"
    tail -n 1 out
}
faults --class memory,exhausted --scenario train,predict,plan --every 4001
faults --class limit,open,read,stat,map --scenario resume,inspect --every 71
faults --class write,sync,name,thread --scenario train --every 9
