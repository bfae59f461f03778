# The deep ones on images of two sizes, one odd in both axes: levels with fewer rows than ranks.
. "$SOURCE_DIR/tests/cli/verify_models.bash"

grids="2x2 3x2 1x5 4x1 3x3"
for name in fcn8s densenet121; do
    on_meshes "$grids" "model.name=$name" model.base=4 data.size=1,3,64,96 comm.overlap=always
    on_meshes "$grids" "model.name=$name" model.base=4 data.size=1,3,189,253
done
[ -n "${WF_VERIFY_MPI:-}" ] || on_mpi space=3x2 model.name=fcn8s model.base=4 data.size=1,3,64,96
