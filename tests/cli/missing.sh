# Where MPI, cuDNN, cuBLASLt and NCCL cannot be opened: the command works, and what needs them is refused with
# what to install. Files that are no libraries stand in the way of the real ones.
. "$SOURCE_DIR/tests/cli/common.bash"
mkdir none
for soname in libmpi.so.12 libmpi.so.40 libmpich.so.12 libcudnn.so.9 libcublasLt.so.12 libcublasLt.so.13 libnccl.so.2; do
    : >"none/$soname"
done
export LD_LIBRARY_PATH=$PWD/none CUDA_HOME=$PWD/none

args=(model.name=unet model.base=4 model.depth=1 data.size=1,3,32,32)
expect 0 verify "${args[@]}" --mesh space=2 --quiet
expect 0 check --json
json 'not j["comm"]["MPI"]["available"] and "install" in j["comm"]["MPI"]["text"]'
json 'not j["comm"]["NCCL"]["available"]'
json 'all(not j["compute"].get(name, {"available": False})["available"] for name in ("cuDNN", "cuBLASLt"))'

# as mpirun starts it
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1
if [ -n "${MPIRUN:-}" ]; then
    refused 2 verify "${args[@]}" --mesh space=2 -- "libmpi" "(Debian: libopenmpi3)"
fi
WF_MPI_MODULE=$PWD/none/none.so refused 2 verify "${args[@]}" -- "none.so" "libwidefield-mpi.so"
mkdir alone
cp "$wf" alone/
WF_MPI_MODULE='' wf=alone/widefield refused 2 verify "${args[@]}" -- "libwidefield-mpi.so: cannot open"
unset OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK

# by a real launcher: every rank fails, none trains alone
[ -n "${MPIRUN:-}" ] || skip "no mpirun here"
read -r -a launcher <<<"$MPIRUN"
status=0
"${launcher[@]}" -n 2 "$wf" train "${args[@]}" data.layout=discs --out run >out 2>err || status=$?
[ "$status" -ne 0 ] || fail "a launch without MPI succeeded"
says "(Debian: libopenmpi3)"
[ ! -e run ] || fail "a rank has trained alone"
