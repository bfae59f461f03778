# Digits from fonts: ten classes, fonts held out for testing, domains that differ.
. "$SOURCE_DIR/tests/cli/common.bash"

refused 2 data synth nuclei --out x --domain noise -- "'nuclei' has no domains"
refused 2 data synth nuclei --out x --fonts . -- "not drawn from fonts"
refused 2 data synth digits --out x --domain noisy -- "--domain 'noisy'" "source, noise, inverted, textured"
refused 2 data synth digits --out x --size 8x8 -- "16 to 4096"
refused 2 data synth digits --out x --count 20 -- "at least 60"
[ ! -e x ] || fail "a refused set was begun"

if ! "$wf" data synth digits --out set/source --count 120 --seed 3 --json >out 2>err; then
    for lacks in libfreetype-dev fonts-dejavu-core fonts-liberation libpng-dev; do
        ! grep -qF "'$lacks'" err || skip "no $lacks"
    done
    fail "digits were not drawn"
fi
json 'j["kind"] == "digits" and j["domain"] == "source" and j["count"] == 120 and j["size"] == [32, 32]'
expect 0 data inspect set/source --json
json 'j["format"] == "classes" and j["samples"] == j["good"] == 120 and j["held_out"] == 20 and j["channels"] == 3'
json 'j["largest"] == j["smallest"] == [32, 32] and [c["name"] for c in j["classes"]] == list("0123456789")'
json 'all(c["count"] == 12 for c in j["classes"])'
python3 -S - <<'PY' || fail "a family of fonts is in both parts, or one part has none"
parts = {"train": set(), "test": set()}
for line in open("set/source/fonts.txt"):
    part, family, style, file = line.rstrip("\n").split("\t")
    parts[part].add(family)
assert parts["train"] and parts["test"] and not parts["train"] & parts["test"], parts
PY

# the same seed draws the same; another one other pictures
expect 0 data synth digits --out again --count 120 --seed 3 --quiet
diff -r set/source again || fail "not the same from one seed"
expect 0 data synth digits --out other --count 120 --seed 4 --quiet
! cmp -s set/source/train/3/000003.png other/train/3/000003.png || fail "the seed does nothing"

# domains: the same fonts, other pictures; white on black, coloured, dark on light
for domain in noise inverted textured; do
    expect 0 data synth digits --out set/$domain --count 120 --seed 3 --domain $domain --quiet
    cmp set/source/fonts.txt set/$domain/fonts.txt || fail "$domain has other fonts"
done
mean() { expect 0 data inspect "set/$1" --json; python3 -S -c 'import json; j = json.load(open("out")); print(*j["mean"])'; }
python3 -S - "$(mean source)" "$(mean noise)" "$(mean inverted)" "$(mean textured)" <<'PY' || fail "domains look alike"
import sys
source, noise, inverted, textured = ([float(x) for x in text.split()] for text in sys.argv[1:])
assert max(source) < 60 and max(source) - min(source) < 1e-3, source
assert 80 < min(noise) and max(noise) < 175, noise
assert min(inverted) > 190, inverted
assert 80 < min(textured) and max(textured) < 175, textured
PY

expect 0 data synth digits --out wide --count 60 --size 40x64 --domain textured --quiet
expect 0 data inspect wide --json
json 'j["largest"] == [40, 64]'

# which fonts: none, and a single family
mkdir none
refused 1 data synth digits --out x --fonts none -- "no font with digits in 'none'" "fonts-dejavu-core"
refused 1 data synth digits --out x --fonts nowhere -- "'nowhere'"
one=$(find /usr/share/fonts -name DejaVuSans.ttf | head -n 1)
if [ -n "$one" ]; then
    mkdir single
    cp "$one" single
    echo "no font" >single/broken.ttf
    refused 1 data synth digits --out x --fonts single -- "one family, 'DejaVu Sans'" "--fonts DIR"
fi
[ ! -e x ] || fail "a refused set was begun"
