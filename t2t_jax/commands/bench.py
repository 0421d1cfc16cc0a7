"""`bench`: what attention, training and translation cost on this device."""

from argparse import Namespace

from t2t_jax import files
from t2t_jax.errors import UsageError


def attention(arguments: Namespace) -> None:
    """Measures, stores and prints time and memory of mechanisms at every length, and plots them."""
    from t2t_jax.attention.choice import parse
    from t2t_jax.attention.registry import MECHANISMS
    from t2t_jax.bench import NAIVE, keep

    lengths = arguments.lengths
    if lengths and min(lengths) < 1:
        raise UsageError(f"--lengths must be positive, not {min(lengths)}.")
    names = arguments.mechanisms or (*MECHANISMS, NAIVE)
    for name in names:
        if name != NAIVE:
            parse(name)
    files.make_directory(arguments.out)
    from t2t_jax.bench import attention

    results = attention.measure(names, lengths or attention.LENGTHS, arguments.seconds)
    keep(arguments.out / "attention.txt", results, attention.table(results))
    attention.plot(results, arguments.out / "attention")


def train(arguments: Namespace) -> None:
    """Measures, stores and prints the time of training steps."""
    if arguments.population < 1:
        raise UsageError(f"--population must be at least 1, not {arguments.population}.")
    files.make_directory(arguments.out)
    import jax

    from t2t_jax.bench import keep, train

    batch_tokens = arguments.batch_tokens
    if batch_tokens is None:
        batch_tokens = 2048 if jax.default_backend() == "cpu" else 25_000
    results = train.measure(arguments.sizes, batch_tokens, arguments.population)
    keep(arguments.out / "train.txt", results, train.table(results))


def translate(arguments: Namespace) -> None:
    """Measures, stores and prints the speed of translation."""
    files.make_directory(arguments.out)
    from t2t_jax.bench import keep, translate

    results = translate.measure(arguments.sizes)
    keep(arguments.out / "translate.txt", results, translate.table(results))
