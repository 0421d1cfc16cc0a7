"""Scores equal those of sacreBLEU's command, of BLEU written out, and of worked examples."""

import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.config import Data
from t2t_jax.errors import UsageError
from t2t_jax.evaluation import metrics
from t2t_jax.evaluation.bleu import lc_norm_tok, of_sums, sentence_statistics
from t2t_jax.evaluation.metrics import METRICS, Outputs, metrics_of, score
from tests.process import python

REFERENCES = [
    "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
    "Ein Boston Terrier läuft über saftig-grünes Gras vor einem weißen Zaun.",
    "Ein Mädchen in einem Karateanzug bricht ein Brett mit einem Tritt.",
    "„Fünf Leute“ in Winterjacken stehen – mit Helmen – im Schnee; 3,5 km/h!",
]
HYPOTHESES = [
    "Ein Mann mit orangefarbenem Hut, der etwas anstarrt.",
    "ein Boston Terrier läuft über grünes Gras vor einem weißen Zaun.",
    "Ein Mädchen in einem Karateanzug bricht ein Brett mit einem Tritt.",
    '"Fünf Leute" in Winterjacken stehen - mit Helmen - im Schnee; 3,5 km/h!',
]


def bleu(hypotheses, references):
    """Returns the BLEU of Papineni et al. 2002 on tokens, unsmoothed: no precision may be zero."""
    matched, total, h, r = [0] * 4, [0] * 4, 0, 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        a, b = hypothesis.split(), reference.split()
        h, r = h + len(a), r + len(b)
        for n in range(1, 5):
            ours = Counter(tuple(a[i : i + n]) for i in range(len(a) - n + 1))
            theirs = Counter(tuple(b[i : i + n]) for i in range(len(b) - n + 1))
            matched[n - 1] += sum((ours & theirs).values())
            total[n - 1] += sum(ours.values())
    precision = math.exp(sum(math.log(m / t) for m, t in zip(matched, total, strict=True)) / 4)
    return 100 * min(1.0, math.exp(1 - r / h)) * precision


def scores(hypotheses, references, corpus="multi30k", target="de"):
    outputs = Outputs(hypotheses, references, [""] * len(references), data=Data(target=target))
    return score(outputs, metrics_of(corpus))[0]


ZH = (
    ["男恨鸟女后屋。", "他在2024年买了 iPhone，很贵。", "旧树。"],
    ["男恨鸟和女后屋。", "他2024年买了iPhone，很贵！", "旧树。"],
)
KO = ["그는 개를 보았다.", "나무 가 있다"], ["그는 큰 개를 보았다.", "나무가 있다"]
TH = ["แมวเห็นหมาสีดำ", "บ้านเก่า"], ["แมวเห็นหมาตัวใหญ่สีดำ", "บ้านเก่ามาก"]
DE = HYPOTHESES, REFERENCES


COMMANDS = [
    ("bleu", "de", DE, "-l en-de"),
    ("chrf", "de", DE, "-m chrf"),
    ("bleu", "zh", ZH, "-l en-zh"),
    ("bleu", "ko", KO, "-tok char"),
    *(
        pytest.param(*x, marks=pytest.mark.full)
        for x in [
            ("bleu_lc", "de", DE, "-lc"),
            ("bleu_intl", "de", DE, "-tok intl"),
            ("bleu", "zh_CN", ZH, "-l en-zh"),
            ("bleu_lc", "yue-Hant", ZH, "-l en-zh -lc"),
            ("bleu_intl", "zh", ZH, "-tok zh"),
            ("bleu", "ja", ZH, "-tok char"),
            ("bleu", "th", TH, "-tok char"),
            ("bleu", "khm_Khmr", TH, "-tok char"),
            ("bleu", "unknown", TH, ""),
        ]
    ),
]


