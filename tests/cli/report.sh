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

# Well-formed, nothing from elsewhere, and the policy names the script that is there.
cat >look.py <<'PYTHON'
import base64, hashlib, html.parser, re, sys
VOID = {"meta", "link", "img", "path", "br"}
LOOSE = {"td", "th", "tr"}

class Look(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.scripts = [], [], 0
    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        for name in ("src", "href"):
            if attrs.get(name) is not None:
                assert attrs[name].startswith(("data:", "#")), attrs[name][:80]
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.scripts += tag == "script"
        if tag not in VOID | LOOSE:
            self.open.append(tag)
    def handle_endtag(self, tag):
        if tag not in VOID | LOOSE:
            assert self.open and self.open.pop() == tag, (tag, self.getpos())

text = open(sys.argv[1], encoding="utf-8").read()
look = Look()
look.feed(text)
assert look.open == [] and look.scripts == 1, (look.open, look.scripts)
assert len(set(look.ids)) == len(look.ids)
for name in ("curves", "classes", "samples", "memory", "time", "setup"):
    assert name in look.ids, name
script = re.search("<script>(.*)</script>", text, re.S)[1]
digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
assert f"script-src 'sha256-{digest}'" in text, digest
assert len(text) < 5_000_000
PYTHON
python3 look.py run/report.html || fail "the report is not well-formed"
for kind in classification hostile; do
    make_run $kind --kind $kind --samples 2 --side 16
    expect 0 report $kind
    python3 look.py $kind/report.html || fail "the report of '$kind' is not well-formed"
done
! grep -q 'root:x:' hostile/report.html || fail "a file from elsewhere is in the report"
make_run cut --cut --samples 1 --side 16
expect 0 report cut
python3 look.py cut/report.html || fail "the report of a cut log is not well-formed"
grep -q '>unfinished<' cut/report.html || fail "a cut log is unfinished"

refused 2 report -- "'report' takes one run folder"
refused 2 report run cut -- "'report' takes one run folder"
refused 1 report nowhere -- "'nowhere'" "No such file"
mkdir bare
refused 1 report bare -- "'bare' is no run folder" "log.jsonl" "widefield train"
if [ "$(id -u)" -ne 0 ]; then
    chmod a-w run
    refused 1 report run -- "run/report.html" "Permission denied"
    chmod u+w run
fi
