"""The curve over the size of a treebank runs valid grids, and scores each model in both ways."""

from types import SimpleNamespace

import pytest

from experiments import treebanks
from t2t_jax.study.declaration import find


@pytest.mark.parametrize("name", treebanks.GRIDS)
def test_every_grid_is_table_4_on_a_number_of_sentences(name, tmp_path):
    grid = treebanks.request(name, str(tmp_path)).grid(find("table4"), tmp_path)
    corpus, pairs = name.rsplit("-", 1)
    assert (grid.data.corpus, grid.data.pairs) == (corpus, int(pairs))
    assert [row.name for row in grid.rows] == ["Transformer", "LSTM with attention"]


def made(name, f1, tmp_path):
    scores = {"f1": {"score": f1}, "valid": {"score": 50.0}}
    result = {"scores": {"test": scores}, "environment": {"jax": "1"}}
    return SimpleNamespace(directory=tmp_path / name, result=result)


def test_a_model_is_scored_once_with_constrained_outputs(tmp_path, monkeypatch):
    runs = [made("a", 20.0, tmp_path), made("b", 24.0, tmp_path), made("c", 28.0, tmp_path)]
    asked = []

    def evaluate(directory, cache, split, texts, changes, metrics, report):
        asked.append((directory.name, split, changes))
        return {"f1": {"score": 41.0}, "valid": {"score": 100.0}}

    monkeypatch.setattr("t2t_jax.runs.loading.evaluate", evaluate)
    for run in runs[:2]:
        (run.directory / "final").mkdir(parents=True)
    known = {"b": {"f1": 43.0, "valid": 100.0}}
    treebanks.constrain(runs, known)
    assert asked == [("a", "test", {"output_rule": "trees"})]
    scores = treebanks.measure(runs, known)
    assert scores["f1"] == [20, 24, 28]
    assert scores[treebanks.CONSTRAINED + "f1"] == [41, 43]
    results = {"grammar_trees-2500": {"Transformer": scores}}
    row = "2,500 | Transformer | 3 | 24.0 ± 4.0 | 50.0 ± 0.0 | 42.0 ± 1.4 | 100.0"
    assert row in treebanks.table(results)
    treebanks.draw(results, tmp_path)
    assert (tmp_path / "treebanks.png").stat().st_size > 1000
