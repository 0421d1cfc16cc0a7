"""`train` and `prepare`."""

import io
from argparse import Namespace
from operator import methodcaller
from pathlib import Path

from t2t_jax import checks, config
from t2t_jax.commands.shared import cache_programs, changed_fields, print_scores
from t2t_jax.config import Config
from t2t_jax.data import prepare as preparation
from t2t_jax.recipes import recipe
from t2t_jax.terminal import Progress, duration, say
from t2t_jax.training import hosts, trackers


def train(arguments: Namespace) -> None:
    """Trains a recipe's model, scores it on its test sets, and prints the scores."""
    if arguments.track:
        trackers.choose(arguments.track)
    c = _config(arguments)
    checks.check_positions(c)
    directory = arguments.run or Path("runs") / f"{arguments.recipe}-{c.training.seed}"
    if arguments.hosts:  # the first process prepares the corpus for all
        hosts.join(arguments.hosts)
        hosts.decide(lambda: preparation.prepare(c.data, arguments.cache, report=say))
    from t2t_jax.runs.execution import execute  # with JAX, which must not precede `hosts.join`

    first = not arguments.hosts or hosts.first()
    progress = Progress() if first else Progress(io.StringIO())
    try:
        dataset = preparation.open_corpus(c.data, arguments.cache, report=progress.say)
        cache_programs(arguments.cache)
        is_test = methodcaller("startswith", "test")
        (result,) = execute([(c, directory)], dataset, is_test, progress, arguments.mesh)
        if isinstance(result, Exception):
            raise result
    finally:
        progress.close()
    if not first:
        return
    scoring = sum(s["seconds"] for s in result["scoring"].values())
    seconds = result["training_seconds"] + result["overhead_seconds"] + scoring
    progress.say(f"done in {duration(seconds)}: {directory / 'result.json'}")
    print(f"dev perplexity {result['dev_perplexity']:.3f}")
    for name, scores in result["scores"].items():
        print_scores(name, scores)


def prepare(arguments: Namespace) -> None:
    """Tokenises a recipe's corpus into the cache, and prints its directory."""
    print(preparation.prepare(_config(arguments).data, arguments.cache, report=say))


def _config(arguments: Namespace) -> Config:
    return config.replace(recipe(arguments.recipe), **changed_fields(arguments))
