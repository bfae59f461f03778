# Precedence, origins, wrong keys, types and ranges.
. "$SOURCE_DIR/tests/cli/common.bash"

cat >a.yaml <<'YAML'
model: { name: unet, base: 8, depth: 2 }
data:
  size: [1, 3, 32, 32]
train: { lr: 0.25, seed: 5 }
mesh: { data: 1, space: [2, 2] }
YAML

# default < file < environment < command line
WIDEFIELD_MODEL_DEPTH=3 WIDEFIELD_TRAIN_LR=0.5 expect 0 config show a.yaml train.lr=0.75 --json
json 'j["model.base"] == {"value": 8, "origin": "file a.yaml:1:28"}'
json 'j["model.depth"] == {"value": 3, "origin": "environment WIDEFIELD_MODEL_DEPTH"}'
json 'j["train.lr"] == {"value": 0.75, "origin": "command line"}'
json 'j["train.optimizer"] == {"value": "adam", "origin": "default"}'
json 'j["model.classes"] == {"value": None, "origin": "default"}'
json 'j["mesh.space"]["value"] == [2, 2] and j["data.size"]["value"] == [1, 3, 32, 32]'
# the same, whatever the order of the arguments; the last of one origin wins
WIDEFIELD_TRAIN_LR=0.5 expect 0 config show train.lr=0.125 --seed 9 a.yaml train.lr=0.75 --json
json 'j["train.lr"]["value"] == 0.75 and j["train.seed"] == {"value": 9, "origin": "command line"}'
# --mesh is the whole mesh
expect 0 config show a.yaml --mesh data=3 --json
json 'j["mesh.data"]["value"] == 3 and j["mesh.space"]["value"] == [1]'
WIDEFIELD_MESH=space=3x1 expect 0 config show a.yaml --json
json 'j["mesh.space"] == {"value": [3, 1], "origin": "environment WIDEFIELD_MESH"}'
expect 0 config show a.yaml --mesh auto --json
json 'j["mesh.auto"]["value"] is True'

expect 0 config show a.yaml
prints "model.base" "file a.yaml:1:28" "default"
expect 0 config show
prints "model.base"

# an empty text where it means none, and only there
expect 0 config show run.cache= --json
json 'j["run.cache"] == {"value": "", "origin": "command line"}'
expect 2 config show data.path= --json

# JSON is YAML
echo '{"model": {"base": 12}, "train": {"loss": "ce+dice"}}' >a.json
expect 0 config show a.json --json
json 'j["model.base"]["value"] == 12 and j["train.loss"]["value"] == "ce+dice"'

# wrong keys: where they are, and what was meant
refused 2 config show model.bsae=3 -- "unknown key 'model.bsae'" "did you mean 'model.base'?"
refused 2 config show base=3 -- "unknown key 'base'" "did you mean 'model.base'?"
printf 'model:\n  depht: 3\n' >bad.yaml
refused 2 config show bad.yaml -- "bad.yaml:2:3" "unknown key 'model.depht'" "did you mean 'model.depth'?"
refused 2 plan bad.yaml -- "bad.yaml:2:3"
printf 'modle: { base: 3 }\n' >bad.yaml
refused 2 config show bad.yaml -- "bad.yaml:1:1" "did you mean 'model'?"
WIDEFIELD_MODEL_BSE=3 refused 2 config show -- "WIDEFIELD_MODEL_BSE" "did you mean 'WIDEFIELD_MODEL_BASE'?"
WIDEFIELD_SOMETHING_ELSE=3 expect 0 config show

# wrong types and ranges: the key, the value, what is allowed
refused 2 config show model.base=many -- "model.base" "'many'" "an integer from 1 to"
refused 2 config show model.base=0 -- "model.base" "'0'" "an integer from 1 to"
refused 2 config show model.dims=2.0 -- "model.dims" "'2.0'"
refused 2 config show train.lr=fast -- "train.lr" "'fast'" "a number"
refused 2 config show train.optimizer=sdg -- "train.optimizer" "'sdg'" "sgd, momentum, nesterov"
refused 2 config show train.loss=ce+dcie -- "train.loss" "ce, bce, dice, mse"
refused 2 config show data.size=1,3 -- "data.size" "'1,3'" "3 to 6 integers"
refused 2 config show --precision f8 -- "train.precision" "'f8'" "f32, bf16, f16, tf32"
refused 2 config show --mesh space=0 -- "space"
refused 2 config show --mesh spcae=2 -- "spcae" "space"
WIDEFIELD_RUN_RANKS=no refused 2 config show -- "WIDEFIELD_RUN_RANKS" "run.ranks" "'no'"
printf 'train:\n  lr: [1, 2]\n' >bad.yaml
refused 2 config show bad.yaml -- "bad.yaml:2:" "train.lr"
printf 'model: { base: 8\ntrain: }\n' >bad.yaml
refused 2 config show bad.yaml -- "bad.yaml:"
printf 'model: { base: 8, base: 9 }\n' >bad.yaml
refused 2 config show bad.yaml -- "bad.yaml:1:"
printf 'model: 8\n' >bad.yaml
refused 2 config show bad.yaml -- "bad.yaml:1:1" "'model'"
head -c 64 /dev/zero >bad.yaml
refused 2 config show bad.yaml -- "bad.yaml"

# the schema: a table for people, a JSON schema for editors
expect 0 config schema
prints "train.optimizer" "sgd, momentum, nesterov"
expect 0 config schema --json
json 'j["properties"]["model"]["properties"]["base"]["type"] == "integer"'
json 'j["properties"]["train"]["properties"]["optimizer"]["enum"][:3] == ["sgd", "momentum", "nesterov"]'
json 'j["properties"]["train"]["properties"]["lr"]["default"] == 0.001'
json 'j["properties"]["data"]["properties"]["size"]["maxItems"] == 6'
json 'j["additionalProperties"] is False'
