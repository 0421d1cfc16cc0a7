"""The command line: the words of every command, and how it ends.

Exit codes: 0 done, 1 failed, 2 wrong use, 75 stopped (the same command goes on).
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from t2t_jax import commands, config
from t2t_jax.config import SECTIONS
from t2t_jax.errors import Interrupted, RunError, UsageError, near
from t2t_jax.recipes import RECIPES

Command = Callable[[str, Any, str], argparse.ArgumentParser]  # name, function, help

_LISTED = (
    "studies, presets, recipes, profiles, mechanisms, fields, runs (of --store), or a study's name"
)
_RECIPE = f"one of {', '.join(RECIPES)}"
_RUN = "a run's name, as `list runs` shows it: table3-demo/base/0, table3/base/0; or its directory"
_MESH = "devices by axis, as in data=2,fsdp=2,tensor=2 (and population) [all along data]"
_HOSTS = "several processes on one run: auto (srun, mpirun, TPU pod), or I/N@ADDRESS:PORT"
_WORKERS = "processes at work [one a core of a CPU, one on accelerators]"


class _Parser(argparse.ArgumentParser):
    """Errors in one sentence, with the nearest name."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help).")


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    logging.getLogger("absl").setLevel(logging.CRITICAL)  # Orbax logs what it raises, too
    try:
        arguments = _parse(sys.argv[1:] if words is None else words)
        arguments.command(arguments)
    except UsageError as error:
        print(f"t2t-jax: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"t2t-jax: {error}", file=sys.stderr)
        return Interrupted.CODE if isinstance(error, Interrupted) else 1
    except KeyboardInterrupt:
        print("t2t-jax: interrupted.", file=sys.stderr)
        return Interrupted.CODE
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="t2t-jax", description="Ablations of the Transformer.", allow_abbrev=False
    )
    command = partial(_command, parser.add_subparsers(required=True, metavar="COMMAND"))
    _add_training(command)
    _add_studies(command)
    _add_use(command)
    _add_machine(command)
    _add_lists(command)
    arguments, rest = parser.parse_known_args(words)
    arguments.words = list(words)
    if rest:
        options = [o for o in arguments.parser._option_string_actions if o.startswith("--")]
        raise UsageError(f"there is no option {rest[0]!r} here: {near(rest[0], options)}")
    return arguments


def _command(to: Any, name: str, function: Any, help: str) -> argparse.ArgumentParser:
    """Adds a command to those of a parser, without options yet."""
    p: argparse.ArgumentParser = to.add_parser(
        name, help=help, description=help, allow_abbrev=False
    )
    p.set_defaults(command=function, parser=p)
    return p


def _add_training(command: Command) -> None:
    """What makes a run, and what it reads."""
    p = command(
        "train", commands.train, "train a model, score it on its test sets, keep everything"
    )
    p.add_argument("recipe", help=_RECIPE)
    p.add_argument("--profile", default="paper", help="paper or t2t: see `list profiles` [paper]")
    p.add_argument("--run", type=Path, help="the run's directory [runs/RECIPE-SEED]")
    p.add_argument("--mesh", default="", help=_MESH)
    p.add_argument("--hosts", default="", help=_HOSTS)
    _add_cache(p)
    _add_fields(p, *SECTIONS)

    p = command("prepare", commands.prepare, "tokenise a corpus into the cache that training reads")
    p.add_argument("recipe", help=_RECIPE)
    _add_cache(p)
    _add_fields(p, "data")


def _add_studies(command: Command) -> None:
    """What is done with a study: it is run, and its results are shown."""
    p = command("run", commands.run, "run a study: every row under every seed, then its table")
    _add_study(p)
    p.add_argument("--seeds", type=int, default=1, metavar="K", help="runs of each row [1]")
    p.add_argument("--workers", type=int, default=0, metavar="W", help=_WORKERS)
    p.add_argument("--task", type=int, metavar="I", help="row I alone, from 0, without the table")
    p.add_argument("--tasks", action="store_true", help="print how many rows there are, and end")
    p.add_argument("--rerun", action="store_true", help="make runs of other code again")
    p.add_argument("--mesh", default="", help=_MESH)
    p.add_argument("--worker", default="", help=argparse.SUPPRESS)  # I/W: one that `run` started
    p.set_defaults(format="text")
    _add_cache(p)

    p = command("table", commands.table, "the table of a study, from the results in a store")
    _add_study(p)
    p.add_argument("--format", default="text", choices=("text", "md", "latex", "csv", "json"))

    p = command("plot", commands.plot, "the plots of a study, as PNG, SVG and PDF")
    _add_study(p)
    _add_cache(p)

    p = command("report", commands.report, "a page of a study: table, curves, costs, translations")
    _add_study(p)
    p.add_argument("--out", type=Path, help="the file [STUDY-PRESET.html in the store]")
    p.add_argument("--watch", action="store_true", help="make it anew until nothing runs")
    _add_cache(p)

    p = command(
        "publish", commands.publish, "a study's results in one file, with its table and plots"
    )
    _add_study(p)
    p.add_argument("--to", type=Path, required=True, help="takes the directory STUDY-PRESET")
    _add_cache(p)


