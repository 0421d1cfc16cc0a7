"""BLEU by sacreBLEU, always against the raw references, each score with its signature.

A BLEU without its signature means nothing: one set of translations differs by 1.5 points between
the conventions below.
"""

from collections.abc import Sequence

import numpy as np

from t2t_jax.errors import UsageError
from t2t_jax.evaluation.score import Score


def scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """Every metric of detokenised `hypotheses` against raw `references`, by its short name.

    - `bleu`: sacreBLEU's default, 13a tokenisation, cased
    - `bleu_lc`: the same, lowercased
    - `bleu_intl`: international tokenisation, cased
    - `chrf`: chrF2

    Args:
      hypotheses, references: one sentence each, line by line.

    Raises:
      UsageError: there is nothing to score, or the two differ in length.
    """
    if len(hypotheses) != len(references):
        raise UsageError(
            f"there are {len(hypotheses)} translations for {len(references)} references: "
            "score one translation for each line of the reference."
        )
    if not references:
        raise UsageError("there is nothing to score: the reference has no lines.")

    from sacrebleu.metrics import BLEU, CHRF

    metrics = {
        "bleu": ("BLEU", BLEU()),
        "bleu_lc": ("BLEU lowercased", BLEU(lowercase=True)),
        "bleu_intl": ("BLEU international", BLEU(tokenize="intl")),
        "chrf": ("chrF2", CHRF()),
    }
    out = {}
    for key, (name, metric) in metrics.items():
        score = metric.corpus_score(hypotheses, [references]).score
        out[key] = Score(name, score, str(metric.get_signature()))
    return out


def moses_score(hypotheses: Sequence[str], references: Sequence[str], lang: str) -> Score:
    """BLEU of what `lc_norm_tok` makes of both sides, as the Multi30k literature has it.

    Args:
      hypotheses, references: one sentence each, line by line.
      lang: the target language, for the Moses tokeniser.
    """
    import sacremoses
    from sacrebleu.metrics import BLEU

    tokenised = BLEU(tokenize="none", force=True)  # force: no warning that it looks tokenised
    score = tokenised.corpus_score(
        lc_norm_tok(hypotheses, lang), [lc_norm_tok(references, lang)]
    ).score
    signature = (
        f"{tokenised.get_signature()} after lowercase, Moses normalize-punctuation and tokenizer "
        f"-l {lang} (sacremoses {sacremoses.__version__})"
    )
    return Score("BLEU lowercased, normalised, tokenised (Moses)", score, signature)


def sentence_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> list[list[int]]:
    """What corpus BLEU (13a, cased) adds up, by sentence: ten counts each.

    They are sacreBLEU's matches of 1 to 4 words, how many there could be, and both lengths.
    """
    from sacrebleu.metrics import BLEU

    metric = BLEU(effective_order=True)  # asked of single sentences; the counts are the same
    found = [metric.sentence_score(h, [r]) for h, r in zip(hypotheses, references, strict=True)]
    return [[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in found]


def of_sums(sums: np.ndarray) -> np.ndarray:
    """Corpus BLEU of summed `sentence_statistics` [..., 10], as sacreBLEU's default computes it.

    The k-th precision without a match counts as 2^-k matches (smooth:exp). A corpus without any
    match, or without any n-gram of some order, has a BLEU of 0.
    """
    matches, totals = sums[..., :4], sums[..., 4:8]
    length, reference_length = sums[..., 8], sums[..., 9]
    zero = matches == 0
    smoothed = np.where(zero, 0.5 ** np.cumsum(zero, axis=-1), matches)
    log_precision = np.log(smoothed / np.maximum(totals, 1)).mean(axis=-1)
    log_brevity = np.minimum(0, 1 - reference_length / np.maximum(length, 1))
    scorable = totals.all(axis=-1) & matches.any(axis=-1)
    return np.where(scorable, 100 * np.exp(log_precision + log_brevity), 0.0)


def lc_norm_tok(lines: Sequence[str], lang: str) -> list[str]:
    """Lines lowercased, their punctuation normalised, tokenised: Multi30k's `lc.norm.tok` files.

    The steps and their order are those of `scripts/task1-tokenize.sh` in github.com/multi30k/
    dataset (lowercase.perl, normalize-punctuation.perl, tokenizer.perl, hyphens left alone), in
    sacremoses' reimplementation of the Moses scripts.
    """
    import sacremoses

    normalise = sacremoses.MosesPunctNormalizer(lang).normalize
    tokenise = sacremoses.MosesTokenizer(lang).tokenize
    return [tokenise(normalise(line.lower()), return_str=True) for line in lines]
