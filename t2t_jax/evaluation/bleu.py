"""Metrics of translations: BLEU, chrF and TER by sacreBLEU, COMET, and equality.

BLEU is always computed against raw references. Scores with different signatures cannot be compared:
the same translations score up to 1.5 points apart by the conventions below.
"""

import functools
import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metrics import Counts, metric

COMET = "Unbabel/wmt22-comet-da"
Texts = Sequence[str]


@functools.cache
def _sacrebleu(name: str, **options: Any) -> Any:
    """Returns a metric of sacreBLEU."""
    import sacrebleu.metrics

    made = getattr(sacrebleu.metrics, name)(**options)
    made.corpus_score(["a"], [["a"]])  # its signature needs the number of references
    return made


def _signature(name: str, **options: Any) -> Callable[[], str]:
    return lambda: str(_sacrebleu(name, **options).get_signature())


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


def _declare(name: str, key: str, **options: Any) -> None:
    """Declares BLEU with options of sacreBLEU, whose default is 13a tokenisation, cased."""

    def counts(hypotheses: Texts, references: Texts, _: Texts) -> Counts:
        return sentence_statistics(hypotheses, references, **options)

    metric(name, _signature("BLEU", **options), of_sums, key=key)(counts)


_declare("BLEU", "bleu")
_declare("BLEU lowercased", "bleu_lc", lowercase=True)
_declare("BLEU international", "bleu_intl", tokenize="intl")
# Without a warning that the text looks tokenised.
_TOKENISED: dict[str, Any] = dict(tokenize="none", force=True)


def _moses_signature(language: str) -> str:
    import sacremoses

    return (
        f"{_signature('BLEU', **_TOKENISED)()} after lowercase, Moses normalize-punctuation and "
        f"tokenizer -l {language} (sacremoses {sacremoses.__version__})"
    )


@metric("BLEU Moses", _moses_signature, of_sums, key="bleu_moses_lc", by_language=True)
def moses(hypotheses: Texts, references: Texts, _: Texts, language: str) -> Counts:
    """BLEU of both sides after `lc_norm_tok`, as the literature of Multi30k reports it."""
    texts = (lc_norm_tok(lines, language) for lines in (hypotheses, references))
    return sentence_statistics(*texts, **_TOKENISED)


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


def _chrf_of_sums(sums: np.ndarray) -> np.ndarray:
    """chrF2 [...] of n-grams in hypothesis, reference and both [..., 3 per order]."""
    hypothesis, reference, both = np.moveaxis(sums.reshape(*sums.shape[:-1], -1, 3), -1, 0)
    defined = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(defined.sum(axis=-1), 1)
    precision = np.where(defined, both / np.maximum(hypothesis, 1), 0).sum(axis=-1) / orders
    recall = np.where(defined, both / np.maximum(reference, 1), 0).sum(axis=-1) / orders
    return 100 * 5 * precision * recall / np.maximum(4 * precision + recall, 1e-300)


@metric("chrF2", _signature("CHRF"), _chrf_of_sums, key="chrf")
def _chrf(hypotheses: Texts, references: Texts, _: Texts) -> Counts:
    return _sacrebleu("CHRF")._extract_corpus_statistics(hypotheses, [references])


@metric("TER", _signature("TER"), lower_is_better=True)
def _ter(hypotheses: Texts, references: Texts, _: Texts) -> Counts:
    return _sacrebleu("TER")._extract_corpus_statistics(hypotheses, [references])


@functools.cache
def _comet_model() -> Any:
    """Returns the model of COMET, which its package downloads once."""
    try:
        import comet
    except ImportError:
        raise UsageError(
            "the metric COMET needs its package: `pip install unbabel-comet`, or leave COMET out."
        ) from None
    return comet.load_from_checkpoint(comet.download_model(COMET))


def _comet_signature() -> str:
    return f"{COMET}|version:{importlib.metadata.version('unbabel-comet')}"


@metric("COMET", _comet_signature)
def _comet(hypotheses: Texts, references: Texts, sources: Texts) -> Counts:
    model, texts = _comet_model(), zip(sources, hypotheses, references, strict=True)
    import torch  # which COMET has installed

    data = [{"src": source, "mt": output, "ref": reference} for source, output, reference in texts]
    scores = model.predict(data, gpus=int(torch.cuda.is_available()), progress_bar=False).scores
    return [(score, 1) for score in scores]
