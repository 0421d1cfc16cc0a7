"""What a store holds of a study: found by config, never mixed in silence."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.corpora import PREPARED
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.study import store
from t2t_jax.study.grid import Grid
from t2t_jax.study.registry import Row
from t2t_jax.training.progress import read_metrics


@dataclass(frozen=True)
class Run:
    """One run of a row.

    Attributes:
      score: the grid's metric: BLEU, 13a, cased, or F1 of trees; None where perplexity is all.
      statistics: what the metric adds up of every sentence.
      odd: in what it differs from most others, where a mixture was asked for.
    """

    directory: Path
    seed: int
    result: Mapping[str, Any]
    score: float | None = None
    statistics: Sequence[Sequence[int]] = ()
    odd: str = ""


@dataclass(frozen=True)
class Entry:
    """A row at the scale of a preset, its finished runs by seed, and how the others stand."""

    row: Row
    c: Config
    runs: tuple[Run, ...]
    standing: str


def collect(
    grid: Grid,
    *,
    only: str = "",
    mix: bool = False,
    report: Callable[[str], object] = lambda _: None,
) -> list[Entry]:
    """What its store holds of a grid, under any seed.

    Args:
      only: takes only runs one of whose `origins` begins so.
      mix: takes runs of different origins, and marks them.

    Raises:
      UsageError: runs differ in their data, vocabulary, metric or code, and `mix` is not set.
    """
    rows, split, metric = grid.rows, grid.study.split, metric_of(grid.data.corpus)
    wanted = [grid.config(row) for row in rows]
    index = {_key(c): i for i, c in enumerate(wanted)}
    finished: list[list[tuple[Run, dict[str, str]]]] = [[] for _ in rows]
    standing: list[list[str]] = [[] for _ in rows]
    for path in sorted(grid.home.glob("*/config.json")):
        directory = path.parent
        try:
            c = store.read_config(directory)
        except UsageError as error:
            report(str(error))
            continue
        i = index.get(_key(c))
        if i is None:
            continue
        result = store.read_result(directory, report)
        if result is None or (split and split not in result["scores"]):
            standing[i].append(f"seed {c.training.seed} {_standing(directory, c)}")
            continue
        scored = result["scores"][split][metric.key] if split else None
        came_from = origins(directory, result, scored, _cut(wanted[i], wanted[0]))
        if only and not any(value.startswith(only) for value in came_from.values()):
            continue
        run = Run(directory, c.training.seed, result)
        if scored:
            statistics = json.loads((directory / f"{split}.statistics.json").read_text())
            run = replace(run, score=scored["score"], statistics=statistics)
        finished[i].append((run, came_from))
    usual = _usual([origin for runs in finished for _, origin in runs], grid.home, mix)
    return [
        Entry(row, c, _by_seed(runs, usual), "; ".join(states))
        for row, c, runs, states in zip(rows, wanted, finished, standing, strict=True)
    ]


def origins(
    directory: Path, result: Mapping[str, Any], scored: Mapping[str, Any] | None, cut: str = ""
) -> dict[str, str]:
    """What results must share to stand in one table.

    Args:
      scored: by the table's metric.
      cut: how the row's corpus is cut, which its tokens are compared for.
    """
    about = json.loads((directory / "data.json").read_text())
    return {
        f"data{cut}": about["data"],
        f"vocabulary{cut}": about["vocabulary"],
        "metric": scored["signature"] if scored else "perplexity",
        "code": result["environment"]["code"],
    }


def _cut(c: Config, base: Config) -> str:
    """How a row's sentences become tokens, where that is not as in base: other data is right."""
    fields = {n: x for n, x in config.difference(c, base).items() if n in PREPARED}
    return "".join(f" of {n} {x}" for n, (x, _) in fields.items())


def _key(c: Config) -> str:
    return json.dumps(store.identity(c) | {"seed": 0}, sort_keys=True)


def _usual(found: Sequence[Mapping[str, str]], home: Path, mix: bool) -> dict[str, str]:
    """The most frequent value of each origin.

    Raises:
      UsageError: there are several, and `mix` is not set.
    """
    usual = {}
    for name in {name: None for origin in found for name in origin}:
        counts = Counter(origin[name] for origin in found if name in origin).most_common()
        if len(counts) > 1 and not mix:
            listed = ", ".join(f"{value[:12]}: {n} runs" for value, n in counts)
            raise UsageError(
                f"the results in {home} differ in {name} ({listed}): take those of one with "
                f"--only {counts[0][0][:12]}, or all of them, marked, with --mix."
            )
        usual[name] = counts[0][0]
    return usual


def _by_seed(
    runs: Sequence[tuple[Run, Mapping[str, str]]], usual: Mapping[str, str]
) -> tuple[Run, ...]:
    """One run a seed, the newest, marked where its origin is not the usual one."""
    chosen: dict[int, Run] = {}
    for run, origin in sorted(runs, key=lambda r: (r[0].directory / "result.json").stat().st_mtime):
        odd = ", ".join(
            f"{name} {value[:12]}" for name, value in origin.items() if value != usual[name]
        )
        chosen[run.seed] = replace(run, odd=odd)
    return tuple(chosen[seed] for seed in sorted(chosen))


def _standing(directory: Path, c: Config) -> str:
    """How a run without a result stands."""
    if (error := store.read_failure(directory)) is not None:
        return f"failed: {error}"
    records = read_metrics(directory / "metrics.jsonl")
    at = f"at step {records[-1]['step'] if records else 0:,} of {c.training.steps:,}"
    return f"running, {at}" if store.busy(directory) else f"stopped {at}"
