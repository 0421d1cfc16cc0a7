"""What a GPU does: checks, speed, memory, profiles, and Table 3 on real text, part by part.

    launch/local.sh experiments/gpu.py [--sizes tiny] [PART ...]

Writes experiments/results/gpu; a part that is done is not done again, and one that fails is said to
have and leaves the others be. Runs on a CPU, too. Multi30k is to be in the cache: `prepare` puts it
there.
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
TOKENS = 25_000, 2048  # a side, on an accelerator and on a CPU


def call(out, *words):
    """One command of `t2t-jax`, what it printed kept; whether it went well."""
    command = [sys.executable, "-m", "t2t_jax.cli", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    (out / "printed.txt").write_text(done.stdout)
    return not done.returncode


def bench(*words):
    """A part that is one benchmark."""

    def part(out, sizes):
        options = ["--sizes", *sizes] if words[0] in ("train", "translate") else []
        return call(out, "bench", *words, *options, "--out", str(out))

    return part


def grid(preset, *words):
    """A part that is Table 3 at a scale, its results kept without checkpoints."""

    def part(out, sizes):
        study = ["table3", "--preset", preset, "--store", "runs/gpu"]
        ran = call(out, "run", *study, *words)
        return call(out, "publish", *study, "--to", str(out)) and ran

    return part


def doctor(out, sizes):
    return call(out, "doctor")


def flash(out, sizes):
    """Scaled dot products as XLA compiles them and by cuDNN's kernel: errors and times.

    8 heads of 64, causal and not, in bf16; the error is the largest difference from
    float32 over the largest value, of the output and of the three gradients.
    """
    import jax
    import jax.numpy as jnp

    from t2t_jax.attention import build
    from t2t_jax.attention.visibility import Visibility

    def ours(q, k, v, causal):
        n = jnp.full(q.shape[0], q.shape[1], jnp.int32)
        seen = Visibility(n, n, causal=causal)
        return build("scaled_dot_product").apply({}, q, k, v, seen)

    def theirs(q, k, v, causal):
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn")

    found = {}
    for n in (64, 256, 1024, 4096):
        keys = jax.random.split(jax.random.key(n), 4)
        given = [jax.random.normal(key, (max(1, tokens() // n), n, 8, 64)) for key in keys]
        for causal in (False, True):
            at = found[f"{n}, causal" if causal else f"{n}"] = {}
            with jax.default_matmul_precision("highest"):
                wanted = passes(ours, causal)(*given)
            half = [x.astype(jnp.bfloat16) for x in given]
            for name, function in {"XLA": ours, "cuDNN": theirs}.items():
                try:
                    run = passes(function, causal)
                    errors = jax.tree.map(apart, run(*half), wanted)
                    at[name] = {"ms": 1e3 * seconds(run, half), "errors": errors}
                except Exception as error:  # no such kernel here: that is the finding
                    at[name] = str(error).split("\n")[0]
    (out / "flash.json").write_text(json.dumps(found | {"environment": where()}, indent=1))
    return True


def passes(function, causal):
    """Value and gradients of attention against a random direction, compiled."""
    import jax

    def run(q, k, v, direction):
        out, back = jax.vjp(lambda *x: function(*x, causal), q, k, v)
        return out, *back(direction.astype(out.dtype))

    return jax.jit(run)


def apart(x, y):
    return float(abs(x - y).max() / abs(y).max())


def seconds(run, given):
    import jax

    def once():
        begun = time.perf_counter()
        jax.block_until_ready(run(*given))
        return time.perf_counter() - begun

    once()
    return statistics.median(once() for _ in range(10))


def memory(out, sizes):
    """Bytes that a step of 25,000 tokens a side needs, by the number of parts it is taken in."""
    from t2t_jax import config
    from t2t_jax.bench import train, work

    found = {}
    for size in sizes:
        s = work.size(size, tokens())
        for parts in (1, 2, 4):
            c = config.replace(s.c, accumulate=parts)
            steps = train.Steps(work.Size(c, s.V, s.mean))
            steps.batches = steps.batches[:1]
            steps()
            found[f"{size}, {parts}"] = max(p.memory for p in steps.programs.values())
    (out / "memory.json").write_text(json.dumps(found | {"environment": where()}, indent=1))
    return True


def profile(out, sizes):
    """Where a step's time goes: each size's hundred longest kernels."""
    import jax

    from t2t_jax.bench import train, work

    found = {}
    for size in sizes:
        steps = train.Steps(work.size(size, tokens()))
        steps()
        with tempfile.TemporaryDirectory() as directory:
            with jax.profiler.trace(directory):
                steps()
            found[size] = kernels(next(Path(directory).rglob("*.trace.json.gz")))
    (out / "profile.json").write_text(json.dumps(found | {"environment": where()}, indent=1))
    return True


def kernels(trace):
    """Milliseconds by name, of what ran on the device's own rows of a trace."""
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    rows = {
        (e["pid"], e.get("tid")): e["args"]["name"]
        for e in events
        if e.get("name") in ("process_name", "thread_name")
    }
    spent = collections.Counter()
    for e in events:
        device = rows.get((e.get("pid"), None), "") + rows.get((e.get("pid"), e.get("tid")), "")
        kernel = e.get("ph") == "X" and "::" not in e["name"]  # not a scope around several
        if kernel and ("Stream" in device or "XLAEigen" in device):
            spent[e["name"]] += e["dur"] / 1e3
    return dict(spent.most_common(100))


def tokens():
    import jax

    return TOKENS[jax.default_backend() == "cpu"]


def where():
    from t2t_jax.environment import environment

    return environment()


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


def do(name, out, sizes):
    sys.exit(not PARTS[name](out, sizes))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", default=[*PARTS], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    failed = False
    for name in arguments.parts:
        out, begun = arguments.out / name, time.monotonic()
        if (out / "done").exists():
            continue
        out.mkdir(parents=True, exist_ok=True)
        # Each in a process of its own, which has the whole GPU.
        process = multiprocessing.get_context("spawn").Process(
            target=do, args=(name, out, arguments.sizes)
        )
        process.start()
        process.join()
        print(name, "failed" if process.exitcode else f"{time.monotonic() - begun:.0f} s")
        failed |= bool(process.exitcode)
        if not process.exitcode:
            (out / "done").touch()
    sys.exit(failed)


if __name__ == "__main__":
    main()
