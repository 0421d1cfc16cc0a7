"""What a run survives: kills, damaged checkpoints, a full disk, a frozen store, a clock that jumps.

    launch/local.sh experiments/faults.py [KILLS]        15 minutes on 2 CPU cores

Writes experiments/results/faults. A small model is trained on the built-in corpus, saving every 20
steps, once left alone and once killed (-9) at random moments and resumed, 50 times; both must end
with the same bits. Then every file of a checkpoint is harmed in every way, and the rest is done to
a run in turn. The full disk and the frozen store need Linux and the right to mount.
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

from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "faults"
STEPS, EVERY = 4000, 20
FIELDS = dict(
    N=1, d_model=32, d_ff=64, h=2, d_k=16, d_v=16, vocabulary=1000, batch_tokens=256, max_length=32,
    shapes=1, evaluate_every=EVERY, average=2, warmup=400, beam=1,
)  # fmt: skip


def words(directory, cache, **changes):
    """The command that trains the run of a directory."""
    fields = FIELDS | dict(steps=STEPS, schedule="inverse_sqrt") | changes
    options = [w for name, value in fields.items() for w in (f"--{name}", str(value))]
    where = ["--run", str(directory), "--cache", str(cache)]
    return [sys.executable, "-m", "t2t_jax.cli", "train", "grammar", *options, *where]


def call(command, **options):
    """Its exit code and what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    return done.returncode, done.stdout + done.stderr


def outcome(directory):
    """What a run ended with, without what depends on the clock."""
    import jax
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        params = checkpointer.restore((directory / "final" / "params").absolute())
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    kept = "step", "loss", "nll", "lr", "grad_norm", "dev_perplexity"
    records = [{k: v for k, v in json.loads(x).items() if k in kept} for x in lines]
    result = json.loads((directory / "result.json").read_text())
    return {
        "parameters": [x.tobytes() for x in jax.tree.leaves(params)],
        "metrics": [r for r in records if "dev_perplexity" in r],
        "translations": (directory / "test.de").read_text(),
        "scores": [result["dev_perplexity"], result["scores"]],
    }


def steps(directory):
    """The steps of the checkpoints of a run."""
    return sorted(int(p.name) for p in (directory / "checkpoints").glob("*") if p.name.isdigit())


