"""Times on a device: the kernels of a training step, its variants, and mechanisms by length.

    python -m experiments.tools.steps SIZE TOKENS VARIANT       one variant of a step, as JSON

They are the parts `profile`, `variants` and `attention` of `gpu.py`.
"""

import collections
import dataclasses
import gzip
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

LONGEST = 25  # kernels that a profile lists
FLOAT32 = "float32, plain"  # loss and gradient of the others are compared with its own
DEFAULT = "default"
FAR = {"loss": 0.01, "grad_norm": 0.1}  # relative errors from which a variant is marked


# In a command buffer (a CUDA graph), every kernel has the name of the buffer in a trace.
NO_COMMAND_BUFFERS = "--xla_gpu_enable_command_buffer="


class Variant(NamedTuple):
    """A way to compute a step.

    Attributes:
      config: the fields of the config that differ.
      flags: of XLA.
      plain: functions of `t2t_jax/ops` in whose place their plain definitions are used.
      prng: JAX's generator of the keys of a step; the keys of parameters stay.
      shapes: the number of shapes of a round of batches; without it every batch is the first one.
    """

    config: Mapping[str, Any] = {}
    flags: str = ""
    plain: tuple[str, ...] = ()
    prng: str = ""
    shapes: int = 0


VARIANTS = {
    FLOAT32: Variant(dict(dtype="float32", kernels="plain")),
    DEFAULT: Variant(),
    "no kernels": Variant(dict(kernels="plain")),
    "plain flash_attention": Variant(plain=("flash_attention",)),
    "plain cross_entropy": Variant(plain=("cross_entropy",)),
    "plain dropout, Threefry": Variant(plain=("dropout",)),
    "plain dropout, RBG": Variant(plain=("dropout",), prng="rbg"),
    "no dropout": Variant(dict(P_drop=0.0)),
    "no tuning": Variant(flags="--xla_gpu_autotune_level=0"),
    "no command buffers": Variant(flags=NO_COMMAND_BUFFERS),
    "no Triton products": Variant(flags="--xla_gpu_enable_triton_gemm=false"),
    "two accumulated parts": Variant(dict(accumulate=2)),
    "batches of 4 shapes": Variant(shapes=4),
    "batches of 1 shape": Variant(shapes=1),
    "batches of 8 shapes": Variant(shapes=8),
}


def known_device() -> Any:
    """Returns the entry of this device in `DEVICES`; None if it has none."""
    import jax

    from experiments.tools.devices import DEVICES

    kind = jax.devices()[0].device_kind.lower()
    return next((x for name, x in DEVICES.items() if name in kind), None)


def seconds_a_step(made: Any) -> float:
    """Returns the median time of a step over rounds, after a round that compiles."""
    from t2t_jax.bench import train

    made()
    rounds = timeit.repeat(made, number=1, repeat=train.ROUNDS)
    return statistics.median(rounds) / len(made.batches)


def profile(w: Any) -> dict[str, Any]:
    """Returns the time of a step on the first batch of a workload, and of each of its kernels.

    Kernels in a loop are summed. The bound of a kernel comes from `roofline.py`, on a known device.
    XLA must run without command buffers.
    """
    import jax

    from experiments.tools import roofline
    from t2t_jax.bench import train

    device, made = known_device(), train.Steps(w)
    first = made.batches[:1]
    made.batches = first * len(made.batches)  # as in training, the device never waits for the host
    seconds, made.batches = seconds_a_step(made), first
    (program,) = made.programs.values()
    compiled: Any = program.run
    found = {k.name: k for k in roofline.kernels(compiled.as_text())}
    with tempfile.TemporaryDirectory() as directory:
        with jax.profiler.trace(directory):
            made()
        times = times_of_kernels(next(Path(directory).rglob("*.trace.json.gz")))
    kernels = list[dict[str, Any]]()
    for name, (ms, count) in times.items():
        kernel: dict[str, Any] = {"kernel": name, "ms": ms, "times": count}
        if name in found:
            kernel["part"] = roofline.part(found[name].where)
        if name in found and device:
            kernel["least_ms"] = 1e3 * count * found[name].seconds(device)
        kernels.append(kernel)
    shape = {side: list(x.shape[-2:]) for side, x in first[0].items()}
    return {"ms": 1e3 * seconds, "batch": shape, "kernels": kernels}


