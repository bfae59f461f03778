#!/usr/bin/env bash
# 'make install' into an empty prefix, and programs against it, as a user would build them: plain cc and
# c++, no flag of ours. The headers are clean as C11 and C++17; every example builds as both, with
# pkg-config and with CMake's find_package, against the shared and the static library, and runs, also with
# the address sanitizer.
#   install.sh BUILD SOURCE
set -euo pipefail
build=$1 source=$2
prefix=$PWD/prefix
examples=(course train_unet own_network)
strict=(-Wall -Wextra -pedantic -Werror)
fail() { echo "FAILED: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$prefix" >install.log 2>&1 || { cat install.log; fail "cmake --install"; }
[ "$("$prefix"/bin/widefield --version | wc -l)" -ge 1 ] || fail "the installed command does not run"
pc=$(find "$prefix" -name widefield.pc)
lib=$(dirname "$(find "$prefix" -name libwidefield.a)")
export PKG_CONFIG_PATH=${pc%/*}${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
read -r -a cflags <<<"$(pkg-config --cflags widefield)"
read -r -a libs <<<"$(pkg-config --libs widefield)"
read -r -a static <<<"$(pkg-config --static --libs widefield)"

# The public headers, and nothing of src/.
diff <(cd "$prefix/include/widefield" && find . -type f | sort) <(cd "$source/include" && find . -name '*.h' | sort) ||
    fail "the installed headers are not those of include/"
headers=0
for header in "$prefix"/include/widefield/*.h; do
    cc -std=c11 -fsyntax-only "${strict[@]}" -x c "${cflags[@]}" -include "$header" /dev/null ||
        fail "${header##*/} as C11"
    c++ -std=c++17 -fsyntax-only "${strict[@]}" -x c++ "${cflags[@]}" -include "$header" /dev/null ||
        fail "${header##*/} as C++17"
    headers=$((headers + 1))
done

# run NAME PROGRAM
run() { (mkdir -p run && cd run && "../$2" >out 2>err) || { cat run/out run/err; fail "$1"; }; }
for example in "${examples[@]}"; do
    file=$source/examples/$example.c
    for language in "c c11 cc" "c++ c++17 c++"; do
        read -r kind std compiler <<<"$language"
        build_one() { "$compiler" -x "$kind" -std="$std" "${strict[@]}" "${cflags[@]}" "$file" -x none "$@" -lm; }
        if [ -e "$lib/libwidefield.so" ]; then
            build_one -o "$example.$std" "${libs[@]}" "-Wl,-rpath,$lib"
            run "$example, $std, shared" "$example.$std"
        fi
        build_one -o "$example.$std.static" "${static[@]/#-lwidefield/-l:libwidefield.a}"
        run "$example, $std, static" "$example.$std.static"
    done
    cc -std=c11 -g -fsanitize=address "${cflags[@]}" "$file" -o "$example.asan" \
        "${static[@]/#-lwidefield/-l:libwidefield.a}" -lm
    run "$example, address sanitizer" "$example.asan"
done

mkdir project
cat >project/CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.20)
project(user C CXX)
find_package(widefield REQUIRED)
foreach(example ${examples[*]})
    foreach(library widefield static)
        add_executable(\${example}_\${library} $source/examples/\${example}.c)
        target_link_libraries(\${example}_\${library} PRIVATE widefield::\${library} m)
        configure_file($source/examples/\${example}.c \${CMAKE_BINARY_DIR}/\${example}.cpp COPYONLY)
        add_executable(\${example}_\${library}_cxx \${CMAKE_BINARY_DIR}/\${example}.cpp)
        target_link_libraries(\${example}_\${library}_cxx PRIVATE widefield::\${library} m)
    endforeach()
endforeach()
CMAKE
cmake -S project -B project/build -DCMAKE_PREFIX_PATH="$prefix" >cmake.log 2>&1 || { cat cmake.log; fail find_package; }
cmake --build project/build >cmake.log 2>&1 || { cat cmake.log; fail "a project with find_package"; }
for program in project/build/*_widefield project/build/*_static_cxx; do
    run "${program##*/} by CMake" "$program"
done
echo "install: $headers headers, ${#examples[@]} examples, C11 and C++17, shared and static, pkg-config and CMake"
