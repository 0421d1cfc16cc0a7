"""Publication of a grid: one file of the finished runs from which its tables and plots are made."""

import shlex
from dataclasses import replace
from pathlib import Path

from t2t_jax import files
from t2t_jax.config import PATHS
from t2t_jax.data.corpora import CORPORA
from t2t_jax.environment import made_on
from t2t_jax.errors import UsageError
from t2t_jax.runs import names, published, store
from t2t_jax.study import requests
from t2t_jax.study.collecting import Lines
from t2t_jax.study.formats import render
from t2t_jax.study.grid import Grid

_CARD = "---\ntask_categories:"  # the begin of a card


def publish(grid: Grid, lines: Lines, home: Path, card: str = "") -> Path:
    """Writes the runs, their settings and their table to home/STUDY-PRESET; returns that folder.

    Checkpoints, parameters and paths are left out. Each row's first run keeps its translations. The
    table becomes a dataset card if `card` is the study, as commands name it.
    """
    runs = runs_of(grid, lines)
    if not runs:
        raise UsageError(requests.no_run(grid))
    folder = home / grid.name
    files.make_directory(folder)
    published.write(folder, runs)
    for path in (folder / requests.FOLDER).glob("*.json"):
        path.unlink()
    changes = {name: value for name, value in grid.changes.items() if name not in PATHS}
    kept = replace(grid, changes=changes)
    requests.remember(folder, kept)
    # Unfinished runs are not published. That a row has no chosen value is seen from its trials.
    lines = [x if grid.sweep and not x.choice.chosen else replace(x, status="") for x in lines]
    text = render([(grid, lines)], "md")
    cards, tables = folder / "README.md", folder / "table.md"
    if card:
        files.write(cards, _card(kept, lines, len(runs), card) + text)
        tables.unlink(missing_ok=True)
    else:
        files.write(tables, text)
        if cards.exists() and cards.read_text("utf-8").startswith(_CARD):  # of earlier runs
            cards.unlink()
    return folder


def _card(grid: Grid, lines: Lines, count: int, study: str) -> str:
    """Returns what stands above the table in a dataset card of the Hugging Face hub."""
    runs = [run for line in lines for run in line.runs]
    corpus = CORPORA[grid.data.corpus]
    command = shlex.join(["t2t-jax", "run", study, *requests.request_of(grid).flags])
    seeds = sorted({run.seed for run in runs})
    made = dict.fromkeys(made_on(run.result["environment"]) for run in runs)
    return f"""{_CARD} [{"text-generation" if corpus.documents else "translation"}]
tags: [t2t-jax]
configs: [{{config_name: runs, data_files: {published.NAME}}}]
---
# {grid.study.title}

{count} runs of `{command}` (seeds {", ".join(map(str, seeds))}). {" ".join(made)}

A line of `{published.NAME}` is a run: the contents of its files by name, as JSON.
`t2t-jax table {shlex.quote(study)} --store FOLDER --format md` prints this table again.

"""


def runs_of(grid: Grid, lines: Lines, translations: bool = True) -> dict[str, published.Contents]:
    """Returns the finished runs of a grid, and the trials of a sweep, by their directories' names.

    With `translations`, the first run of each row keeps them.
    """
    outputs = translations and not CORPORA[grid.data.corpus].documents
    trial = *published.KEPT, f"{store.LIKELIHOOD}.statistics.json", published.FAILURE, names.FILE
    runs: dict[str, published.Contents] = {}
    for line in [*(x.untuned for x in lines if x.untuned), *lines]:
        for run in line.runs:
            splits = grid.splits(line.c)
            named = store.LIKELIHOOD, store.CONTRASTIVE, *splits
            kept = [*published.KEPT, *(f"{x}.statistics.json" for x in named)]
            # Outputs of documents are token likelihoods, whose sums are in the statistics.
            if outputs and run is line.runs[0]:
                kept += (f"{split}.{grid.data.target}" for split in splits)
            known = runs.get(run.directory.name, {}).get(names.FILE, "")  # of the row untuned
            name = f"{line.run_name(grid, run.seed)}\n"
            contents = published.contents(run.directory, kept)
            runs[run.directory.name] = {names.FILE: known + name, **contents}
        for directory in line.choice.directories:
            if directory.name not in runs:
                runs[directory.name] = published.contents(directory, trial)
    return runs
