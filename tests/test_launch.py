"""launch/slurm.sh queues a study; Python, t2t-jax and sbatch are stand-ins here."""

import shutil
import subprocess
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[1] / "launch"
RECORD = '#!/usr/bin/env bash\necho "${0##*/} $*" >>"$(dirname "$0")/calls"\n'


@pytest.fixture
def home(tmp_path):
    """A checkout whose programs record how they are called; the study has 3 rows."""
    for name in ("slurm.sh", "environment.sh"):
        (tmp_path / "launch").mkdir(exist_ok=True)
        shutil.copy(LAUNCH / name, tmp_path / "launch")
    (tmp_path / "pyproject.toml").touch()
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, more in (("python", ""), ("t2t-jax", "echo 3\n"), ("sbatch", "")):
        (programs / name).write_text(RECORD + more)
        (programs / name).chmod(0o755)
    return tmp_path


def queue(home, *words):
    """Returns the calls of Python, t2t-jax and sbatch, in order."""
    programs = home / ".venv" / "bin"
    (programs / "calls").unlink(missing_ok=True)
    path = f"{programs}:/usr/bin:/bin"
    done = subprocess.run(
        [home / "launch" / "slurm.sh", *words], env={"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return (programs / "calls").read_text()


def test_a_study_is_an_array_with_a_task_for_each_row(home):
    calls = queue(home, "--time=9", "--", "run", "table3", "--store", "/shared/runs")
    assert "t2t-jax run table3 --store /shared/runs --tasks\n" in calls
    sbatch = calls.splitlines()[-1]
    assert sbatch.startswith("sbatch --requeue ")
    assert " --time=9 --array=0-2 " in sbatch
    assert sbatch.endswith("slurm-task.sh run table3 --store /shared/runs")


def test_the_packages_of_a_gpu_are_installed_before_the_tasks_are_queued(home):
    words = "--", "run", "table3"
    assert "[cuda]" not in queue(home, "--time=9", *words) or Path("/dev/nvidia0").exists()
    calls = queue(home, "--gres=gpu:1", *words)
    assert calls.count("[cuda]") == 1
    assert calls.index("[cuda]") < calls.index("sbatch")
    assert "pip install" not in queue(home, "--gres=gpu:1", *words)
