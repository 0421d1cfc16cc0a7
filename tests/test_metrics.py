"""Metrics of `--metrics`: their sums, their significance tests, and the notes on missing ones."""

import dataclasses
import json
import lzma
import math
import random
import shutil
import sys
import types

import numpy as np
import pytest
import sacrebleu

from t2t_jax.errors import UsageError
from t2t_jax.evaluation import bleu, metrics
from t2t_jax.evaluation.metrics import METRICS
from t2t_jax.runs import store
from t2t_jax.study import comparison, formats, metric, notes, statistics, tables
from t2t_jax.study.measuring import RunScore, measure
from tests import stored, toy

WORDS = "der die das Hund Katze Mann sieht hört läuft schnell und sehr große rote".split()
ORACLES = {"chrF2": sacrebleu.corpus_chrf, "TER": sacrebleu.corpus_ter}


def texts(count=17, seed=0):
    """Returns translations and references, some of them very short or empty."""
    draw = random.Random(seed)
    references = [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(count)]
    changed = (
        [x if draw.random() < 0.7 else draw.choice(WORDS) for x in r.split()] for r in references
    )
    hypotheses = [" ".join(words[: draw.randint(2, 9)]) for words in changed]
    return [*hypotheses, "", "a"], [*references, "ein Wort", "b"]


@pytest.mark.parametrize("name", ORACLES)
def test_sums_of_sentences_give_the_score_of_sacrebleu(name):
    hypotheses, references = texts()
    counts = np.array(METRICS[name].measure(metrics.Outputs(hypotheses, references, []))[1])
    assert len(counts) == 19
    times = np.random.default_rng(0).multinomial(19, np.full(19, 1 / 19), size=5)
    scores = METRICS[name].of_sums(times @ counts)
    assert scores.shape == (5,)
    for drawn, score in zip(times, scores, strict=True):
        chosen = np.repeat(np.arange(19), drawn)
        pair = [hypotheses[i] for i in chosen], [[references[i] for i in chosen]]
        assert score == pytest.approx(ORACLES[name](*pair).score)
    assert METRICS[name].of_sums(counts[-1]) == pytest.approx(ORACLES[name](["a"], [["b"]]).score)
    assert f"version:{sacrebleu.__version__}" in METRICS[name].describe()


@pytest.fixture
def own():
    """Metrics that a file of studies registers: with counts, and with a score alone."""

    @metric("words", signature="tok:space", of_sums=lambda sums: sums[..., 0])
    def words(hypotheses, references, sources):
        return [(len(x.split()),) for x in hypotheses]

    @metric("total", signature="v1")
    def total(hypotheses, references, sources):
        return float(sum(map(len, hypotheses)))

    yield
    for name in ("words", "total"):
        del METRICS[name]


def shown(grid, entries, sentences):
    splits = {} if sentences is None else {"dev": sentences}
    lines = comparison.compare_with_base(grid, entries, measure(grid, entries, splits))
    return lines, tables.quality(grid, lines)


@pytest.fixture
def grid():
    names = "chrF2", "total", "PPL", "TER", "words"
    return dataclasses.replace(stored.grid(), metrics=names)


def test_a_table_has_the_metrics_it_is_asked_for(own, grid, tmp_path):
    lines, table = shown(grid, stored.entries(), stored.split(tmp_path))
    names = [above for above, below in table.header if below == "ours"]
    assert names == ["chrF2", "total", "PPL", "TER", "words", "params (M)"]
    for line in lines:
        run = line.runs[0]
        hypotheses = (stored.DEMO, run.directory.name)
        text = stored_translations(*hypotheses)
        references = stored.split(tmp_path).references
        values = {name: line.measure(name).values[0] for name in grid.scores}
        assert values["total"] == sum(map(len, text))
        assert values["words"] == sum(len(x.split()) for x in text)
        for name in ORACLES:
            assert values[name] == pytest.approx(ORACLES[name](text, [references]).score)
        assert line.measure("total").draws is None
        assert line.measure("words").draws.shape == (1, 1000)
    best = {
        above: [c.best for c in column]
        for (above, below), *column in columns(table)
        if below == "ours"
    }
    ter = [line.measure("TER").spread.mean for line in lines]
    words = [line.measure("words").spread.mean for line in lines]
    assert best["TER"] == [x == min(ter) for x in ter]
    assert best["words"] == [x == max(words) for x in words]
    said = " ".join(table.notes)
    assert "words on dev: tok:space; mean" in said
    assert "total is not tested, as the counts of each sentence were not kept." in said
    for form in formats.FORMATS:
        assert "words" in formats.render([(grid, lines)], form)
    (record, *_) = json.loads(formats.render([(grid, lines)], "json"))
    assert record["words"]["mean"] == words[0] == record["runs"][0]["words"]


