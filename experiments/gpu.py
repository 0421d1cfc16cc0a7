"""Table 3 and the benchmarks on a GPU: checks, speed, memory, profiles and grids, part by part.

    launch/local.sh experiments/gpu.py [--sizes tiny] [PART ...]
    python -m experiments.gpu ...                  where nothing can be installed

Writes experiments/results/gpu/PART. Parts that are done are skipped, and a part that fails does not
stop the others. A part is stopped after 9 minutes; the same command then continues a grid, and
starts any other part again. Most of the time is compilation, 20 s for a training step of base on an
H200 with 16 cores, so that all parts share the programs that one has compiled. Programs are not
compiled side by side: the tuning of 26 at a time took more than 150 s. Those of a grid, which
several processes compile at once, are not tuned. It also runs on a CPU. It needs only the built-in
corpus and the packages jax, flax, optax, orbax-checkpoint, sacrebleu, sentencepiece, matplotlib,
jinja2 and packaging; `peers` needs PyTorch, and `multi30k` needs sacremoses and the files of the
corpus in runs/data/multi30k.
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

RESULTS = Path(__file__).parent / "results" / "gpu"
SIZES = ["tiny", "base", "big"]
LIMIT = 9 * 60  # seconds of a part
PLAIN = "base, plain"  # base with plain definitions in place of kernels
MULTI30K = "runs/data/multi30k"
UNTUNED = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"  # 30 s a small program
SEEDS = "--seeds", "3"
AS_ON_CPU = *SEEDS, "--dtype", "float32"


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


def doctor(out, sizes):
    call(out, "doctor")
    return True  # a missing package is a finding


def flash(out, sizes):
    """Compares scaled dot-product attention as XLA compiles it with cuDNN's kernel.

    8 heads of 64, causal and not, in bf16. An error is the largest difference from float32, divided
    by the largest value, for the output and the three gradients.
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


def kernels(out, sizes):
    """Compares every kernel of `t2t_jax/ops` with its plain definition: exactness, then time.

    An error is the largest difference of a value or gradient from the plain definition in float32,
    divided by the largest value. The part fails if the error of a kernel in bfloat16 is more than 4
    times that of the plain definition in bfloat16.
    """
    import jax
    import jax.numpy as jnp

    results, exact = {}, True
    for name, (fused, plain, arguments) in kernel_cases().items():
        half = [x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x for x in arguments]
        with jax.default_matmul_precision("highest"):
            expected = value_and_gradients_of(plain)(*arguments)
        result = results[name] = {}
        for label, function in {"plain": plain, "kernel": fused}.items():
            run = value_and_gradients_of(function)
            errors = jax.tree.map(relative_error, run(*half), expected)
            result[label] = {"ms": 1e3 * median_seconds(run, half), "errors": errors}
        worst = {label: max(flat(x["errors"])) for label, x in result.items()}
        exact &= worst["kernel"] <= 4 * worst["plain"] + 1e-6
        write_results(out / "kernels.json", results)
    (out / "kernels.txt").write_text("\n".join(table_of_kernels(results)) + "\n")
    return exact


def table_of_kernels(results):
    """Returns lines, one for each kernel."""
    header = ("value and gradients", "plain (ms)", "kernel (ms)", "faster", "error", "of kernel")
    lines = ["{:26}{:>12}{:>13}{:>9}{:>10}{:>11}".format(*header)]
    for name, x in results.items():
        plain, kernel = x["plain"]["ms"], x["kernel"]["ms"]
        errors = [max(flat(x[label]["errors"])) for label in ("plain", "kernel")]
        cells = f"{plain:.2f}", f"{kernel:.2f}", f"{plain / kernel:.1f}x"
        cells += tuple(f"{error:.4f}" for error in errors)
        lines.append("{:26}{:>12}{:>13}{:>9}{:>10}{:>11}".format(name, *cells))
    return lines


def flat(errors):
    """Returns the numbers of nested lists."""
    return [x for e in errors for x in flat(e)] if isinstance(errors, list | tuple) else [errors]


