# A classifier and the U-Net on images of two sizes, one odd in both axes; inner parts first there.
. "$SOURCE_DIR/tests/cli/verify_models.bash"

grids="2x2 3x2 1x5 4x1 3x3"
for name in cnn2d unet; do
    on_meshes "$grids" "model.name=$name" model.base=4 data.size=1,3,96,128
    on_meshes "$grids" "model.name=$name" model.base=4 data.size=1,3,189,253 comm.overlap=always
done
[ -n "${WF_VERIFY_MPI:-}" ] || on_mpi space=2x2 model.name=unet model.base=4 data.size=1,3,189,253
[ -n "${WF_VERIFY_MPI:-}" ] ||
    on_mpi space=1x5 model.name=unet model.base=4 data.size=1,3,96,128 comm.overlap=always
