# Networks of points learn: solids, and rooms that were not seen (docs/sparse.md has the longer run, above 0.95).
. "$SOURCE_DIR/tests/cli/common.bash"
export OMP_NUM_THREADS=1

expect 0 data synth shapes3d --out solids --count 320 --quiet
expect 0 train "$SOURCE_DIR/share/shapes3d.yaml" data.path=solids --out solid --quiet --json
last_line 'j["best"]["accuracy"] >= 0.9'

expect 0 data synth rooms --out rooms --count 40 --size 6000 --quiet
expect 0 train "$SOURCE_DIR/share/rooms.yaml" data.path=rooms data.voxel=0.1 data.augment=[] train.epochs=8 --out room --quiet --json
last_line 'j["best"]["mean_iou"] >= 0.85'
