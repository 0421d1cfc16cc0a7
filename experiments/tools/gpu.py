"""Half an hour on a GPU: a profile, choices, mechanisms, grids and noise, the most needed first.

    launch/local.sh experiments/tools/gpu.py [--sizes tiny] [PART ...]
    python -m experiments.tools.gpu ...            where nothing can be installed

Writes experiments/results/gpu/PART. Parts that are done are skipped, and a part that fails does not
stop the others. A part is stopped within 9 minutes, and the same command then continues it; only
`kernels` and `peers` start again. Its results and the runs of its grids, without checkpoints, are
one file after

    tar -czf gpu.tar.gz --exclude checkpoints experiments/results/gpu runs/gpu runs/scale

which `tar -xzf gpu.tar.gz` unpacks in the project's folder, to read them or to go on elsewhere.
Most of the time is compilation, 20 s for a training step of base on an H200 with 16 cores, so that
all parts share runs/programs, where a second call finds them, too. Programs are not compiled side
by side: the tuning of 26 at a time took more than 150 s. Programs of a grid, which several
processes compile at once, are not tuned. It also runs on a CPU. It needs only the built-in corpus
and the packages jax, flax, optax, orbax-checkpoint, sacrebleu, sentencepiece, pillow,
vl-convert-python, jinja2 and packaging; `peers` needs PyTorch, `multi30k` needs sacremoses and the
files of the corpus in runs/data/multi30k, and `scale` a folder of text.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results" / "gpu"
SIZES = ["tiny", "base", "big"]
LIMIT = 8 * 60  # seconds of a part, which may take another minute to store its results
LENGTHS = 1024, 4096, 16_384  # at which attention is measured
MEMBERS = 1, 3, 8, 20  # of populations of tiny
MULTI30K = "runs/data/multi30k"
UNTUNED = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"  # 30 s a small program
WORKERS = "--workers", "8"
SEEDS = "--seeds", "3"
MANY_SEEDS = "--seeds", "32", "--base-seeds", "32"
AS_ON_CPU = *WORKERS, *SEEDS, "--dtype", "float32"


def call(out, *words):
    """Runs a command of `t2t-jax`, keeps what it prints, and returns whether it succeeded."""
    command = [sys.executable, "-m", "t2t_jax.cli", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(LIMIT, process.terminate)  # a grid then saves what it has
    timer.start()
    printed, _ = process.communicate()
    timer.cancel()
    (out / "printed.txt").write_text(printed)
    return not process.returncode


def grid(name, preset, *words):
    """Returns a part that runs a study at a preset and keeps its results without checkpoints."""

    def part(out, sizes):
        os.environ.setdefault("XLA_FLAGS", UNTUNED)
        study = [name, "--preset", preset, "--store", "runs/gpu"]
        succeeded = call(out, "run", *study, *words)
        return call(out, "publish", *study, "--to", str(out)) and succeeded

    return part


def scale_grids(out, sizes):
    """Runs the wide grids of experiments/scale.py, and collects all that are finished.

    The text is read from the folder T2T_JAX_TEXT, or from the corpus that was prepared from it.
    """
    from experiments import scale

    os.environ.setdefault("XLA_FLAGS", UNTUNED)
    text, succeeded = os.environ["T2T_JAX_TEXT"], True
    for name in (name for name in scale.GRIDS if "d_model 128" in name):
        words = [*scale.request(name, text).flags, "--store", str(scale.STORE)]
        succeeded = call(out, "run", "table3", *words, *WORKERS, *SEEDS) and succeeded
    scale.collect(out)
    return succeeded


def compare_kernels(out, sizes):
    """Compares every kernel of `t2t_jax/ops` with its plain definition: exactness, then time."""
    from experiments.tools import kernels

    for results in kernels.compare(batch_tokens()):
        write_results(out / "kernels.json", results)
    (out / "kernels.txt").write_text(kernels.table(results))
    return kernels.exact(results)


def profile(out, sizes):
    """Measures a training step of each size, its longest kernels, and the bound of each."""
    from experiments.tools import steps

    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {steps.NO_COMMAND_BUFFERS}"
    from t2t_jax.bench.workload import workload

    known = known_results(out / "profile.json", "sizes")
    for size in (size for size in sizes if size not in known):
        known[size] = steps.profile(workload(size, batch_tokens()))
        write_results(out / "profile.json", {"sizes": known})
        tables = (steps.profile_table(*item) for item in known.items())
        (out / "profile.txt").write_text("\n".join(tables))
    return True


def variants(out, sizes):
    """Compares base's training step with other choices: kernels, random bits, flags of XLA."""
    from experiments.tools import steps

    path, size = out / "variants.json", "base" if "base" in sizes else sizes[0]
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # each variant takes the memory
    known, tokens = known_results(path, "variants"), batch_tokens()
    for found in steps.variants(size, tokens, known, LIMIT):
        write_results(path, {"size": size, "batch_tokens": tokens, "variants": found})
        (out / "variants.txt").write_text(steps.variants_table(found))
    return all(known.get(name) for name in steps.VARIANTS)


