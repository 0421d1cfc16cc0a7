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


def attention(arguments: Namespace) -> None:
    """Measures, stores and prints time and memory of mechanisms at every length, and plots them."""
    names = arguments.mechanisms or [*MECHANISMS]
    for name in names:
        parse(name)
    files.make_directory(arguments.out)
    lengths = arguments.lengths or attentions.LENGTHS
    results = attentions.measure(names, lengths, arguments.seconds)
    keep(arguments.out / "attention.txt", results, attentions.table(results))
    attentions.plot(results, arguments.out / "attention")


def train(arguments: Namespace) -> None:
    """Measures, stores and prints the time of training steps."""
    files.make_directory(arguments.out)
    usual = 2048 if jax.default_backend() == "cpu" else 25_000
    results = steps.measure(arguments.sizes, arguments.batch_tokens or usual, arguments.population)
    keep(arguments.out / "train.txt", results, steps.table(results))


def translate(arguments: Namespace) -> None:
    """Measures, stores and prints the speed of translation."""
    files.make_directory(arguments.out)
    results = translations.measure(arguments.sizes)
    keep(arguments.out / "translate.txt", results, translations.table(results))
