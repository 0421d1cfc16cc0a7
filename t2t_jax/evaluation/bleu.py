"""Metrics of translations: BLEU, chrF and TER by sacreBLEU, COMET, and equality.

BLEU is always computed against raw references. Scores with different signatures cannot be compared:
the same translations score up to 1.5 points apart by the conventions below.
"""

import functools
import importlib.metadata
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from t2t_jax.config import Data
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metrics import Counts, Outputs, Texts, metric, percentage

COMET = "Unbabel/wmt22-comet-da"
Options = Callable[[Data], dict[str, Any]]

# sacreBLEU's tokenisers of Korean and of languages without spaces between words, by codes of ISO
# 639 and two that are often written in their place; `char` where sacreBLEU has no other.
_TOKENIZERS = {
    code: tokenizer
    for tokenizer, codes in {
        "zh": "zh zho chi cmn yue wuu hak nan lzh cn",
        "ja-mecab": "ja jpn jp",
        "ko-mecab": "ko kor",
        "char": "th tha lo lao km khm my mya bur bo bod tib dz dzo shn nod ksw kjp mnw",
    }.items()
    for code in codes.split()
}
_UNSPACED = re.compile("[\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff]")


def _of_language(target: str) -> str:
    return _TOKENIZERS.get(re.split(r"[\W_]", target.lower())[0], "13a")


def tokenizer(data: Data) -> str:
    """Returns sacreBLEU's tokeniser for the target language, unless `bleu_tokenizer` names one.

    It is 13a for unknown languages, and `char` for Japanese and Korean without MeCab.
    Raises UsageError if the tokeniser that is named cannot be used here.
    """
    auto = data.bleu_tokenizer == "auto"
    name = _of_language(data.target) if auto else data.bleu_tokenizer
    try:
        _sacrebleu("BLEU", tokenize=name)
    except (Exception, SystemExit) as error:  # a package or a download that is missing
        if auto:
            return "char"
        reason = " ".join(str(error).split())
        raise UsageError(f"bleu_tokenizer={name} cannot be used: {reason}") from None
    return name


def caution(references: Texts, data: Data) -> str:
    """Returns what to know about the words of BLEU in these references; empty if nothing."""
    chosen, own = tokenizer(data), _of_language(data.target)
    if data.bleu_tokenizer == "auto" and chosen != own:
        package = f"sacrebleu[{own.removesuffix('-mecab')}]"
        return (
            f"BLEU is of characters, as MeCab is not installed: `pip install {package}` for words"
        )
    letters = [x for line in references[:1000] for x in line if x.isalpha()]
    of_script = sum(map(bool, map(_UNSPACED.match, letters)))
    if 2 * of_script <= len(letters) or chosen not in ("13a", "intl", "none"):
        return ""
    return (
        f"the references have no spaces between words, which BLEU needs with target={data.target}: "
        "name the language by its code, such as zh or th, set bleu_tokenizer, such as zh or char, "
        "or read chrF2."
    )


@functools.cache
def _sacrebleu(name: str, **options: Any) -> Any:
    import sacrebleu.metrics

    made = getattr(sacrebleu.metrics, name)(**options)
    made.corpus_score(["a"], [["a"]])  # its signature needs the number of references
    return made


def of_sums(sums: np.ndarray) -> np.ndarray:
    """Corpus BLEU of summed `sentence_statistics` [..., 10], as sacreBLEU's default computes it.

    The k-th n-gram order without a match counts as 2^-k matches (smooth:exp). BLEU is 0 if nothing
    matches at all, or if the hypotheses have no n-gram of some order.
    """
    matches, totals = sums[..., :4], sums[..., 4:8]
    length, reference_length = sums[..., 8], sums[..., 9]
    zero = matches == 0
    smoothed = np.where(zero, 0.5 ** np.cumsum(zero, axis=-1), matches)
    log_precision = np.log(smoothed / np.maximum(totals, 1)).mean(axis=-1)
    log_brevity = np.minimum(0, 1 - reference_length / np.maximum(length, 1))
    scorable = totals.all(axis=-1) & matches.any(axis=-1)
    return np.where(scorable, 100 * np.exp(log_precision + log_brevity), 0.0)


def sentence_statistics(hypotheses: Texts, references: Texts, **options: Any) -> list[list[int]]:
    """The ten counts of each sentence whose sums give corpus BLEU with these options of sacreBLEU.

    They are sacreBLEU's number of matching n-grams for n = 1 to 4, the number of n-grams in the
    hypothesis for n = 1 to 4, and the lengths of hypothesis and reference.
    """
    counts = _sacrebleu("BLEU", **options)._extract_corpus_statistics(hypotheses, [references])
    return [[*ngrams, length, of_reference] for length, of_reference, *ngrams in counts]


def _signature(kind: str, **options: Any) -> str:
    return str(_sacrebleu(kind, **options).get_signature())


