"""What each `bench` does: it measures, keeps what it found as JSON and text, and prints it."""

import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

from t2t_jax import files
from t2t_jax.errors import UsageError


def attention(arguments: Namespace) -> None:
    from t2t_jax.attention.registry import MECHANISMS, parse
    from t2t_jax.bench import NAIVE

    lengths = arguments.lengths
    if lengths and min(lengths) < 1:
        raise UsageError(f"--lengths must be positive, not {min(lengths)}.")
    names = arguments.mechanisms or (*MECHANISMS, NAIVE)
    for name in names:
        if name != NAIVE:
            parse(name)
    files.make_directory(arguments.out)
    from t2t_jax.bench import attention

    found = attention.measure(names, lengths or attention.LENGTHS, arguments.seconds, _say)
    _keep("attention", attention, found, arguments.out)
    attention.draw(found, arguments.out / "attention")


def train(arguments: Namespace) -> None:
    if arguments.population < 1:
        raise UsageError(f"--population must be at least 1, not {arguments.population}.")
    files.make_directory(arguments.out)
    import jax

    from t2t_jax.bench import train

    tokens = arguments.batch_tokens
    if tokens is None:
        tokens = 2048 if jax.default_backend() == "cpu" else 25_000
    found = train.measure(arguments.sizes, tokens, arguments.population, _say)
    _keep("train", train, found, arguments.out)


def translate(arguments: Namespace) -> None:
    files.make_directory(arguments.out)
    from t2t_jax.bench import translate

    _keep("translate", translate, translate.measure(arguments.sizes, _say), arguments.out)


def input(arguments: Namespace) -> None:
    files.make_directory(arguments.out)
    from t2t_jax.bench import pipeline
    from t2t_jax.data.cache import open_dataset
    from t2t_jax.data.corpora import prepare
    from t2t_jax.recipes import recipe

    c = recipe(arguments.recipe)
    dataset = open_dataset(prepare(c.data, arguments.cache, report=_say))
    _keep("input", pipeline, pipeline.measure(c, dataset, _say), arguments.out)


def start(arguments: Namespace) -> None:
    files.make_directory(arguments.out)
    from t2t_jax.bench import start
    from t2t_jax.data.corpora import prepare
    from t2t_jax.recipes import recipe

    prepare(recipe(arguments.recipe).data, arguments.cache, report=_say)
    _keep("start", start, start.measure([arguments.recipe], arguments.cache, _say), arguments.out)


def peers(arguments: Namespace) -> None:
    files.make_directory(arguments.out)
    from t2t_jax.bench import CONTENDER, peers

    if not arguments.python.exists():
        raise UsageError(f"--python {arguments.python}: there is no such file.")
    if arguments.against and not (arguments.against / CONTENDER).exists():
        raise UsageError(f"--against {arguments.against}: there is no {CONTENDER} in it.")
    who = arguments.python, arguments.against
    _keep("peers", peers, peers.measure(*who, arguments.tasks, _say), arguments.out)


def _keep(name: str, module: ModuleType, found: dict[str, Any], out: Path) -> None:
    lines = module.table(found)
    files.write_json(out / f"{name}.json", found)
    files.write(out / f"{name}.txt", "\n".join(lines) + "\n")
    print(*lines, sep="\n")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
