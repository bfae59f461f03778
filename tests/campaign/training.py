"""What the campaigns on training runs share: a tiny network, a tiny dataset, and a look into checkpoints."""
import json, os, shutil, subprocess, sys, tempfile

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
WIDEFIELD = os.path.abspath(os.environ.get("WIDEFIELD", os.path.join(SOURCE, "build", "widefield")))
CONFIG = """
model: { name: unet, base: 2, depth: 1 }
data: { path: set, crop: [16, 16], augment: [flip, rot90], repeat: 2, threads: 1 }
train: { epochs: %d, batch: 2, lr: 1e-2, checkpoint_steps: %d, checkpoint_seconds: 0, samples: %d }
"""


def enter(epochs, checkpoint_steps, samples=0):
    """Makes a folder (in memory where there is such a place: fsync costs nothing there) with a dataset and a
    config the working folder; removes it in the end, unless WORKDIR says where."""
    folder = os.environ.get("WORKDIR")
    if not folder:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        folder = tempfile.mkdtemp(prefix="widefield-", dir=memory)
        import atexit
        atexit.register(shutil.rmtree, folder, True)
    os.chdir(folder)
    for key in [k for k in os.environ if k.startswith("WIDEFIELD_")]:
        del os.environ[key]
    os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    shutil.rmtree("set", True)
    subprocess.run([sys.executable, os.path.join(SOURCE, "tests/cli/pictures.py"), "set", "6", "24", "20"], check=True)
    with open("a.yaml", "w") as file:
        file.write(CONFIG % (epochs, checkpoint_steps, samples))


def command(run, mesh="space=1", *more):
    return [WIDEFIELD, "train", "a.yaml", "--mesh", mesh, "--out", run, "--resume", "auto", *more]


def train(run, mesh="space=1", *more, seconds=120, env=None):
    """(status, stderr); a status of None is one that hangs."""
    try:
        done = subprocess.run(command(run, mesh, *more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=seconds,
                              env={**os.environ, **env} if env else None)
        return done.returncode, done.stderr.decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        return None, "it hangs"


def tensors(path):
    """Header without the texts, data, and those of the texts that do not hold times."""
    with open(path, "rb") as file:
        raw = file.read()
    size = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + size])
    texts = head.pop("__metadata__")
    return head, raw[8 + size:], [texts[k] for k in ("step", "epoch", "batch", "best", "best_epoch")]


def checkpoint(run, name="last"):
    return os.path.join(run, "checkpoints", name + ".safetensors")


def same(a, b):
    return tensors(checkpoint(a)) == tensors(checkpoint(b)) and tensors(checkpoint(a, "best")) == tensors(checkpoint(b, "best"))


def epochs(run):
    """The epochs that the log has, in its order."""
    with open(os.path.join(run, "log.jsonl")) as file:
        return [e["epoch"] for e in map(json.loads, file) if e["event"] == "epoch"]
