#!/usr/bin/env bash
# 'make install' into an empty prefix, and programs against it, as a user would build them: plain cc, no
# flag of ours. Every header stands alone; both examples build with pkg-config and with CMake's
# find_package, against the shared and the static library, and run.
#   install.sh BUILD SOURCE
set -euo pipefail
build=$1 source=$2
prefix=$PWD/prefix
fail() { echo "FAILED: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$prefix" >install.log 2>&1 || { cat install.log; fail "cmake --install"; }
[ "$("$prefix"/bin/widefield --version | wc -l)" -ge 1 ] || fail "the installed command does not run"
pc=$(find "$prefix" -name widefield.pc)
lib=$(dirname "$(find "$prefix" -name libwidefield.a)")
export PKG_CONFIG_PATH=${pc%/*}${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
read -r -a cflags <<<"$(pkg-config --cflags widefield)"
read -r -a libs <<<"$(pkg-config --libs widefield)"
read -r -a static <<<"$(pkg-config --static --libs widefield)"

headers=0
while read -r header; do
    cc -fsyntax-only -Wall -Wextra -x c "${cflags[@]}" -include "$header" /dev/null 2>err ||
        { cat err; fail "header '${header#"$prefix"/}' does not compile alone"; }
    headers=$((headers + 1))
done < <(find "$prefix/include" -name '*.h')
[ "$headers" -gt 10 ] || fail "$headers headers installed"

export SOURCE_DIR=$source
mkdir run
for example in course train_unet; do
    file=$source/examples/$example.c
    if [ -e "$lib/libwidefield.so" ]; then
        cc "$file" -o "$example.shared" "${cflags[@]}" "${libs[@]}" "-Wl,-rpath,$lib" -lm
        (cd run && "../$example.shared" >out) || fail "$example, shared"
    fi
    cc "$file" -o "$example.static" "${cflags[@]}" "${static[@]/#-lwidefield/-l:libwidefield.a}"
    (cd run && "../$example.static" >out) || fail "$example, static"
done

mkdir project
cat >project/CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.20)
project(user C)
find_package(widefield REQUIRED)
foreach(example course train_unet)
    add_executable(\${example} $source/examples/\${example}.c)
    target_link_libraries(\${example} PRIVATE widefield::widefield m)
endforeach()
CMAKE
cmake -S project -B project/build -DCMAKE_PREFIX_PATH="$prefix" >cmake.log 2>&1 || { cat cmake.log; fail find_package; }
cmake --build project/build >cmake.log 2>&1 || { cat cmake.log; fail "a project with find_package"; }
(cd run && ../project/build/course >out) || fail "course by CMake"
echo "install: $headers headers, 2 examples, shared and static, pkg-config and CMake"
