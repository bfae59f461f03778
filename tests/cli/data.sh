# data synth and data inspect: what they make, what they find, what they refuse.
. "$SOURCE_DIR/tests/cli/common.bash"

expect 0 data synth nuclei --out sets/n --count 3 --size 64x96 --seed 4 --json
json 'j["kind"] == "nuclei" and j["count"] == 3 and j["size"] == [64, 96] and j["classes"] == 2'
[ "$(ls sets/n/images | wc -l)" -eq 3 ] && [ "$(ls sets/n/masks | wc -l)" -eq 3 ] || fail "three of each"
expect 0 data inspect sets/n --json
json 'j["format"] == "folder" and j["samples"] == 3 and j["good"] == 3 and j["channels"] == 3'
json 'j["smallest"] == [64, 96] and j["largest"] == [64, 96] and j["dims"] == 2 and j["labels"] == "pixel"'
json '[c["name"] for c in j["classes"]] == ["background", "nucleus"]'
json 'sum(c["count"] for c in j["classes"]) == j["scanned"] == 3 * 64 * 96 and j["scanned_all"]'
json 'len(j["mean"]) == 3 and all(s > 1 for s in j["std"]) and j["problems"] == []'
expect 0 data inspect sets/n
prints "folder" "64 x 96" "nucleus"

# the same seed draws the same, another one something else
expect 0 data synth nuclei --out again --count 1 --size 64x96 --seed 4 --quiet
cmp -s sets/n/images/nuclei_00000.png again/images/nuclei_00000.png || fail "not the same from one seed"
expect 0 data synth nuclei --out other --count 1 --size 64x96 --seed 5 --quiet
! cmp -s sets/n/images/nuclei_00000.png other/images/nuclei_00000.png || fail "the seed does nothing"

for kind in roads discs; do
    expect 0 data synth $kind --out $kind --count 2 --size 64 --quiet
    expect 0 data inspect $kind --json
    json 'j["good"] == 2 and j["largest"] == [64, 64]'
done
expect 0 data synth vessels3d --out v --count 1 --size 12x30x40 --json
json 'j["size"] == [12, 30, 40]'
expect 0 data inspect v --json
json 'j["dims"] == 3 and j["largest"] == [12, 30, 40] and j["channels"] == 1'

# stains: another look, masks in each, no image in common
for domain in source brown blue inverted; do
    expect 0 data synth tissue --out stains/$domain --domain $domain --count 4 --size 96 --seed 2 --json
    json "j['kind'] == 'tissue' and j['domain'] == '$domain'"
    expect 0 data inspect stains/$domain --json
    json 'j["good"] == 4 and j["labels"] == "pixel" and all(c["count"] > 0 for c in j["classes"])'
    python3 -S -c 'import json; print(*json.load(open("out"))["mean"])' >>means
    md5sum <stains/$domain/masks/tissue_00000.png >>sums
done
[ "$(sort -u sums | wc -l)" -eq 4 ] || fail "domains have the same masks"
python3 -S - <<'PY' || fail "stains look alike"
means = [[float(x) for x in line.split()] for line in open("means")]
far = [max(abs(x - y) for x, y in zip(a, b)) for i, a in enumerate(means) for b in means[:i]]
assert len(far) == 6 and min(far) > 15 and max(means[3]) < 80, means
PY
refused 2 data synth tissue --out x --domain green -- "--domain 'green'" "source, brown, blue, inverted"

# wrong use
refused 2 data -- "data synth KIND" "data inspect PATH"
refused 2 data synth nuclie --out x -- "did you mean 'nuclei'?" "roads"
refused 2 data synth nuclei -- "--out DIR"
refused 2 data synth nuclei --out x --size 12x -- "--size '12x'" "HxW"
refused 2 data synth nuclei --out x --size 4x5x6 -- "HxW"
refused 2 data synth vessels3d --out x --size 5x6 -- "DxHxW"
refused 2 data synth discs --out x --size 32x40 -- "multiples of 32"
refused 2 data synth nuclei --out x --count 0 -- "--count"
refused 2 data synth nuclei --out sets/n -- "folder 'sets/n' exists and is not empty"
refused 2 data inspect -- "one folder"
refused 1 data inspect nowhere -- "cannot read folder 'nowhere'" "No such file"
mkdir empty
refused 1 data inspect empty -- "folder 'empty' is empty" "images"
refused 2 data inspect sets/n data.format=nnnet -- "data.format" "nnunet"
[ ! -e x ] || fail "a refused set was begun"

# a label that classes.txt does not have: file and place, before anything is trained
cp -r sets/n stray
printf 'background 0\nnothing 5\n' >stray/classes.txt
expect 1 data inspect stray --json
json 'len(j["problems"]) == 3 and "stray/masks/nuclei_00000.png" in j["problems"][0]'
json '"value 1 at plane 0, row" in j["problems"][0]'
refused 1 train model.name=unet model.base=2 data.path=stray --out none -- "nuclei_00000.png" "classes.txt"
[ ! -e none ] || fail "a run that was refused left a folder"

# what is wrong with a folder: all of it, and an exit status for scripts
rm sets/n/masks/nuclei_00001.png
cp discs/masks/discs_00000.png sets/n/masks/nuclei_00002.png
expect 1 data inspect sets/n --json
json 'j["good"] == 1 and len(j["problems"]) == 2'
json 'any("has no mask" in p and "sets/n/masks/nuclei_00001.*" in p for p in j["problems"])'
json 'any("64 x 64" in p and "64 x 96" in p for p in j["problems"])'
says "2 problems"
expect 1 data inspect sets/n
prints "problems:" "has no mask"
if [ "$(id -u)" -ne 0 ]; then
    chmod 000 sets/n/images
    refused 1 data inspect sets/n -- "cannot read folder 'sets/n/images'" "Permission denied" "change its rights"
    chmod 700 sets/n/images
fi

# a disk that is full
if (ulimit -f 8) 2>/dev/null; then
    got=0
    (ulimit -f 8; trap '' XFSZ; "$wf" data synth nuclei --out full --count 1 --size 512x512 --quiet) >out 2>err || got=$?
    [ "$got" -eq 1 ] || fail "a full disk ended with $got"
    says "full/images/nuclei_00000.png"
    [ "$(ls full/images | wc -l)" -eq 0 ] || fail "half an image was left behind"
fi
