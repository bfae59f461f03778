# Files that the command generates from its own tables: manual page, config.md, completions.
. "$SOURCE_DIR/tests/cli/common.bash"

for verb in docs networks man bash zsh fish; do
    expect 0 config $verb
    prints "Made by 'widefield config $verb'"
    [ ! -s err ] || fail "'config $verb' prints on stderr"
    refused 2 config $verb --json -- "takes no '--json'"
done
expect 0 config docs
prints '| `optimizer` | `adam` |' '## mesh' '`--seed N`'
grep -vE '^\|.*\|$' out > rest || true
! grep -q '^|' rest || fail "a table row that is not closed"

# Every command and key is in every one of them.
keys=$("$wf" config show --json | python3 -c 'import json,sys; print(*json.load(sys.stdin))')
commands=$("$wf" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
for verb in man bash zsh fish; do
    expect 0 config $verb
    sed 's/\\-/-/g; s/\\f[BIR]//g' out >plain
    for word in $keys $commands; do
        grep -qw -- "$word" plain || fail "'config $verb' does not name '$word'"
    done
done

expect 0 config man
[ "$(head -c 3 out)" = '.\"' ] || fail "the page starts with a comment"
! grep -nE '^\.[^A-Za-z\\]' out || fail "a line that is no request"
if command -v groff >/dev/null; then
    groff -man -ww -z -Tutf8 <out 2>warnings || fail "groff cannot read the page"
    [ ! -s warnings ] || fail "groff warns: $(head -3 warnings)"
fi

# The bash completion, asked as bash asks it.
expect 0 config bash
cp out completion.bash
cat >ask.bash <<'BASH'
. ./completion.bash
compopt() { :; }
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_widefield
printf '%s\n' "${COMPREPLY[@]}"
BASH
offers() { # offers WORD -- TYPED...
    local want=$1
    shift 2
    bash ask.bash "$@" > completed
    grep -qxF -- "$want" completed || fail "'$*' is not completed to '$want': $(bash ask.bash "$@" | tr '\n' ' ')"
}
touch job.yaml 'my job.yaml' models.yaml
offers verify -- widefield ver
offers --explain -- widefield plan --ex
offers --mesh -- widefield plan job.yaml --m
offers list -- widefield model ''
offers schema -- widefield config sch
offers bf16 -- widefield plan --precision b
offers model.base= -- widefield plan job.yaml model.b
offers adam -- widefield plan job.yaml train.optimizer = a
offers adam -- widefield plan job.yaml train.optimizer =
offers job.yaml -- widefield plan ''
offers 'my job.yaml' -- widefield plan 'my'
offers models.yaml -- widefield plan model
for shell in zsh fish; do
    command -v $shell >/dev/null || continue
    "$wf" config $shell >completion.$shell
    $shell -n completion.$shell || fail "$shell cannot read its completion"
done
