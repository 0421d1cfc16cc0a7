"""What several commands share: configs and grids from arguments, datasets, and output."""

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.data.cache import Split
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metrics import BPC
from t2t_jax.runs import store
from t2t_jax.study import requests, sweep
from t2t_jax.study.collecting import Lines, RowResult, collect
from t2t_jax.study.comparison import compare_with_base
from t2t_jax.study.declaration import Study, find, path_of
from t2t_jax.study.grid import Grid
from t2t_jax.study.measuring import judged, measure
from t2t_jax.terminal import say


def changed_fields(arguments: Namespace) -> dict[str, Any]:
    """Returns the config fields given on the command line."""
    return {n: v for n, v in vars(arguments).items() if n in config.SECTION_OF}


def request(arguments: Namespace) -> tuple[Study, requests.Request]:
    """Returns the study and the settings that a command line names, and completes its store."""
    study, metrics = find(arguments.study), getattr(arguments, "metrics", "")
    arguments.store = arguments.store or default_store(arguments.study)
    return study, requests.Request(
        study.name,
        arguments.preset or requests.DEFAULT,
        changed_fields(arguments),
        sweep.parse(arguments.sweep),
        arguments.rows,
        [name.strip() for name in metrics.split(",")] if metrics else [],
    )


def grid_shown(arguments: Namespace) -> Grid:
    """Returns the grid of a command line, with what `run` was given in the store where it is mute.

    The settings of `run` are used if none are given; the metrics are those that `run` was given
    with these settings.
    """
    (study, asked), home = request(arguments), arguments.store
    if not (arguments.preset or arguments.sweep or asked.fields):
        recalled = requests.recall(home, study.name, say) or asked
        rows = asked.rows or recalled.rows
        asked = recalled._replace(rows=rows, metrics=asked.metrics or recalled.metrics)
    elif not asked.metrics:
        same = (x for x in requests.known(home, study.name) if x.settings == asked.settings)
        asked = asked._replace(metrics=next(same, asked).metrics)
    if not getattr(arguments, "metrics", ""):
        asked = asked.declared_alone(say)
    return asked.grid(study, home)


def default_store(study: str) -> Path:
    """Returns the store of a study if none is named: `runs`, beside the file of a study file."""
    path = path_of(study)
    return Path("runs") if path is None else path.parent / "runs"


def lines_of(grid: Grid, cache: Path, judge: bool = False) -> list[RowResult]:
    """Returns the numbers of every row of a grid, from its store.

    With `judge`, runs are judged on minimal pairs first, if the grid has a column of them.
    """
    rows = collect(grid, say)
    if not grid.computed:
        return compare_with_base(grid, rows)
    rows = judged(grid, rows, cache, say) if judge else rows
    return compare_with_base(grid, rows, measure(grid, rows, _splits_of(grid, rows, cache), say))


def sentences_of(grid: Grid, rows: Lines, cache: Path) -> Split | None:
    """Returns the sentences that the study is scored on, or None if they are not available."""
    return _splits_of(grid, rows, cache).get(grid.study.split)


def _splits_of(grid: Grid, rows: Lines, cache: Path) -> Mapping[str, Split]:
    """Returns the splits of the grid's corpus, or none if they are not available or not scored."""
    finished = [(row.runs[0].directory, row.c) for row in rows if row.runs]
    if not finished or not (grid.study.split or BPC in grid.scores):
        return {}
    try:
        return store.open_dataset(*finished[0], cache, lambda _: None).splits
    except UsageError as error:
        say(f"without the sentences of {grid.data.corpus}: {error}")
        return {}


def cache_programs(cache: Path) -> None:
    """Makes JAX keep compiled programs in the cache, or where the environment names a place."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    import jax

    jax.config.update("jax_compilation_cache_dir", str(cache / "programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1)


def print_scores(name: str, scores: dict[str, Any]) -> None:
    print(name)
    for s in scores.values():
        print(f"  {s['score']:6.2f}  {s['name']}  [{s['signature']}]")
