"""The commands and their arguments."""

import argparse
import os
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.recipes import RECIPES

HELP = Path(__file__).parents[1] / "help"
TOPICS = sorted(path.stem for path in HELP.glob("*.md"))  # of `help`
_HOME = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
CACHE = Path(os.environ.get("T2T_JAX_CACHE") or f"{_HOME}/t2t_jax").expanduser()


def _text(help: str, **more: Any) -> dict[str, Any]:
    return dict(default="", help=help, **more)


def _number(
    help: str, metavar: str, default: float | None = None, kind: Any = int, least: int = 1
) -> dict[str, Any]:
    def number(text: str) -> float:
        if not least <= (value := kind(text)) < 1 << 31:  # false for NaN
            raise argparse.ArgumentTypeError(f"{text}: give {least} or more, but less than 2^31")
        return value

    return dict(type=number, default=default, metavar=metavar, help=help)


def _path(help: str, default: Any = None, **more: Any) -> dict[str, Any]:
    return dict(type=Path, default=default, help=help, **more)


def _flag(help: str) -> dict[str, Any]:
    return dict(action="store_true", help=help)


_SIZES: dict[str, Any] = dict(nargs="+", choices=("tiny", "base", "big"), metavar="SIZE")
_STUDY = "name of a study (`list studies`); or its file, PATH.py or PATH.py:NAME"
_PRESET = "its scale: see `list presets`"
_RUN = "name of a run (`list runs`), such as table3-demo/base/0 or table3/base/0; or its directory"

