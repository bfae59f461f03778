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
# 16 bits: equal to the bit here too, since sums of a pixel are, and held to it within the tolerance.
expect 0 verify --device cuda --precision bf16 --mesh space=2x2 model.name=unet model.base=4 \
    model.depth=1 data.size=2,3,21,19 --json --quiet
json 'j["pass"] is True'
