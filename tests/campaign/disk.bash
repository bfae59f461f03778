# Sourced by tests that need tests/campaign/disk.c: `disk` is then a command that runs another with it, and
# `has_disk` tells whether that is possible (a sanitizer must be loaded first itself).
disk_library=${WORKDIR:-$PWD}/disk.so
has_disk() {
    ldd "$wf" | grep -qE 'lib(a|t|ub)san' && return 1
    [ -e "$disk_library" ] || "${CC:-cc}" -O1 -shared -fPIC -o "$disk_library" "$source_dir/tests/campaign/disk.c" -ldl -pthread
}
disk() { LD_PRELOAD=$disk_library "$@"; }
