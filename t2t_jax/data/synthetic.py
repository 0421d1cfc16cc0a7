"""The corpora of sentences that the package draws itself: grammar, and grammar_trees.

The grammar is imported only to draw sentences; training on a prepared corpus needs none of it.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from t2t_jax.config import Data
from t2t_jax.data import trees
from t2t_jax.data.cache import SIDES
from t2t_jax.data.corpora import CORPORA
from t2t_jax.data.raw import Raw, RawCorpus, Report, drawn_pairs, streams_of
from t2t_jax.data.treebank import example

SEED = 0
VERSION = 1  # to be raised with a change of the pairs that are drawn


def grammar(data: Data, root: Path, report: Report) -> RawCorpus:
    """English and German sentences of a grade."""

    def raw(pair: Any) -> Raw:
        extra = {name: x for name, x in pair._asdict().items() if name not in (*SIDES, "tree")}
        return Raw(pair.source.encode(), pair.target.encode(), extra)

    return _corpus(data, raw)


def treebank(data: Data, root: Path, report: Report) -> RawCorpus:
    """The English sentences with their trees, linearised."""
    corpus = _corpus(data, lambda pair: example(next(trees.parse(pair.tree, "the grammar"))))
    return replace(corpus, whole_targets=True)


def _corpus(data: Data, raw: Callable[[Any], Raw]) -> RawCorpus:
    """The splits that are drawn for a config, of which `raw` makes pairs of texts."""

    @functools.cache
    def pairs() -> Mapping[str, Sequence[Any]]:
        from t2t_jax.data import grammar

        train = CORPORA[data.corpus].drawn_above or 0
        more = max(0, drawn_pairs(data) - train)
        return grammar.generate(SEED, grammar.GRADES[data.grade], train=train, more=more)

    def read(split: str) -> Iterator[Raw]:
        return map(raw, pairs()[split])

    content = {"seed": SEED, "version": VERSION}
    return RawCorpus(content, lambda: streams_of(data.corpus, pairs(), read))


@functools.lru_cache(maxsize=1)
def _drawn(grade: str, known: Set[str]) -> list[dict[str, Any]]:
    """The contrastive set of a grade; drawing it takes half a minute."""
    from t2t_jax.data.grammar import GRADES, contrastive

    return contrastive.contrastive_set(grade=GRADES[grade], known=known)


def minimal_pairs(data: Data, known: Set[str]) -> list[dict[str, Any]]:
    """The contrastive set of the grade of a config, without the sources `known`."""
    return _drawn(data.grade, known)
