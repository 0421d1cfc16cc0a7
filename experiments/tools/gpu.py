"""Table 3 and the benchmarks on a GPU: checks, speed, memory, profiles and grids, part by part.

    launch/local.sh experiments/tools/gpu.py [--sizes tiny] [PART ...]
    python -m experiments.tools.gpu ...            where nothing can be installed

Writes experiments/results/gpu/PART. Parts that are done are skipped, and a part that fails does not
stop the others. A part is stopped after 9 minutes; the same command then continues a grid, and
starts any other part again. Most of the time is compilation, 20 s for a training step of base on an
H200 with 16 cores, so that all parts share the programs that one has compiled. Programs are not
compiled side by side: the tuning of 26 at a time took more than 150 s. Those of a grid, which
several processes compile at once, are not tuned. It also runs on a CPU. It needs only the built-in
corpus and the packages jax, flax, optax, orbax-checkpoint, sacrebleu, sentencepiece, pillow,
vl-convert-python, jinja2 and packaging; `peers` needs PyTorch, `multi30k` needs sacremoses and the
files of the corpus in runs/data/multi30k, and `scale` a folder of text.
"""

import argparse
import collections
import dataclasses
import gzip
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "gpu"
SIZES = ["tiny", "base", "big"]
LIMIT = 9 * 60  # seconds of a part
PLAIN = "base, plain"  # base with plain definitions in place of kernels
MULTI30K = "runs/data/multi30k"
UNTUNED = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"  # 30 s a small program
WORKERS = "--workers", "8"
SEEDS = "--seeds", "3"
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


def bench(*words):
    """Returns a part that runs one benchmark."""

    def part(out, sizes):
        options = ["--sizes", *sizes] if words[0] in ("train", "translate") else []
        return call(out, "bench", *words, *options, "--out", str(out))

    return part


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


def doctor(out, sizes):
    call(out, "doctor")
    return True  # a missing package is a finding


def compare_kernels(out, sizes):
    """Compares every kernel of `t2t_jax/ops` with its plain definition: exactness, then time."""
    from experiments.tools import kernels

    for results in kernels.compare(batch_tokens()):
        write_results(out / "kernels.json", results)
    (out / "kernels.txt").write_text(kernels.table(results))
    return kernels.exact(results)


def step_cases(sizes):
    """Returns the workloads of `steps` by name."""
    from t2t_jax import config
    from t2t_jax.bench.workload import workload

    cases = {size: workload(size, batch_tokens()) for size in sizes}
    if "base" in cases:
        w = cases["base"]
        cases[PLAIN] = dataclasses.replace(w, c=config.replace(w.c, kernels="plain"))
    return cases


def steps(out, sizes):
    """Measures training steps, the lower bound of their programs, and their longest kernels.

    The bound is computed for the program of each shape; `shapes` says how often a round has it.
    """
    import jax

    from experiments.tools import roofline
    from experiments.tools.devices import DEVICES
    from t2t_jax.bench import train

    kind = jax.devices()[0].device_kind.lower()
    device = next((x for name, x in DEVICES.items() if name in kind), None)
    results = {"batch_tokens": batch_tokens(), "population": 1, "rounds": train.ROUNDS, "sizes": {}}
    for name, w in step_cases(sizes).items():
        made = train.Steps(w)
        size = results["sizes"][name] = train.measure_steps(name, w, made)
        write_results(out / "steps.json", results)
        size["shapes"] = []
        for shapes, program in made.programs.items():
            compiled: Any = program.run
            found = roofline.kernels(compiled.as_text())
            least = roofline.bound(found, device) if device else None
            count = sum(tuple(x.shape for x in batch.values()) == shapes for batch in made.batches)
            size["shapes"].append(
                {"source": shapes[0], "target": shapes[1], "count": count}
                | ({"least_ms": 1e3 * least.seconds, "kernels": least.kernels} if least else {})
            )
        with tempfile.TemporaryDirectory() as directory:
            with jax.profiler.trace(directory):
                made()
            size["kernels"] = times_of_kernels(next(Path(directory).rglob("*.trace.json.gz")))
        write_results(out / "steps.json", results)
        del made
    (out / "steps.txt").write_text(train.table(json.loads((out / "steps.json").read_text())))
    return True


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


def memory(out, sizes):
    """Measures the memory of a step of 25,000 tokens a side, by its number of accumulated parts."""
    from t2t_jax import config
    from t2t_jax.bench import train
    from t2t_jax.bench.workload import Workload, workload

    results = {}
    for size in sizes:
        w = workload(size, batch_tokens())
        for parts in (1, 2, 4):
            c = config.replace(w.c, accumulate=parts)
            steps = train.Steps(Workload(c, w.V, w.mean_length))
            steps.batches = steps.batches[:1]
            steps()
            results[f"{size}, {parts}"] = max(p.memory for p in steps.programs.values())
    write_results(out / "memory.json", results)
    return True


def times_of_kernels(trace):
    """Returns the milliseconds of each kernel on the tracks of the device, the longest first."""
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    tracks = {
        (e["pid"], e.get("tid")): e["args"]["name"]
        for e in events
        if e.get("name") in ("process_name", "thread_name")
    }
    times = collections.Counter[str]()
    for e in events:
        track = tracks.get((e.get("pid"), None), "") + tracks.get((e.get("pid"), e.get("tid")), "")
        kernel = e.get("ph") == "X" and "::" not in e["name"]  # others are scopes of many kernels
        if kernel and ("Stream" in track or "XLAEigen" in track):
            times[e["name"]] += e["dur"] / 1e3
    return dict(times.most_common(100))


def batch_tokens():
    """Returns the tokens a side of a batch."""
    import jax

    return 2048 if jax.default_backend() == "cpu" else 25_000


def write_results(path, results):
    from t2t_jax.environment import environment
    from t2t_jax.files import write_json

    write_json(path, results | {"environment": environment()})


def start(out, sizes):
    """Measures the time to the first step, without the programs that other parts have compiled."""
    from experiments.tools import start

    start.main(out)
    return True


PARTS = {
    "doctor": doctor,
    "steps": steps,
    "kernels": compare_kernels,
    "peers": peers,
    "attention": bench("attention", "--lengths", "1024", "4096", "16384"),
    "population": bench("train", "--population", "8", "--batch_tokens", "2048"),
    "alone": bench("train", "--batch_tokens", "2048"),
    "memory": memory,
    "translate": bench("translate"),
    "start": start,
    "multi30k": grid("multi30k", "paper", "--directory", MULTI30K, "--workers", "3", *SEEDS),
    "demo": grid("table3", "demo", *AS_ON_CPU),
    "hour": grid("table3", "hour", *AS_ON_CPU),
    "scale": scale_grids,
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
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", cache)
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
