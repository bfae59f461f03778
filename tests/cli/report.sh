# The report of a made-up run: written again, whole, safe, small.
. "$SOURCE_DIR/tests/cli/common.bash"
make_run() { python3 "$SOURCE_DIR/tests/fixtures/make_run.py" "$@"; }

make_run run --samples 2 --side 32
expect 0 report run
[ "$(cat out)" = run/report.html ] || fail "prints the path"
[ ! -s err ] || fail "output on stderr"
cp run/report.html first.html
expect 0 report run/ --json
json 'j == {"report": "run/report.html"}'
cmp -s run/report.html first.html || fail "the same log gives the same report"
[ "$(ls run/events.out.tfevents.* | wc -l)" -eq 1 ] || fail "one event file"

# Well-formed, nothing from elsewhere, and the policy names the script that is there. What the script draws
# is in one JSON block.
cat >look.py <<'PYTHON'
import base64, hashlib, html.parser, json, re, sys
VOID = {"meta", "link", "img", "br"}

class Look(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.scripts = [], [], []
    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        for name in ("src", "href"):
            if attrs.get(name) is not None:
                assert attrs[name].startswith(("data:", "#")), attrs[name][:80]
        if tag == "script":
            self.scripts.append([attrs, ""])
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)
    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open and self.open.pop() == tag, (tag, self.getpos())
    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data

text = open(sys.argv[1], encoding="utf-8").read()
look = Look()
look.feed(text)
assert look.open == [] and len(look.scripts) == 2 and look.seen.count("noscript") == 1
(attrs, data), (other, script) = look.scripts
assert attrs == {"type": "application/json", "id": "run"} and other == {}, (attrs, other)
assert not re.search("[<>&\u2028\u2029]", data)
digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
assert f"script-src 'sha256-{digest}'" in text, digest
for name in ("curves", "classes", "samples", "memory", "time", "setup"):
    assert f'section("{name}", ' in script, name
assert len(text) < 5_000_000
run = json.loads(data)
names = ("version", "name", "state", "figures", "facts", "steps", "epochs", "epoch_rows", "n_epochs", "best_epoch",
         "classes", "n_classes", "confusion_epoch", "n_ranks", "samples", "n_samples", "resumed")
assert all(name in run for name in names), run.keys()
for group in ("steps", "epochs"):
    for curve in run[group].values():
        assert len(curve["x"]) == len(curve["y"]) <= 720 and curve["x"] == sorted(curve["x"])
for figure in ("mean_iou", "accuracy", "train_loss", "val_loss"):
    if figure in run["figures"]:
        assert f"<td>{figure}</td><td>{run['figures'][figure]:.6g}</td>" in text
assert eval(sys.argv[2], {"run": run, "len": len, "abs": abs}), sys.argv[2]
PYTHON
looks() { python3 look.py "$@" || fail "the report '$1' is not what it should be: $2"; }
looks run/report.html 'run["state"] == "done" and "bad_losses" not in run["figures"] and run["name"] == "run" and len(run["samples"]) == 2'
looks run/report.html '[e["epoch"] for e in run["epoch_rows"]] == list(range(1, 13)) and len(run["steps"]["loss"]["y"]) == 480'
looks run/report.html 'all(s[k].startswith("data:image/png;base64,") for s in run["samples"] for k in ("image", "label", "prediction"))'
looks run/report.html 'len(run["ranks"]) == 4 and run["ranks"][2]["used_bytes"] - run["ranks"][2]["planned_bytes"] == 4096'
for kind in classification hostile; do
    make_run $kind --kind $kind --samples 2 --side 16
    expect 0 report $kind
done
looks classification/report.html 'len(run["confusion"]) == 5 == len(run["confusion"][0]) and run["classes"][3] == "cat"'
looks hostile/report.html 'run["classes"][1] == run["facts"]["model"] == "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"\u0027 & "'
looks hostile/report.html '"image" in run["samples"][0] and "label" not in run["samples"][0] and "prediction" not in run["samples"][0]'
looks hostile/report.html 'run["figures"]["bad_losses"] == 9 and run["classes"][2] == "\\x01\\x02 control"'
! grep -q 'root:x:' hostile/report.html || fail "a file from elsewhere is in the report"
make_run cut --cut --samples 1 --side 16
expect 0 report cut
looks cut/report.html 'run["state"] == "unfinished" and run["samples"] == []'
# Where there is an engine for it, the script is run on a document that is only as much as it needs.
if command -v node >/dev/null; then
    for at in run classification hostile cut; do
        node "$SOURCE_DIR/tests/fixtures/draw_report.js" $at/report.html >$at.txt || fail "the script fails on '$at'"
    done
    grep -q '^tile: Mean IoU 0.8784 validation, epoch 11$' run.txt || fail "the figures are not drawn"
    grep -q '^tile: Training time 3 min 480 steps, 12 epochs$' run.txt || fail "the time is not drawn"
    [ "$(grep -c '^path.line' run.txt)" -eq 11 ] || fail "curves are missing"
    grep -q '^p: The loss was not a finite number in 9 of 480 logged steps, first in step 50: try' hostile.txt || fail "no alert"
    # shares of a row, recall and precision: 30 of 40 cats, 30 of 50 that were taken for one
    mkdir pets
    printf '%s\n' '{"event":"start","classes":["cat","dog"],"palette":["red;background:url(//x)","#1234ff"]}' \
        '{"event":"step","step":1,"loss":0.5,"ms":100,"compute_ms":70,"comm_ms":20,"input_ms":5}' \
        '{"event":"epoch","epoch":1,"step":1,"staleness":[3,1]}' \
        '{"event":"confusion","counts":[[30,10],[20,60]]}' >pets/log.jsonl
    expect 0 report pets
    node "$SOURCE_DIR/tests/fixtures/draw_report.js" pets/report.html >pets.txt || fail "the script fails on 'pets'"
    for row in 'tr: cat 75.0% 30 25.0% 10' 'tr: cat 0.750 0.600' 'tr: mean 0.750 0.729' 'tr: 1 1 25.0%' \
        'stack: compute 70.0 ms 70.0% communication 20.0 ms 20.0% input 5.00 ms 5.0% other 5.00 ms 5.0%' \
        'style: background:#1234ff'; do
        grep -qxF "$row" pets.txt || fail "'$row' is not drawn"
    done
    ! grep -q 'red' pets.txt || fail "a colour that is none is drawn"
fi

refused 2 report -- "'report' takes one run folder"
refused 2 report run cut -- "'report' takes one run folder"
refused 1 report nowhere -- "'nowhere'" "No such file or directory: check the path"
mkdir bare
refused 1 report bare -- "'bare' is no run folder" "log.jsonl" "widefield train"
if [ "$(id -u)" -ne 0 ]; then
    chmod a-w run
    refused 1 report run -- "run/report.html" "Permission denied"
    chmod u+w run
fi
