"""The grades of the built-in corpus in numbers: lengths, vocabulary, depth, ambiguity.

    launch/local.sh experiments/grades.py        1 minute on one CPU core

Writes experiments/results/grades, which `help corpus` repeats. The table has means and counts over
the 60,000 default training pairs; the last columns are shares of pairs, the very last the share of
dev sentences that differ by at most one word from a training sentence, which a model may know by
heart. A type is a word form,
in lower case in English; the unigram perplexity is the perplexity of English words and grows as
their frequencies become more even. An ambiguous word is one whose translation another word of the
sentence decides, such as bank or you. A pronoun for a noun of an earlier clause takes the gender of
the German noun.

Expected: from easy to hard, sentences are twice as long (6.9 to 14.4 English words), deeper (0.21
to 1.00) and more ambiguous (6% to 34% have an ambiguous word); easy has half of the English types.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_jax import files
from t2t_jax.data.grammar import GRADES, Pair, generate, words
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "grades"
HEADER = (
    "grade", "English words", "German words", "English types", "German types",
    "unigram perplexity", "depth", "ambiguous word, %", "ambiguous word or pronoun, %",
    "dev near train, %",
)  # fmt: skip


class Measures(NamedTuple):
    """Means and counts over sentence pairs."""

    source_words: float
    target_words: float
    source_types: int
    target_types: int
    perplexity: float  # of a unigram model of the source
    depth: float
    ambiguous: float  # the share of pairs with a cue
    dependent: float  # the share of pairs with a cue or an antecedent
    near: float  # the share of dev sentences at most one word from a training sentence


def measure(pairs: Sequence[Pair], dev: Sequence[Pair] = ()) -> Measures:
    sources = [words(pair.source.lower()) for pair in pairs]
    targets = [words(pair.target) for pair in pairs]
    kinds = [{dependency.kind for dependency in pair.dependencies} for pair in pairs]
    n = len(pairs)
    return Measures(
        sum(map(len, sources)) / n,
        sum(map(len, targets)) / n,
        len(set().union(*sources)),
        len(set().union(*targets)),
        _perplexity(sources),
        sum(pair.depth for pair in pairs) / n,
        sum("cue" in kind for kind in kinds) / n,
        sum(not kind.isdisjoint({"cue", "antecedent"}) for kind in kinds) / n,
        near(pairs, dev),
    )


def near(pairs: Sequence[Pair], others: Sequence[Pair]) -> float:
    """Returns the share of other sources of which a source differs by at most one word."""
    known = set(itertools.chain.from_iterable(map(_gapped, pairs)))
    return sum(not known.isdisjoint(_gapped(pair)) for pair in others) / max(1, len(others))


def _gapped(pair: Pair) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yields the source without each of its words in turn, with the place of that word."""
    every = tuple(pair.source.split())
    for i in range(len(every)):
        yield len(every), i, every[:i] + every[i + 1 :]


def _perplexity(sentences: Iterable[Iterable[str]]) -> float:
    """Returns the perplexity of a unigram model on the words that it is estimated on."""
    counts = np.array([*Counter(itertools.chain(*sentences)).values()])
    shares = counts / counts.sum()
    return float(np.exp(-shares @ np.log(shares)))


def line(name: str, m: Measures) -> list[str]:
    """Returns a line of the table."""
    counts = [f"{m.source_types:,}", f"{m.target_types:,}", f"{m.perplexity:.0f}"]
    shares = [f"{100 * share:.0f}" for share in (m.ambiguous, m.dependent, m.near)]
    lengths = [f"{m.source_words:.1f}", f"{m.target_words:.1f}"]
    return [name, *lengths, *counts, f"{m.depth:.2f}", *shares]


def table() -> str:
    """Returns the Markdown table of all grades."""
    corpora = {name: generate(0, grade) for name, grade in GRADES.items()}
    lines = [line(name, measure(x["train"], x["dev"])) for name, x in corpora.items()]
    return pipe_table(HEADER, lines)


def main():
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = table()
    files.write(RESULTS / "table.md", text)
    print(text)


if __name__ == "__main__":
    main()
