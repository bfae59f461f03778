# Runs that must not be lost: locks, damaged and unreadable checkpoints, damaged logs, runs that learn nothing.
. "$SOURCE_DIR/tests/cli/common.bash"
source_dir=$SOURCE_DIR
. "$SOURCE_DIR/tests/campaign/disk.bash"
cp "$SOURCE_DIR/tests/cli/pictures.py" .
python3 pictures.py set 8 24 24
cat >a.yaml <<'YAML'
model: { name: unet, base: 2, depth: 1 }
data: { path: set, crop: [16, 16], validation: 0.25 }
train: { epochs: 3, batch: 2, lr: 1e-2, samples: 0, checkpoint_seconds: 0 }
YAML
flip() { # FILE OFFSET-FROM-END: one bit; not in place, for names may share a file
    python3 -S - "$@" <<'PYTHON'
import os, sys
path, at = sys.argv[1], int(sys.argv[2])
raw = bytearray(open(path, "rb").read())
raw[-at] ^= 4
os.unlink(path)
open(path, "wb").write(raw)
PYTHON
}
expect 0 train a.yaml --out whole --quiet

# --- one process in a folder; a killed one does not keep it ---
"$wf" train a.yaml train.epochs=100000 --out busy >busy.out 2>busy.err &
pid=$!
appears '"event":"step"' busy/log.jsonl
for how in "--resume auto --out busy" "--resume busy" "--resume busy/checkpoints/last.safetensors"; do
    [ -e busy/checkpoints/last.safetensors ] || appears '"epoch":2' busy/log.jsonl
    refused 1 train a.yaml $how -- "another process works in this folder" "process $pid" "since 20" "give another --out"
done
kill -9 $pid
wait $pid 2>/dev/null || true
[ -e busy/lock ] || fail "no lock to find"
: >busy/.report.html.00000000-00000000-1-0.partial
touch -d '2 days ago' busy/.report.html.00000000-00000000-1-0.partial
: >busy/checkpoints/.last.safetensors.1-0.partial
expect 0 train a.yaml train.epochs=1 --resume auto --out busy
says "ended without giving back" "has done its"
[ -z "$(find busy -name '*.partial')" ] || fail "half-written files are still there"
[ ! -e busy/lock ] || fail "a lock is left"

# --- the last is damaged: the one before is kept until there is a new one ---
for damage in last "last previous"; do
    rm -rf hurt
    cp -r whole hurt
    for name in $damage; do flip hurt/checkpoints/$name.safetensors 40; done
    cp hurt/checkpoints/previous.safetensors previous
    [ "$damage" != last ] || rm hurt/checkpoints/best.safetensors
    got=0
    (ulimit -f 8; trap '' XFSZ; exec "$wf" train --resume hurt train.epochs=4) >out 2>err || got=$?
    [ $got -eq 1 ] || fail "a full disk ended it with $got, expected 1"
    says "warning" "damaged" "going on from" "File too large"
    cmp -s previous hurt/checkpoints/previous.safetensors || fail "the checkpoint before is another"
    expect 0 train --resume hurt train.epochs=3
    same_weights hurt whole
done
says "going on from the best"

