# Networks of points with their samples on several ranks, in two, three and four dimensions.
. "$SOURCE_DIR/tests/cli/verify_models.bash"

points() { # points MESH ARGUMENTS...
    on_threads "$@"
    on_threads "$@" data.points=1
}

for mesh in data=2 data=3; do
    points $mesh model.name=minkresnet model.base=4 data.size=3,3,24,24,24 data.points=300
    points $mesh model.name=minkresnet model.base=4 model.dims=2 model.blocks=1,1 data.size=4,2,32,32 data.points=200
    points $mesh model.name=sparse_course model.base=8 data.size=5,1,16,16,16 data.points=100
    points $mesh model.name=minkunet14 model.base=4 data.size=3,2,12,12,12,6 data.points=200
done
# Cut into boxes of the grid: one axis, two, three, a rank between two others, ranks without points.
for mesh in space=2x1x1 space=2x2x1 space=1x1x3 data=2,space=2 space=2x2x2; do
    points $mesh model.name=minkunet14 model.base=4 data.size=2,3,40,40,40 data.points=1500
    points $mesh model.name=minkresnet model.base=4 model.blocks=1,1,1 data.size=2,3,48,48,48 data.points=1500
done
points space=2x2 model.name=minkunet14 model.base=4 model.dims=2 data.size=2,2,64,64 data.points=600
points space=2x1x2 model.name=minkunet14 model.base=4 data.size=2,2,32,16,32,4 data.points=300
points space=2x1x1 model.name=minkunet14 model.base=4 data.size=2,3,40,40,40 data.points=900 train.accumulate=2
expect 3 verify --mesh space=2x1x1 model.name=minkunet14 model.dims=2 data.size=2,2,64,64 data.points=600
if [ -n "${launcher[*]}" ]; then
    "${launcher[@]}" -n 4 "$wf" verify --mesh data=2,space=2 --json --quiet model.name=minkunet14 model.base=4 \
        data.size=2,3,40,40,40 data.points=900 >out 2>err || fail "verify under mpirun"
    holds mpirun
    "${launcher[@]}" -n 2 "$wf" verify --mesh data=2 --json --quiet model.name=minkresnet model.base=4 \
        data.size=3,3,24,24,24 data.points=300 >out 2>err || fail "verify under mpirun"
    holds mpirun
fi
# A level with a single point has no statistics.
refused 1 step --dump o.safetensors model.name=minkresnet model.base=4 data.size=1,3,8,8,8 data.points=20 -- \
    "layer 'layer1.0.norm1'" "batch norm over 1 point"
