"""What several commands share: configs and grids from arguments, datasets, and output."""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError, say

if TYPE_CHECKING:
    from t2t_jax.data.cache import Dataset, Split
    from t2t_jax.study.collecting import RowRuns
    from t2t_jax.study.comparison import RowResult
    from t2t_jax.study.grid import Grid
    from t2t_jax.study.requests import Request


def changed_fields(arguments: Namespace) -> dict[str, Any]:
    """Returns the config fields given on the command line."""
    return {n: v for n, v in vars(arguments).items() if n in config.SECTION_OF}


def grid_of(arguments: Namespace) -> "Grid":
    """Returns the grid that a study, a preset, rows, fields and a store name, checked."""
    from t2t_jax.study.declaration import find

    study, request = find(arguments.study), _request(arguments)
    arguments.store = arguments.store or default_store(arguments.study)
    return request._replace(study=study.name).grid(study, arguments.store)


def _request(arguments: Namespace) -> "Request":
    """Returns the settings that a command line names."""
    from t2t_jax.study import requests, sweep

    fields, names = changed_fields(arguments), getattr(arguments, "metrics", "")
    return requests.Request(
        arguments.study,
        arguments.preset or requests.DEFAULT,
        fields,
        sweep.parse(arguments.sweep),
        arguments.rows,
        [name.strip() for name in names.split(",")] if names else [],
    )


def grid_shown(arguments: Namespace) -> "Grid":
    """Returns `grid_of` with the settings that `run` was given in the store, if none are given.

    The metrics are those that `run` was given with these settings, if none are given.
    """
    from t2t_jax.study import requests
    from t2t_jax.study.declaration import find

    study, request = find(arguments.study), _request(arguments)
    home = arguments.store = arguments.store or default_store(arguments.study)
    request = request._replace(study=study.name)
    if not (arguments.preset or arguments.sweep or request.fields):
        recalled = requests.recall(home, study.name, say) or request
        rows = request.rows or recalled.rows
        request = recalled._replace(rows=rows, metrics=request.metrics or recalled.metrics)
    elif not request.metrics:
        same = (x for x in requests.known(home, study.name) if x.settings == request.settings)
        request = request._replace(metrics=next(same, request).metrics)
    if not getattr(arguments, "metrics", ""):
        request = request.declared_alone(say)
    return request.grid(study, home)


def grids_shown(arguments: Namespace) -> "list[Grid]":
    """Returns `grid_shown` of each study in each store that the arguments name.

    Raises:
      UsageError: a study or a store is named twice.
    """
    for names in (arguments.studies, arguments.stores):
        if repeated := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"{repeated[0]} is named twice: name it once.")
    return [
        grid_shown(Namespace(**vars(arguments) | {"study": study, "store": store}))
        for study in arguments.studies
        for store in arguments.stores or [default_store(study)]
    ]


def default_store(study: str) -> Path:
    """Returns the store of a study if none is named: `runs`, beside the file of a study file."""
    from t2t_jax.study.declaration import path_of

    path = path_of(study)
    return Path("runs") if path is None else path.parent / "runs"


def lines_of(
    grid: "Grid", cache: Path, mix: bool, only: str = "", judge: bool = False
) -> "list[RowResult]":
    """Returns the numbers of every row of a grid, from its store.

    Args:
      mix, only: as of `study.collecting.collect`.
      judge: whether runs are judged on minimal pairs, if the grid has a column of them; otherwise
        it shows those that have been judged.
    """
    from t2t_jax.study.collecting import collect
    from t2t_jax.study.comparison import compare_with_base
    from t2t_jax.study.measuring import judged, measure

    rows = collect(grid, only=only, mix=mix, report=say)
    if not grid.computed:
        return compare_with_base(grid, rows)
    rows = judged(grid, rows, cache, say) if judge else rows
    splits = _splits_of(grid, rows, cache)
    return compare_with_base(grid, rows, measure(grid, rows, splits, say))


def sentences_of(grid: "Grid", rows: "Sequence[RowRuns]", cache: Path) -> "Split | None":
    """Returns the sentences that the study is scored on, or None if they are not available."""
    return _splits_of(grid, rows, cache).get(grid.study.split)


def _splits_of(grid: "Grid", rows: "Sequence[RowRuns]", cache: Path) -> "Mapping[str, Split]":
    """Returns the splits of the grid's corpus, or none if they are not available or not scored."""
    from t2t_jax.evaluation.metrics import BPC

    finished = [row for row in rows if row.runs]
    if not finished or not (grid.study.split or BPC in grid.scores):
        return {}
    c, directory = finished[0].c, finished[0].runs[0].directory
    dataset = available_dataset(directory, c, cache, f"the sentences of {grid.data.corpus}")
    return {} if dataset is None else dataset.splits


def available_dataset(directory: Path, c: Config, cache: Path, without: str) -> "Dataset | None":
    """Returns the dataset of a run, or None if its corpus is not available.

    Args:
      without: what is lost in that case, for the message.
    """
    from t2t_jax.runs.loading import open_dataset_of

    try:
        return open_dataset_of(directory, c, cache, lambda _: None)
    except UsageError as error:
        say(f"without {without}: {error}")
        return None


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
