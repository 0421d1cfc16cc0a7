"""Checks whether this machine can train; a finding has a remedy if something is wrong."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

GIB = 2**30
SPACE = 2  # GiB of free disk that the demo studies need in the store and in the cache
MEMORY = 4  # GiB of free memory that they need
MEMINFO = Path("/proc/meminfo")


class Finding(NamedTuple):
    """The result of one check; `remedy` says what to do, and is empty if nothing is wrong."""

    check: str
    result: str
    remedy: str = ""


def examine(cache: Path, store: Path, mesh: str) -> Iterator[Finding]:
    """Yields the finding of each check; a check that raises gives a finding, too."""
    checks: dict[str, Callable[[], Finding]] = {
        "packages": _packages,
        "memory": _memory,
        "cache": lambda: _space("cache", cache),
        "store": lambda: _space("store", store),
        "devices": lambda: _devices(mesh),
        "a step": lambda: _step(mesh),
    }
    for name, check in checks.items():
        try:
            yield check()
        except Exception as error:
            message = str(error).strip().split("\n")[0] or type(error).__name__
            yield Finding(name, "failed", message)


def _packages() -> Finding:
    from packaging.requirements import Requirement

    try:
        lines = metadata.requires("t2t-jax") or ()
    except metadata.PackageNotFoundError:
        return Finding("packages", "not checked, as t2t-jax runs without being installed")
    installed, problems = [], []
    for requirement in (x for x in map(Requirement, lines) if x.marker is None):
        name = requirement.name
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            problems.append(f"{name} is missing")
            continue
        installed.append(f"{name} {version}")
        if not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{name} {version} is not {requirement.specifier}")
    return Finding("packages", ", ".join(installed[:4]), "; ".join(problems))


def _memory() -> Finding:
    fields = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024 / GIB  # what files are cached in counts
    remedy = f"close other programs: {MEMORY} GiB are needed" if free < MEMORY else ""
    return Finding("memory", f"{free:.1f} GiB free", remedy)


def _space(name: str, directory: Path) -> Finding:
    directory.mkdir(parents=True, exist_ok=True)
    try:
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        return Finding(name, str(directory), f"cannot write to it: {error.strerror}")
    free = shutil.disk_usage(directory).free / GIB
    remedy = f"free some space: {SPACE} GiB are needed" if free < SPACE else ""
    return Finding(name, f"{directory}, {free:.1f} GiB free", remedy)


def _devices(mesh: str) -> Finding:
    import jax

    from t2t_jax.training import sharding

    axes = sharding.describe(sharding.make_mesh(mesh))
    kind = jax.devices()[0].device_kind
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    memory = f", {limit / GIB:.0f} GiB each" if limit else ""
    remedy = ""
    if jax.default_backend() == "cpu" and shutil.which("nvidia-smi"):
        remedy = "an NVIDIA driver is installed, but JAX finds no GPU: install the extra cuda"
    return Finding("devices", f"{jax.device_count()} x {kind}{memory}, mesh {axes}", remedy)


def _step(mesh: str) -> Finding:
    import numpy as np

    from t2t_jax import config
    from t2t_jax.models import build
    from t2t_jax.training import sharding
    from t2t_jax.training.step import hyper, initialise, make_step
    from t2t_jax.training.throughput import compile_for

    c = config.replace(config.Config(), N=1, d_model=64, d_ff=128)
    model, devices, start = build(c, 64), sharding.make_mesh(mesh), time.monotonic()
    with sharding.use_mesh(devices):
        state = initialise(model, c, devices)
        h = sharding.replicate(hyper(c), devices)
        tokens = np.full((16, 8), 5, np.int32)
        batch = sharding.put_batch({"source": tokens, "target": tokens}, devices)
        program = compile_for(make_step(model, c), 1, state, batch, h)
        losses = []
        for _ in range(20):
            state, metrics = program.run(state, batch, h)
            losses.append(float(metrics.loss))
    seconds = time.monotonic() - start
    remedy = "" if losses[-1] < losses[0] else f"the loss rose from {losses[0]} to {losses[-1]}"
    return Finding("a step", f"20 steps took {seconds:.1f} s with compilation", remedy)