def _declare(name: str, key: str, kind: str, of_sums: Any, options: Options, **fields: Any) -> None:
    """Declares a metric of sacreBLEU, with the options that the corpus asks for."""

    def counts(outputs: Outputs) -> Counts:
        chosen = options(outputs.data)
        if kind == "BLEU":
            return sentence_statistics(outputs.hypotheses, outputs.references, **chosen)
        made = _sacrebleu(kind, **chosen)
        return made._extract_corpus_statistics(outputs.hypotheses, [outputs.references])

    def signature(outputs: Outputs) -> str:
        return _signature(kind, **options(outputs.data))

    metric(name, signature, of_sums, key=key, whole=True, **fields)(counts)


def _bleu(**options: Any) -> Options:
    """Options of BLEU; a tokeniser among them is for languages that 13a could tokenise, too."""

    def of(data: Data) -> dict[str, Any]:
        chosen = tokenizer(data)
        return {"tokenize": chosen} | options | ({} if chosen == "13a" else {"tokenize": chosen})

    return of


def _ter(data: Data) -> dict[str, Any]:
    """Options of TER, which splits Chinese and Japanese into characters; others need spaces."""
    name = _of_language(data.target)
    if name == "char":
        raise UsageError(
            f"TER counts words between spaces, which target={data.target} has not: leave TER out."
        )
    return dict(normalized=True, asian_support=True) if name in ("zh", "ja-mecab") else {}


def _chrf_of_sums(sums: np.ndarray) -> np.ndarray:
    """chrF2 [...] of n-grams in hypothesis, reference and both [..., 3 per order]."""
    hypothesis, reference, both = np.moveaxis(sums.reshape(*sums.shape[:-1], -1, 3), -1, 0)
    defined = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(defined.sum(axis=-1), 1)
    precision = np.where(defined, both / np.maximum(hypothesis, 1), 0).sum(axis=-1) / orders
    recall = np.where(defined, both / np.maximum(reference, 1), 0).sum(axis=-1) / orders
    return 100 * 5 * precision * recall / np.maximum(4 * precision + recall, 1e-300)


_declare("BLEU", "bleu", "BLEU", of_sums, _bleu())
_declare("BLEU lowercased", "bleu_lc", "BLEU", of_sums, _bleu(lowercase=True))
_declare("BLEU international", "bleu_intl", "BLEU", of_sums, _bleu(tokenize="intl"))
_declare("chrF2", "chrf", "CHRF", _chrf_of_sums, lambda data: {})
_declare("TER", "TER", "TER", percentage, _ter, lower_is_better=True)

# Without a warning that the text looks tokenised.
_TOKENISED: dict[str, Any] = dict(tokenize="none", force=True)


def _moses_signature(outputs: Outputs) -> str:
    import sacremoses

    return (
        f"{_signature('BLEU', **_TOKENISED)} after lowercase, Moses "
        f"normalize-punctuation and tokenizer -l {outputs.data.target} (sacremoses "
        f"{sacremoses.__version__})"
    )


@metric("BLEU Moses", _moses_signature, of_sums, key="bleu_moses_lc", whole=True)
def _moses(outputs: Outputs) -> Counts:
    """BLEU of both sides after `lc_norm_tok`, as the literature of Multi30k reports it."""
    both = outputs.hypotheses, outputs.references
    tokenised = (lc_norm_tok(lines, outputs.data.target) for lines in both)
    return sentence_statistics(*tokenised, **_TOKENISED)


def lc_norm_tok(lines: Texts, language: str) -> list[str]:
    """Lines lowercased, punctuation-normalised and tokenised, as Multi30k's `lc.norm.tok` files.

    The steps and their order follow `scripts/task1-tokenize.sh` in github.com/multi30k/
    dataset (lowercase.perl, normalize-punctuation.perl, tokenizer.perl, hyphens left alone), in
    sacremoses' reimplementation of the Moses scripts.
    """
    import sacremoses

    normalise = sacremoses.MosesPunctNormalizer(language).normalize
    tokenise = sacremoses.MosesTokenizer(language).tokenize
    return [tokenise(normalise(line.lower()), return_str=True) for line in lines]


def _comet_signature() -> str:
    try:
        return f"{COMET}|version:{importlib.metadata.version('unbabel-comet')}"
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(
            "the metric COMET needs its package: `pip install unbabel-comet`, or leave COMET out."
        ) from None


@functools.cache
def _comet_model() -> Any:
    """Returns the model of COMET, which its package downloads once."""
    _comet_signature()
    import comet

    return comet.load_from_checkpoint(comet.download_model(COMET))


@metric("COMET", _comet_signature)
def _comet(hypotheses: Texts, references: Texts, sources: Texts) -> Counts:
    model, texts = _comet_model(), zip(sources, hypotheses, references, strict=True)
    import torch  # which COMET has installed

    data = [{"src": source, "mt": output, "ref": reference} for source, output, reference in texts]
    scores = model.predict(data, gpus=int(torch.cuda.is_available()), progress_bar=False).scores
    return [(score, 1) for score in scores]