# The arguments; after a colon stands the command in which one has another meaning.
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "--import": _path(
        "load the mechanisms, parts, corpora and metrics that a file declares (`help part`)",
        [],
        dest="imports",
        action="append",
        metavar="FILE",
    ),
    "--cache": _path("directory of corpora [$T2T_JAX_CACHE, or ~/.cache/t2t_jax]", CACHE),
    "--mesh": _text(
        "devices along each axis, such as data=2,fsdp=2,tensor=2 (or population) [all along data]"
    ),
    "--track": dict(
        choices=("tensorboard", "wandb"),
        help="also send the curves to a tracker, which must be installed [none]",
    ),
    # train, prepare
    "recipe": dict(help=f"one of {', '.join(RECIPES)}"),
    "--run": _path("the run's directory [runs/RECIPE-SEED]"),
    "--hosts": _text(
        "train with several processes: auto (srun, mpirun, TPU slice), or I/N@ADDRESS:PORT"
    ),
    # studies
    "study": dict(help=_STUDY),
    "studies": dict(nargs="+", metavar="STUDY", help=_STUDY),
    "studies:results": dict(
        nargs="*",
        metavar="STUDY",
        help="only runs of these, as table3, table3-demo or PATH.py [every run of the stores]",
    ),
    "--sweep": dict(
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="a field to tune for each row, such as lr_scale=0.25,0.5,1 or peak_lr=1e-4..1e-2:5; "
        "with several fields, all combinations are tried (`help study`)",
    ),
    "--preset": _text(f"{_PRESET} [the preset of the stored runs, or demo]"),
    "--preset:run": _text(f"{_PRESET} [demo]"),
    "--rows": dict(nargs="+", default=(), metavar="ROW", help="names of rows or groups [all]"),
    "--store": _path("directory of runs [runs, beside PATH.py]"),
    "--store:several": _path(
        "directories of runs [runs, beside PATH.py]", (), dest="stores", nargs="+", metavar="STORE"
    ),
    "--compare": _flag("compare runs of other code with this code first, in about 3 s a row"),
    "--metrics": _text(
        "columns of scores, such as BLEU,chrF2,TER,COMET,contrastive,PPL, or metrics of your own "
        "(`help metric`) [the study's, or PPL and the corpus's metric]",
        metavar="NAMES",
    ),
    # run
    "--seeds": _number("number of seeds of each row [1]", "K", 1),
    "--base-seeds": _number(
        "number of seeds of base, which all rows are compared with [of several seeds: sqrt(rows) "
        "times as many]",
        "K",
    ),
    "--workers": _number(
        "number of worker processes [one per GPU, or per CPU core without GPUs, and at most one "
        "for each compiled program, which seeds share]",
        "W",
    ),
    "--task": _number("run one task, a row with a trial or a seed, counted from 0", "I", least=0),
    "--tasks": _flag("only print the number of tasks, of trials before tasks of seeds"),
    "--published": _path("count runs published there as done", metavar="FOLDER"),
    "--rerun": _flag("repeat the runs that compute something else than this code"),
    # I/W and the stage, for workers that `run` starts
    "--worker": _text(argparse.SUPPRESS),
    "--stage": _number(argparse.SUPPRESS, "N", 0, least=0),
    # plan
    "--from": _path(
        "store or folder of published results whose costs and deviations are used [--store, or "
        "the stored Table 3 of preset hour if its rows have one seed]",
        dest="origin",
        metavar="FOLDER",
    ),
    "--detect": dict(
        type=float,
        metavar="NATS",
        help="also print how often a difference of this size in NLL per token would be found",
    ),
    # table, results, report, publish
    "--format:table": dict(
        choices="text md latex json".split(), default="text", help="format of the table [text]"
    ),
    "--columns": dict(
        type=lambda text: tuple(name.strip() for name in text.split(",")),
        default=(),
        metavar="NAME,...",
        help="columns beside the scores: config fields, n, params [the study's fields, n and "
        "params]",
    ),
    "--no-cost": _flag("leave out the table of costs"),
    "--notes": _flag("print all notes below the table: code, what rows differ in, ..."),
    "--p": _flag("show differences from base with their intervals and p, corrected"),
    "--out:results": _path("directory for runs.csv and curves.csv [results]", "results"),
    "--out:report": _path("path of the page [STUDY-PRESET.html in the store]"),
    "--to": _path("directory in which STUDY-PRESET is made", required=True),
    "--card": _flag("write the table as a dataset card of the Hugging Face hub, README.md"),
    # commands on one run
    "run": dict(help=_RUN),
    "--store:runs": _path("directory of runs [runs]", "runs"),
    "--split": dict(default="test", help="splits of the run's corpus, such as test,test2x [test]"),
    "--sources": _path("a file of sentences, in place of a split"),
    "--references": _path("a file of their translations"),
    "--metrics:evaluate": _text(
        "further metrics, such as chrF2,TER,COMET,contrastive (`help metric`) [none]",
        metavar="NAMES",
    ),
    "--tokens": _number("the largest number of tokens to generate [100]", "N", 100),
    "--temperature": _number(
        "divides the logits; 0 chooses the most likely token [1]", "X", 1.0, float, least=0
    ),
    "--top-k": _number("draw among the K most likely tokens [all]", "K", 1 << 30),
    "--top-p": _number(
        "draw among the most likely tokens of this probability [1]", "P", 1.0, float, least=0
    ),
    "--seed": _number("the draw: equal seeds continue a line equally [0]", "N", 0, least=0),
    "--format:export": dict(
        choices="ctranslate2 hf safetensors".split(),
        default="ctranslate2",
        help="hf: for transformers; safetensors: under our own names, which `translate` and others "
        "read as a run [ctranslate2]",
    ),
    "--out:export": _path("directory [RUN/FORMAT]"),
    "sentence": dict(help="in the source language"),
    "--out:attend": _path("directory [attention]", "attention"),
    # bench
    "--out:bench": _path("directory for the figures, as JSON and text [bench]", "bench"),
    "--lengths": _number("[256 512 ... 16384]", "N") | dict(nargs="+"),
    "--mechanisms": dict(nargs="+", metavar="NAME", help="[all]"),
    "--seconds": _number(
        "a mechanism is dropped at the length whose call would take longer [20]", "S", 20, float, 0
    ),
    "--sizes:train": dict(_SIZES, default=["tiny", "base"], help="[tiny base]; big"),
    "--sizes:translate": dict(_SIZES, default=["tiny"], help="[tiny]; base big"),
    "--batch_tokens": _number(
        "tokens of a batch, on each side [2048 on a CPU, 25000 on accelerators]", "N"
    ),
    "--population": _number("number of models trained in one vectorised program [1]", "P", 1),
    # prune, list, help
    "--dry-run": _flag("delete nothing; say what would be freed"),
    "what": _text(
        "studies, presets, recipes, mechanisms, parts, fields, runs (of --store), or "
        "the name or file of a study",
        nargs="?",
    ),
    "--store:list": _path("directory of runs, for `list runs` [runs]"),
    "topic": dict(nargs="?", default="", help=f"one of {', '.join(TOPICS)}"),
}