def times_of_kernels(trace: Path) -> dict[str, tuple[float, int]]:
    """Returns milliseconds and number of runs by operation of the program, the longest first.

    Only the tracks of the device's own kernels count. An operation may launch several kernels in a
    run, such as the three of cuDNN's backward pass. A CPU has no such tracks.
    """
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    tracks = {
        (e["pid"], e.get("tid")): e["args"]["name"]
        for e in events
        if e.get("name") in ("process_name", "thread_name")
    }
    times = collections.Counter[str]()
    counts = collections.defaultdict[str, collections.Counter[str]](collections.Counter)
    for e in events:
        track = tracks.get((e.get("pid"), e.get("tid")), "")
        if e.get("ph") == "X" and "Stream" in track:
            name = e.get("args", {}).get("hlo_op", e["name"])
            times[name] += e["dur"] / 1e3
            counts[name][e["name"]] += 1
    return {name: (ms, max(counts[name].values())) for name, ms in times.most_common()}


def profile_table(name: str, found: dict[str, Any]) -> str:
    """Returns the longest kernels of a step, and all kernels by part of the model."""
    kernels, total = found["kernels"], sum(x["ms"] for x in found["kernels"])
    between = found["ms"] - total
    line = "{:>9}{:>9}{:>8}{:>8}{:>8}  {:40}{}".format
    head = line("ms", "bound", "ratio", "share", "times", "part", "kernel")

    def shown(x: dict[str, Any], kernel: str) -> str:
        least = x.get("least_ms")
        bound = (f"{least:.3f}", f"{x['ms'] / least:.1f}") if least else ("", "")
        share = f"{x['ms'] / found['ms']:.1%}"
        return line(f"{x['ms']:.3f}", *bound, share, x["times"], x.get("part", ""), kernel)

    parts: dict[str, dict[str, Any]] = {}
    for x in kernels:
        part = parts.setdefault(x.get("part", "other"), collections.Counter[str]())
        part.update({key: x[key] for key in ("ms", "least_ms", "times") if key in x})
    by_part = sorted(parts.items(), key=lambda item: -item[1]["ms"])
    sides = " and ".join(f"{side} {B} x {n}" for side, (B, n) in found["batch"].items())
    title = (
        f"{name}, {sides}, no command buffers: {found['ms']:.2f} ms a step, {total:.2f} in kernels"
    )
    title += f", {between:.2f} between them"
    lines = [title, head, *(shown(x, x["kernel"]) for x in kernels[:LONGEST]), ""]
    return "\n".join([*lines, head, *(shown({**x, "part": name}, "") for name, x in by_part), ""])


def use_plain(op: str) -> None:
    """Replaces a function of `t2t_jax/ops` by its plain definition wherever it is imported."""
    module = importlib.import_module(f"t2t_jax.ops.{op}")
    fast = getattr(module, op)
    for user in [x for name, x in sys.modules.items() if name.startswith("t2t_jax.")]:
        if getattr(user, op, None) is fast:
            setattr(user, op, module.plain)


def measure_variant(size: str, tokens: int, v: Variant) -> dict[str, float]:
    """Returns the speed of a step, and the loss and gradient norm of the first."""
    import jax

    from t2t_jax import config
    from t2t_jax.bench import train, workload

    shapes = {"num_buckets": v.shapes} if v.shapes else {}
    w = workload.workload(size, tokens)
    w = dataclasses.replace(w, c=config.replace(w.c, **v.config, **shapes))
    made = train.Steps(w)
    if v.prng:
        jax.config.update("jax_default_prng_impl", v.prng)
    for op in v.plain:
        use_plain(op)
    batches = made.batches
    made.batches = batches[:1]
    first = made()
    made.batches = batches if v.shapes else batches[:1] * len(batches)
    seconds, count = seconds_a_step(made), workload.count_tokens(made.batches) / len(batches)
    measured = {"ms": 1e3 * seconds, "tokens_per_second": count / seconds}
    return measured | {name: float(getattr(first, name)) for name in FAR}


def variants(size: str, tokens: int, known: dict[str, Any], seconds: float) -> Iterator[Any]:
    """Yields the results so far, by name, after each variant that is not known yet, or has failed.

    Each has a process of its own, as flags of XLA are read once. After some seconds the process
    that runs is stopped, and the next call begins with its variant.
    """
    end = time.monotonic() + seconds
    for name, v in VARIANTS.items():
        if known.get(name):
            continue
        flags = f"{os.environ.get('XLA_FLAGS', '')} {v.flags}"
        try:
            done = subprocess.run(
                [sys.executable, "-m", "experiments.tools.steps", size, str(tokens), name],
                env=os.environ | {"XLA_FLAGS": flags},
                stdout=subprocess.PIPE,
                text=True,
                timeout=max(0.0, end - time.monotonic()),
            )
        except subprocess.TimeoutExpired:
            return
        known |= {name: json.loads(done.stdout) if done.returncode == 0 else {}}
        yield known


