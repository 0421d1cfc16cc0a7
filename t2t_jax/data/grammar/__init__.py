"""The built-in corpus: a synchronous grammar of English and German.

Every sentence is drawn with its translation, word by word, so that the alignment and what each
German word hangs on are known. The translation is a function of the English sentence.

lexicon.py has the words, a line a lemma; inflection.py their forms; choice.py which may stand
where; draft.py what a sentence is drawn on; phrases.py noun phrases; verbs.py chains of verbs and
their order; clauses.py clauses; sentences.py sentences and the corpus.
"""

from t2t_jax.data.grammar.sentences import (
    MAX_DEPTH,
    MAX_WORDS,
    Dependency,
    Pair,
    draw,
    generate,
    words,
)

__all__ = ["MAX_DEPTH", "MAX_WORDS", "Dependency", "Pair", "draw", "generate", "words"]
