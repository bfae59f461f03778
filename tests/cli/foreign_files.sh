# The short form of tests/campaign/foreign_files: one round. Where Python lacks the writers (numpy, tifffile, imagecodecs,
# nibabel, Pillow) nothing is installed here and the campaign is skipped; tests/fixtures has a file of each kind.
. "$SOURCE_DIR/tests/cli/common.bash"
build=$(dirname "$WIDEFIELD")
PYTHONDONTWRITEBYTECODE=1 "$SOURCE_DIR/tests/campaign/foreign_files" --build "$build" --no-install >out 2>err ||
    fail "foreign files"
! grep -q 'skipped' out || skip "$(cat out)"
tail -1 out
grep -q ' 0 wrong$' out || fail "no summary"
