# Completion of widefield for bash. Made by 'widefield config bash'; do not edit.
_widefield() {
    local cur=${COMP_WORDS[COMP_CWORD]} key= values= words= verbs= i
    COMPREPLY=()
    # bash takes 'key=value' for three words
    if [[ $cur == = ]]; then
        key=${COMP_WORDS[COMP_CWORD - 1]} cur=
    elif ((COMP_CWORD > 2)) && [[ ${COMP_WORDS[COMP_CWORD - 1]} == = ]]; then
        key=${COMP_WORDS[COMP_CWORD - 2]}
    elif ((COMP_CWORD > 1)); then
        key=${COMP_WORDS[COMP_CWORD - 1]}
    fi
    case $key in
    model.comm.where) values='coarsest levels alone' ;;
    model.statistics) values='global tile rank' ;;
    model.freeze) values='true false' ;;
    model.head) values='classes segments' ;;
    model.norm) values='batch instance none' ;;
    data.format) values='auto folder pairs nnunet cifar10 classes deepglobe inria idx clouds cloud_classes kitti' ;;
    data.align) values='refuse resample ignore' ;;
    data.alpha) values='drop keep' ;;
    data.features) values='color intensity normal height ones' ;;
    data.augment) values='flip rot90 elastic brightness contrast mirror rotate scale jitter drop' ;;
    data.balance) values='true false' ;;
    train.batch_is) values='global per_rank' ;;
    train.reduction) values='global rank_mean' ;;
    train.optimizer) values='sgd momentum nesterov adagrad rmsprop adam adamw lamb lars' ;;
    train.schedule) values='constant step exponential cosine plateau' ;;
    train.schedule_by) values='epoch step' ;;
    train.lr_scaling) values='none linear root' ;;
    train.decay_vectors) values='true false' ;;
    train.loss) values='ce bce dice mse' ;;
    train.similarity) values='dann mmd' ;;
    train.loss_per_tile) values='true false' ;;
    train.validate_on) values='auto crop whole' ;;
    train.precision | --precision) values='f32 bf16 f16 tf32' ;;
    train.sync) values='allreduce server async' ;;
    mesh.auto) values='true false' ;;
    domain.placement) values='auto domain encoder role domain_losses encoder_losses' ;;
    pipe.schedule) values='1f1b interleaved zero_bubble' ;;
    comm.device) values='auto nccl host' ;;
    comm.overlap) values='auto never always' ;;
    comm.emulate) values='true false' ;;
    comm.allreduce) values='auto library ring tree nodes' ;;
    comm.precision) values='f32 bf16' ;;
    run.device | --device) values='cpu reference cuda' ;;
    run.deterministic) values='false true mesh' ;;
    memory.recompute) values='true false' ;;
    esac
    if [[ $values ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$cur"))
        return
    fi
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W 'data train eval predict plan verify step model export bench check report config help --help --version' -- "$cur"))
        return
    fi
    case ${COMP_WORDS[1]} in
    data) words='--out --count --size --tile --domain --fonts --json --quiet --help --version'; ((COMP_CWORD == 2)) && verbs=' synth inspect' ;;
    train) words='--out --resume --changed-data --ranks --mesh --device --precision --seed --threads --json --quiet --help --version' ;;
    eval) words='--part --whole --json --quiet --help --version' ;;
    predict) words='--out --probabilities --overlay --format --window --blend --overlap --json --quiet --help --version' ;;
    plan) words='--explain --rank --svg --sweep --sides --over --scaling --ranks --mesh --device --precision --seed --threads --json --quiet --help --version' ;;
    verify) words='--tolerance --ranks --mesh --device --precision --seed --threads --json --quiet --help --version' ;;
    step) words='--weights --input --target --dump --ranks --mesh --device --precision --seed --threads --json --quiet --help --version' ;;
    model) words='--net --draw --out --outputs --json --quiet --help --version'; ((COMP_CWORD == 2)) && verbs=' list show import' ;;
    export) words='--out --weights --without-normalisation --json --quiet --help --version' ;;
    bench) words='--steps --warmup --input --target --profile --overlap --timeline --sweep --sides --over --svg --scaling --out --ranks --mesh --device --precision --seed --threads --json --quiet --help --version' ;;
    check) words='--calibrate --out --seconds --json --quiet --help --version' ;;
    report) words='--json --quiet --help --version' ;;
    config) words='--ranks --mesh --device --precision --seed --threads --json --quiet --help --version'; ((COMP_CWORD == 2)) && verbs=' show schema docs networks man bash zsh fish' ;;
    help) verbs='data train eval predict plan verify step model export bench check report config' ;;
    esac
    local IFS=$' \n'
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        return
    fi
    [[ $cur ]] && verbs+=' model.name= model.network= model.dims= model.in= model.classes= model.base= model.depth= model.weights= model.tiles= model.comm.channels= model.comm.layers= model.comm.kernel= model.comm.dropout= model.comm.where= model.statistics= model.freeze= model.targets= model.domain= model.code= model.head= model.norm= model.blocks= data.path= data.domains= data.format= data.align= data.alpha= data.size= data.points= data.voxel= data.features= data.crop= data.pad= data.augment= data.repeat= data.balance= data.validation= data.threads= data.cache= train.epochs= train.batch= train.batch_is= train.accumulate= train.reduction= train.clip= train.optimizer= train.lr= train.schedule= train.schedule_by= train.schedule_every= train.gamma= train.patience= train.lr_min= train.lr_scaling= train.warmup= train.momentum= train.beta1= train.beta2= train.eps= train.weight_decay= train.decay_vectors= train.trust= train.loss= train.weights.reconstruction= train.weights.difference= train.weights.similarity= train.similarity= train.adapt_from= train.adapt_over= train.loss_per_tile= train.ignore= train.validate_every= train.validate_on= train.early_stop= train.checkpoint_seconds= train.checkpoint_steps= train.checkpoint_minutes= train.samples= train.loss_scale= train.skip_limit= train.precision= train.sync= train.staleness= train.seed= mesh.auto= mesh.data= mesh.domain= mesh.pipe= mesh.space= domain.placement= pipe.schedule= pipe.cut= comm.device= comm.overlap= comm.bucket= comm.bandwidth= comm.latency= comm.emulate= comm.warn_after= comm.timeout= comm.allreduce= comm.precision= comm.node_ranks= cluster.node= cluster.link_bandwidth= cluster.link_latency= run.device= run.ranks= run.threads= run.deterministic= run.cache= memory.limit= memory.recompute='
    COMPREPLY=($(compgen -W "$verbs" -- "$cur"))
    for i in "${COMPREPLY[@]}"; do
        [[ $i == *= ]] && compopt -o nospace 2>/dev/null
    done
    # not together with keys: as a file name, their '=' would be quoted
    ((${#COMPREPLY[@]})) || compopt -o filenames 2>/dev/null
    IFS=$'\n'
    COMPREPLY+=($(compgen -f -- "$cur"))
}
complete -F _widefield widefield
