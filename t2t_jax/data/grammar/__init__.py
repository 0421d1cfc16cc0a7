"""The built-in corpus: a synchronous grammar of English and German.

A sentence and its translation are drawn together, word by word, so that word alignments and the
dependencies of German words are known. The translation is a function of the English sentence.

The words are in `lexicon.txt`. Each module builds on the ones before it: `inflection`, `choice`,
`grades`, `draft`, `phrases`, `verbs`, `plans`, `clauses`, `sentences`, `corpus`, `contrastive`.
"""

from t2t_jax.data.grammar.corpus import generate
from t2t_jax.data.grammar.grades import GRADES, NORMAL, Grade
from t2t_jax.data.grammar.sentences import Dependency, Pair, draw, words

__all__ = ["GRADES", "NORMAL", "Dependency", "Grade", "Pair", "draw", "generate", "words"]
