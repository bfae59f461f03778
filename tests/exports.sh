#!/usr/bin/env bash
# The shared library exports the functions that the public headers declare, no more and no less.
#   exports.sh LIBRARY SOURCE
set -euo pipefail
nm -D --defined-only "$1" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort >exported
# Comments and bodies out; then every NAME( at the start of a declaration's parameters.
cat "$2"/include/*.h | sed 's|//.*||' | tr '\n' ' ' | sed 's|/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/| |g' |
    sed 's/static inline[^}]*}//g; s/typedef[^;]*;//g' | grep -oE '\bwf_[a-z0-9_]+ ?\(' | tr -d ' (' | sort -u >declared
diff declared exported >differ || {
    sed -n 's/^< /declared, but not exported: /p; s/^> /exported, but in no public header: /p' differ
    exit 1
}
echo "exports: $(wc -l <declared) functions"
