"""Times on a device: the kernels of a training step, its variants, and mechanisms by length.

    python -m experiments.tools.steps SIZE TOKENS CHANGES       one variant of a step, as JSON

They are the parts `profile`, `variants` and `attention` of `gpu.py`.
"""

import collections
import dataclasses
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path
from typing import Any

LONGEST = 25  # kernels that a profile lists
REPEATS = 20
FLOAT32 = "float32, plain"  # the loss of the others is compared with its loss
DEFAULT = "default"
# Fields of the config, and variables of the environment.
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    FLOAT32: (dict(dtype="float32", kernels="plain"), {}),
    DEFAULT: ({}, {}),
    "plain definitions": (dict(kernels="plain"), {}),
    "dropout by RBG": ({}, {"JAX_DEFAULT_PRNG_IMPL": "rbg"}),
    "no dropout": (dict(P_drop=0.0), {}),
    "no tuning": ({}, {"XLA_FLAGS": "--xla_gpu_autotune_level=0"}),
    "no command buffers": ({}, {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}),
    "no Triton products": ({}, {"XLA_FLAGS": "--xla_gpu_enable_triton_gemm=false"}),
    "one shape of batch": (dict(num_buckets=1), {}),
    "8 shapes of batches": (dict(num_buckets=8), {}),
    "two accumulated parts": (dict(accumulate=2), {}),
}


def profile(w: Any) -> dict[str, Any]:
    """Returns the time of a step on the first batch of a workload, and of each of its kernels.

    Those in a loop are summed. The bound of a kernel is that of `roofline.py`, on a known device.
    """
    import jax

    from experiments.tools import roofline
    from experiments.tools.devices import DEVICES
    from t2t_jax.bench import train

    kind = jax.devices()[0].device_kind.lower()
    device = next((x for name, x in DEVICES.items() if name in kind), None)
    made = train.Steps(w)
    made.batches = made.batches[:1]
    made()  # compiles
    seconds = statistics.median(timeit.repeat(made, number=1, repeat=REPEATS))
    (program,) = made.programs.values()
    compiled: Any = program.run
    found = {k.name: k for k in roofline.kernels(compiled.as_text())}
    with tempfile.TemporaryDirectory() as directory:
        with jax.profiler.trace(directory):
            made()
        times = times_of_kernels(next(Path(directory).rglob("*.trace.json.gz")))
    kernels = [
        {"kernel": name, "ms": ms, "times": count}
        | ({"part": roofline.part(found[name].where)} if name in found else {})
        | (
            {"least_ms": 1e3 * count * found[name].seconds(device)}
            if name in found and device
            else {}
        )
        for name, (ms, count) in times.items()
    ]
    shape = {side: list(x.shape[-2:]) for side, x in made.batches[0].items()}
    return {"ms": 1e3 * seconds, "batch": shape, "kernels": kernels}


def times_of_kernels(trace: Path) -> dict[str, tuple[float, int]]:
    """Returns milliseconds and number of runs by operation of the program, the longest first.

    Only the tracks of the device's own kernels count. On a CPU they have a part of the operations.
    """
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    tracks = {
        (e["pid"], e.get("tid")): e["args"]["name"]
        for e in events
        if e.get("name") in ("process_name", "thread_name")
    }
    times, counts = collections.Counter[str](), collections.Counter[str]()
    for e in events:
        track = tracks.get((e.get("pid"), e.get("tid")), "")
        kernel = e.get("ph") == "X" and "::" not in e["name"]  # others are scopes of many kernels
        if kernel and ("Stream" in track or "XLAEigen" in track):
            name = e.get("args", {}).get("hlo_op", e["name"])
            times[name] += e["dur"] / 1e3
            counts[name] += 1
    return {name: (ms, counts[name]) for name, ms in times.most_common()}


def profile_table(name: str, found: dict[str, Any]) -> str:
    """Returns the longest kernels of a step, and all kernels by part of the model."""
    kernels, total = found["kernels"], sum(x["ms"] for x in found["kernels"])
    line = "{:>9}{:>9}{:>8}{:>8}{:>8}  {:40}{}".format
    head = line("ms", "bound", "ratio", "share", "times", "part", "kernel")

    def shown(x: dict[str, Any], kernel: str) -> str:
        least = x.get("least_ms")
        bound = (f"{least:.3f}", f"{x['ms'] / least:.1f}") if least else ("", "")
        share = f"{x['ms'] / total:.1%}"
        return line(f"{x['ms']:.3f}", *bound, share, x["times"], x.get("part", ""), kernel)

    parts: dict[str, dict[str, Any]] = {}
    for x in kernels:
        part = parts.setdefault(x.get("part", "other"), collections.Counter[str]())
        part.update({key: x[key] for key in ("ms", "least_ms", "times") if key in x})
    by_part = sorted(parts.items(), key=lambda item: -item[1]["ms"])
    sides = " and ".join(f"{side} {B} x {n}" for side, (B, n) in found["batch"].items())
    title = f"{name}, {sides}: {found['ms']:.2f} ms a step, {total:.2f} ms in kernels"
    lines = [title, head, *(shown(x, x["kernel"]) for x in kernels[:LONGEST]), ""]
    return "\n".join([*lines, head, *(shown({**x, "part": name}, "") for name, x in by_part), ""])


