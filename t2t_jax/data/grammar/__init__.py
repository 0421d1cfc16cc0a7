"""The built-in corpus: a synchronous grammar of English and German.

A sentence and its translation are drawn together, word by word, so that word alignments and the
dependencies of German words are known. The translation is a function of the English sentence.

    lexicon.txt     the words, a lemma per line
    inflection.py   their forms
    choice.py       which words may be combined
    grades.py       how difficult the sentences are
    draft.py        the state of a sentence while it is drawn
    phrases.py      noun phrases
    verbs.py        verb chains and word order
    plans.py        tense, negation and adverbials of a clause
    clauses.py      clauses
    sentences.py    sentences
    corpus.py       the splits of the corpus
    contrastive.py  translations with one error, for contrastive sets
"""

from t2t_jax.data.grammar.corpus import generate
from t2t_jax.data.grammar.grades import GRADES, NORMAL, Grade
from t2t_jax.data.grammar.sentences import Dependency, Pair, draw, words

__all__ = ["GRADES", "NORMAL", "Dependency", "Grade", "Pair", "draw", "generate", "words"]
