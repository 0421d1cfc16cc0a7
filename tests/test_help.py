"""Every tutorial of `help` works when it is followed to the letter in a copy of the code."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import toy

ROOT = Path(__file__).parents[1]
TOPICS = sorted(path.stem for path in (ROOT / "t2t_jax" / "help").glob("*.md"))
SHORT = "--steps 4 --evaluate_every 2 --average 1 --num_buckets 1 --max_length 20"
SHORT += " --batch_tokens 500 --beam 1"
SMALL = f"{SHORT} --d_model 16 --N 1 --d_ff 16 --h 2 --d_k 8 --d_v 8"
SHORTENED = {  # flags added to every command, so that it ends soon
    "mechanism": SMALL,
    "part": SMALL,
    "row": SHORT,
    "study": f"{SHORT} --rows wide",
    "metric": SMALL,
    "corpus": SMALL,
    "architecture": f"{SHORT} --N 1 --d_model 16 --rows bag",
}
PRINTED = {  # what the output of a command must contain
    "row": {"list": b"F:positions=rotary", "run": b"F:positions=rotary"},
    "study": {
        "list": b"deep",
        "list heads": b"A:h=4,d_model=256",
        "run": b"wide",
        "table": b"wide & 2",
        "results": b"results/runs.csv",
        "plot": b"depth-demo-learning.png",
        "report": b"depth-demo.html",
    },
    "metric": {"run": b"first_word on dev: case:mixed|version:1"},
    "mechanism": {
        "run distance.py": b"Tuned: lr_scale from 0.25, 0.5, 1",
        "run learned.py": b"learned",
        "list": b"sinks",
    },
    "part": {"run": b"log_bias"},
    "architecture": {"run": b"bag"},
    "corpus": {"run": b"Reversal, preset demo"},
}


def blocks(topic):
    """Returns (language, file name, text) of every code block."""
    text = (ROOT / "t2t_jax" / "help" / f"{topic}.md").read_text()
    return re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", text, re.M | re.S)


def test_topics_are_listed_and_printed(call, refused):
    assert TOPICS == ["architecture", "corpus", "mechanism", "metric", "part", "row", "study"]
    for topic in TOPICS:
        assert call("help", topic).out.startswith("# Adding a")
    refused(["help", "mechanisms"], "did you mean 'mechanism'")


def test_the_grades_are_those_of_the_stored_table():
    """If this fails, copy the table that experiments/grades.py writes."""
    table = ROOT / "experiments" / "results" / "grades" / "table.md"
    assert table.read_text() in (ROOT / "t2t_jax" / "help" / "corpus.md").read_text()


@pytest.mark.full
@pytest.mark.parametrize("topic", TOPICS)
def test_a_tutorial_works(topic, corpus, tmp_path):
    for name in ("t2t_jax", "experiments"):
        ignored = shutil.ignore_patterns("results", "__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    commands = []
    for language, name, text in blocks(topic):
        if language in ("python", "json"):
            assert not (tmp_path / name).exists()
            (tmp_path / name).write_text(text)
        elif language == "diff":
            apply = ["git", "apply", "--unidiff-zero", "-"]
            env = os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
            subprocess.run(apply, input=text.encode(), cwd=tmp_path, env=env, check=True)
        else:
            commands += text.strip().splitlines()
    home = {"HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    for command in commands:
        words = [sys.executable, "-m", *command.replace("t2t-jax", "t2t_jax.cli").split()]
        if words[3] not in ("list", "results"):
            words += SHORTENED[topic].split() + ["--seeds", "1"] * (words[3] == "run")
        if words[3] not in ("list", "results") and topic not in ("corpus", "metric"):
            fields = toy.fields(corpus)
            data = {n: fields[n] for n in ("corpus", "train", "dev", "test", "vocabulary")}
            words += toy.options(data)
        env = os.environ | home | {"T2T_JAX_CACHE": str(tmp_path / "cache")}
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode()
        printed = PRINTED.get(topic, {"train": b"BLEU"})
        assert printed.get(" ".join(words[3:5]), printed.get(words[3])) in done.stdout
