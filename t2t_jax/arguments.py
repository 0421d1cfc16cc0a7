"""The arguments of every command."""

import argparse
import os
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.commands.machine import topics
from t2t_jax.config import SECTIONS
from t2t_jax.recipes import RECIPES

# name, function as module.function of t2t_jax/commands, help
Command = Callable[[str, str, str], argparse.ArgumentParser]

_LISTED = (
    "studies, presets, recipes, profiles, mechanisms, parts, fields, runs (of --store), or the "
    "name or file of a study"
)
_RECIPE = f"one of {', '.join(RECIPES)}"
_RUN = "name of a run (`list runs`), such as table3-demo/base/0 or table3/base/0; or its directory"
_SWEEP = (
    "a field to tune for each row, such as lr_scale=0.25,0.5,1 or peak_lr=1e-4..1e-2:5; with "
    "several fields, all combinations are tried (`help study`)"
)
_STUDY = "name of a study (`list studies`); or its file, PATH.py or PATH.py:NAME"
_METRICS = (
    "columns of scores, such as BLEU,chrF2,TER,COMET,contrastive,PPL, or metrics of your own "
    "(`help metric`) [the study's, or PPL and the corpus's metric]"
)
_STORED_PRESET = "the preset of the stored runs, or demo"
_COLUMNS = "columns beside the scores: config fields, n, params [the study's fields, n and params]"
_MESH = "devices along each axis, such as data=2,fsdp=2,tensor=2 (or population) [all along data]"
_HOSTS = "train with several processes: auto (srun, mpirun, TPU slice), or I/N@ADDRESS:PORT"
_TRACK = "also send the curves to a tracker, which must be installed [none]"
_TRACKERS = "tensorboard", "wandb", "mlflow", "aim"
_WORKERS = "number of worker processes [one per GPU, or per CPU core without GPUs]"


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Adds every command, with its arguments, to the parser of `t2t-jax`."""
    command = partial(_command, parser.add_subparsers(required=True, metavar="COMMAND"))
    _add_training(command)
    _add_studies(command)
    _add_use(command)
    _add_machine(command)
    _add_lists(command)


def _command(subparsers: Any, name: str, function: str, help: str) -> argparse.ArgumentParser:
    """Adds a command to a parser's subparsers; returns its parser, without options."""
    p: argparse.ArgumentParser = subparsers.add_parser(
        name, help=help, description=help, allow_abbrev=False
    )
    p.set_defaults(command=function, parser=p)
    p.add_argument(
        "--import", dest="imports", action="append", default=[], type=Path, metavar="FILE",
        help="load the mechanisms, parts, corpora and metrics that a file declares (`help part`)",
    )  # fmt: skip
    return p


def _add_training(command: Command) -> None:
    """Adds the commands that train a model and prepare its corpus."""
    p = command("train", "training.train", "train a model and score it on its test sets")
    p.add_argument("recipe", help=_RECIPE)
    p.add_argument("--profile", default="paper", help="paper or t2t: see `list profiles` [paper]")
    p.add_argument("--run", type=Path, help="the run's directory [runs/RECIPE-SEED]")
    p.add_argument("--mesh", default="", help=_MESH)
    p.add_argument("--hosts", default="", help=_HOSTS)
    p.add_argument("--track", choices=_TRACKERS, help=_TRACK)
    _add_cache(p)
    _add_fields(p, *SECTIONS)

    p = command(
        "prepare", "training.prepare", "tokenise a corpus into the cache that training reads"
    )
    p.add_argument("recipe", help=_RECIPE)
    _add_cache(p)
    _add_fields(p, "data")


