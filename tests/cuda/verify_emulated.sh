# Whole networks with our own kernels, emulated on the host, cut and whole: these are what verify takes
# on a GPU. Predictions and loss agree to the bit, gradients to 1e-5.
. "$SOURCE_DIR/tests/cli/common.bash"

same() { # same "MESH ..." key=value...
    local mesh meshes
    read -r -a meshes <<<"$1"
    shift
    for mesh in "${meshes[@]}"; do
        expect 0 verify --device cuda --mesh "$mesh" "$@" --json --quiet
        json 'j["pass"] is True and j["loss_rel"] == 0 and j["pred_rel"] == 0 and j["grad_rel"] <= 1e-5'
    done
}
same "space=2x2 data=2,space=1x2" model.name=unet model.base=4 model.depth=2 data.size=2,3,29,21
same "space=3x1" model.name=unet model.base=8 model.depth=1 data.size=1,3,24,16 train.loss=dice
same "space=2x1x2" model.name=unet model.dims=3 model.base=2 model.depth=1 data.size=1,1,10,12,14
same "data=2" model.name=cnn2d model.base=4 data.size=2,3,33,47
same "space=2x2" model.name=ddunet model.base=2 model.depth=2 model.classes=3 model.comm.channels=4 \
    model.comm.kernel=3 model.tiles=2x2 data.size=2,1,40,48
# Points in boxes of ranks: sums over a kernel are those of own rows and of others', so rounding differs.
for mesh in space=2x1x1 data=2,space=1x2; do
    expect 0 verify --device cuda --mesh $mesh model.name=minkunet14 model.base=2 data.size=2,3,24,40,40 \
        data.points=300 --json --quiet
    json 'j["pass"] is True'
done
# 16 bits: equal to the bit here too, since sums of a pixel are, and held to it within the tolerance.
expect 0 verify --device cuda --precision bf16 --mesh space=2x2 model.name=unet model.base=4 \
    model.depth=1 data.size=2,3,21,19 --json --quiet
json 'j["pass"] is True'

# A whole step against the reference kernels: prediction and loss to the bit, and so no ReLU turns and
# every layer's gradient agrees to 1e-5 (of weight and bias together: one of them may be rounding alone).
as_reference() { # as_reference key=value...
    local device
    for device in cuda reference; do
        expect 0 step --device $device run.deterministic=mesh "$@" --dump $device.safetensors --quiet
    done
    python3 - <<'PYTHON' || fail "not as the reference: $*"
import json, math, struct
def read(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    tensors = {}
    for name, about in header.items():
        if name.split(".")[0] in ("loss", "pred", "grad"):
            lo, hi = about["data_offsets"]
            tensors[name] = struct.unpack(f"<{(hi - lo) // 4}f", data[lo:hi])
    return tensors
got, want = read("cuda.safetensors"), read("reference.safetensors")
assert got.keys() == want.keys() and got["pred"] == want["pred"] and got["loss"] == want["loss"]
layers = {}
for name in (n for n in want if n.startswith("grad.")):
    layer = layers.setdefault(name.rpartition(".")[0], [0.0, 0.0])
    layer[0] += sum((a - b) ** 2 for a, b in zip(got[name], want[name]))
    layer[1] += sum(b ** 2 for b in want[name])
assert layers
for name, (off, norm) in layers.items():
    assert math.sqrt(off) <= 1e-5 * math.sqrt(norm), (name, off, norm)
PYTHON
}
as_reference model.name=ddunet_resnet18 model.base=4 model.tiles=2x2 model.comm.channels=4 data.size=1,3,64,64
as_reference model.name=densenet121 model.base=4 data.size=2,3,64,64
as_reference model.name=unet model.base=4 model.depth=2 data.size=1,3,36,28 train.loss=ce+dice
