"""What several commands share: configs and grids from arguments, datasets, and output."""

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError

if TYPE_CHECKING:
    from t2t_jax.data.cache import Dataset
    from t2t_jax.study.comparison import Line
    from t2t_jax.study.grid import Grid


def changed_fields(arguments: Namespace) -> dict[str, Any]:
    """Returns the config fields given on the command line."""
    return {n: v for n, v in vars(arguments).items() if n in config.SECTION_OF}


def grid_of(arguments: Namespace) -> "Grid":
    """Returns the grid that a study, a preset, rows, fields and a store name, checked."""
    from t2t_jax.study.grid import Grid
    from t2t_jax.study.presets import preset
    from t2t_jax.study.registry import find, select
    from t2t_jax.study.sweep import parse

    study = find(arguments.study)
    rows = select(study, arguments.rows)
    scale, changes = preset(arguments.preset), changed_fields(arguments)
    grid = Grid(study, scale, rows, changes, arguments.store, parse(arguments.sweep))
    grid.check()
    return grid


def lines_of(grid: "Grid", arguments: Namespace) -> "list[Line]":
    """Returns the numbers of every row of a grid, from its store."""
    from t2t_jax.study.comparison import compare_with_base
    from t2t_jax.study.entries import collect

    entries = collect(grid, only=arguments.only, mix=arguments.mix, report=say)
    return compare_with_base(grid, entries)


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


def say(line: str) -> None:
    """Prints a line to standard error."""
    print(line, file=sys.stderr, flush=True)


def print_scores(name: str, scores: dict[str, Any]) -> None:
    print(name)
    for s in scores.values():
        print(f"  {s['score']:6.2f}  {s['name']}  [{s['signature']}]")