def kernel_cases():
    """Returns (kernel, plain definition, float32 arguments) by name, at base's sizes.

    Both functions return a scalar; it is differentiated with respect to the float32 arguments.
    """
    import jax
    import jax.numpy as jnp

    from t2t_jax.attention import build
    from t2t_jax.attention.visibility import Visibility
    from t2t_jax.ops import cross_entropy, feed_forward, flash_attention, window_attention

    B, T, d, f, V = max(1, batch_tokens() // 64), 64, 512, 2048, 37_000
    keys = iter(jax.random.split(jax.random.key(0), 20))

    def normal(*shape, scale=1.0):
        return scale * jax.random.normal(next(keys), shape)

    lengths = jax.random.randint(next(keys), (B,), 1, T + 1)
    present = jnp.arange(T)[None] < lengths[:, None]
    target = jnp.where(present, jax.random.randint(next(keys), (B, T), 1, V), 0)
    smoothing = jnp.float32(0.9), jnp.float32(0.1 / V)
    qkv = [normal(B, T, 8, 64) for _ in range(3)]
    far = [normal(1, 4096, 8, 64) for _ in range(3)]
    all_keys = jnp.full(1, 4096)

    def loss(function):
        return lambda x, W: function(x, W, target, *smoothing)[0]

    def summed(function):
        return lambda *x: (function(*x) ** 2).sum(dtype=jnp.float32)

    def attention(function):
        def of_present(q, k, v):
            attended = function(q, k, v, lengths, lengths, True, 0.125)
            return jnp.where(present[:, :, None, None], attended, 0)

        return summed(of_present)

    def window(function):
        return summed(lambda q, k, v: function(q, k, v, all_keys, all_keys, 64, True, 0.125)[0])

    def mechanism(name, **method):
        def attended(*x):
            return build(name).apply({}, *x, Visibility(causal=True), **method)

        return summed(attended)

    layer = normal(B, T, d), normal(d, f, scale=d**-0.5), normal(f), normal(f, d, scale=f**-0.5)
    cases = {
        "cross_entropy": (loss, cross_entropy, (normal(B, T, d), normal(V, d, scale=d**-0.5))),
        "feed_forward": (summed, feed_forward, layer),
        "flash_attention": (attention, flash_attention, qkv),
        "window_attention": (window, window_attention, far),
    }
    sparse = "sparse_strided:l=64", "sparse_fixed:l=64,c=1", "sparse_random:b=32,r=2"
    return {
        name: (wrap(getattr(module, name)), wrap(module.plain), arguments)
        for name, (wrap, module, arguments) in cases.items()
    } | {
        name: (mechanism(name, method="run"), mechanism(name), far) for name in (*sparse, "linear")
    }


def value_and_gradients_of(function):
    """Returns a compiled function: the value of a scalar function and all its gradients."""
    import jax

    def run(*x):
        return jax.value_and_grad(function, tuple(range(len(x))))(*x)

    return jax.jit(run)


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

    The bound is that of the program of each shape; `shapes` says how often a round has it.
    """
    import jax

    from t2t_jax.bench import roofline, train
    from t2t_jax.bench.devices import DEVICES

    kind = jax.devices()[0].device_kind.lower()
    device = next((x for name, x in DEVICES.items() if name in kind), None)
    results = {"batch_tokens": batch_tokens(), "population": 1, "rounds": train.ROUNDS, "sizes": {}}
    for name, w in step_cases(sizes).items():
        made = train.Steps(w)
        size = results["sizes"][name] = train.measure_steps(name, w, made, print)
        write_results(out / "steps.json", results)
        size["shapes"] = []
        for shapes, program in made.programs.items():
            found = roofline.kernels(program.run.as_text())
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
    lines = train.table(json.loads((out / "steps.json").read_text()))
    (out / "steps.txt").write_text("\n".join(lines) + "\n")
    return True


def peers(out, sizes):
    """Measures the training steps of PyTorch's nn.Transformer on the batches of base."""
    from t2t_jax.bench import train, workload

    tokens, results = batch_tokens(), {}
    count = workload.count_tokens(workload.batches(workload.workload("base", tokens)))
    for name, options in {"eager": (), "compiled": ("compiled",)}.items():
        words = ["experiments/peers/pytorch.py", "train", "base", str(tokens), *options]
        process = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": "."},
        )
        printed, _ = process.communicate("\n" * train.ROUNDS)
        if process.returncode:
            return False
        (first, version), *rounds = map(str.split, printed.splitlines())
        seconds = statistics.median(float(line[0]) for line in rounds)
        results[f"base, {name}"] = {
            "seconds": seconds / workload.BATCHES,
            "tokens_per_second": count / seconds,
            "first_round": float(first),
            "PyTorch": version,
        }
        write_results(out / "peers.json", results)
    (out / "peers.txt").write_text("\n".join(table_of_peers(results)) + "\n")
    return True


def table_of_peers(results):
    """Returns lines, one for each way to run PyTorch."""
    return [f"{'training steps of PyTorch':28}{'ms a step':>10}{'tokens/s':>12}"] + [
        f"{name:28}{1e3 * x['seconds']:>10.1f}{x['tokens_per_second']:>12,.0f}"
        for name, x in results.items()
    ]


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
    times = collections.Counter()
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
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    return call(out, "bench", "start", "--out", str(out))


PARTS = {
    "doctor": doctor,
    "steps": steps,
    "kernels": kernels,
    "peers": peers,
    "flash": flash,
    "attention": bench("attention", "--lengths", "1024", "4096", "16384"),
    "population": bench("train", "--population", "8", "--batch_tokens", "2048"),
    "alone": bench("train", "--batch_tokens", "2048"),
    "memory": memory,
    "translate": bench("translate"),
    "start": start,
    "multi30k": grid("multi30k", "paper", "--directory", MULTI30K, "--workers", "3", *SEEDS),
    "demo": grid("table3", "demo", "--workers", "8", *AS_ON_CPU),
    "hour": grid("table3", "hour", "--workers", "8", *AS_ON_CPU),
    "night": grid("table3", "night", "--workers", "8", *AS_ON_CPU),
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