def _add_use(command: Command) -> None:
    """What is done with a trained run."""
    p = command("translate", commands.translate, "translate standard input, a line for each line")
    _add_run(p)
    _add_cache(p)
    _add_fields(p, "decoding")

    p = command("evaluate", commands.evaluate, "score a run on a test set")
    _add_run(p)
    p.add_argument("--split", default="test", help="a split of the run's corpus [test]")
    p.add_argument("--sources", type=Path, help="or a file of sentences,")
    p.add_argument("--references", type=Path, help="and one of their translations")
    _add_cache(p)
    _add_fields(p, "decoding")

    p = command("export", commands.export, "a run's model for CTranslate2, to be served")
    _add_run(p)
    p.add_argument(
        "--format", default="ctranslate2", choices=("ctranslate2",), help="[ctranslate2]"
    )
    p.add_argument("--out", type=Path, help="directory [RUN/ctranslate2]")

    p = command(
        "attend", commands.attend, "what a model attends to in a sentence: picture and page"
    )
    _add_run(p)
    p.add_argument("sentence", help="in the source language")
    p.add_argument("--translation", help="to be attended from [the model's own]")
    p.add_argument("--out", type=Path, default=Path("attention"), help="directory [attention]")
    _add_cache(p)
    _add_fields(p, "decoding")


def _add_machine(command: Command) -> None:
    """What is asked of this machine."""
    p = command("bench", commands.bench, "measure what things cost on this device")
    _add_benches(p.add_subparsers(required=True, metavar="WHAT"))

    p = command("doctor", commands.doctor, "whether this machine can train, and what to mend")
    _add_store(p)
    p.add_argument("--mesh", default="", help=_MESH)
    _add_cache(p)


def _add_lists(command: Command) -> None:
    """What there is, and how to add to it."""
    p = command("list", commands.list_, "what there is, the rows of a study, the runs of a store")
    p.add_argument("what", nargs="?", default="", help=_LISTED)
    p.add_argument("--format", default="text", choices=("text", "json"), help="of a study's rows")
    p.add_argument("--store", type=Path, help="of `list runs`: a directory of runs [runs]")

    p = command("help", commands.help_, "how to add a mechanism, a row, a corpus, an architecture")
    p.add_argument("topic", help=f"one of {', '.join(commands.topics())}")


def _add_benches(to: Any) -> None:
    def bench(what: str, help: str) -> argparse.ArgumentParser:
        p = _command(to, what, commands.bench, help)
        p.set_defaults(what=what)
        out = "takes the figures, as JSON and text [bench]"
        p.add_argument("--out", type=Path, default=Path("bench"), help=out)
        return p

    p = bench("attention", "time and memory of every mechanism against the length")
    p.add_argument("--lengths", nargs="+", type=int, metavar="N", help="[256 512 ... 16384]")
    p.add_argument("--mechanisms", nargs="+", metavar="NAME", help="[all, and one written naively]")
    p.add_argument("--seconds", type=float, default=20, help="the longest call to be tried [20]")
    sizes: Any = dict(nargs="+", choices=("tiny", "base", "big"), metavar="SIZE")
    p = bench("train", "training steps: time, tokens a second, share of the peak, memory")
    p.add_argument("--sizes", **sizes, default=["tiny", "base"], help="[tiny base]; big")
    tokens = "a side [2048 on a CPU, 25000 on accelerators]"
    p.add_argument("--batch_tokens", type=int, metavar="N", help=tokens)
    several = "models trained in one program, vectorised [1]"
    p.add_argument("--population", type=int, default=1, metavar="P", help=several)
    p = bench("translate", "sentences translated a second, greedy and with a beam of 4")
    p.add_argument("--sizes", **sizes, default=["tiny"], help="[tiny]; base big")
    p = bench("input", "tokens a second that batches are read at")
    p.add_argument("recipe", nargs="?", default="grammar", help="whose corpus [grammar]")
    _add_cache(p)
    p = bench("start", "from the command to the first step, without and with programs in the cache")
    p.add_argument("recipe", nargs="?", default="grammar", help="to be trained [grammar]")
    _add_cache(p)


def _add_study(p: argparse.ArgumentParser) -> None:
    p.add_argument("study", help="see `list studies`")
    p.add_argument("--preset", default="demo", help="its scale: see `list presets` [demo]")
    p.add_argument("--rows", nargs="+", default=(), metavar="ROW", help="rows or groups [all]")
    _add_store(p)
    p.add_argument(
        "--only", default="", help="show only runs of this code, data, dtype, device, ..."
    )
    p.add_argument("--mix", action="store_true", help="show runs of any of these, and mark them")
    _add_fields(p, *SECTIONS)


def _add_run(p: argparse.ArgumentParser) -> None:
    p.add_argument("run", help=_RUN)
    _add_store(p)


def _add_store(p: argparse.ArgumentParser) -> None:
    p.add_argument("--store", type=Path, default=Path("runs"), help="directory of runs [runs]")


def _add_cache(p: argparse.ArgumentParser) -> None:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    default = Path(os.environ.get("T2T_JAX_CACHE") or f"{home}/t2t_jax").expanduser()
    p.add_argument("--cache", type=Path, default=default, help="of corpora [~/.cache/t2t_jax]")


def _add_fields(p: argparse.ArgumentParser, *sections: str) -> None:
    for section in sections:
        group = p.add_argument_group(section)
        for f in fields(SECTIONS[section]):
            kind = config.field_type(f.name)
            group.add_argument(
                f"--{f.name}",
                default=argparse.SUPPRESS,
                type=str if isinstance(kind, tuple) else kind,
                metavar="|".join(kind) if isinstance(kind, tuple) else kind.__name__.upper(),
                help=f.metadata["help"].replace("%", "%%"),
            )


if __name__ == "__main__":
    sys.exit(main())
