"""Table 3 and the benchmarks on a GPU: checks, speed, memory, profiles and grids, part by part.

    launch/local.sh prepare multi30k_quick
    launch/local.sh experiments/gpu.py [--sizes tiny] [PART ...]

Writes experiments/results/gpu/PART. Parts that are done are skipped, and a part that fails does not
stop the others. It runs on a CPU, too. No results of a GPU are stored yet, so neither the time nor
the numbers to expect are known.
"""

import argparse
import collections
import gzip
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "gpu"
SIZES = ["tiny", "base", "big"]


def call(out, *words):
    """Runs a command of `t2t-jax`, keeps what it prints, and returns whether it succeeded."""
    command = [sys.executable, "-m", "t2t_jax.cli", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    (out / "printed.txt").write_text(done.stdout)
    return not done.returncode


def bench(*words):
    """Returns a part that runs one benchmark."""

    def part(out, sizes):
        options = ["--sizes", *sizes] if words[0] in ("train", "translate") else []
        return call(out, "bench", *words, *options, "--out", str(out))

    return part


def grid(preset, *words):
    """Returns a part that runs Table 3 at a preset and keeps its results without checkpoints."""

    def part(out, sizes):
        study = ["table3", "--preset", preset, "--store", "runs/gpu"]
        succeeded = call(out, "run", *study, *words)
        return call(out, "publish", *study, "--to", str(out)) and succeeded

    return part


def doctor(out, sizes):
    return call(out, "doctor")


def flash(out, sizes):
    """Compares scaled dot-product attention as XLA compiles it with cuDNN's kernel.

    8 heads of 64, causal and not, in bf16. An error is the largest difference from float32 over the
    largest value, for the output and the three gradients.
    """
    import jax
    import jax.numpy as jnp

    results = {}
    for n in (64, 256, 1024, 4096):
        keys = jax.random.split(jax.random.key(n), 4)
        shape = max(1, batch_tokens() // n), n, 8, 64
        arguments = [jax.random.normal(key, shape) for key in keys]
        half = [x.astype(jnp.bfloat16) for x in arguments]
        for causal in (False, True):
            result = results[f"{n}, causal" if causal else f"{n}"] = {}
            with jax.default_matmul_precision("highest"):
                expected = value_and_gradients(xla_attention, causal)(*arguments)
            for name, function in {"XLA": xla_attention, "cuDNN": cudnn_attention}.items():
                try:
                    run = value_and_gradients(function, causal)
                    errors = jax.tree.map(relative_error, run(*half), expected)
                    result[name] = {"ms": 1e3 * median_seconds(run, half), "errors": errors}
                except Exception as error:  # a device without such a kernel is a result, too
                    result[name] = str(error).split("\n")[0]
    write_results(out / "flash.json", results)
    return True


def xla_attention(q, k, v, causal):
    import jax.numpy as jnp

    from t2t_jax.attention import build
    from t2t_jax.attention.visibility import Visibility

    lengths = jnp.full(q.shape[0], q.shape[1], jnp.int32)
    visibility = Visibility(lengths, lengths, causal=causal)
    return build("scaled_dot_product").apply({}, q, k, v, visibility)


def cudnn_attention(q, k, v, causal):
    import jax

    return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn")


def value_and_gradients(function, causal):
    """Returns a compiled function of q, k, v and a direction: output and gradients along it."""
    import jax

    def run(q, k, v, direction):
        out, pull_back = jax.vjp(lambda *x: function(*x, causal), q, k, v)
        return out, *pull_back(direction.astype(out.dtype))

    return jax.jit(run)


def relative_error(x, expected):
    return float(abs(x - expected).max() / abs(expected).max())


def median_seconds(run, arguments):
    """Returns the median time of 10 calls, after one that compiles."""
    import jax

    def seconds():
        start = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        return time.perf_counter() - start

    seconds()
    return statistics.median(seconds() for _ in range(10))


def memory(out, sizes):
    """Measures the memory of a step of 25,000 tokens a side, by the number of accumulated parts."""
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


def profile(out, sizes):
    """Profiles a round of steps: the hundred kernels of each size that take most time."""
    import jax

    from t2t_jax.bench import train
    from t2t_jax.bench.workload import workload

    results = {}
    for size in sizes:
        steps = train.Steps(workload(size, batch_tokens()))
        steps()
        with tempfile.TemporaryDirectory() as directory:
            with jax.profiler.trace(directory):
                steps()
            results[size] = kernels(next(Path(directory).rglob("*.trace.json.gz")))
    write_results(out / "profile.json", results)
    return True


def kernels(trace):
    """Returns the milliseconds of each kernel on the tracks of the device, the longest first."""
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    tracks = {
        (e["pid"], e.get("tid")): e["args"]["name"]
        for e in events
        if e.get("name") in ("process_name", "thread_name")
    }
    times = collections.Counter()
    for e in events:
        track = tracks.get((e.get("pid"), None), "") + tracks.get((e.get("pid"), e.get("tid")), "")
        kernel = e.get("ph") == "X" and "::" not in e["name"]  # others are scopes of several
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


PARTS = {
    "doctor": doctor,
    "train": bench("train"),
    "population": bench("train", "--population", "8", "--batch_tokens", "2048"),
    "alone": bench("train", "--batch_tokens", "2048"),
    "flash": flash,
    "memory": memory,
    "profile": profile,
    "translate": bench("translate"),
    "attention": bench("attention"),
    "start": bench("start"),
    "demo": grid("demo"),
    "grid": grid("multi30k", "--seeds", "3"),
}


def run_part(name, out, sizes):
    sys.exit(not PARTS[name](out, sizes))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", default=[*PARTS], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    failed = False
    for name in arguments.parts:
        out, start = arguments.out / name, time.monotonic()
        if (out / "done").exists():
            continue
        out.mkdir(parents=True, exist_ok=True)
        # In a process of its own, which has all of the GPU's memory.
        process = multiprocessing.get_context("spawn").Process(
            target=run_part, args=(name, out, arguments.sizes)
        )
        process.start()
        process.join()
        print(name, "failed" if process.exitcode else f"{time.monotonic() - start:.0f} s")
        failed |= bool(process.exitcode)
        if not process.exitcode:
            (out / "done").touch()
    sys.exit(failed)


if __name__ == "__main__":
    main()