def measure_variant(size: str, tokens: int, changes: dict[str, Any]) -> dict[str, float]:
    """Returns milliseconds a step, tokens a second, and the loss after a round of 8 steps."""
    from t2t_jax import config
    from t2t_jax.bench import train, workload

    w = workload.workload(size, tokens)
    w = dataclasses.replace(w, c=config.replace(w.c, **changes))
    made = train.Steps(w)
    loss = float(made().loss)
    rounds = max(3, REPEATS // len(made.batches))
    seconds = statistics.median(timeit.repeat(made, number=1, repeat=rounds))
    count = workload.count_tokens(made.batches)
    ms = 1e3 * seconds / len(made.batches)
    return {"ms": ms, "tokens_per_second": count / seconds, "loss": loss}


def variants(size: str, tokens: int, known: dict[str, Any]) -> Any:
    """Yields the results so far, by name, after each variant that is not known yet, or has failed.

    Each has a process of its own, as flags of XLA are read once.
    """
    for name, (changes, variables) in VARIANTS.items():
        if known.get(name):
            continue
        words = [sys.executable, "-m", "experiments.tools.steps", size, str(tokens)]
        flags = f"{os.environ.get('XLA_FLAGS', '')} {variables.get('XLA_FLAGS', '')}"
        done = subprocess.run(
            [*words, json.dumps(changes)],
            env=os.environ | variables | {"XLA_FLAGS": flags},
            stdout=subprocess.PIPE,
            text=True,
        )
        known |= {name: json.loads(done.stdout) if done.returncode == 0 else {}}
        yield known


def attention_table(sizes: dict[str, Any], known: dict[str, Any], bounds: dict[str, Any]) -> str:
    """Returns a line for each mechanism and length.

    The bound is that of value and gradient. FLOP/s are those of all pairs that are seen, 4 d_k for
    each and head in the forward pass and 2.5 times as many in the backward pass, as they are
    usually counted.
    """
    line = "{:20}{:>8}{:>13}{:>13}{:>9}{:>8}{:>10}".format
    shape = f"B = {sizes['B']}, h = {sizes['h']}, d_k = d_v = {sizes['d_k']}, {sizes['dtype']}"
    head = line("mechanism", "n", "forward, ms", "+ backward", "bound", "ratio", "TFLOP/s")
    lines = [shape, head]
    for name, curves in known.items():
        least = {x["n"]: x["ms"] for x in bounds.get(name, [])}
        pairs = (
            3.5 * 4 * sizes["B"] * sizes["h"] * sizes["d_k"] / (2 if curves.get("causal") else 1)
        )
        forward = {x["n"]: 1e3 * x["seconds"] for x in curves.get("forward", [])}
        for x in curves.get("at", []):
            n, ms = x["n"], 1e3 * x["seconds"]
            bound = (f"{least[n]:.3f}", f"{ms / least[n]:.1f}") if n in least else ("", "")
            speed = f"{pairs * n * n / ms / 1e9:.0f}" if name == "scaled_dot_product" else ""
            before = f"{forward[n]:.3f}" if n in forward else ""
            lines.append(line(name, f"{n:,}", before, f"{ms:.3f}", *bound, speed))
    return "\n".join(lines) + "\n"


def variants_table(known: dict[str, Any]) -> str:
    """Returns a line for each variant, the fastest first."""
    line = "{:24}{:>10}{:>13}{:>12}{:>12}{:>14}".format
    lines = [line("variant", "ms a step", "tokens/s", "to default", "loss", "from float32")]
    measured = {name: x for name, x in known.items() if x}
    usual = measured.get(DEFAULT, {}).get("tokens_per_second")
    exact = measured.get(FLOAT32, {}).get("loss")
    for name, x in sorted(measured.items(), key=lambda item: -item[1]["tokens_per_second"]):
        faster = f"{x['tokens_per_second'] / usual - 1:+.1%}" if usual else ""
        error = f"{x['loss'] / exact - 1:+.2%}" if exact else ""
        speed = f"{x['tokens_per_second']:,.0f}"
        lines.append(line(name, f"{x['ms']:.2f}", speed, faster, f"{x['loss']:.4f}", error))
    return "\n".join(lines + [f"{name} failed" for name in known if not known[name]]) + "\n"


if __name__ == "__main__":
    size, tokens, changes = sys.argv[1:]
    print(json.dumps(measure_variant(size, int(tokens), json.loads(changes))))
