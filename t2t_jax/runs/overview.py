"""The runs of a store at a glance: status, step, scores and location of each."""

import time
from pathlib import Path
from typing import Any

from t2t_jax.config import Config
from t2t_jax.errors import UsageError, warn
from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.runs import names, published, results, store

_COLUMNS = "run", "status", "step", "age", "dev PPL", "scores", "location"
_RIGHT = "step", "age", "dev PPL"


def lines(home: Path) -> list[str]:
    """Returns a line for each name of each run of a store, below a heading.

    The age is the time since the run ended, or since its last record if it has not ended.
    """
    rows = []
    for directory, c in results.stored(home, warn):
        try:
            cells = _cells(directory, c)
        except UsageError as error:
            warn(str(error))
            continue
        rows += [(name, *cells) for name in names.names(directory)]
    if not rows:
        return [f"{home} has no runs."]
    table = [_COLUMNS, *sorted(rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if name in _RIGHT else cell.ljust(width)
            for cell, width, name in zip(row, widths, _COLUMNS, strict=True)
        ).rstrip()
        for row in table
    ]


def _cells(directory: Path, c: Config) -> tuple[str, ...]:
    """Returns the columns of a run after its name."""
    status, step = results.status(directory)
    metric, result = metric_of(c.data.corpus), store.read_result(directory, warn) or {}
    ppl = result.get("dev_perplexity")
    if ppl is None:
        evaluations = (r.get("dev_perplexity") for r in reversed(store.read_curves(directory)))
        ppl = next((x for x in evaluations if x is not None), None)
    scores: dict[str, Any] = result.get("scores", {})
    texts = [f"{split} {s[metric.key]['score']:.2f}" for split, s in scores.items()]
    begun = published.read(directory, "environment.json") or {}
    about = str(published.location(directory)), begun.get("continued")
    failure = store.read_failure(directory)
    location = ", continued ".join(filter(None, about))
    return (
        status,
        f"{step:,}/{c.training.steps:,}",
        _age(directory),
        "" if ppl is None else f"{ppl:.3f}",
        f"{metric.name} {', '.join(texts)}" if texts else "",
        location if failure is None else f"{location}: {failure}",
    )


def _age(directory: Path) -> str:
    """Returns the time since a run ended or wrote its last record; empty if it is published."""
    files = ("failed.json", "result.json", "metrics.jsonl", "config.json")
    path = next((directory / name for name in files if (directory / name).exists()), None)
    if path is None:
        return ""
    seconds = max(0.0, time.time() - path.stat().st_mtime)
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
