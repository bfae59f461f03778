# Signals of an odd length over 2 to 8 ranks.
. "$SOURCE_DIR/tests/cli/verify_models.bash"

on_meshes "2 3 5 8" model.name=cnn1d model.base=8 data.size=2,1,997
on_meshes "3 8" model.name=cnn1d model.base=8 data.size=2,1,997 comm.overlap=always
[ -n "${WF_VERIFY_MPI:-}" ] || on_mpi space=3 model.name=cnn1d model.base=8 data.size=2,1,997
