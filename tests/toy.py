"""A corpus that a small model learns in seconds: the numbers from one to five."""

import json
import random
import subprocess
import sys
from contextlib import contextmanager

NUMBERS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf"}


def sentences(count, seed):
    """Returns English and German lines."""
    draw = random.Random(seed)
    source = [" ".join(draw.choices(list(NUMBERS), k=draw.randint(1, 6))) for _ in range(count)]
    return source, [" ".join(NUMBERS[w] for w in s.split()) for s in source]


def write(directory):
    """Writes train, dev and test files in both languages; returns the directory."""
    for split, count in (("train", 300), ("dev", 20), ("test", 13)):
        for language, lines in zip(("en", "de"), sentences(count, split), strict=True):
            (directory / f"{split}.{language}").write_text("".join(f"{x}\n" for x in lines))
    return directory


def quiet(line):
    """Reports nothing."""


def fields(corpus, **changes):
    """Returns the fields of a config whose model learns the corpus."""
    return dict(
        corpus="text", train=corpus / "train", dev=corpus / "dev", test=corpus / "test",
        vocabulary=50, max_length=20, batch_tokens=200, num_buckets=2, N=1, d_model=32, d_ff=20,
        h=2, d_k=16, d_v=16, average=2, warmup=40, peak_lr=0.02, beam=2,
    ) | changes  # fmt: skip


def of_a_grid(corpus):
    """Returns the fields that make a study read the corpus, in batches of one shape."""
    made = fields(corpus, average=1, num_buckets=1, d_model=16, d_k=8, d_v=8, max_extra=5)
    return made | {name: str(made[name]) for name in ("train", "dev", "test")}


def options(changes):
    """Returns fields as words of a command."""
    return [word for name, value in changes.items() for word in (f"--{name}", str(value))]


def train(corpus, cache, **changes):
    """Returns the words of `train` without the run's directory."""
    words = options(fields(corpus, **changes))
    return ["train", "base", *words, "--cache", str(cache)]


@contextmanager
def held(directory):
    """Another process locks the run of a directory within this context."""
    code = "import sys, pathlib; from t2t_jax.runs.claim import lock\n"
    code += "with lock(pathlib.Path(sys.argv[1])): print(flush=True); input()"
    command = [sys.executable, "-c", code, str(directory)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    other.stdout.readline()
    yield other
    other.communicate(b"\n")


def records(directory):
    """Returns the records of metrics.jsonl without fields that depend on the clock."""
    kept = "step", "loss", "nll", "lr", "dev_perplexity"
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k in kept} for line in lines]
