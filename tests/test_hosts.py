"""Several processes of jax.distributed train one run as a single process does."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from t2t_jax.errors import UsageError
from t2t_jax.training import hosts
from tests import toy
from tests.test_commands import wait_for_step

STEPS, EVERY = 24, 8


@pytest.fixture(scope="module")
def words(corpus, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return toy.train(corpus, cache, steps=STEPS, evaluate_every=EVERY, num_buckets=1)


def start(count, command, *, last=()):
    """Starts Python in the processes of one run; only the last one gets the words `last`."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    env = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    return [
        subprocess.Popen(
            [
                *(sys.executable, *command),
                *("--hosts", f"{i}/{count}@{address}"),
                *(last if i == count - 1 else ()),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
        )
        for i in range(count)
    ]


def command(words, directory):
    """Returns the words of a command that trains a run in a directory."""
    return ["-m", "t2t_jax.cli", *words, "--run", str(directory)]


def finish(processes):
    """Returns exit codes and outputs; if a process hangs, none is left behind."""
    try:
        printed = [p.communicate(timeout=200)[0].decode() for p in processes]
    finally:
        for p in processes:
            p.kill()
            p.wait()
            p.stdout.close()
    return [p.returncode for p in processes], printed


@pytest.fixture(scope="module")
def alone(words, tmp_path_factory):
    """The directory of a run by one process."""
    directory = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, *command(words, directory)], check=True, timeout=200)
    return directory


def assert_same_run(actual, expected, last=False):
    """Compares all records, or only the last: a stop changes which steps a record averages."""
    ours, theirs = (toy.records(d)[-1 if last else 0 :] for d in (actual, expected))
    assert [r.keys() for r in ours] == [r.keys() for r in theirs]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose([*a.values()], [*b.values()], rtol=1e-4)
    assert (actual / "test.de").read_text() == (expected / "test.de").read_text()


@pytest.mark.full
@pytest.mark.timeout(400)
def test_several_processes_train_the_run_of_one(words, alone, tmp_path):
    directory, mesh = tmp_path / "run", "fsdp=2,tensor=2"
    codes, printed = finish(start(4, command([*words, "--mesh", mesh], directory)))
    assert codes == [0] * 4, printed
    assert "BLEU" in printed[0]
    assert not any(word in output for output in printed[1:] for word in ("step", "BLEU"))
    assert_same_run(directory, alone)
    result = json.loads((directory / "result.json").read_text())
    assert result["mesh"] == mesh
    assert result["environment"]["device"].startswith("4 x")


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_signal_to_one_process_stops_all_and_one_process_resumes(words, tmp_path):
    longer = [*words, "--steps", "100000", "--schedule", "inverse_sqrt"]
    directory, whole = tmp_path / "run", tmp_path / "whole"
    processes = start(2, command(longer, directory))
    wait_for_step(processes, directory, EVERY)
    processes[1].send_signal(signal.SIGTERM)
    codes, printed = finish(processes)
    assert codes == [75, 75], printed
    stopped = [int(re.search(r"stopped at step ([\d,]+)", p)[1].replace(",", "")) for p in printed]
    assert stopped[0] == stopped[1] > EVERY
    assert (directory / "checkpoints" / str(stopped[0])).is_dir()
    steps = stopped[0] + EVERY
    config = json.loads((directory / "config.json").read_text()) | {"steps": steps}
    (directory / "config.json").write_text(json.dumps(config))  # as if requested from the start
    for path in (directory, whole):
        resumed = command([*longer, "--steps", str(steps)], path)
        subprocess.run([sys.executable, *resumed], check=True, timeout=200)
    assert_same_run(directory, whole, last=True)


TWO_RUNS = """
import os, signal, sys, time
import jax
import orbax.checkpoint as ocp
from t2t_jax.training import hosts

directory, before, _, processes = sys.argv[1:]
hosts.join(processes)
calls = 0
with ocp.CheckpointManager(directory) as manager:
    for run in range(2):  # each is resumed at step 60
        with hosts.interruption() as interrupted:
            for step in (61, 62, 63):
                if calls == int(before):
                    if jax.process_index() == 1:
                        os.kill(os.getpid(), signal.SIGTERM)
                    time.sleep(3)  # signals are looked for once a second
                if interrupted(step):
                    sys.exit(f"stopped in run {run} at step {step}")
                manager.should_save(step)
                calls += 1
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("before", "stopped"),
    [(0, "in run 0 at step 61"), (2, "in run 0 at step 63"), (3, "in run 1 at step 61")],
    ids=["before the first step", "after a checkpoint", "between two runs"],
)
def test_a_signal_is_not_lost(before, stopped, tmp_path):
    _, printed = finish(start(2, ["-c", TWO_RUNS, str(tmp_path), str(before)]))
    assert all(f"stopped {stopped}\n" in output for output in printed), printed


@pytest.mark.parametrize("hosts_option", ["", "2/2@here:1", "1@here:1", "0/2@here", "x/2@here:1"])
def test_malformed_hosts_are_refused(hosts_option):
    with pytest.raises(UsageError, match=re.escape(f"--hosts {hosts_option}: give auto")):
        hosts.join(hosts_option)


def test_auto_without_a_launcher_is_refused(words, tmp_path):
    words = [sys.executable, *command(words, tmp_path / "run"), "--hosts", "auto"]
    done = subprocess.run(words, capture_output=True, timeout=100)
    assert done.returncode == 2, done.stderr.decode()
    assert "finds no launcher here" in done.stderr.decode()


@pytest.mark.timeout(400)
def test_processes_with_different_configs_are_refused(words, tmp_path):
    codes, printed = finish(start(2, command(words, tmp_path / "run"), last=["--N", "2"]))
    assert codes == [2, 2], printed
    for output in printed:
        assert "do not agree on config (process 1 differs from process 0)" in output
    assert not (tmp_path / "run").exists()


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_file_missing_in_the_first_process_stops_all(words, tmp_path):
    words = [*words, "--train", str(tmp_path / "none")]
    codes, printed = finish(start(2, command(words, tmp_path / "run")))
    assert codes == [2, 2], printed
    assert all(str(tmp_path / "none") in output for output in printed)
