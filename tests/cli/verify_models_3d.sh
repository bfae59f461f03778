# Volumes over grids of three axes, two, and one.
. "$SOURCE_DIR/tests/cli/verify_models.bash"

grids="2x2x2 3x1x2 1x1x5"
on_meshes "$grids" model.name=cnn3d model.base=4 data.size=1,1,40,52,44
on_meshes "$grids" model.name=unet model.dims=3 model.base=2 model.depth=3 data.size=1,1,40,52,44
on_meshes "$grids" model.name=unet3d model.base=2 model.depth=2 data.size=1,1,24,28,20 comm.overlap=always
[ -n "${WF_VERIFY_MPI:-}" ] || on_mpi space=3x1x2 model.name=cnn3d model.base=4 data.size=1,1,40,52,44
