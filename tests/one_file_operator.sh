#!/usr/bin/env bash
# Adding an operator is adding one file: the example of docs/operators.md goes into a copy of the tree as it
# stands on the page. The generic tests then find it by themselves.
#   one_file_operator.sh SOURCE BUILD_TYPE
set -euo pipefail
source=$1 type=$2
name=central_difference
fail() { echo "FAILED: $*" >&2; exit 1; }

mkdir tree
for part in CMakeLists.txt cmake include share src tests; do
    cp -r "$source/$part" tree/
done
awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$source/docs/operators.md" \
    >"tree/src/ops/$name.c"
[ -s "tree/src/ops/$name.c" ] || fail "docs/operators.md has no example"

# Objects of an earlier run come from ccache, wherever the copy lies.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
cmake -S tree -B build -DCMAKE_BUILD_TYPE="$type" -DWF_COMMAND=OFF -DWF_SHARED=OFF -DWF_WERROR=ON \
    >configure.log 2>&1 || { cat configure.log; fail "cmake"; }
cmake --build build --parallel 2 --target test_ops_reference test_cut test_graph test_random_graphs \
    >build.log 2>&1 || { tail -30 build.log; fail "build"; }
grep -q "wf_op_$name," build/generated/ops_table.c || fail "it is not in the table"

export WF_RANDOM_OP=$name WF_RANDOM_GRAPHS=40
for test in ops_reference cut graph random_graphs; do
    "build/tests/test_$test" >"$test.log" 2>&1 || { tail -30 "$test.log"; fail "$test"; }
done

# The tests do look at it: with the wrong sign of the gradient they fail.
sed -i 's/a.factor = -a.factor;/a.factor = +a.factor;/' "tree/src/ops/$name.c"
cmake --build build --target test_ops_reference >build.log 2>&1 || { tail -30 build.log; fail "build"; }
! build/tests/test_ops_reference >wrong.log 2>&1 || fail "a wrong gradient passes"
grep -q "^^ $name" wrong.log || fail "another operator was found wrong"