# --- what cannot be read now is neither absent nor damaged ---
if has_disk; then
    cp -r whole kept
    before=$(cat kept/log.jsonl kept/checkpoints/* kept/config.yaml | cksum)
    for fault in stat:last.safetensors:5 open:last.safetensors:24 open:last.safetensors:12 read:last.safetensors:5 \
        stat:kept:5 stat:checkpoints/last:116; do
        got=0
        DISK_FAULT=$fault disk "$wf" train a.yaml train.epochs=4 --resume auto --out kept >out 2>err || got=$?
        [ $got -eq 1 ] || fail "$fault ended it with $got, expected 1"
        says "widefield: error: "
        [ "$before" = "$(cat kept/log.jsonl kept/checkpoints/* kept/config.yaml | cksum)" ] || fail "$fault changed the run"
    done
    for fault in stat:images/s03:5 stat:masks:5 opendir:masks:5 stat:classes.txt:5 open:images/s03:24; do
        got=0
        DISK_FAULT=$fault disk "$wf" train a.yaml --out w >out 2>err || got=$?
        [ $got -eq 1 ] || fail "$fault ended it with $got, expected 1"
        says "cannot"
        [ ! -e w ] || fail "a folder was made for a run that could not start"
    done
    got=0
    DISK_FAULT=stat:checkpoints:5 disk "$wf" train a.yaml --resume whole >out 2>err || got=$?
    [ $got -eq 1 ] || fail "a run that cannot be read: $got"
fi
cp -r set linked
rm linked/images/s03.png
ln -s gone.png linked/images/s03.png
refused 1 train a.yaml data.path=linked --out w -- "linked/images/s03.png" "is a link to a file that does not exist"

# --- damaged weights are not taken for good ones ---
cp whole/checkpoints/last.safetensors hurt.safetensors
flip hurt.safetensors 40
refused 1 train a.yaml model.weights=hurt.safetensors --out w -- "hurt.safetensors" "does not match its checksum"
refused 1 predict hurt.safetensors set/images/s00.png --out p -- "hurt.safetensors" "does not match its checksum"
expect 0 train a.yaml model.weights=whole/checkpoints/last.safetensors train.epochs=1 --out tuned --quiet

# --- a damaged log: reported, kept, and in the report ---
damage_log() { # PYTHON: changes the list of lines
    rm -rf logged
    cp -r whole logged
    python3 -S -c 'import sys
lines = open("logged/log.jsonl", "rb").read().split(b"\n")
exec(sys.argv[1])
open("logged/log.jsonl", "wb").write(b"\n".join(lines))' "$1"
    cp logged/log.jsonl log.before
    expect 0 train --resume logged train.epochs=4
}
damage_log 'a, b = [i for i, line in enumerate(lines) if b"\"step\"," in line][:2]; lines[a] = b"\0" * 100; lines[b] = b"[" + lines[b][1:]'
says "warning" "logged/log.jsonl' is damaged (unreadable lines: 2, missing epochs: 0)" "kept as 'logged/log.jsonl.damaged'"
cmp -s log.before logged/log.jsonl.damaged || fail "the damaged log is not kept as it was"
events '[x["lines"] for x in e if x["event"] == "damaged"] == [2]' logged
grep -q '"lost_lines":2,' logged/report.html || fail "the report does not say what is lost"
expect 0 train --resume logged train.epochs=5 # said once
! grep -q "is damaged" err || fail "the same damage is reported twice"
damage_log 'del lines[3:]; lines.append(b"")'
says "unreadable lines: 0, missing epochs: 3"
damage_log 'lines[1] = lines[1].replace(b"event", b"evfnt")'
says "unreadable lines: 1"
rm -rf logged
cp -r whole logged
rm logged/log.jsonl
expect 0 train --resume logged train.epochs=4
says "'logged/log.jsonl' is gone"
rm -rf logged && cp -r whole logged && rm logged/log.jsonl && ln -s ../foreign.jsonl logged/log.jsonl
refused 1 train --resume logged train.epochs=4 -- "logged/log.jsonl"
[ ! -e foreign.jsonl ] || fail "a link in the run folder was followed"
# the tail that a kill cuts off is no damage
rm -rf logged && cp -r whole logged && printf '{"event":"st' >>logged/log.jsonl
expect 0 train --resume logged train.epochs=4
! grep -q "is damaged" err || fail "a line that was cut off is called damage"

# --- another dataset than the checkpoint's ---
cp -r set other
cp -r whole moved
expect 0 train --resume moved train.epochs=4 data.path=other # the same elsewhere
! grep -q "not the dataset" err || fail "a dataset that was moved is called another"
cp other/images/s00.png other/images/s05.png
refused 2 train --resume moved train.epochs=5 data.path=other -- "'other' is not the dataset that" "8 samples, 8 then" \
    "differs is 's05'" "--changed-data"
expect 0 train --resume moved train.epochs=5 data.path=other --changed-data
says "warning" "'other' is not the dataset that" "the run goes on"
rm other/images/s07.png other/masks/s07.png
refused 2 train --resume moved train.epochs=6 data.path=other -- "7 samples, 8 then" "samples at its end are gone"
refused 2 train --resume whole train.epochs=6 data.path=other -- "7 samples, 8 then" "differs is 's05'"

# --- a run that learns nothing is no success, on any mesh ---
for mesh in space=1 data=2; do
    rm -rf bad
    refused 1 train a.yaml train.lr=1e6 train.optimizer=sgd train.epochs=4 --mesh $mesh --out bad --quiet -- "train.lr"
    python3 - <<'PYTHON' || fail "a checkpoint holds numbers that are not finite"
import glob, json, math, struct
for path in glob.glob("bad/checkpoints/*.safetensors"):
    raw = open(path, "rb").read()
    data = raw[8 + int.from_bytes(raw[:8], "little"):]
    assert all(map(math.isfinite, struct.unpack(f"<{len(data) // 4}f", data))), path
PYTHON
done

# --- the epoch of the closing table and the report ---
expect 0 train a.yaml train.epochs=6 train.lr=0.3 train.optimizer=sgd train.seed=3 --out told --quiet
prints "on the validation images after epoch 6, the last"
python3 - <<'PYTHON' || fail "the log or the report mixes epochs"
import json, re
events = [json.loads(line) for line in open("told/log.jsonl")]
best = [e["epoch"] for e in events if e["event"] == "epoch" and e["best"]][-1]
of = {e["epoch"]: e["counts"] for e in events if e["event"] == "confusion"}
assert {best, 6} <= set(of), of.keys()
val = {e["epoch"]: e["val"] for e in events if e["event"] == "epoch"}
for epoch, counts in of.items():
    total = sum(map(sum, counts))
    assert abs(sum(counts[i][i] for i in range(2)) / total - val[epoch]["accuracy"]) < 1e-9, epoch
run = json.loads(re.search('id="run">([^<]*)<', open("told/report.html").read())[1])
assert run["best_epoch"] == run["confusion_epoch"] == best and run["is_best"]
assert run["confusion"] == of[best] and run["scores"]["accuracy"] == val[best]["accuracy"]
end = events[-1]
assert end["best"]["epoch"] == best and abs(end["best"]["mean_iou"] - val[best]["mean_iou"]) < 1e-12
text = open("out").read()
assert ("the last and the best" in text) == (best == 6)
assert (f"the best epoch was {best}, mean IoU" in text) == (best != 6)
PYTHON

# --- a save that ended between the best and the last: the best becomes the last, also at the end of a run ---
expect 0 train a.yaml train.epochs=1 --out cut --quiet
rm -f cut/checkpoints/last.safetensors cut/checkpoints/previous.safetensors
expect 0 train a.yaml train.epochs=1 --out cut --resume auto
says "there is no last checkpoint; going on from the best"
cmp cut/checkpoints/last.safetensors cut/checkpoints/best.safetensors || fail "the best did not become the last"

has_disk || skip "faults of the disk: not with a sanitizer"