def kills(home, cache, count, say):
    """A run killed `count` times at random moments, and the same run left alone."""
    draw, killed = random.Random(0), home / "killed"
    done = saving = 0
    while done < count:
        before = steps(killed)
        process = subprocess.Popen(
            words(killed, cache), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and steps(killed) == before:  # until it trains again
            time.sleep(0.02)
        time.sleep(draw.uniform(0, 0.6))
        in_save = any((killed / "checkpoints").glob("*.orbax-checkpoint-tmp"))
        process.kill()
        process.wait()
        done, saving = done + 1, saving + in_save
        say(f"kill {done} of {count} after step {max(steps(killed))}")
    last = max(steps(killed)) + 200
    for directory in (killed, home / "alone"):
        config = directory / "config.json"
        if config.exists():  # as if asked for in the first place
            config.write_text(json.dumps(json.loads(config.read_text()) | {"steps": last}))
        code, said = call(words(directory, cache, steps=last))
        assert code == 0, said
    ours, theirs = outcome(killed), outcome(home / "alone")
    return {
        "kills": done,
        "of them in a save": saving,
        "steps": last,
        **{f"same {what}": ours[what] == theirs[what] for what in ours},
    }


def preempted(home, cache, say):
    """A run told to stop at random moments: seconds until it has saved and left, and its code."""
    draw, run, seconds, codes = random.Random(1), home / "preempted", [], set()
    for i in range(10):
        before = steps(run)
        process = subprocess.Popen(
            words(run, cache), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and steps(run) == before:
            time.sleep(0.02)
        time.sleep(draw.uniform(0, 0.6))
        began = time.monotonic()
        process.send_signal((signal.SIGTERM, signal.SIGINT)[i % 2])
        codes.add(process.wait())
        seconds.append(round(time.monotonic() - began, 2))
    say(f"told to stop: codes {codes}, at most {max(seconds)} s")
    return {"exit codes": sorted(codes), "seconds": seconds}


def truncate(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damages(home, cache, say):
    """Every file of the newest checkpoint of a run truncated, changed in one bit and removed.

    Where it is found, the step before is the newest that is left. Orbax's two marks of the commit,
    from which nothing is restored, are not found; such a run, and one of each that is, goes on to
    its end, which must be that of the run without damage.
    """
    from t2t_jax.config import Training
    from t2t_jax.training import checkpoints

    alone = home / "alone"
    before, newest = steps(alone)[-2:]
    folder = alone / "checkpoints" / str(newest)
    files = [p.relative_to(alone) for p in sorted(folder.rglob("*")) if p.is_file()]
    wanted = outcome(alone)
    found = {"files": len(files), "steps": [before, newest]}
    for harm in (truncate, flip, Path.unlink):
        fell_back, marks, ends = [], [], []
        for name in files:
            copy = home / "damaged"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(alone, copy, ignore=shutil.ignore_patterns("final", "result.json"))
            if harm is not Path.unlink and not (copy / name).stat().st_size:
                continue
            harm(copy / name)
            with checkpoints.manager(
                copy / "checkpoints", Training(evaluate_every=EVERY)
            ) as manager:
                step = max(checkpoints.whole_steps(manager, lambda _: None))
            assert step in (before, newest)
            (marks if step == newest else fell_back).append(name.name)
            if step == newest or len(fell_back) == 1:
                code, said = call(words(copy, cache, steps=newest))
                assert code == 0, said
                ends.append(outcome(copy) == wanted)
        kind = harm.__name__.replace("unlink", "remove")
        found[kind] = {
            "went back a step": len(fell_back),
            "not found": marks,
            "went on to the end": len(ends),
            "with the same bits": sum(ends),
        }
        say(f"{kind}: {found[kind]}")
    return found


def mounted(home, cache, script, **changes):
    """Trains in a namespace whose mounts a shell script has set up; `$RUN` is the run."""
    run = home / "mounted"
    inner = " ".join(words(run, cache, **changes))
    command = ["unshare", "--mount", "bash", "-c", f"{script.replace('$CMD', inner)}"]
    return call(command, env=os.environ | {"RUN": str(run)})


def full_disk(home, cache, say):
    """A disk that fills up while it trains, and the same run once there is room."""
    run = home / "mounted"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir()
    keep = home / "kept"
    script = (
        f"mount -t tmpfs -o size=3m none $RUN && $CMD; code=$?; rm -rf {keep}; "
        f"cp -r $RUN {keep}; exit $code"
    )
    code, said = mounted(home, cache, script, steps=400)
    shutil.rmtree(run)
    keep.rename(run)
    saved = steps(run)
    again, _ = call(words(run, cache, steps=400))
    say(f"full disk: code {code}, then {again}")
    return {"exit code": code, "said": said.strip().splitlines()[-1], "saved": saved, "then": again}


def frozen(home, cache, say):
    """A store that can only be read."""
    run = home / "mounted"
    script = "mount --bind $RUN $RUN && mount -o remount,ro,bind $RUN && $CMD"
    code, said = mounted(home, cache, script, steps=400 + EVERY)
    say(f"read-only store: code {code}")
    return {"exit code": code, "said": said.strip().splitlines()[-1], "saved": steps(run)}


def jumping_clock(home, cache, say):
    """A wall clock that jumps by up to ten years, both ways, every two seconds.

    Orbax counts a save's time by that clock: a jump in the midst of one can end the run, which the
    same command then goes on with.
    """
    code = (
        "import random, sys, time; real, steady = time.time, time.monotonic; "
        "draw = lambda: random.Random(steady() // 2).uniform(-3e8, 3e8); "
        "time.time = lambda: real() + draw(); "
        "from t2t_jax.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    jumped, steady, failed = home / "jumped", home / "steady", []
    python, _, _, *rest = words(jumped, cache, steps=400)
    while not (jumped / "result.json").exists():
        exit_code, said = call([python, "-c", code, *rest], timeout=600)
        if exit_code:
            failed.append(said.strip().splitlines()[-1])
        assert len(failed) < 20, failed
    exit_code, said = call(words(steady, cache, steps=400))
    assert exit_code == 0, said
    ours, theirs = outcome(jumped), outcome(steady)
    say(f"clock that jumps: ended {len(failed)} times before its time")
    return {"ended early": failed, **{f"same {what}": ours[what] == theirs[what] for what in ours}}


def two_workers(home, cache, say):
    """Two processes that begin one run together."""
    command = words(home / "shared", cache, steps=400)
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    printed = [p.communicate()[0].strip().splitlines() for p in both]
    codes = [p.returncode for p in both]
    refused = [lines[-1] for lines, code in zip(printed, codes, strict=True) if code]
    say(f"two workers: codes {codes}")
    ours, theirs = outcome(home / "shared"), outcome(home / "steady")
    same = all(ours[what] == theirs[what] for what in ours)
    return {"exit codes": sorted(codes), "refused": refused, "same as one": same}


def table(found):
    """Markdown, a row a fault."""
    killed, damaged, stopped = found["killed"], found["damaged"], found["told to stop"]

    def same(what):
        equal = [x for name, x in what.items() if name.startswith("same ")]
        return f"{sum(equal)} of {len(equal)} the same"

    def harmed(kind):
        x = damaged[kind]
        return (
            f"{x['went back a step']} found, of which none is restored, and {len(x['not found'])} "
            f"that hold nothing ({', '.join(sorted(x['not found']))}); {x['with the same bits']} "
            f"of {x['went on to the end']} runs from there ended with the same bits"
        )

    early, shared = found["clock that jumps"], found["two workers"]
    rows = {
        f"{killed['kills']} kills (-9) at random moments of training, {killed['of them in a save']}"
        " of them in a save": "all resumed; parameters, metrics, translations and scores against "
        f"those of a run left alone, bit for bit: {same(killed)}",
        **{
            f"each of {damaged['files']} files of a checkpoint {name}": harmed(kind)
            for kind, name in (("truncate", "cut in half"), ("flip", "changed in one bit"),
                               ("remove", "removed"))
        },
        f"{len(stopped['seconds'])} times told to stop (SIGTERM, SIGINT)": "exit code "
        f"{', '.join(map(str, stopped['exit codes']))}, saved and gone after "
        f"{min(stopped['seconds'])} to {max(stopped['seconds'])} s",
        **{
            name: f"exit code {found[name]['exit code']}: `{found[name]['said']}`"
            for name in ("full disk", "read-only store")
        },
        "a clock that jumps by years every two seconds": f"{len(early['ended early'])} times a "
        f"save timed out and the same command went on; {same(early)}",
        "two workers on one run": f"exit codes {', '.join(map(str, shared['exit codes']))}: "
        f"`{', '.join(shared['refused'])}`; the other ended as one alone: {shared['same as one']}",
    }  # fmt: skip
    text = pipe_table(["fault", "what came of it"], rows.items())
    return re.sub(r"/\S*/(mounted|shared)", "RUN", text)


def main():
    from t2t_jax.environment import environment
    from t2t_jax.files import write, write_json

    def say(line):
        print(line, file=sys.stderr, flush=True)

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with tempfile.TemporaryDirectory() as directory:
        home, cache = Path(directory), Path(directory) / "cache"
        found = {"killed": kills(home, cache, count, say), "damaged": damages(home, cache, say)}
        faults = {
            "told to stop": preempted,
            "full disk": full_disk,
            "read-only store": frozen,
            "clock that jumps": jumping_clock,
            "two workers": two_workers,
        }
        for name, fault in faults.items():
            found[name] = fault(home, cache, say)
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_json(RESULTS / "faults.json", found | {"environment": environment()})
    write(RESULTS / "faults.md", table(found))
    print(table(found))


if __name__ == "__main__":
    main()