@pytest.mark.parametrize(("key", "target", "texts", "options"), COMMANDS)
def test_scores_equal_those_of_the_sacrebleu_command(tmp_path, key, target, texts, options):
    """MeCab, which sacreBLEU needs for Japanese and Korean, is taken as not installed."""
    for name, lines in zip("hr", texts, strict=True):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = [str(tmp_path / "r"), "-i", str(tmp_path / "h")]
    command = [sys.executable, "-m", "sacrebleu", *files, *options.split(), "-f", "text", "-w", "6"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ours = scores(*texts, target=target)[key]
    assert f"|{ours['signature']} = {ours['score']:.6f}" in printed


def test_an_option_names_another_tokeniser():
    outputs = Outputs(*ZH, ZH[1], data=Data(target="zh", bleu_tokenizer="char"))
    value, _ = METRICS["BLEU"].measure(outputs)
    assert value == pytest.approx(sacrebleu.corpus_bleu(ZH[0], [ZH[1]], tokenize="char").score)
    assert "|tok:char|" in METRICS["BLEU"].describe(outputs)
    outputs = Outputs(*KO, KO[1], data=Data(target="ko", bleu_tokenizer="ko-mecab"))
    with pytest.raises(UsageError, match="bleu_tokenizer=ko-mecab cannot be used"):
        METRICS["BLEU"].describe(outputs)


def test_ter_counts_characters_of_chinese_and_refuses_thai():
    value, _ = METRICS["TER"].measure(Outputs(*ZH, ZH[1], data=Data(target="zh")))
    expected = sacrebleu.corpus_ter(ZH[0], [ZH[1]], normalized=True, asian_support=True).score
    assert value == pytest.approx(expected)
    characters = Data(target="ja", bleu_tokenizer="char")
    assert METRICS["TER"].measure(Outputs(*ZH, ZH[1], data=characters))[0] == value
    with pytest.raises(UsageError, match="target=th"):
        METRICS["TER"].measure(Outputs(*TH, TH[1], data=Data(target="th")))


@pytest.mark.parametrize(
    ("texts", "target", "said"),
    [(ZH, "x", "no spaces between"), (ZH, "zh", ""), (DE, "x", ""), (KO, "ko", "sacrebleu[ko]`")],
)
def test_words_that_bleu_cannot_find_are_said(texts, target, said):
    lines = []
    outputs = Outputs((), texts[1], texts[1], data=Data(target=target))
    metrics.check(metrics_of("text"), outputs, lines.append)
    assert [said in line for line in lines] == [True] * bool(said)


def test_13a_comes_first_and_every_score_has_its_signature():
    actual = scores(HYPOTHESES, REFERENCES)
    assert list(actual) == ["bleu", "bleu_lc", "bleu_intl", "chrf", "bleu_moses_lc"]
    for key, case, tokeniser in [
        ("bleu", "mixed", "13a"),
        ("bleu_lc", "lc", "13a"),
        ("bleu_intl", "mixed", "intl"),
        ("bleu_moses_lc", "mixed", "none"),
    ]:
        assert f"case:{case}|" in actual[key]["signature"]
        assert f"tok:{tokeniser}|" in actual[key]["signature"]
    assert "-l de" in actual["bleu_moses_lc"]["signature"]


def test_only_multi30k_has_the_moses_score_of_its_literature():
    for corpus in ("multi30k", "multi30k_lower", "grammar", "wmt14", "text"):
        keys = [metric.key for metric in metrics_of(corpus)]
        assert keys[:4] == ["bleu", "bleu_lc", "bleu_intl", "chrf"]
        assert keys[4:] == ["bleu_moses_lc"] * corpus.startswith("multi30k")


def test_moses_tokens_equal_those_published_with_multi30k():
    """The first two lines are from Multi30k's own test_2016_flickr.lc.norm.tok.de."""
    assert lc_norm_tok(REFERENCES, "de") == [
        "ein mann mit einem orangefarbenen hut , der etwas anstarrt .",
        "ein boston terrier läuft über saftig-grünes gras vor einem weißen zaun .",
        "ein mädchen in einem karateanzug bricht ein brett mit einem tritt .",
        "&quot; fünf leute &quot; in winterjacken stehen - mit helmen - im schnee ; 3,5 km / h !",
    ]


def test_the_moses_score_is_plain_bleu_on_moses_tokens():
    hypotheses = [  # worked out by hand
        "ein mann mit orangefarbenem hut , der etwas anstarrt .",
        "ein boston terrier läuft über grünes gras vor einem weißen zaun .",
        "ein mädchen in einem karateanzug bricht ein brett mit einem tritt .",
        "&quot; fünf leute &quot; in winterjacken stehen - mit helmen - im schnee ; 3,5 km / h !",
    ]
    references = [
        "ein mann mit einem orangefarbenen hut , der etwas anstarrt .",
        "ein boston terrier läuft über saftig-grünes gras vor einem weißen zaun .",
        *hypotheses[2:],
    ]
    actual = scores(HYPOTHESES, REFERENCES)["bleu_moses_lc"]["score"]
    assert actual == pytest.approx(bleu(hypotheses, references), abs=1e-9)


def test_bleu_of_a_worked_example():
    """1-gram 4/5, 2-gram 3/4, 3-gram 2/3, 4-gram 1/2, brevity exp(1 - 6/5)."""
    actual = scores(["a b c d x"], ["a b c d e f"])
    expected = 100 * math.exp(-0.2) * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    for key in ("bleu", "bleu_lc", "bleu_intl", "bleu_moses_lc"):
        assert actual[key]["score"] == pytest.approx(expected)


LINES = st.lists(st.sampled_from("a b c d".split()), max_size=7).map(" ".join)
CORPORA = st.lists(st.tuples(LINES, LINES.filter(bool)), min_size=1, max_size=7)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(CORPORA)
def test_bleu_of_summed_statistics_is_corpus_bleu(corpus):
    """Short lines and lines without a match are included: sacreBLEU smooths zero precisions."""
    hypotheses, references = zip(*corpus, strict=True)
    expected = sacrebleu.corpus_bleu(hypotheses, [references]).score
    sums = np.sum(sentence_statistics(hypotheses, references), axis=0)
    assert float(of_sums(sums)) == pytest.approx(expected, abs=1e-9)


def test_bleu_of_summed_statistics_maps_over_leading_axes():
    sums = np.array(sentence_statistics(HYPOTHESES, REFERENCES))
    subsets = np.random.default_rng(0).integers(0, 2, (3, 5, len(REFERENCES)))
    expected = [[float(of_sums(chosen @ sums)) for chosen in row] for row in subsets]
    np.testing.assert_allclose(of_sums(subsets @ sums), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (["a", "b"], ["a"], "2 translations for 1 references"),
        (["a"], ["a", "b", "c"], "1 translations for 3 references"),
        ([], [], "nothing to score"),
    ],
)
def test_mismatched_or_empty_lines_are_refused(hypotheses, references, message):
    with pytest.raises(UsageError, match=message):
        scores(hypotheses, references)


def test_scoring_imports_no_jax():
    code = (
        "import sys; from t2t_jax.evaluation.metrics import METRICS, Outputs;"
        "METRICS['BLEU'].measure(Outputs(['a'], ['a'], ['']));"
        "assert not {'jax', 'flax'} & set(sys.modules)"
    )
    python(code)
