"""The corpora by name, without numpy. `t2t-jax help corpus` adds one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from t2t_jax.parts import options

TRANSLATION = "BLEU", "BLEU lowercased", "BLEU international", "chrF2"
MULTI30K = (*TRANSLATION, "BLEU Moses")  # as its literature scores it
TREES = "F1", "recall", "precision", "valid trees", "F1 of right branches"
WORDS = "accuracy", "exact"
LIKELIHOODS = "NLL", "perplexity", "bits per byte"


@dataclass(frozen=True)
class Corpus:
    # The function that returns its `raw.RawCorpus`, as file:name in this package; or a function of
    # a study file, which yields the texts of a split.
    where: str
    # The metrics of each scored split that a run keeps; runs are compared by the first.
    metrics: tuple[str, ...] = TRANSLATION
    fields: tuple[str, ...] = ()  # the config fields that it reads besides those of every corpus
    languages: tuple[str, ...] = ()  # what `source` and `target` must be; any if it is empty
    options: Mapping[str, int] = field(default_factory=dict)  # of `task_options`: the defaults
    splits: tuple[str, ...] = ()  # of a function of a study file
    files: tuple[str, ...] = ()  # which that function reads
    version: str = ""  # the hash of its code
    words: tuple[str, ...] = ()  # its vocabulary, if that consists of whole words
    # Whether a language model reads each source before its target, as one sequence; it does not
    # read the sources of other corpora.
    prompts: bool = False
    # Whether it consists of documents without sources. A language model reads them one after
    # another, in sequences of `max_length` tokens.
    documents: bool = False
    scalable: bool = False  # whether a preset may read a smaller corpus in its place
    # Whether it is a part of a corpus with a published test set, so that its scores cannot be
    # compared with published ones.
    sample: bool = False
    # A larger number of training pairs is drawn on request, while a smaller one is a sample of the
    # corpus; None if no pairs can be drawn.
    drawn_above: int | None = None
    # SentencePiece's rule for its text where the field `normalization` sets none. Vocabularies of
    # stored results were made with `nmt_nfkc`, which leaves the text of these corpora as it is (all
    # but one reference of Multi30k).
    normalization: Literal["identity", "nmt_nfkc"] = "identity"
    # The function that returns its contrastive set, named as `where`. Its arguments are a
    # `config.Data` and the set of training sources, and it returns items in LingEval97's format
    # (`help corpus`), none of whose sources is in that set.
    minimal_pairs: str = ""
    output_rule: str = ""  # what the field `output_rule` may be besides none


_DRAWN: dict[str, Any] = dict(fields=("grade",), scalable=True, drawn_above=60_000)
_DIRECTORY: dict[str, Any] = dict(fields=("directory",), scalable=True)
_NFKC: dict[str, Any] = dict(_DIRECTORY, normalization="nmt_nfkc")
_FILES: dict[str, Any] = dict(fields=("train", "dev", "test"), scalable=True)
_TO_TREES: dict[str, Any] = dict(languages=("en", "tree"), output_rule="trees")
_TASK: dict[str, Any] = dict(metrics=WORDS, prompts=True, drawn_above=0)
CORPORA: dict[str, Corpus] = {
    "grammar": Corpus(
        "synthetic:grammar",
        languages=("en", "de"),
        normalization="nmt_nfkc",
        minimal_pairs="synthetic:minimal_pairs",
        **_DRAWN,
    ),
    "grammar_trees": Corpus("synthetic:treebank", TREES, **_DRAWN, **_TO_TREES),
    "multi30k": Corpus("parallel:multi30k", MULTI30K, **_NFKC),
    "multi30k_lower": Corpus("parallel:multi30k_lower", MULTI30K, **_NFKC),
    "wmt14": Corpus("parallel:wmt14", **_DIRECTORY),
    "text": Corpus("parallel:text", **_FILES),
    "documents": Corpus("documents:documents", LIKELIHOODS, documents=True, **_FILES),
    "wsj": Corpus("treebank:treebank", TREES, **_NFKC, **_TO_TREES),
    "wsj_sample": Corpus("treebank:treebank", TREES, sample=True, **_NFKC, **_TO_TREES),
    "recall": Corpus("diagnostics:diagnostic", options=dict(length=32, keys=4, fewest=0), **_TASK),
    "copy": Corpus("diagnostics:diagnostic", options=dict(length=16), **_TASK),
    "reverse": Corpus("diagnostics:diagnostic", options=dict(length=16), **_TASK),
    "sort": Corpus("diagnostics:diagnostic", options=dict(length=16), **_TASK),
    "dyck": Corpus("diagnostics:diagnostic", options=dict(length=32, depth=4), **_TASK),
}


def parse_options(corpus: str, text: str) -> dict[str, int]:
    """Returns all options of a corpus; `text` sets some of them, as in "keys=8,length=64".

    Raises UsageError as `parts.options` does.
    """
    defaults = CORPORA[corpus].options
    return {**defaults, **options(text, defaults, f"corpus {corpus}", f"task_options={text}")}
