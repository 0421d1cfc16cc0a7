"""Launchers with stand-ins for Python, t2t-jax and sbatch."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[1] / "launch"
RECORD = """#!/usr/bin/env bash
echo "${0##*/} $* gpus=${CUDA_VISIBLE_DEVICES-} flags=${XLA_FLAGS-}" >>"$(dirname "$0")/calls"
"""


@pytest.fixture
def home(tmp_path):
    """A checkout whose programs record how they are called; the study has 3 tasks."""
    for name in ("slurm.sh", "processes.sh", "environment.sh"):
        (tmp_path / "launch").mkdir(exist_ok=True)
        shutil.copy(LAUNCH / name, tmp_path / "launch")
    (tmp_path / "pyproject.toml").touch()
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, more in (("python", ""), ("t2t-jax", "echo 3\n"), ("sbatch", "")):
        (programs / name).write_text(RECORD + more)
        (programs / name).chmod(0o755)
    return tmp_path


def queue(home, *words, launcher="slurm.sh", **variables):
    """Returns the calls of Python, t2t-jax and sbatch, in order."""
    programs = home / ".venv" / "bin"
    (programs / "calls").unlink(missing_ok=True)
    env = {"PATH": f"{programs}:/usr/bin:/bin", **variables}
    done = subprocess.run(
        [home / "launch" / launcher, *words], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return (programs / "calls").read_text()


def test_a_study_is_an_array_of_tasks(home):
    calls = queue(home, "--time=9", "--", "run", "table3", "--store", "/shared/runs")
    assert "t2t-jax run table3 --store /shared/runs --tasks gpus" in calls
    sbatch = calls.splitlines()[-1]
    assert sbatch.startswith("sbatch --parsable --requeue ")
    assert " --time=9 --array=0-2 " in sbatch
    assert "--dependency" not in sbatch
    assert sbatch.endswith("slurm-task.sh run table3 --store /shared/runs gpus= flags=")
    calls = queue(home, "--time=9", "--", "run", "table3", XLA_FLAGS="--own")
    assert calls.endswith(" flags=--own\n")  # not those of a machine without a GPU


def test_only_training_has_hosts_and_other_forms_of_an_array_are_refused(home):
    words = "--gres=gpu:1", "--", "train", "big", "--run", "x"
    assert "train big --run x --hosts auto gpus" in queue(home, *words).splitlines()[-1]
    assert "slurm-task.sh prepare big gpus" in queue(home, "--", "prepare", "big").splitlines()[-1]
    for option in (["--array", "3,7"], ["-a", "3,7"], ["-a3,7"]):
        with pytest.raises(AssertionError, match=r"write -\S+ as --array="):
            queue(home, *option, "--", "run", "table3")


def test_seeds_wait_for_trials_and_a_limit_of_tasks_is_kept(home):
    program = home / ".venv" / "bin" / "t2t-jax"
    program.write_text(program.read_text().replace("echo 3", "echo 6 3"))
    sbatch = home / ".venv" / "bin" / "sbatch"
    sbatch.write_text(f"{sbatch.read_text()}echo '17;cluster'\n")
    calls = queue(home, "--array=%4", "--", "run", "table3").splitlines()[-2:]
    assert " --array=0-5%4 " in calls[0]
    assert " --dependency=afterany:17 --array=6-8%4 " in calls[1]
    [chosen] = [x for x in queue(home, "--array=3,7%2", "--", "run", "x").splitlines() if "sb" in x]
    assert chosen.count("--array=") == chosen.count("--array=3,7%2 ") == 1


def test_the_packages_of_a_gpu_are_installed_before_the_tasks_are_queued(home):
    words = "--", "run", "table3"
    assert "[cuda]" not in queue(home, "--time=9", *words) or Path("/dev/nvidia0").exists()
    calls = queue(home, "--gres=gpu:1", *words)
    assert calls.count("[cuda]") == 1
    assert calls.index("[cuda]") < calls.index("sbatch")
    assert "pip install" not in queue(home, "--gres=gpu:1", *words)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("4,5,7", ["4", "5"]), ("2,3,0,1", ["2,3", "0,1"]), ("6", ["6", "6"]), ("", ["", ""])],
)
def test_processes_divide_the_gpus_that_are_visible(home, visible, expected):
    (home / ".venv" / "bin" / "nvidia-smi").write_text("#!/usr/bin/env bash\nexit 9\n")
    (home / ".venv" / "bin" / "nvidia-smi").chmod(0o755)
    words = "2", "train", "grammar"
    calls = queue(home, *words, launcher="processes.sh", CUDA_VISIBLE_DEVICES=visible)
    calls = sorted(x for x in calls.splitlines() if x.startswith("t2t-jax train"))
    assert [re.search(r"gpus=(\S*) ", x)[1] for x in calls] == expected
    assert [x.split("--hosts ")[1][:3] for x in calls] == ["0/2", "1/2"]
