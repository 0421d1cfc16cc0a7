"""The corpus grammar, English and German sentences that the package draws itself.

The grammar is imported only to draw sentences; training on a prepared corpus needs none of it.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from t2t_jax.config import Data
from t2t_jax.data.cache import SIDES
from t2t_jax.data.corpora import CORPORA
from t2t_jax.data.raw import Raw, RawCorpus, Report, check_languages, drawn_pairs, streams_of

SEED = 0
VERSION = 1  # to be raised with a change of the pairs that are drawn


def grammar(data: Data, root: Path, report: Report) -> RawCorpus:
    """The corpus of a grade."""
    check_languages(data, "en", "de")

    @functools.cache
    def pairs() -> Mapping[str, Sequence[Any]]:
        from t2t_jax.data import grammar

        train = CORPORA[data.corpus].drawn_above or 0
        more = max(0, drawn_pairs(data) - train)
        return grammar.generate(SEED, grammar.GRADES[data.grade], train=train, more=more)

    def read(split: str) -> Iterator[Raw]:
        for pair in pairs()[split]:
            extra = {name: x for name, x in pair._asdict().items() if name not in SIDES}
            yield Raw(pair.source.encode(), pair.target.encode(), extra)

    content = {"seed": SEED, "version": VERSION}
    return RawCorpus(content, lambda: streams_of(data.corpus, pairs(), read))


@functools.lru_cache(maxsize=1)
def _drawn(grade: str, known: Set[str]) -> list[dict[str, Any]]:
    """The contrastive set of a grade; drawing it takes half a minute."""
    from t2t_jax.data.grammar import GRADES, contrastive

    return contrastive.contrastive_set(grade=GRADES[grade], known=known)


def minimal_pairs(data: Data, known: Set[str]) -> list[dict[str, Any]]:
    """The contrastive set of the grade of a config, without the sources `known`.

    Raises:
      UsageError: the config does not translate English to German.
    """
    check_languages(data, "en", "de")
    return _drawn(data.grade, known)
