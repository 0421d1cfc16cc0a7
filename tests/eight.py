"""Calls in a process of their own that has eight simulated devices."""

import os
import subprocess
import sys
from pathlib import Path

EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


def on_eight_devices(function):
    """Calls a function of a test file there; what it raises is raised here."""
    code = f"from tests.{function.__module__.split('.')[-1]} import {function.__name__} as f; f()"
    words = [sys.executable, "-W", "error", "-c", code]
    root = Path(__file__).parent.parent
    done = subprocess.run(words, capture_output=True, env=os.environ | EIGHT, cwd=root, timeout=500)
    assert done.returncode == 0, done.stderr.decode()
