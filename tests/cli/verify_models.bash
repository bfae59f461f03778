# Sourced by the tests that compare whole networks, cut over a grid, with one rank: loss, prediction,
# gradients and updated weights to 1e-5. On threads; the meshes that a test names last also under
# mpirun, and with WF_VERIFY_MPI=1 all of them.
. "$SOURCE_DIR/tests/cli/common.bash"
read -r -a launcher <<<"${MPIRUN:-}"

holds() {
    json 'j["pass"] is True and all(0 <= j[k + "_rel"] <= 1e-5 for k in ("loss", "pred", "grad", "param"))'
    [ -z "${WF_VERIFY_MPI:-}" ] || echo "$* $(cat out)"
}

on_threads() { # on_threads MESH ARGUMENTS...
    expect 0 verify --mesh "$@" --json --quiet
    holds threads "$@"
}

on_mpi() { # on_mpi MESH ARGUMENTS...
    [ -n "${launcher[*]}" ] || return 0
    local ranks got=0
    ranks=$(($(tr x '*' <<<"${1#space=}")))
    "${launcher[@]}" -n "$ranks" "$wf" verify --mesh "$@" --json --quiet >out 2>err || got=$?
    [ "$got" -eq 0 ] || fail "'mpirun -n $ranks widefield verify --mesh $*' ended with $got"
    holds mpirun "$@"
}

# on_meshes "MESH..." ARGUMENTS...: on each of the meshes.
on_meshes() {
    local mesh meshes
    read -r -a meshes <<<"$1"
    shift
    for mesh in "${meshes[@]}"; do
        on_threads "space=$mesh" "$@"
        [ -z "${WF_VERIFY_MPI:-}" ] || on_mpi "space=$mesh" "$@"
    done
}
