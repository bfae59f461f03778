# Untrusted names of files and classes: no control characters reach a terminal, JSON and HTML are valid, and
# symbolic links in an output folder are replaced, never followed.
. "$SOURCE_DIR/tests/cli/common.bash"
cp "$SOURCE_DIR/tests/cli/pictures.py" .
python3 - <<'PYTHON'
import os
from pictures import write_png
evil = "\x1b]0;owned\x07\x1b[2J\x7f\u009b31m\u202etxt"
os.makedirs("set/images"), os.makedirs("set/masks")
for i in range(8):
    name = f"{i}{evil}.png"
    write_png(f"set/images/{name}", 24, 24, 3, bytes(range(192)) * 9)
    write_png(f"set/masks/{name}", 24, 24, 1, bytes([i % 2] * 288 + [1] * 288))
with open("set/classes.txt", "w") as file:
    file.write(f"plain 0\n{evil} 1\n")
os.makedirs("latin/images")
write_png(b"latin/images/caf\xe9\x80.png", 24, 24, 3, bytes(range(192)) * 9)
os.makedirs(f"ru{evil}n")
PYTHON
evil=$(ls -d ru*n)

# clean: nothing that a terminal obeys, and UTF-8 only, in what the last command printed
clean() {
    python3 - <<'PYTHON' || fail "control characters on the terminal"
import sys, unicodedata
for name in "out", "err":
    text = open(name, "rb").read().decode("utf-8")
    bad = [c for c in text if c != "\n" and (unicodedata.category(c) == "Cc" or c in "\u061c\u200e\u200f\u2028\u2029" or
                                             "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069")]
    assert not bad, (name, bad[:5])
PYTHON
}
cat >a.yaml <<'YAML'
model: { name: unet, base: 2, depth: 1 }
data: { path: set, crop: [16, 16], validation: 0.25 }
train: { epochs: 1, batch: 2, samples: 2 }
YAML
expect 0 data inspect set && clean
prints '\x1b]0;owned\x07\x1b[2J\x7f\u009b31m\u202etxt'
expect 0 data inspect set --json && clean
json 'j'
expect 0 train a.yaml --out "$evil/run" && clean
expect 0 train a.yaml --out run --json && clean
last_line 'j["run"] == "run"'
events '"\u202e" in e[0]["classes"][1]' run
LC_ALL=C grep -q $'\x1b\|\xc2\x9b\|\xe2\x80\xae' run/report.html && fail "control characters in the report"
LC_ALL=C grep -q $'\x1b\|\xc2\x9b\|\xe2\x80\xae' run/log.jsonl run/config.yaml && fail "control characters in the log"
for form in "" --json; do
    expect 0 eval run set $form && clean
    expect 0 predict run set/images --out "$evil/p" $form && clean
    expect 0 predict run latin/images --out l $form && clean
done
json 'j'
expect 0 report run && clean
rm set/masks/3*
expect 1 train a.yaml --out w && clean
says 'has no mask' '\x1b]0;owned'
expect 2 train "$(printf 'no\x1b[2Jsuch\xe2\x80\xae.yaml')" && clean
expect 2 train a.yaml "$(printf 'tr\x1b[2Jain.x=1')" && clean

# --- symbolic links where predict writes ---
echo precious >foreign
echo precious >foreign.png
mkdir target out.real
python3 - <<'PYTHON'
from pictures import write_png
write_png("a.png", 24, 24, 3, bytes(range(192)) * 9)
PYTHON
ln -s out.real linked # the folder itself may be a link
expect 0 predict run a.png --out linked --json
files=$(python3 -S -c 'import json; j = json.load(open("out")); print(*[v for v in j.values() if isinstance(v, str) and v.startswith("linked/")])')
[ -n "$files" ] || fail "no files were written"
for file in $files; do
    ln -sf ../foreign "$file"
done
expect 0 predict run a.png --out linked
[ "$(cat foreign)" = precious ] || fail "predict wrote through a link"
for file in $files; do
    [ ! -L "$file" ] || fail "'$file' is still a link"
    [ -s "$file" ] || fail "'$file' is empty"
done
