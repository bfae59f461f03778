#!/usr/bin/env bash
# What is opened at run time is not asked for at the start.
#   needed.sh FILE...
set -euo pipefail
for file in "$@"; do
    [ -e "$file" ] || { echo "FAILED: no '$file'"; exit 1; }
    if readelf -d "$file" | grep -E 'NEEDED.*lib(mpi|open-|cuda|cudart|cudnn|cublas|nccl)'; then
        echo "FAILED: '$file' needs these to start"
        exit 1
    fi
done
echo "needed: $# files"
