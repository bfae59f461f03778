# eval --whole: images of any size in windows, with the scores of the whole image.
. "$SOURCE_DIR/tests/cli/common.bash"

expect 0 data synth nuclei --out set --count 4 --size 160x200 --quiet
channels=$("$wf" data inspect set --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["channels"])')
"$wf" model show unet --net model.base=4 model.depth=2 model.classes=2 "model.in=$channels" >batch.yaml
sed 's/batch_norm/instance_norm/' batch.yaml >instance.yaml
number() { python3 -c 'import json; j = json.load(open("out")); print(j["loss"], j["mean_iou"], j["accuracy"])'; }
near() { # near LOSS IOU ACCURACY: what is in 'out'
    json "abs(j['loss'] - $1) <= 1e-5 * abs($1) and abs(j['mean_iou'] - $2) <= 1e-4 and abs(j['accuracy'] - $3) <= 1e-4"
}
for net in batch instance; do
    expect 0 train model.name=$net.yaml data.path=set data.crop=64,64 train.epochs=1 train.batch=2 train.loss=ce+dice \
        --out $net --quiet
    # The oracle is the whole image in one pass on one rank, as validation runs it.
    expect 0 eval $net set train.validate_on=whole --json --quiet
    read -r loss iou accuracy <<<"$(number)"
    expect 0 eval $net set --whole --json --quiet
    near "$loss" "$iou" "$accuracy"
    for more in memory.limit=900k "memory.limit=2M --ranks 3"; do
        # shellcheck disable=SC2086
        expect 0 eval $net set --whole $more --json --quiet
        near "$loss" "$iou" "$accuracy"
    done
done

# Sizes that differ, which no plan of one size fits.
expect 0 data synth nuclei --out other --count 1 --size 97x131 --quiet
for kind in images masks; do
    file=$(ls other/$kind | head -1)
    cp "other/$kind/$file" "set/$kind/other_$file"
done
refused 2 eval batch set train.validate_on=whole -- "validate_on"
expect 0 eval batch set --whole --json --quiet
json 'j["images"] == 5'

refused 3 eval batch set --whole memory.limit=20k -- "memory.limit"
mkdir -p classes/a classes/b
cp set/images/* classes/a && cp set/images/* classes/b
expect 0 train model.name=alexnet_cifar data.path=classes data.crop=32,32 train.epochs=1 train.batch=2 --out classifier --quiet
refused 2 eval classifier classes --whole -- "--whole"
