"""The `bench` commands: each measures, stores its results as JSON and text, and prints them."""

import os
import sys
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from t2t_jax import files
from t2t_jax.attention.registry import MECHANISMS, parse
from t2t_jax.bench.devices import DEVICES, SLICES
from t2t_jax.errors import UsageError


def attention(arguments: Namespace) -> None:
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

    results = attention.measure(names, lengths or attention.LENGTHS, arguments.seconds, _report)
    _keep("attention", attention, results, arguments.out)
    attention.plot(results, arguments.out / "attention")


def train(arguments: Namespace) -> None:
    if arguments.population < 1:
        raise UsageError(f"--population must be at least 1, not {arguments.population}.")
    files.make_directory(arguments.out)
    import jax

    from t2t_jax.bench import train

    batch_tokens = arguments.batch_tokens
    if batch_tokens is None:
        batch_tokens = 2048 if jax.default_backend() == "cpu" else 25_000
    results = train.measure(arguments.sizes, batch_tokens, arguments.population, _report)
    _keep("train", train, results, arguments.out)


def compile(arguments: Namespace) -> None:
    a = arguments
    for name, least in (
        ("lengths", min(a.lengths)),
        ("chips", a.chips),
        ("population", a.population),
        ("batch_tokens", a.batch_tokens or 64),
    ):
        if least < (64 if name == "batch_tokens" else 1):
            raise UsageError(f"--{name} cannot be {least}: give a larger number.")
    mechanisms = [] if arguments.mechanisms is None else arguments.mechanisms or [*MECHANISMS]
    for name in mechanisms:
        parse(name)
    device = DEVICES[a.device]
    if device.platform == "tpu" and a.chips not in SLICES:
        raise UsageError(
            f"--chips {a.chips}: choose one of the {a.device} slices of "
            f"{', '.join(map(str, SLICES))}."
        )
    if find_spec(device.package) is None:
        raise UsageError(
            f"compiling for {a.device} needs JAX's packages for it: install them in a separate "
            f"environment with pip install -e '.[{device.extra}]'."
        )
    files.make_directory(arguments.out)
    # Kernels cannot be tuned without a device.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{flags} --xla_gpu_autotune_level=0"}
    from t2t_jax.bench import programs

    results = programs.measure(
        a.device,
        a.chips,
        a.sizes,
        mechanisms,
        a.lengths,
        a.kernels,
        a.population,
        a.batch_tokens,
        _report,
    )
    name = program_name(a)
    _keep(name, programs, results, a.out)
    if mechanisms:
        programs.plot(results, a.out / name)


def program_name(a: Namespace) -> str:
    """The file name of results of `bench compile`, from the options that change them."""
    name = f"compile-{a.device}" + (f"x{a.chips}" if a.chips > 1 else "")
    name += f"-{a.population}-models" if a.population > 1 else ""
    name += f"-{a.batch_tokens}-tokens" if a.batch_tokens else ""
    return name + ("-plain" if a.kernels == "plain" else "")


def translate(arguments: Namespace) -> None:
    files.make_directory(arguments.out)
    from t2t_jax.bench import translate

    _keep("translate", translate, translate.measure(arguments.sizes, _report), arguments.out)


def input(arguments: Namespace) -> None:
    files.make_directory(arguments.out)
    from t2t_jax.bench import pipeline
    from t2t_jax.data.prepare import open_corpus
    from t2t_jax.recipes import recipe

    c = recipe(arguments.recipe)
    dataset = open_corpus(c.data, arguments.cache, report=_report)
    _keep("input", pipeline, pipeline.measure(c, dataset, _report), arguments.out)


def start(arguments: Namespace) -> None:
    files.make_directory(arguments.out)
    from t2t_jax.bench import start
    from t2t_jax.data.prepare import prepare
    from t2t_jax.recipes import recipe

    prepare(recipe(arguments.recipe).data, arguments.cache, report=_report)
    results = start.measure([arguments.recipe], arguments.cache, _report)
    _keep("start", start, results, arguments.out)


def _keep(name: str, module: ModuleType, results: dict[str, Any], out: Path) -> None:
    lines = module.table(results)
    files.write_json(out / f"{name}.json", results)
    files.write(out / f"{name}.txt", "\n".join(lines) + "\n")
    print(*lines, sep="\n")


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
