"""BLEU by sacreBLEU, always against the raw references, each score with its signature.

Scores with different signatures cannot be compared: that of the same translations varies by 1.5
points between the conventions below.
"""

from collections.abc import Sequence

import numpy as np

from t2t_jax.errors import UsageError
from t2t_jax.evaluation.score import Score

# Keys of the scores.
CASED, LOWERCASED, INTERNATIONAL, CHRF2 = "bleu", "bleu_lc", "bleu_intl", "chrf"
MOSES = "bleu_moses_lc"


def scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """sacreBLEU's scores of detokenised `hypotheses` against raw `references`, by key.

    CASED is sacreBLEU's default BLEU (13a tokenisation, cased), LOWERCASED the same on lowercased
    text, INTERNATIONAL cased BLEU with international tokenisation, and CHRF2 chrF with beta 2.

    Args:
      hypotheses, references: one sentence per line, in the same order.

    Raises:
      UsageError: there are no sentences, or the numbers of the two differ.
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
        CASED: ("BLEU", BLEU()),
        LOWERCASED: ("BLEU lowercased", BLEU(lowercase=True)),
        INTERNATIONAL: ("BLEU international", BLEU(tokenize="intl")),
        CHRF2: ("chrF2", CHRF()),
    }
    out = {}
    for key, (name, metric) in metrics.items():
        score = metric.corpus_score(hypotheses, [references]).score
        out[key] = Score(name, score, str(metric.get_signature()))
    return out


def moses_score(hypotheses: Sequence[str], references: Sequence[str], lang: str) -> Score:
    """BLEU of both sides after `lc_norm_tok`, as the Multi30k literature reports it (key MOSES).

    Args:
      hypotheses, references: one sentence per line, in the same order.
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
    """The ten counts of each sentence whose sums give corpus BLEU (13a, cased).

    They are sacreBLEU's number of matching n-grams for n = 1 to 4, the number of n-grams in the
    hypothesis for n = 1 to 4, and the lengths of hypothesis and reference.
    """
    from sacrebleu.metrics import BLEU

    metric = BLEU(effective_order=True)  # sacreBLEU's option for sentences; no count depends on it
    scored = [metric.sentence_score(h, [r]) for h, r in zip(hypotheses, references, strict=True)]
    return [[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scored]


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


def lc_norm_tok(lines: Sequence[str], lang: str) -> list[str]:
    """Lines lowercased, punctuation-normalised and tokenised, as Multi30k's `lc.norm.tok` files.

    The steps and their order are those of `scripts/task1-tokenize.sh` in github.com/multi30k/
    dataset (lowercase.perl, normalize-punctuation.perl, tokenizer.perl, hyphens left alone), in
    sacremoses' reimplementation of the Moses scripts.
    """
    import sacremoses

    normalise = sacremoses.MosesPunctNormalizer(lang).normalize
    tokenise = sacremoses.MosesTokenizer(lang).tokenize
    return [tokenise(normalise(line.lower()), return_str=True) for line in lines]
