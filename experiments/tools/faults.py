"""Fault injection: kills, damaged checkpoints, full disks, frozen stores, jumping clocks.

    launch/local.sh experiments/tools/faults.py        15 minutes on 2 CPU cores

Writes experiments/results/faults. A small model is trained on the built-in corpus with a checkpoint
every 20 steps: once without interruption, and once killed (kill -9) at random moments and resumed,
50 times. Then every file of a checkpoint is damaged in every way, and the other faults follow. The
full disk and the read-only store need Linux and the right to mount.

Expected: parameters, metrics, translations and scores are the same, bit for bit, with and without
kills. Damage to a file of a checkpoint is detected, except in the 2 files that hold no data, and
the previous checkpoint is restored. A stop signal ends a run with exit code 75 within 3 seconds. A
full disk ends it with code 1, a read-only store with code 2, each with a message of one sentence.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import orbax.checkpoint as ocp

from t2t_jax.bench import keep
from t2t_jax.config import Training
from t2t_jax.environment import environment
from t2t_jax.study.typeset import pipe_table
from t2t_jax.terminal import say
from t2t_jax.training import checkpoints

RESULTS = Path(__file__).parents[1] / "results" / "faults"
STEPS, EVERY, KILLS = 4000, 20, 50
FIELDS = dict(
    N=1, d_model=32, d_ff=64, h=2, d_k=16, d_v=16, vocabulary=1000, batch_tokens=256, max_length=32,
    num_buckets=1, evaluate_every=EVERY, average=2, warmup=400, beam=1,
)  # fmt: skip


def train_command(run, cache, **changes):
    """Returns the command that trains in the directory `run`."""
    fields = FIELDS | dict(steps=STEPS, schedule="inverse_sqrt") | changes
    options = [word for name, value in fields.items() for word in (f"--{name}", str(value))]
    directories = ["--run", str(run), "--cache", str(cache)]
    return [sys.executable, "-m", "t2t_jax.cli", "train", "grammar", *options, *directories]


def call(command, **options):
    """Returns the exit code of a command and what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    return done.returncode, done.stdout + done.stderr


def finish(command):
    """Runs a command that must succeed."""
    code, printed = call(command)
    assert code == 0, printed


def outcome(run):
    """Returns what a finished run ends with, except what depends on the clock."""
    with ocp.StandardCheckpointer() as checkpointer:
        params = checkpointer.restore((run / "final" / "params").absolute())
    lines = (run / "metrics.jsonl").read_text().splitlines()
    kept = "step", "loss", "nll", "lr", "grad_norm", "dev_perplexity"
    records = [{k: v for k, v in json.loads(x).items() if k in kept} for x in lines]
    result = json.loads((run / "result.json").read_text())
    return {
        "parameters": [x.tobytes() for x in jax.tree.leaves(params)],
        "metrics": [r for r in records if "dev_perplexity" in r],
        "translations": (run / "test.de").read_text(),
        "scores": [result["dev_perplexity"], result["scores"]],
    }


def equal_parts(run, other):
    """Returns for each part of two outcomes whether it is the same."""
    a, b = outcome(run), outcome(other)
    return {f"same {part}": a[part] == b[part] for part in a}


def saved_steps(run):
    """Returns the steps at which a run has checkpoints."""
    return sorted(int(p.name) for p in (run / "checkpoints").glob("*") if p.name.isdigit())


