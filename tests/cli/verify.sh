# The same numbers, whole and cut.
. "$SOURCE_DIR/tests/cli/common.bash"

cat >a.yaml <<'YAML'
model: { name: unet, base: 4, depth: 2, in: 2, classes: 3 }
data: { size: [2, 2, 32, 40] }
train: { loss: ce+dice, optimizer: momentum }
YAML

for mesh in space=1 space=2 space=2x2 space=3x1 data=2 data=2,space=3; do
    expect 0 verify a.yaml --mesh $mesh --json --quiet
    json "j['mesh'] == '$mesh' and j['pass'] is True"
    json 'all(0 <= j[k + "_rel"] <= 1e-5 for k in ("loss", "pred", "grad", "param"))'
done
json 'j["ranks"] == 6'

expect 0 verify a.yaml --mesh space=2x2
prints "the same numbers" "worst tensor"

# a tolerance that no cut can keep: status 1, and the figures all the same
expect 1 verify a.yaml --mesh space=2x2 --tolerance 0 --json
json 'j["pass"] is False and j["grad_rel"] > 0'
says "differs by" "tolerance 0"
refused 2 verify a.yaml --tolerance much -- "--tolerance"

expect 0 verify data.size=2,1,24 model.name=cnn1d --mesh space=2 --json
expect 0 verify data.size=1,1,8,12,16 model.name=unet model.depth=1 model.base=4 --mesh space=2x1x2 --json
expect 0 verify a.yaml model.classes=1 train.loss=bce --mesh space=2 --json
expect 0 verify a.yaml train.loss=mse train.optimizer=adam --mesh space=1x2 --json

# reference kernels: bit for bit in the forward pass
expect 0 verify a.yaml --mesh space=3x2 --device reference --json
json 'j["pred_rel"] == 0 and j["loss_rel"] == 0'

# f16: gradients that overflow at the first scale of the loss are compared at the one that training takes
expect 0 verify model.name=ddunet train.seed=586281 model.base=2 model.depth=2 model.tiles=2 model.comm.channels=1 \
    model.comm.kernel=1 model.statistics=tile model.classes=7 data.size=1,3,168 --mesh space=2 --precision f16 \
    --threads 1 --json --quiet
json 'j["pass"] is True and j["grad_rel"] < 2e-2'