def peers(out, sizes):
    """Measures the training steps of PyTorch's nn.Transformer on the batches of base."""
    from experiments.tools.peers import run
    from t2t_jax.bench import train, workload

    tokens, results = batch_tokens(), {}
    count = workload.count_tokens(workload.batches(workload.workload("base", tokens)))
    python, program = Path(sys.executable), run.FOLDER / "pytorch.py"
    for name, options in {"eager": (), "compiled": ("compiled",)}.items():
        contender = run.Contender(f"PyTorch, {name}", python, run.ROOT, program, options)
        with run.started(contender, ("train", "base", str(tokens))) as (process, version):
            if process is None:
                return False
            seconds = statistics.median(run.take_turns({name: process}, train.ROUNDS)[name])
        results[f"base, {name}"] = {
            "seconds": seconds / workload.BATCHES,
            "tokens_per_second": count / seconds,
            "PyTorch": version,
        }
        write_results(out / "peers.json", results)
    (out / "peers.txt").write_text(table_of_peers(results))
    return True


def table_of_peers(results):
    """Returns a line for each way to run PyTorch."""
    lines = [f"{'training steps of PyTorch':28}{'ms a step':>10}{'tokens/s':>12}"] + [
        f"{name:28}{1e3 * x['seconds']:>10.1f}{x['tokens_per_second']:>12,.0f}"
        for name, x in results.items()
    ]
    return "\n".join(lines) + "\n"


def batch_tokens():
    """Returns the tokens a side of a batch."""
    import jax

    return 2048 if jax.default_backend() == "cpu" else 25_000


def write_results(path, results):
    from t2t_jax.environment import environment
    from t2t_jax.files import write_json

    write_json(path, results | {"environment": environment()})


def known_results(path, key):
    """Returns what an earlier call of a part has stored."""
    from t2t_jax.files import read_json

    return read_json(path)[key] if path.exists() else {}


def attention(out, sizes):
    """Measures every mechanism, beside the bounds of its programs."""
    from experiments.tools import steps
    from t2t_jax.attention.registry import MECHANISMS
    from t2t_jax.terminal import say

    path = out / "attention.json"
    known = known_results(path, "mechanisms")
    for name in (name for name in MECHANISMS if not known.get(name)):
        try:
            known[name] = steps.attention(name, LENGTHS)
        except Exception as error:  # whatever a device refuses, the others are still measured
            known[name] = {}
            say(f"{name} failed: {error}")
        write_results(path, {"mechanisms": known})
        (out / "attention.txt").write_text(steps.attention_table(known))
    return all(known.values())


def populations(out, sizes):
    """Measures steps of several tiny models in one program."""
    from t2t_jax.bench import train

    known = known_results(out / "populations.json", "members")
    for P in (P for P in MEMBERS if str(P) not in known):
        known[str(P)] = train.measure(["tiny"], 2048, P)
        write_results(out / "populations.json", {"members": known})
        (out / "populations.txt").write_text("\n".join(map(train.table, known.values())))
    return True


PARTS = {
    "profile": profile,
    "variants": variants,
    "attention": attention,
    "scale": scale_grids,
    "noise": grid("attention", "demo", *WORKERS, *MANY_SEEDS, "--dtype", "float32"),
    "kernels": compare_kernels,
    "peers": peers,
    "populations": populations,
    "multi30k": grid("multi30k", "paper", "--directory", MULTI30K, "--workers", "3", *SEEDS),
    "demo": grid("table3", "demo", *AS_ON_CPU),
    "hour": grid("table3", "hour", *AS_ON_CPU),
}


def run_part(name, out, sizes):
    sys.exit(not PARTS[name](out, sizes))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", default=[*PARTS], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    parts = [name for name in arguments.parts if not (arguments.out / name / "done").exists()]
    failed = False
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path("runs/programs").resolve()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    for name in parts:
        failed |= not run_alone(name, arguments.out / name, arguments.sizes)
    sys.exit(failed)


def run_alone(name, out, sizes):
    """Runs a part in a process of its own, which has all of the GPU's memory."""
    start = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    process = multiprocessing.get_context("spawn").Process(target=run_part, args=(name, out, sizes))
    process.start()
    process.join(LIMIT + 60)
    process.kill()
    process.join()
    status = "failed after " if process.exitcode else ""
    print(f"{name} {status}{time.monotonic() - start:.0f} s", flush=True)
    if not process.exitcode:
        (out / "done").touch()
    return not process.exitcode


if __name__ == "__main__":
    main()