def train_for_a_while(run, cache, generator):
    """Starts a run and returns its process at a random moment after its next checkpoint."""
    before = saved_steps(run)
    process = subprocess.Popen(
        train_command(run, cache), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and saved_steps(run) == before:
        time.sleep(0.02)
    time.sleep(generator.uniform(0, 0.6))
    return process


def kills(home, cache):
    """Kills a run many times at random moments and compares it with one left alone."""
    generator, killed, alone = random.Random(0), home / "killed", home / "alone"
    during_saves = 0
    for i in range(KILLS):
        process = train_for_a_while(killed, cache, generator)
        during_saves += any((killed / "checkpoints").glob("*.orbax-checkpoint-tmp"))
        process.kill()
        process.wait()
        say(f"kill {i + 1} of {KILLS} after step {max(saved_steps(killed))}")
    last = max(saved_steps(killed)) + 200
    config = killed / "config.json"  # both end at the same step
    config.write_text(json.dumps(json.loads(config.read_text()) | {"steps": last}))
    for run in (killed, alone):
        finish(train_command(run, cache, steps=last))
    counts = {"kills": KILLS, "of them in a save": during_saves, "steps": last}
    return counts | equal_parts(killed, alone)


def preempted(home, cache):
    """Stops a run with SIGTERM and SIGINT at random moments: exit codes, and seconds to the end."""
    generator, seconds, codes = random.Random(1), [], set()
    for i in range(10):
        process = train_for_a_while(home / "preempted", cache, generator)
        start = time.monotonic()
        process.send_signal((signal.SIGTERM, signal.SIGINT)[i % 2])
        codes.add(process.wait())
        seconds.append(round(time.monotonic() - start, 2))
    say(f"stop signals: exit codes {codes}, at most {max(seconds)} s")
    return {"exit codes": sorted(codes), "seconds": seconds}


def truncate(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


HARMS = {"truncate": truncate, "flip": flip, "remove": Path.unlink}


def damages(home, cache):
    """Damages every file of the newest checkpoint in every way: see `damage_each`."""
    alone = home / "alone"
    *_, before, newest = saved_steps(alone)
    folder = alone / "checkpoints" / str(newest)
    files = [p.relative_to(alone) for p in sorted(folder.rglob("*")) if p.is_file()]
    results = {"files": len(files), "steps": [before, newest]}
    for kind, harm in HARMS.items():
        results[kind] = damage_each(home, cache, files, harm, before, newest)
        say(f"{kind}: {results[kind]}")
    return results


def damage_each(home, cache, files, harm, before, newest):
    """Damages one file at a time of a copy of the run.

    If the damage is detected, the newest checkpoint left is the previous one. Damage to Orbax's two
    commit marks, from which nothing is restored, is not detected. One run with detected damage and
    every run with undetected damage are resumed, and must end as the run without damage.
    """
    alone, copy = home / "alone", home / "damaged"
    expected = outcome(alone)
    noticed, unnoticed, same = 0, [], []
    for name in files:
        if harm is not Path.unlink and not (alone / name).stat().st_size:
            continue
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(alone, copy, ignore=shutil.ignore_patterns("final", "result.json"))
        harm(copy / name)
        step = newest_whole_step(copy)
        assert step in (before, newest)
        if step == newest:
            unnoticed.append(name.name)
        else:
            noticed += 1
        if step == newest or noticed == 1:
            finish(train_command(copy, cache, steps=newest))
            same.append(outcome(copy) == expected)
    return {
        "went back a step": noticed,
        "not found": unnoticed,
        "went on to the end": len(same),
        "with the same bits": sum(same),
    }


def newest_whole_step(run):
    """Returns the step of the newest checkpoint that training would restore."""
    with checkpoints.manager(run / "checkpoints", Training(evaluate_every=EVERY)) as manager:
        return max(checkpoints.whole_steps(manager, lambda _: None))


def train_mounted(home, cache, script, **changes):
    """Trains in a mount namespace that a shell script sets up; $RUN is the run, $CMD trains it."""
    run = home / "mounted"
    script = script.replace("$CMD", " ".join(train_command(run, cache, **changes)))
    return call(["unshare", "--mount", "bash", "-c", script], env=os.environ | {"RUN": str(run)})


def full_disk(home, cache):
    """Fills the disk during training, then resumes with enough room."""
    run, kept = home / "mounted", home / "kept"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir()
    script = (
        f"mount -t tmpfs -o size=3m none $RUN && $CMD; code=$?; rm -rf {kept}; "
        f"cp -r $RUN {kept}; exit $code"
    )
    code, printed = train_mounted(home, cache, script, steps=400)
    shutil.rmtree(run)
    kept.rename(run)
    saved = saved_steps(run)
    resumed, _ = call(train_command(run, cache, steps=400))
    say(f"full disk: exit code {code}, then {resumed}")
    return {"exit code": code, "said": last_line(printed), "saved": saved, "then": resumed}


def read_only_store(home, cache):
    """Trains in a store that cannot be written to."""
    script = "mount --bind $RUN $RUN && mount -o remount,ro,bind $RUN && $CMD"
    code, printed = train_mounted(home, cache, script, steps=400 + EVERY)
    say(f"read-only store: exit code {code}")
    saved = saved_steps(home / "mounted")
    return {"exit code": code, "said": last_line(printed), "saved": saved}


def last_line(printed):
    return printed.strip().splitlines()[-1]


def jumping_clock(home, cache):
    """Trains under a wall clock that jumps by up to ten years, both ways, every two seconds.

    Orbax times a save by that clock: a jump during a save can end the run, and the same command
    then resumes it.
    """
    code = (
        "import random, sys, time; real, steady = time.time, time.monotonic; "
        "jump = lambda: random.Random(steady() // 2).uniform(-3e8, 3e8); "
        "time.time = lambda: real() + jump(); "
        "from t2t_jax.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    jumped, steady, failures = home / "jumped", home / "steady", []
    python, _, _, *words = train_command(jumped, cache, steps=400)
    while not (jumped / "result.json").exists():
        exit_code, printed = call([python, "-c", code, *words], timeout=600)
        if exit_code:
            failures.append(last_line(printed))
        assert len(failures) < 20, failures
    finish(train_command(steady, cache, steps=400))
    say(f"jumping clock: ended early {len(failures)} times")
    return {"ended early": failures, **equal_parts(jumped, steady)}


def two_workers(home, cache):
    """Starts two processes on one run at once."""
    shared = home / "shared"
    processes = [
        subprocess.Popen(
            train_command(shared, cache, steps=400),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    printed = [process.communicate()[0] for process in processes]
    codes = [process.returncode for process in processes]
    refusals = [last_line(text) for text, code in zip(printed, codes, strict=True) if code]
    say(f"two workers: exit codes {codes}")
    same = all(equal_parts(shared, home / "steady").values())
    return {"exit codes": sorted(codes), "refused": refusals, "same as one": same}


def table(results):
    """Returns Markdown, a row for each fault."""
    killed, stopped = results["killed"], results["told to stop"]
    clock, shared = results["clock that jumps"], results["two workers"]
    rows = {
        f"{killed['kills']} kills (-9) at random moments of training, "
        f"{killed['of them in a save']} of them during a save": "all runs resume; parameters, "
        "metrics, translations and scores equal an uninterrupted run, bit for bit: "
        f"{count_same(killed)}",
        **damage_rows(results["damaged"]),
        f"{len(stopped['seconds'])} stop signals (SIGTERM, SIGINT)": "exit code "
        f"{', '.join(map(str, stopped['exit codes']))}, after a checkpoint and "
        f"{min(stopped['seconds'])} to {max(stopped['seconds'])} s",
        **{
            name: f"exit code {results[name]['exit code']}: `{results[name]['said']}`"
            for name in ("full disk", "read-only store")
        },
        "a clock that jumps by years every two seconds": f"{len(clock['ended early'])} saves time "
        f"out and the same command resumes; {count_same(clock)}",
        "two workers on one run": f"exit codes {', '.join(map(str, shared['exit codes']))}: "
        f"`{', '.join(shared['refused'])}`; the result of the other equals the result of a "
        f"single worker: {shared['same as one']}",
    }
    text = pipe_table(["fault", "outcome"], rows.items())
    return re.sub(r"/\S*/(mounted|shared)", "RUN", text)


def count_same(result):
    same = [value for name, value in result.items() if name.startswith("same ")]
    return f"{sum(same)} of {len(same)} the same"


def damage_rows(damaged):
    """Returns the rows of the table on damaged files."""
    harms = {"truncate": "cut in half", "flip": "changed in one bit", "remove": "removed"}
    rows = {}
    for kind, harm in harms.items():
        x = damaged[kind]
        rows[f"each of {damaged['files']} files of a checkpoint {harm}"] = (
            f"{x['went back a step']} noticed, and the checkpoint before is restored; "
            f"{len(x['not found'])} that hold no data ({', '.join(sorted(x['not found']))}) not "
            f"noticed; {x['with the same bits']} of {x['went on to the end']} resumed runs end "
            "with the same bits"
        )
    return rows


def main():
    with tempfile.TemporaryDirectory() as directory:
        home, cache = Path(directory), Path(directory) / "cache"
        faults = {
            "killed": kills,
            "damaged": damages,
            "told to stop": preempted,
            "full disk": full_disk,
            "read-only store": read_only_store,
            "clock that jumps": jumping_clock,
            "two workers": two_workers,
        }
        results = {name: fault(home, cache) for name, fault in faults.items()}
    keep(RESULTS / "faults.md", results | {"environment": environment()}, table(results))


if __name__ == "__main__":
    main()
