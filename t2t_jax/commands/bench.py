"""`bench`: what attention, training and translation cost on this device."""

from argparse import Namespace

import jax

from t2t_jax import files
from t2t_jax.attention.choice import parse
from t2t_jax.attention.registry import MECHANISMS
from t2t_jax.bench import attention as attentions
from t2t_jax.bench import keep
from t2t_jax.bench import train as steps
from t2t_jax.bench import translate as translations
from t2t_jax.errors import UsageError


def attention(arguments: Namespace) -> None:
    """Measures, stores and prints time and memory of mechanisms at every length, and plots them."""
    lengths = arguments.lengths
    if lengths and min(lengths) < 1:
        raise UsageError(f"--lengths must be positive, not {min(lengths)}.")
    names = arguments.mechanisms or [*MECHANISMS]
    for name in names:
        parse(name)
    files.make_directory(arguments.out)
    results = attentions.measure(names, lengths or attentions.LENGTHS, arguments.seconds)
    keep(arguments.out / "attention.txt", results, attentions.table(results))
    attentions.plot(results, arguments.out / "attention")


def train(arguments: Namespace) -> None:
    """Measures, stores and prints the time of training steps."""
    if arguments.population < 1:
        raise UsageError(f"--population must be at least 1, not {arguments.population}.")
    files.make_directory(arguments.out)
    batch_tokens = arguments.batch_tokens
    if batch_tokens is None:
        batch_tokens = 2048 if jax.default_backend() == "cpu" else 25_000
    results = steps.measure(arguments.sizes, batch_tokens, arguments.population)
    keep(arguments.out / "train.txt", results, steps.table(results))


def translate(arguments: Namespace) -> None:
    """Measures, stores and prints the speed of translation."""
    files.make_directory(arguments.out)
    results = translations.measure(arguments.sizes)
    keep(arguments.out / "translate.txt", results, translations.table(results))
