# Parameter counts are those of the layer lists of the public references, not our own.
. "$SOURCE_DIR/tests/cli/common.bash"

counts() { # counts NUMBER NAME key=value...
    local want=$1
    shift
    expect 0 model show "$@" --json
    json "j['parameters'] == $want and j['name'] == '$1'"
}

expect 0 model list
prints "unet" "cnn2d"
expect 0 model list --json
json 'len(j["models"]) >= 4 and all(m["what"] for m in j["models"])'

counts 11580852 minkunet14 model.in=3 model.classes=20
counts 21704244 minkunet18 model.in=3 model.classes=20
counts 37856052 minkunet34c model.in=3 model.classes=20
counts 31037698 unet
counts 31036481 unet model.in=1 model.classes=1
counts 7763239 unet model.classes=7 model.base=32
counts 31038023 unet model.classes=7 model.base=64
counts 22580034 unet model.dims=3 model.base=32
counts 19069955 unet3d
json 'j["norm_parameters"] == 4672'
# the tensors add up to the count, in PyTorch's shapes
counts 31037698 unet
python3 - <<'PYTHON' || fail "the tensors do not add up"
import json, math
j = json.load(open("out"))
trained = [t for t in j["tensors"] if t["kind"] == "trained"]
assert sum(math.prod(t["shape"]) for t in trained) == j["parameters"]
shapes = {t["name"]: t["shape"] for t in j["tensors"]}
assert len(shapes) == len(j["tensors"]), "names are unique"
assert [64, 3, 3, 3] in shapes.values(), "first convolution [out, in, h, w]"
assert [1024, 512, 2, 2] in shapes.values(), "transposed convolution [in, out, h, w]"
PYTHON

# 3 -> 16 -> 16 -> 32 -> 32 -> 64 with 3x3 kernels and bias, then linear to 2
counts $((3*16*9+16 + 16*16*9+16 + 16*32*9+32 + 32*32*9+32 + 32*64*9+64 + 64*2+2)) cnn2d model.classes=2
counts 7978856 densenet121 model.classes=1000
counts 6964106 densenet121 model.classes=10
counts 61100840 alexnet model.classes=1000
counts 57044810 alexnet model.classes=10
counts 2472266 alexnet_cifar model.classes=10 data.size=1,3,32,32
counts 134489759 fcn8s model.classes=21
counts 134815994 fcn16s model.classes=21
counts 136152917 fcn32s model.classes=21

expect 0 model show unet
prints "31,037,698 parameters" "64 x 3 x 3 x 3" "GFLOP"
[ ! -s err ] || fail "output on stderr"

refused 2 model show unte -- "unte" "unet"
refused 2 model show unet model.bsae=3 -- "did you mean 'model.base'?"
refused 2 model show unet3d model.dims=2 -- "unet3d"
refused 2 model show unet cnn2d -- "one network at a time"
refused 2 model show unet data.size=1,3,64 model.dims=2 -- "model.dims"