def columns(table):
    rows = [row for group in table.groups for row in group]
    return list(zip(table.header, *rows, strict=True))


def stored_translations(home, name):
    lines = lzma.decompress((home / "runs.jsonl.xz").read_bytes()).decode().splitlines()
    (run,) = (x for x in map(json.loads, lines) if x["directory"] == name)
    return run["dev.de"].split("\n")[:-1]


def test_a_table_says_which_metrics_lack_translations(own, grid, tmp_path):
    """A row without stored translations has the scores of its result alone."""
    home = stored.unpacked(tmp_path)
    grid = dataclasses.replace(grid, home=home)
    entries = stored.collecting.collect(grid)
    (home / entries[1].runs[0].directory.name / "dev.de").unlink()
    (tmp_path / "sentences").mkdir()
    lines, table = shown(grid, entries, stored.split(tmp_path / "sentences"))
    row, said = lines[1].row.name, table.notes
    assert lines[1].measure("TER") is None
    result = entries[1].runs[0].result["scores"]["dev"]["chrf"]["score"]
    assert lines[1].measure("chrF2").values == (result,)
    assert f"TER needs translations, which are not stored for {row}." in said
    assert f"chrF2 is not tested, as the counts of each sentence were not kept for {row}." in said
    _, table = shown(grid, entries, None)
    assert "words needs translations, which are not stored." in table.notes


def test_a_metric_can_be_of_another_split(tmp_path):
    """The corpus's metric from the statistics of that split, others from its translations."""
    home = stored.unpacked(tmp_path)
    names = "BLEU", "BLEU@test_deep", "TER@test_deep", "TER"
    grid = dataclasses.replace(stored.grid(), home=home, metrics=names)
    entries = stored.collecting.collect(grid)
    for entry in entries[:2]:  # two sentences of dev stand for another split
        for run in entry.runs:
            shutil.copy(run.directory / "dev.de", run.directory / "test_deep.de")
            counts = [*map(list, run.statistics[:2])]
            checksum = store.write_statistics(run.directory, "test_deep", counts)
            run.result["scoring"]["test_deep"] = {"statistics": checksum}
            run.result["scores"]["test_deep"] = {"bleu": {"score": 12.5}}
    (tmp_path / "sentences").mkdir()
    sentences = stored.split(tmp_path / "sentences")
    splits = {"dev": sentences, "test_deep": sentences}
    lines = comparison.compare_with_base(grid, entries, measure(grid, entries, splits))
    for line in lines[:2]:
        assert line.measure("BLEU@test_deep").values == (12.5,) * len(line.runs)
        counts = [np.array(run.statistics[:2]) for run in line.runs]
        draws = statistics.resampled(counts, bleu.of_sums)
        np.testing.assert_array_equal(line.measure("BLEU@test_deep").draws, draws)
        assert line.measure("TER@test_deep").values == line.measure("TER").values
    assert lines[1].measure("BLEU@test_deep").difference.size == 0
    assert lines[1].measure("BLEU").difference.size != 0
    assert lines[2].measure("BLEU@test_deep") is None
    assert lines[2].measure("TER@test_deep") is None
    table = tables.quality(grid, lines)
    assert [above for above, below in table.header if below == "ours"] == [*names, "params (M)"]
    said = " ".join(table.notes)
    assert "BLEU on test_deep: the same, TER on test_deep: nrefs" in said
    assert "BLEU@test_deep needs `run` with this metric for" in said
    best = {above: column for (above, below), *column in columns(table) if below == "ours"}
    assert [cell.best for cell in best["TER@test_deep"][:2]] == [
        line.measure("TER").spread.mean == min(x.measure("TER").spread.mean for x in lines[:2])
        for line in lines[:2]
    ]


