"""How fast batches come: tokens a second that the host can read, without a model."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from t2t_jax.config import Config
from t2t_jax.data.batches import Batches
from t2t_jax.data.cache import Dataset
from t2t_jax.environment import environment

ROUNDS = 5


def measure(c: Config, dataset: Dataset, say: Callable[[str], object]) -> dict[str, Any]:
    """Plans an epoch in every round, and reads its batches.

    Returns:
      What is kept as JSON and printed by `table`: tokens a second of both sides without padding
      (median of rounds, least, most), seconds to choose the shapes, and the share of padding.
    """
    train, d = dataset.splits["train"], c.data
    begun = time.perf_counter()
    batches = Batches(
        train.source, train.target, d.batch_tokens, d.num_buckets, c.training.accumulate
    )
    found: dict[str, Any] = {"corpus": d.corpus, "shaping": time.perf_counter() - begun}
    tokens = len(train.source.tokens) + len(train.target.tokens)
    speeds = []
    for epoch in range(ROUNDS):
        begun = time.perf_counter()
        count = batches.batches_per_epoch(epoch)  # plans it
        for i in range(count):
            batches.read(epoch, i)
        speeds.append(tokens / (time.perf_counter() - begun))
        say(f"epoch {epoch}: {count} batches, {speeds[-1]:,.0f} tokens/s")
    return found | {
        "batches": count,
        "padding": batches.padding(),
        "tokens_per_second": statistics.median(speeds),
        "least": min(speeds),
        "most": max(speeds),
        "environment": environment(),
    }


def table(found: Mapping[str, Any]) -> list[str]:
    """One line."""
    speeds = [f"{found[k]:,.0f}" for k in ("tokens_per_second", "least", "most")]
    return [
        f"{found['corpus']}, on {found['environment']['device']}: {speeds[0]} tokens/s "
        f"({speeds[1]}, {speeds[2]}), {found['padding']:.1%} of what is read is padding, shapes "
        f"chosen in {found['shaping']:.2f} s"
    ]