def _add_studies(command: Command) -> None:
    """Adds the commands that run a study and show its results."""
    p = command("run", "running.run", "run a study: every row under every seed, then its table")
    _add_study(p, "demo")
    p.add_argument(
        "--seeds", type=int, default=1, metavar="K", help="number of seeds of each row [1]"
    )
    p.add_argument("--workers", type=int, default=0, metavar="W", help=_WORKERS)
    p.add_argument(
        "--task", type=int, metavar="I", help="run only row I, counted from 0; print no table"
    )
    p.add_argument("--tasks", action="store_true", help="only print the number of rows")
    p.add_argument(
        "--published", type=Path, metavar="FOLDER", help="count runs published there as done"
    )
    p.add_argument(
        "--rerun",
        action="store_true",
        help="repeat the runs that compute something else than this code",
    )
    p.add_argument("--mesh", default="", help=_MESH)
    p.add_argument("--track", choices=_TRACKERS, help=_TRACK)
    # I/W and the stage, for workers that `run` starts
    p.add_argument("--worker", default="", help=argparse.SUPPRESS)
    p.add_argument("--stage", type=int, default=0, help=argparse.SUPPRESS)
    _add_metrics(p)
    _add_cache(p)

    p = command("table", "showing.table", "print the table of studies from stored results")
    _add_study(p, several=True)
    _add_origins(p)
    _add_metrics(p)
    _add_cache(p)
    p.add_argument(
        "--format",
        default="text",
        choices=("text", "md", "latex", "csv", "json"),
        help="format of the table [text]",
    )
    p.add_argument("--columns", type=_names, default=(), metavar="NAME,...", help=_COLUMNS)
    p.add_argument("--no-cost", action="store_true", help="leave out the table of costs")

    p = command(
        "results",
        "showing.results",
        "write every run's config, scores, costs and curves as data, for pandas and others",
    )
    studies = "only runs of these, as table3, table3-demo or PATH.py [every run of the stores]"
    p.add_argument("studies", nargs="*", metavar="STUDY", help=studies)
    _add_stores(p, "runs, beside PATH.py")
    p.add_argument("--format", default="csv", choices=("csv", "jsonl", "parquet"), help="[csv]")
    out = "directory for runs.FORMAT and curves.FORMAT [results]"
    p.add_argument("--out", type=Path, default=Path("results"), help=out)

    p = command("plot", "showing.plot", "draw the plots of a study, as PNG, SVG and PDF")
    _add_study(p)
    _add_origins(p)
    _add_cache(p)

    p = command(
        "report", "showing.report", "write a page of a study: table, curves, costs, translations"
    )
    _add_study(p)
    _add_origins(p)
    p.add_argument("--out", type=Path, help="path of the page [STUDY-PRESET.html in the store]")
    _add_metrics(p)
    p.add_argument("--watch", action="store_true", help="refresh the page until nothing runs")
    _add_cache(p)

    p = command(
        "publish",
        "showing.publish",
        "write a study's results to one file, with its table and plots",
    )
    _add_study(p)
    _add_origins(p)
    p.add_argument("--to", type=Path, required=True, help="directory in which STUDY-PRESET is made")
    _add_cache(p)


def _add_use(command: Command) -> None:
    """Adds the commands that use a trained run."""
    p = command("translate", "single.translate", "translate standard input, line by line")
    _add_run(p)
    _add_cache(p)
    _add_fields(p, "decoding")

    p = command("evaluate", "single.evaluate", "score a run on a test set")
    _add_run(p)
    p.add_argument(
        "--split", default="test", help="splits of the run's corpus, such as test,test2x [test]"
    )
    p.add_argument("--sources", type=Path, help="a file of sentences, in place of a split")
    p.add_argument("--references", type=Path, help="a file of their translations")
    p.add_argument(
        "--contrastive",
        metavar="FILE",
        help="accuracy on a contrastive set instead: grammar, or a file in LingEval97's format",
    )
    _add_metrics(p, "further metrics, such as chrF2,TER,COMET,contrastive (`help metric`) [none]")
    _add_cache(p)
    _add_fields(p, "decoding")

    p = command("export", "single.export", "export a run's model for CTranslate2")
    _add_run(p)
    p.add_argument("--out", type=Path, help="directory [RUN/ctranslate2]")

    p = command(
        "attend",
        "single.attend",
        "show what a model attends to in a sentence, as a picture and a page",
    )
    _add_run(p)
    p.add_argument("sentence", help="in the source language")
    p.add_argument("--translation", help="its translation [the model's own]")
    p.add_argument("--out", type=Path, default=Path("attention"), help="directory [attention]")
    _add_cache(p)
    _add_fields(p, "decoding")


def _add_machine(command: Command) -> None:
    """Adds the commands that examine this machine and free its disk."""
    p = command("bench", "", "measure time and memory on this device")
    _add_benches(p.add_subparsers(required=True, metavar="WHAT"))

    p = command(
        "doctor", "machine.doctor", "check whether this machine can train, and say what to fix"
    )
    _add_store(p)
    p.add_argument("--mesh", default="", help=_MESH)
    _add_cache(p)

    p = command("prune", "machine.prune", "delete the checkpoints of finished runs")
    _add_store(p)
    parameters = "also delete the final parameters; no command can use these models afterwards"
    p.add_argument("--parameters", action="store_true", help=parameters)
    p.add_argument("--dry-run", action="store_true", help="delete nothing; say what would be freed")


def _add_lists(command: Command) -> None:
    """Adds the commands that list what the package has, and how to extend it."""
    p = command(
        "list",
        "machine.list_",
        "list what the package has, the rows of a study, or the runs of a store",
    )
    p.add_argument("what", nargs="?", default="", help=_LISTED)
    p.add_argument(
        "--format", default="text", choices=("text", "json"), help="format of a study's rows [text]"
    )
    p.add_argument("--store", type=Path, help="directory of runs, for `list runs` [runs]")
    watch = "for `list runs`: show progress and time left until all have ended"
    p.add_argument("--watch", action="store_true", help=watch)

    p = command("help", "machine.help_", "show how to add a study, a mechanism, a corpus and so on")
    p.add_argument("topic", help=f"one of {', '.join(topics())}")