def test_a_row_has_a_metric_if_all_of_its_runs_do(grid, tmp_path):
    entries = stored.entries()
    run = entries[2].runs[0]
    entries[2] = dataclasses.replace(
        entries[2], runs=(run, dataclasses.replace(run, directory=tmp_path / "another"))
    )
    scores = {"TER": {e.runs[0].directory: RunScore(20.0 + i) for i, e in enumerate(entries)}}
    lines = comparison.compare_with_base(grid, entries, scores)
    assert [line.measure("TER") and line.measure("TER").values for line in lines] == [
        (20.0,),
        (21.0,),
        None,
    ]


def test_translations_of_other_sentences_are_refused(grid, tmp_path):
    grid, entries = dataclasses.replace(grid, metrics=("TER",)), stored.entries()
    sentences = stored.split(tmp_path)
    (tmp_path / "dev.target.txt").write_text("ein Wort\n")
    with pytest.raises(UsageError, match="has 1000 translations of dev, which has 1 sentences"):
        measure(grid, entries, {"dev": sentences})


def test_names_of_metrics_are_checked():
    assert metrics.parse("BLEU, chrF2,PPL", "text", table=True) == ("BLEU", "chrF2", "PPL")
    for text, said in {
        "bleu": "did you mean 'BLEU'?",
        "F1": "there is no metric 'F1' here",
        "accuracy": "there is no metric 'accuracy' here",
        "TER,TER": "names TER twice",
        "PPL@test": "PPL is measured on dev alone",
        "contrastive@test": "has pairs of its own",
    }.items():
        with pytest.raises(UsageError, match=said.replace("?", r"\?")):
            metrics.parse(text, "text", table=True)
    assert metrics.parse("F1", "wsj") == ("F1",)
    assert metrics.parse("BLEU@dev,TER", "text", table=True) == ("BLEU@dev", "TER")
    for text in ("BLEU@dev", "PPL"):
        with pytest.raises(UsageError, match=f"there is no metric '{text}' here"):
            metrics.parse(text, "text")
    for name in ("PPL", "TER", "a,b", "a@b", ""):
        with pytest.raises(UsageError, match="choose another name"):
            metric(name, signature="")
    for names in (("bleu", ""), ("mine", "bleu")):
        with pytest.raises(UsageError, match="BLEU has the key 'bleu' of the metric"):
            metric(names[0], signature="", key=names[1])


@pytest.mark.parametrize(
    ("corpus", "own"), [("recall", "accuracy,exact"), ("documents", "NLL,bits per byte")]
)
def test_what_is_predicted_is_no_translation(corpus, own):
    names = (*own.split(","), "PPL")
    assert metrics.parse(",".join(names), corpus, table=True) == names
    for name in ("BLEU", "BLEU@test", "chrF2", "contrastive"):
        with pytest.raises(UsageError, match=f"there is no metric '{name}' here"):
            metrics.parse(name, corpus, table=True)


def test_a_metric_of_documents_is_not_tried_on_texts():
    """Its hypotheses are numbers."""
    count = METRICS["NLL"].function
    metric("nats", signature="v1", teacher_forced=True)(lambda lines, *_: count(lines))
    data = metrics.Data(corpus="documents")
    try:
        metrics.check([METRICS["nats"]], metrics.Outputs((), ["a b"], [""], data=data), print)
        assert METRICS["nats"].measure(metrics.Outputs(["1 2"], ["a b"], [""]))[0] == 150
    finally:
        del METRICS["nats"]


@pytest.mark.parametrize(
    "returned", [[0.5, 0.7], "good", math.nan, [(0, 0)] * 2, [(1, 2)], [(1,)] * 2, {}]
)
def test_a_metric_that_returns_no_score_is_named_before_training(returned):
    metric("bad", signature="v1")(lambda hypotheses, references, sources: returned)
    outputs = metrics.Outputs((), ["a", "b"], ["c", "d"])
    try:
        with pytest.raises(UsageError, match="the metric bad "):
            metrics.check([METRICS["bad"]], outputs, print)
    finally:
        del METRICS["bad"]


