# DDU-Net cut over ranks: fewer and more of them than subdomains, statistics in all three modes.
. "$SOURCE_DIR/tests/cli/common.bash"

small=(model.name=ddunet model.base=2 model.depth=2 model.classes=3 model.comm.channels=4
     model.comm.kernel=3 train.optimizer=sgd data.size=2,1,40,48)
net=("${small[@]}")
same() { # same MESH key=value...
    expect 0 verify "${net[@]}" "${@:2}" --mesh "$1" --json --quiet
    json 'j["pass"] is True'
}
for tiles in 2x2 1x3 4x2; do
    for mesh in data=2 space=2x2 space=1x3; do
        same $mesh model.tiles=$tiles
    done
done
same data=2,space=1x2 model.tiles=2x2                 # as many ranks as an image has subdomains
same space=3x3 model.tiles=2x2                        # more ranks than subdomains
same space=2x2 model.tiles=3x2 data.size=2,1,41,47    # with a remainder
same space=2x2 model.tiles=2x2 model.statistics=tile
same space=2x1 model.tiles=2x2 model.comm.where=levels
same space=2x1 model.tiles=2x2 model.comm.where=alone
same space=2x1 model.tiles=2x2 model.comm.channels=0
same space=2x1 model.tiles=2x2 train.loss=dice train.loss_per_tile=true
same space=2x1x2 model.tiles=2x2x2 data.size=1,1,12,16,14
net=(model.name=ddunet_resnet18 model.classes=3 train.optimizer=sgd data.size=1,3,64,50)
same space=2x2 model.comm.channels=8 model.tiles=2x2

net=("${small[@]}")
refused 2 verify "${net[@]}" model.tiles=2x2 model.statistics=rank --mesh data=2 -- "depend on the mesh"
refused 2 verify "${net[@]}" model.tiles=1x30 -- "use fewer of them"
refused 2 verify "${net[@]}" model.tiles=2x2 model.comm.channels=999 -- "lower model.comm.channels"
refused 2 verify model.name=unet model.tiles=2x2 data.size=1,1,40,48 -- "does not work on subdomains"

[ -n "${MPIRUN:-}" ] || skip "no mpirun here: its part was not tested"
read -r -a launcher <<<"$MPIRUN"
for mesh in 4:space=2x2 2:data=2 3:space=1x3; do
    "${launcher[@]}" -n "${mesh%%:*}" "$wf" verify "${net[@]}" model.tiles=2x2 --mesh "${mesh#*:}" \
        --json --quiet >out 2>err || fail "mpirun, mesh $mesh"
    json 'j["pass"] is True'
done
