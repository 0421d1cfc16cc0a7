"""The environment of a measurement: device, machine, versions and code."""

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent


def environment() -> dict[str, Any]:
    """Returns device, machine, commit and versions, as results store them."""
    import jax

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "not installed"

    packages = "t2t-jax jax jaxlib flax optax orbax-checkpoint sacrebleu sentencepiece".split()
    return {
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "processes": jax.process_count(),
        "cores": os.cpu_count(),
        "host": platform.machine(),
        "node": platform.node(),
        "git": _git(),
        "python": platform.python_version(),
        **{name: installed(name) for name in packages},
    }


def made_on(environment: Mapping[str, Any]) -> str:
    """Returns a sentence about the device and the versions of a stored environment."""
    names = ("python", "jax", "flax", "libtpu")
    versions = ", ".join(f"{name} {environment[name]}" for name in names if name in environment)
    where = f"{environment['device']} ({environment['cores']} cores, {environment['host']})"
    return f"Made on {where} with {versions}."


def without_count(devices: str) -> str:
    """Returns the kind of some devices: `H100` of `8 x H100`. Any number lowers one program."""
    return re.sub(r"\d+ x ", "", devices)


def _git() -> str:
    """Returns the commit, with `-dirty` if the code was edited since; empty outside a checkout."""
    if not (PACKAGE.parent / ".git").exists():
        return ""
    command = ["git", "-C", str(PACKAGE), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if not done.returncode else ""
