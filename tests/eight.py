"""Calls functions in another process that has eight simulated devices."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HURRY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if version("jaxlib").startswith("0.10."):  # later versions refuse the flag
    # Without the emitters of fusions, a program compiles in 40 % of the time.
    HURRY += " --xla_cpu_use_fusion_emitters=false"
EIGHT = {"XLA_FLAGS": f"{HURRY} --xla_force_host_platform_device_count=8"}


def on_eight_devices(*functions):
    """Calls functions of a test file in turn in that process; fails if one of them raises."""
    file = functions[0].__module__.split(".")[-1]
    code = f"from tests.{file} import *\n" + "\n".join(f"{f.__name__}()" for f in functions)
    words = [sys.executable, "-W", "error", "-c", code]
    root = Path(__file__).parent.parent
    done = subprocess.run(words, capture_output=True, env=os.environ | EIGHT, cwd=root, timeout=500)
    assert done.returncode == 0, done.stderr.decode()