def _add_benches(subparsers: Any) -> None:
    def bench(name: str, function: str, help: str) -> argparse.ArgumentParser:
        p = _command(subparsers, name, function, help)
        out = "directory for the figures, as JSON and text [bench]"
        p.add_argument("--out", type=Path, default=Path("bench"), help=out)
        return p

    about = "measure time and memory of every mechanism against the length"
    p = bench("attention", "bench.attention", about)
    p.add_argument("--lengths", nargs="+", type=int, metavar="N", help="[256 512 ... 16384]")
    p.add_argument("--mechanisms", nargs="+", metavar="NAME", help="[all, and additive_naive]")
    p.add_argument(
        "--seconds",
        type=float,
        default=20,
        help="a mechanism is dropped at the length whose call would take longer [20]",
    )
    sizes: Any = dict(nargs="+", choices=("tiny", "base", "big"), metavar="SIZE")
    about = "measure training steps: time, tokens a second, share of the peak, memory"
    p = bench("train", "bench.train", about)
    p.add_argument("--sizes", **sizes, default=["tiny", "base"], help="[tiny base]; big")
    tokens = "tokens of a batch, on each side [2048 on a CPU, 25000 on accelerators]"
    p.add_argument("--batch_tokens", type=int, metavar="N", help=tokens)
    population = "number of models trained in one vectorised program [1]"
    p.add_argument("--population", type=int, default=1, metavar="P", help=population)
    about = "measure sentences translated a second, greedily and with a beam of 4"
    p = bench("translate", "bench.translate", about)
    p.add_argument("--sizes", **sizes, default=["tiny"], help="[tiny]; base big")


def _add_study(
    p: argparse.ArgumentParser, preset: str = _STORED_PRESET, several: bool = False
) -> None:
    """Adds a study and its settings; or several studies in several stores.

    Args:
      preset: the default, as text.
    """
    if several:
        p.add_argument("studies", nargs="+", metavar="STUDY", help=_STUDY)
    else:
        p.add_argument("study", help=_STUDY)
    p.add_argument("--sweep", action="append", default=[], metavar="NAME=VALUES", help=_SWEEP)
    p.add_argument("--preset", default="", help=f"its scale: see `list presets` [{preset}]")
    p.add_argument(
        "--rows", nargs="+", default=(), metavar="ROW", help="names of rows or groups [all]"
    )
    if several:
        _add_stores(p, "runs, beside PATH.py")
    else:
        p.add_argument("--store", type=Path, help="directory of runs [runs, beside PATH.py]")
    _add_fields(p, *SECTIONS)


def _add_origins(p: argparse.ArgumentParser) -> None:
    """Adds the options that choose among the stored runs of a study."""
    p.add_argument(
        "--only",
        default="",
        help="show only runs whose code, data, dtype or device starts with ONLY",
    )
    p.add_argument(
        "--mix", action="store_true", help="show runs that differ in code, data, ..., and mark them"
    )
    p.add_argument(
        "--compare",
        action="store_true",
        help="compare runs of other code with this code first, in about 3 s a row",
    )


def _add_metrics(p: argparse.ArgumentParser, about: str = _METRICS) -> None:
    p.add_argument("--metrics", default="", metavar="NAMES", help=about)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _add_run(p: argparse.ArgumentParser) -> None:
    p.add_argument("run", help=_RUN)
    _add_store(p)


def _add_store(p: argparse.ArgumentParser) -> None:
    p.add_argument("--store", type=Path, default=Path("runs"), help="directory of runs [runs]")


def _add_stores(p: argparse.ArgumentParser, default: str) -> None:
    p.add_argument(
        "--store", dest="stores", type=Path, nargs="+", default=(), metavar="STORE",
        help=f"directories of runs [{default}]",
    )  # fmt: skip


def _add_cache(p: argparse.ArgumentParser) -> None:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    default = Path(os.environ.get("T2T_JAX_CACHE") or f"{home}/t2t_jax").expanduser()
    p.add_argument(
        "--cache",
        type=Path,
        default=default,
        help="directory of corpora [$T2T_JAX_CACHE, or ~/.cache/t2t_jax]",
    )


def _add_fields(p: argparse.ArgumentParser, *sections: str) -> None:
    """Adds an option for each field of these config sections; --help sums them up in one line."""
    of = "" if len(sections) == len(SECTIONS) else f" of {' and '.join(sections)}"
    example = {"data": "--vocabulary 8000", "decoding": "--beam 1"}.get(sections[0], "--N 4")
    p.epilog = (
        f"Every config field{of} is an option, too, such as {example}: `t2t-jax list fields` "
        "shows them, with their defaults."
    )
    for name in (f.name for section in sections for f in fields(SECTIONS[section])):
        kind = config.field_type(name)
        p.add_argument(
            f"--{name}",
            default=argparse.SUPPRESS,
            type=str if isinstance(kind, tuple) else kind,
            help=argparse.SUPPRESS,
        )
