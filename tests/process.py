"""Runs Python code in another process."""

import os
import subprocess
import sys


def python(code, **environment):
    """Returns what code prints in another process; fails if it exits with an error."""
    words, env = [sys.executable, "-c", code], os.environ | environment
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
