"""Whether this machine can train: each finding, and what mends it."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

GIB = 2**30
SPACE = 2  # GiB free that the miniatures need in the store and in the cache
MEMORY = 4  # GiB that they need in memory


class Finding(NamedTuple):
    """One thing looked at: what was found, and what mends it where it is not as it should be."""

    about: str
    found: str
    mend: str = ""


def examine(cache: Path, store: Path, mesh: str) -> Iterator[Finding]:
    """Looks at one thing after another; a look that fails is a finding.

    Args:
      cache, store: where corpora and runs are to be kept.
      mesh: as `sharding.make_mesh` reads it.
    """
    looks: dict[str, Callable[[], Finding]] = {
        "packages": _packages,
        "allocator": _allocator,
        "memory": _memory,
        "cache": lambda: _space("cache", cache),
        "store": lambda: _space("store", store),
        "corpora": lambda: _corpora(cache),
        "devices": lambda: _devices(mesh),
        "a step": lambda: _step(mesh),
    }
    for about, look in looks.items():
        try:
            yield look()
        except Exception as error:
            said = str(error).strip().split("\n")[0] or type(error).__name__
            yield Finding(about, "failed", said)


def _packages() -> Finding:
    found, wrong = [], []
    for line in metadata.requires("t2t-jax") or ():
        wanted = Requirement(line)
        if wanted.marker is not None:
            continue
        try:
            version = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{wanted.name} is missing")
            continue
        found.append(f"{wanted.name} {version}")
        if not wanted.specifier.contains(version, prereleases=True):
            wrong.append(f"{wanted.name} {version} is not {wanted.specifier}")
    return Finding("packages", ", ".join(found[:4]), "; ".join(wrong))


def _allocator() -> Finding:
    preloaded = os.environ.get("LD_PRELOAD", "")
    for name in ("jemalloc", "tcmalloc"):
        if name in preloaded:
            return Finding("allocator", name)
    if os.environ.get("MALLOC_TOP_PAD_"):
        return Finding("allocator", "glibc, set to keep its memory")
    return Finding("allocator", "glibc as it comes; launch/local.sh makes steps on a CPU faster")


def _memory() -> Finding:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    mend = f"close something: {MEMORY} GiB are needed" if free < MEMORY else ""
    return Finding("memory", f"{free:.1f} GiB free", mend)


def _space(name: str, directory: Path) -> Finding:
    directory.mkdir(parents=True, exist_ok=True)
    probe = directory / f".probe-{os.getpid()}"
    try:
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        return Finding(name, str(directory), f"cannot write there: {error.strerror}")
    free = shutil.disk_usage(directory).free / GIB
    mend = f"make room: {SPACE} GiB are needed" if free < SPACE else ""
    return Finding(name, f"{directory}, {free:.1f} GiB free", mend)


def _corpora(cache: Path) -> Finding:
    from t2t_jax.data.cache import open_dataset
    from t2t_jax.errors import UsageError

    found, wrong = [], []
    for meta in sorted(cache.glob("*/meta.json")):
        try:
            pairs = len(open_dataset(meta.parent).splits["train"].source)
        except UsageError as error:
            wrong.append(str(error))
            continue
        found.append(f"{meta.parent.name} ({pairs:,} pairs)")
    return Finding("corpora", ", ".join(found) or "none prepared yet", " ".join(wrong))


def _devices(mesh: str) -> Finding:
    import jax

    from t2t_jax.training import sharding

    described = sharding.describe(sharding.make_mesh(mesh))
    kind = jax.devices()[0].device_kind
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    memory = f", {limit / GIB:.0f} GiB each" if limit else ""
    mend = ""
    if jax.default_backend() == "cpu" and shutil.which("nvidia-smi"):
        mend = "there is an NVIDIA driver, but JAX sees no GPU: install the extra cuda"
    return Finding("devices", f"{jax.device_count()} x {kind}{memory}, mesh {described}", mend)


def _step(mesh: str) -> Finding:
    import numpy as np

    from t2t_jax import config
    from t2t_jax.models import build
    from t2t_jax.training import sharding
    from t2t_jax.training.step import hyper, initialise, make_step
    from t2t_jax.training.throughput import compile_for

    c = config.replace(config.Config(), N=1, d_model=64, d_ff=128)
    model, devices, began = build(c, 64), sharding.make_mesh(mesh), time.monotonic()
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
    found = f"20 of them took {time.monotonic() - began:.1f} s with compiling"
    learns = losses[-1] < losses[0]
    return Finding("a step", found, "" if learns else f"the loss went {losses[0]} to {losses[-1]}")
