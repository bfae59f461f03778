# Data parallelism, alone and with space: a batch that the ranks do not divide, whole and cut.
# WF_VERIFY_ALL=1: every network on every mesh, on threads and under mpirun; takes minutes.
. "$SOURCE_DIR/tests/cli/common.bash"
read -r -a launcher <<<"${MPIRUN:-}"

unet=(model.name=unet model.base=4 model.depth=2 data.size=5,3,24,24)
alexnet=(model.name=alexnet_cifar data.size=5,3,32,32)
densenet=(model.name=densenet121 data.size=5,3,32,32)

holds() {
    json 'j["pass"] is True and all(0 <= j[k + "_rel"] <= 1e-5 for k in ("loss", "pred", "grad", "param"))'
    [ -z "${WF_VERIFY_ALL:-}" ] || echo "$* $(cat out)"
}

on_threads() { # on_threads MESH ARGUMENTS...
    expect 0 verify --mesh "$@" --json --quiet
    holds threads "$@"
}

on_mpi() { # on_mpi RANKS MESH ARGUMENTS...
    [ -n "${launcher[*]}" ] || return 0
    local ranks=$1 got=0
    shift
    "${launcher[@]}" -n "$ranks" "$wf" verify --mesh "$@" --json --quiet >out 2>err || got=$?
    [ "$got" -eq 0 ] || fail "'mpirun -n $ranks widefield verify --mesh $*' ended with $got"
    holds mpirun "$@"
}

if [ -n "${WF_VERIFY_ALL:-}" ]; then
    for mesh in "2 data=2" "3 data=3" "4 data=4" "8 data=2,space=2x2" "6 data=3,space=1x2"; do
        for network in "${unet[*]}" "${alexnet[*]}" "${densenet[*]}"; do
            read -r -a arguments <<<"${mesh#* } $network"
            on_threads "${arguments[@]}"
            on_mpi "${mesh%% *}" "${arguments[@]}"
        done
    done
    exit 0
fi

for mesh in data=2 data=3 data=4 data=2,space=2x2 data=3,space=1x2; do
    on_threads "$mesh" "${unet[@]}"
done
on_threads data=3 "${alexnet[@]}"
on_threads data=2 "${densenet[@]}"
on_mpi 3 data=3 "${unet[@]}"
on_mpi 3 data=3 "${alexnet[@]}"

# weights are compared after plain descent, whatever the optimizer
on_threads data=2 "${unet[@]}" train.optimizer=lamb train.clip=0.1

# a batch counted on each rank
expect 0 plan "${unet[@]:0:3}" model.in=3 data.crop=24,24 train.batch=3 train.batch_is=per_rank --mesh data=2 --json
cp out six
expect 0 plan "${unet[@]:0:3}" data.size=6,3,24,24 --mesh data=2 --json
cmp -s out six || fail "3 samples on each of 2 ranks are 6"

refused 3 verify "${unet[@]}" --mesh data=6 -- "6 ranks along data" "5 samples" "train.batch"
refused 2 verify "${unet[@]}" --mesh data=2 train.reduction=rank_mean -- "train.reduction" "global"
refused 2 plan "${unet[@]}" train.batch_is=per_rank --ranks 2 -- "per_rank" "--mesh data=2"