def variants_table(known: dict[str, Any]) -> str:
    """Returns a line for each variant, the fastest first.

    Differences from float32 concern the first step's loss and gradient norm, on one batch and
    with one initialisation. Without dropout, and on other batches, they are not errors.
    """
    line = "{:26}{:>10}{:>13}{:>12}{:>14}{:>14}".format
    lines = [line("variant", "ms a step", "tokens/s", "to default", "loss", "gradient")]
    measured = {name: x for name, x in known.items() if x}
    usual = measured.get(DEFAULT, {}).get("tokens_per_second")
    exact = measured.get(FLOAT32, {})
    for name, x in sorted(measured.items(), key=lambda item: -item[1]["tokens_per_second"]):
        v = VARIANTS[name]
        faster = f"{x['tokens_per_second'] / usual - 1:+.1%}" if usual else ""
        comparable = exact and not (v.shapes or "P_drop" in v.config)
        errors = {key: x[key] / exact[key] - 1 for key in FAR} if comparable else {}
        wrong = any(not abs(e) <= FAR[key] for key, e in errors.items())  # NaN is wrong, too
        cells = [f"{errors[key]:+.2%}" if errors else "" for key in FAR]
        speed = f"{x['tokens_per_second']:,.0f}"
        row = line(name, f"{x['ms']:.2f}", speed, faster, *cells)
        lines.append(row.rstrip() + "  WRONG" * wrong)
    return "\n".join(lines + [f"{name} failed" for name in known if not known[name]]) + "\n"


def attention(name: str, lengths: Sequence[int]) -> dict[str, Any]:
    """Returns times of a mechanism, forward and with gradients, and the bounds of its programs."""
    from functools import partial

    from experiments.tools import roofline
    from t2t_jax.bench import attention as bench
    from t2t_jax.bench.lengths import Compiled, sweep

    device, dtypes, bounds = known_device(), set[str](), dict[tuple[bool, int], float]()

    def make(gradient: bool, name: str, n: int) -> Compiled:
        made = bench.program(gradient, name, n)
        run: Any = made.run
        dtypes.add(made.arguments[1].dtype.name)
        if device:
            found = roofline.kernels(run.as_text())
            bounds[gradient, n] = roofline.bound(found, device).seconds
        return made

    found: dict[str, Any] = {"causal": bench.is_causal(name)}
    for key, gradient in {"forward": False, "at": True}.items():
        curve = sweep([name], lengths, 1.0, partial(make, gradient))[name]
        found[key] = [x | {"bound": bounds.get((gradient, int(x["n"])))} for x in curve]
    return found | {"dtype": dtypes.pop(), "B": bench.B, "h": bench.H, "d_k": bench.D}


def attention_table(known: dict[str, Any]) -> str:
    """Returns a line for each mechanism and length.

    FLOP/s count all pairs that are seen, 4 d_k for each and head in the forward pass and 2.5
    times as many in the backward pass, as they are usually counted.
    """
    line = ("{:20}{:>8}" + "{:>13}{:>9}{:>7}" * 2 + "{:>17}{:>10}").format
    time, speed = ("bound", "ratio"), ("TFLOP/s forward", "backward")
    measured = {name: x for name, x in known.items() if x}
    shapes = {f"B = {x['B']}, h = {x['h']}, d_k = d_v = {x['d_k']}, {x['dtype']}": 0
              for x in measured.values()}  # fmt: skip
    head = line("mechanism", "n", "forward, ms", *time, "+ backward", *time, *speed)
    lines = ["; ".join(shapes), head]

    def cells(point: dict[str, Any]) -> list[str]:
        ms, bound = 1e3 * point["seconds"], 1e3 * (point.get("bound") or 0)
        return [f"{ms:.3f}", f"{bound:.3f}" * (bound > 0), f"{ms / bound:.1f}" if bound else ""]

    for name, x in measured.items():
        both = {point["n"]: point for point in x["at"]}
        for forward in x["forward"]:
            n, rates = forward["n"], ["", ""]
            flops = 4 * x["B"] * x["h"] * x["d_k"] * n**2 / (2 if x["causal"] else 1)
            if name == "scaled_dot_product":
                rates[0] = f"{flops / forward['seconds'] / 1e12:.0f}"
            if name == "scaled_dot_product" and n in both:
                backward = both[n]["seconds"] - forward["seconds"]
                rates[1] = f"{2.5 * flops / backward / 1e12:.0f}"
            gradients = cells(both[n]) if n in both else [""] * 3
            lines.append(line(name, f"{n:,}", *cells(forward), *gradients, *rates).rstrip())
    return "\n".join(lines + [f"{name} failed" for name in known if not known[name]]) + "\n"


if __name__ == "__main__":
    size, tokens, variant = sys.argv[1:]
    print(json.dumps(measure_variant(size, int(tokens), VARIANTS[variant])))