# Two lines each: name and help; function of t2t_jax/commands, arguments, sections of config fields.
_COMMANDS = """
train: train a model and score it on its test sets
    training.train recipe --run --mesh --hosts --track --cache +all
prepare: tokenise a corpus into the cache that training reads
    training.prepare recipe --cache +data
run: run a study: every row under every seed, then its table
    running.run study --sweep --preset:run --rows --store --seeds --base-seeds --workers --task \
    --tasks --published --rerun --mesh --track --worker --stage --metrics --cache +all
plan: print what a study would cost and find, by number of seeds, from stored runs
    running.plan study --sweep --preset --rows --store --from --base-seeds --detect --cache +all
table: print the tables of studies from stored results
    showing.table studies --sweep --preset --rows --store:several --compare \
    --metrics --cache --format:table --columns --no-cost --p --notes +all
results: write every run's config, scores, costs and curves as CSV, for pandas and others
    showing.results studies:results --store:several --out:results --cache
plot: draw the plots of a study, as PNG, SVG and PDF
    showing.plot study --sweep --preset --rows --store --compare --cache +all
report: write a page of a study: table, curves, costs, translations
    showing.report study --sweep --preset --rows --store --compare \
    --out:report --metrics --cache +all
publish: write a study's results to one file, with its table and plots
    showing.publish study --sweep --preset --rows --store --compare --to --card --cache +all
translate: translate standard input, line by line
    single.translate run --store:runs --cache +decoding
generate: continue each line of standard input by a language model
    single.generate run --store:runs --tokens --temperature --top-k --top-p --seed --cache
evaluate: score a run on a test set
    single.evaluate run --store:runs --split --sources --references \
    --metrics:evaluate --cache +decoding
export: export a run's model, for CTranslate2, transformers or others
    single.export run --store:runs --format:export --out:export
attend: draw what a model attends to in a sentence
    single.attend run --store:runs sentence --out:attend --cache +decoding
bench: measure time and memory on this device
    WHAT
bench attention: measure time and memory of every mechanism against the length
    bench.attention --out:bench --lengths --mechanisms --seconds
bench train: measure training steps: time, tokens a second, share of the peak, memory
    bench.train --out:bench --sizes:train --batch_tokens --population
bench translate: measure sentences translated a second, greedily and with a beam of 4
    bench.translate --out:bench --sizes:translate
doctor: check whether this machine can train, and say what to fix
    machine.doctor --store:runs --mesh --cache
prune: delete the checkpoints of finished runs
    machine.prune --store:runs --dry-run
list: list what the package has, the rows of a study, or the runs of a store
    machine.list_ what --store:list
help: show how to add a study, a mechanism, a corpus and so on
    machine.help_ topic
"""


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Adds every command, with its arguments, to the parser of `t2t-jax`."""
    groups = {"": parser.add_subparsers(required=True, metavar="COMMAND")}
    lines = _COMMANDS.strip().splitlines()
    for heading, usage in zip(lines[::2], lines[1::2], strict=True):
        (names, _, about), (function, *arguments) = heading.partition(": "), usage.split()
        group, _, name = names.rpartition(" ")
        p = groups[group].add_parser(name, help=about, description=about, allow_abbrev=False)
        p.set_defaults(command="" if function == "WHAT" else function, parser=p)
        for argument in ("--import", *arguments):
            if argument.startswith("+"):
                _add_fields(p, argument[1:])
            else:
                p.add_argument(argument.partition(":")[0], **_ARGUMENTS[argument])
        if function == "WHAT":
            groups[name] = p.add_subparsers(required=True, metavar=function)


def _add_fields(p: argparse.ArgumentParser, section: str) -> None:
    """Adds an option for each field of a config section, or of all; --help has one line on them."""
    of = "" if section == "all" else f" of {section}"
    example = {"data": "--vocabulary 8000", "decoding": "--beam 1"}.get(section, "--N 4")
    p.epilog = (
        f"Every config field{of} is an option, too, such as {example}: `t2t-jax list fields` "
        "shows them, with their defaults."
    )
    for name in (n for n, of in config.SECTION_OF.items() if section in (of, "all")):
        kind = config.field_type(name)
        p.add_argument(
            f"--{name}",
            default=argparse.SUPPRESS,
            type=str if isinstance(kind, tuple) else kind,
            help=argparse.SUPPRESS,
        )
