# A primitive of an external library that computes wrong numbers is found and not used. oneDNN 2.6.3 has
# such in bf16: gradients of 1x1 convolutions with an odd number of channels, at some widths.
. "$SOURCE_DIR/tests/cli/common.bash"
cp "$SOURCE_DIR/tests/cli/tensors.py" .
export XDG_CACHE_HOME=$PWD/cache

odd="model.name=unet model.base=16 model.depth=2 data.size=1,3,128,192 --precision bf16 --mesh space=1x2"
for classes in 2 3 5; do
    expect 0 verify $odd model.classes=$classes --json
    json 'j["grad_rel"] <= 1e-4'
done

# verdicts are kept: nothing is checked a second time; without a file it is checked in every run
if "$wf" check | grep -q 'oneDNN *yes'; then
    [ -s cache/widefield/kernels ] || fail "no verdicts were kept"
    cp cache/widefield/kernels kept
    expect 0 verify $odd model.classes=3 --json
    cmp kept cache/widefield/kernels
    expect 0 check
    prints "primitives checked here: $(grep -c '^oneDNN' kept)," "not used: $(grep -c 'wrong$' kept)"
    # a cached verdict is used: a primitive it rejects does not run, and the plan shows it
    sed -i 's/right$/wrong/' cache/widefield/kernels
    expect 0 plan $odd model.classes=3 --explain
    prints "is wrong)"
    expect 0 check
    prints "not used: $(grep -c 'wrong$' cache/widefield/kernels)"
    expect 0 verify $odd model.classes=3 model.base=4 data.size=1,3,32,48 run.cache=other --json
    [ -s other ] || fail "run.cache was not written"
    # an estimate has no verdicts: where another implementation takes too much scratch, the refusal names it
    small="model.name=unet model.base=16 model.depth=2 data.size=1,3,128,192 --precision bf16 run.cache=verdicts"
    expect 0 step $small memory.limit=12MB
    if grep -q ': jit_bf16:' verdicts; then
        sed -i '/: jit_bf16/s/right$/wrong/' verdicts
        refused 3 step $small memory.limit=12MB -- "memory.limit is 12582912" "(jit_bf16" "is wrong), with"
    fi
fi
expect 0 verify $odd model.classes=3 run.cache= --json

# the gradient in bf16 is that in f32 but for its rounding
rounding() {
    local limit=$1
    shift
    for precision in f32 bf16; do
        expect 0 step "$@" --precision $precision run.cache= --dump $precision.safetensors --quiet
    done
    python3 - "$limit" <<'PYTHON' || fail "bf16 and f32 are apart: $*"
import sys
from tensors import read_safetensors
f32, bf16 = (read_safetensors(n + ".safetensors") for n in ("f32", "bf16"))
names = [n for n in f32 if n.startswith("grad.")]
apart = sum((a - b) ** 2 for n in names for a, b in zip(f32[n][1], bf16[n][1])) ** 0.5
norm = sum(a * a for n in names for a in f32[n][1]) ** 0.5
print("apart by", apart / norm)
sys.exit(apart > float(sys.argv[1]) * norm)
PYTHON
}
rounding 0.15 model.name=unet model.base=16 model.depth=2 model.classes=3 data.size=1,3,64,384
rounding 0.15 model.name=unet model.base=4 model.classes=1 train.loss=bce data.size=1,3,160,160
