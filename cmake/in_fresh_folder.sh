#!/usr/bin/env bash
# in_fresh_folder.sh FOLDER COMMAND...: runs COMMAND in FOLDER, emptied first.
set -eu
folder=$1
shift
case $folder in
*/scratch/*) rm -rf -- "$folder" ;;
*) echo "in_fresh_folder.sh: '$folder' is not under a scratch folder" >&2; exit 1 ;;
esac
mkdir -p -- "$folder"
cd -- "$folder"
exec "$@"
