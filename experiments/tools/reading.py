"""Throughput of the input pipeline: tokens a second that the host reads, without a model.

    launch/local.sh experiments/tools/reading.py        1 minute on one CPU core

Reads the corpus of recipe grammar. Writes input.json and input.txt into experiments/results/bench.
Expected: 25 million tokens a second.
"""

import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_jax.bench import keep
from t2t_jax.config import Config
from t2t_jax.data.batches import Batches
from t2t_jax.data.cache import Dataset
from t2t_jax.data.prepare import open_corpus
from t2t_jax.environment import environment
from t2t_jax.recipes import recipe
from t2t_jax.terminal import say

RESULTS = Path(__file__).parents[1] / "results" / "bench"
ROUNDS = 5


def measure(c: Config, dataset: Dataset) -> dict[str, Any]:
    """Plans and reads an epoch of batches in each round; padding is no token."""
    train, d = dataset.splits["train"], c.data
    start = time.perf_counter()
    batches = Batches(
        train.source, train.target, d.batch_tokens, d.num_buckets, c.training.accumulate
    )
    shaping = time.perf_counter() - start
    tokens = len(train.source.tokens) + len(train.target.tokens)
    speeds = []
    for epoch in range(ROUNDS):
        start = time.perf_counter()
        count = batches.batches_per_epoch(epoch)  # plans the epoch
        for i in range(count):
            batches.read(epoch, i)
        speeds.append(tokens / (time.perf_counter() - start))
        say(f"epoch {epoch}: {count} batches, {speeds[-1]:,.0f} tokens/s")
    slots = sum(side.size for i in range(count) for side in batches.read(0, i).values())
    return {
        "corpus": d.corpus,
        "shaping": shaping,
        "batches": count,
        "padding": 1 - tokens / slots,
        "tokens_per_second": statistics.median(speeds),
        "least": min(speeds),
        "most": max(speeds),
        "environment": environment(),
    }


def table(results: Mapping[str, Any]) -> str:
    """Returns one line."""
    speeds = [f"{results[k]:,.0f}" for k in ("tokens_per_second", "least", "most")]
    return (
        f"{results['corpus']}, on {results['environment']['device']}: {speeds[0]} tokens/s "
        f"({speeds[1]}, {speeds[2]}), {results['padding']:.1%} of the slots are padding, shapes "
        f"chosen in {results['shaping']:.2f} s\n"
    )


def main(out: Path = RESULTS) -> None:
    c = recipe("grammar")
    with tempfile.TemporaryDirectory() as cache:
        results = measure(c, open_corpus(c.data, Path(cache), report=say))
    keep(out / "input.txt", results, table(results))


if __name__ == "__main__":
    main()