@pytest.mark.parametrize("returned", [np.array([[1, 2], [3, 4]]), [(np.int64(1), 2), (3, 4)]])
def test_counts_of_numpy_can_be_stored(returned):
    metric("good", signature="v1")(lambda hypotheses, references, sources: returned)
    try:
        _, counts = METRICS["good"].measure(metrics.Outputs(["a", "b"], ["c", "d"], ()))
    finally:
        del METRICS["good"]
    assert json.dumps(counts) == "[[1, 2], [3, 4]]"


def test_a_table_counts_the_outputs_that_were_cut():
    def line(name, *counts):
        runs = [types.SimpleNamespace(result={"scoring": {"dev": x}}) for x in counts]
        return types.SimpleNamespace(row=types.SimpleNamespace(name=name), runs=runs)

    lines = [line("base", {"cut": 0}, {}), line("A", {"cut": 1200}, {"cut": 34}), line("B", {})]
    (note,) = notes._cut("dev", lines)
    assert note.endswith("all runs: A 1,234.")
    assert note.rows == ("A",)
    assert not list(notes._cut("test", lines))


def test_a_metric_that_fails_is_named_with_the_line():
    metric("bad", signature="v1")(lambda hypotheses, references, sources: 1 / 0)
    try:
        with pytest.raises(UsageError, match=r"bad fails in .*test_metrics.py, line \d+: ZeroDiv"):
            metrics.check([METRICS["bad"]], metrics.Outputs((), ["a"], ["c"]), print)
    finally:
        del METRICS["bad"]


BAD = """
from t2t_jax.study import Row, metric, study
@metric("bad", signature="v1")
def bad(hypotheses, references, sources):
    return [float(x == y) for x, y in zip(hypotheses, references, strict=True)]
@study("Bad", columns="h", split="test", base={fields})
def bad_study():
    return [Row("base")]
"""


def test_a_study_tries_its_metrics_before_it_trains(corpus, tmp_path, refused):
    (tmp_path / "bad.py").write_text(BAD.format(fields=toy.of_a_grid(corpus)))
    words = ["run", tmp_path / "bad.py", "--preset", "paper", "--cache", tmp_path / "cache"]
    said = "the metric bad returns [1.0, 1.0, ", "for 13 sentences: return one number, or for each"
    refused([*words, "--metrics", "bad"], *said)
    assert not (tmp_path / "runs").exists()
    del METRICS["bad"]


class Comet:
    """Stands for COMET: a translation scores the length of its source."""

    def predict(self, data, gpus, progress_bar):
        assert [set(x) for x in data] == [{"src", "mt", "ref"}] * len(data)
        return types.SimpleNamespace(scores=[len(x["src"]) / 100 for x in data])


def test_comet_scores_with_its_package(monkeypatch):
    bleu._comet_model.cache_clear()
    with pytest.raises(UsageError, match="needs its package: `pip install unbabel-comet`"):
        METRICS["COMET"].function(["x"], ["y"], ["a"])
    fake = types.SimpleNamespace(
        download_model=lambda name: f"at {name}",
        load_from_checkpoint=lambda path: Comet() if path == f"at {bleu.COMET}" else None,
    )
    cuda = types.SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "comet", fake)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"2.2 of {name}")
    counts = METRICS["COMET"].function(["x", "y"], ["r", "s"], ["ab", "abcd"])
    assert METRICS["COMET"].of_sums(np.sum(counts, axis=0)) == pytest.approx(3.0)
    assert METRICS["COMET"].describe() == "Unbabel/wmt22-comet-da|version:2.2 of unbabel-comet"
    bleu._comet_model.cache_clear()


def test_rows_with_fewer_seeds_than_base_are_not_missing():
    grid, lines = stored.attention(4)
    few = [lines[0], *(dataclasses.replace(x, runs=x.runs[:2]) for x in lines[1:])]
    assert not [x for x in tables.quality(grid, few).notes if x.startswith("Missing")]
    few[2] = dataclasses.replace(few[2], runs=few[2].runs[:1])
    [missing] = [x for x in tables.quality(grid, few).notes if x.startswith("Missing")]
    assert missing == f"Missing: {few[2].row.name} (1 seed)."
