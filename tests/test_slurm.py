"""The launcher runs a grid as a job array on a SLURM of one machine, and survives preemption.

Needs Debian's munge, slurmctld, slurmd and slurm-client, and root; skipped without them.
"""

import json
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests import toy

PROGRAMS = "munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol"
MISSING = [p for p in PROGRAMS if shutil.which(p) is None]
ROOT = Path(__file__).parent.parent
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
MinJobAge=3600
SchedulerParameters=batch_sched_delay=0,sched_interval=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus}
PartitionName=low Nodes={host} Default=YES PriorityTier=1 GraceTime=60
PartitionName=high Nodes={host} PriorityTier=2 PreemptMode=OFF
"""

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(MISSING), reason=f"SLURM is not installed: no {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a SLURM of one's own needs root"),
]


def until(condition, what, seconds=300):
    for _ in range(2 * seconds):
        if result := condition():
            return result
        time.sleep(0.5)
    raise AssertionError(f"no {what} in {seconds} s")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Daemons of a cluster of one node; the environment of its commands."""
    home = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (home / name).mkdir()
    key = home / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    home.chmod(0o755)
    host = platform.node().split(".")[0]
    text = CONFIGURATION.format(host=host, home=home, cpus=os.cpu_count())
    (home / "slurm.conf").write_text(text)
    (home / "cgroup.conf").write_text("CgroupAutomount=no\n")
    env = os.environ | {"SLURM_CONF": str(home / "slurm.conf")}
    munge = [f"--{name}-file={home}/munge.{name}" for name in ("log", "pid", "seed")]
    socket = [f"--key-file={key}", f"--socket={home}/munge.socket"]
    daemons = [
        ["munged", "--foreground", "--force", *munge, *socket],
        ["slurmctld", "-D"],
        ["slurmd", "-D"],
    ]
    running = []
    try:
        for words in daemons:
            with (home / f"{words[0]}.log").open("w") as log:
                running.append(subprocess.Popen(words, env=env, stdout=log, stderr=log))
            time.sleep(1)

        def idle():
            done = subprocess.run(["sinfo", "-h", "-o", "%T"], env=env, capture_output=True)
            return b"idle" in done.stdout

        until(idle, f"idle node: see {home}", 60)
        yield env
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(60)


def call(words, env):
    done = subprocess.run(words, env=env, capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def jobs(env):
    """Returns state and restarts of every job by its number."""
    states = {}
    for line in call(["scontrol", "-o", "show", "job"], env).splitlines():
        fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if "JobState" not in fields or "-" in fields.get("ArrayTaskId", ""):
            continue  # "No jobs in the system", or tasks of an array that have not begun
        states[fields["JobId"]] = fields["JobState"], int(fields["Restarts"])
    return states


def ended(env, count):
    states = [state for state, _ in jobs(env).values()]
    assert "FAILED" not in states, jobs(env)
    return states.count("COMPLETED") == count


def test_a_job_array_with_a_preempted_task_finishes_its_grid(slurm, tmp_path):
    corpus = toy.write(tmp_path)
    store = tmp_path / "store"
    rows = ["scaled dot product", "additive", "local", "strided", "linear", "rotary"]
    changes = toy.fields(corpus, steps=1500, evaluate_every=500, average=1, peak_lr=0.003)
    directories = ["--store", str(store), "--cache", str(tmp_path / "cache")]
    words = ["run", "attention", "--rows", *rows, *directories, *toy.options(changes)]
    out = ["--output", str(tmp_path / "task-%a.txt"), "--time=10"]
    call(["launch/slurm.sh", *out, "--cpus-per-task=1", "--", *words], slurm)

    def training():
        return [p for p in store.glob("*/metrics.jsonl") if p.stat().st_size]

    until(training, "row that trains")
    urgent = ["--partition=high", "--exclusive", "--output=/dev/null", "--wrap", "sleep 3"]
    call(["sbatch", *urgent], slurm)
    until(lambda: ended(slurm, len(rows) + 1), "end of the grid", 700)
    restarts = [n for _, n in jobs(slurm).values()]
    assert max(restarts) > 0
    results = [json.loads(p.read_text()) for p in store.glob("*/result.json")]
    assert len(results) == len(rows)
    printed = "".join(p.read_text() for p in tmp_path.glob("task-*.txt"))
    assert "stopped at step" in printed
    assert "resuming from step" in printed


def test_two_processes_of_srun_train_one_run(slurm, tmp_path):
    before = len(jobs(slurm))
    words = toy.train(toy.write(tmp_path), tmp_path / "cache", steps=40, evaluate_every=20)
    out = ["--output", str(tmp_path / "run.txt"), "--time=10", "--ntasks=2", "--cpus-per-task=1"]
    run = ["--mesh", "data=2", "--run", str(tmp_path / "run")]
    call(["launch/slurm.sh", *out, "--", *words, *run], slurm)
    until(lambda: ended(slurm, before + 1), "end of the run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["environment"]["processes"] == 2
    assert result["mesh"] == "data=2"
