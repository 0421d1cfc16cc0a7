"""Studies and presets: the paper's table to the digit, and what holds at every scale."""

from dataclasses import replace
from pathlib import Path

import pytest

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError
from t2t_jax.study.cost import parameters
from t2t_jax.study.grid import Grid
from t2t_jax.study.presets import PRESETS, preset, shrink
from t2t_jax.study.registry import find, select, studies, study
from t2t_jax.study.results import Entry
from t2t_jax.study.tables import lines, papers, records
from t2t_jax.training.flops import run_flops

# The paper's Table 3: group, N, d_model, d_ff, h, d_k, d_v, P_drop, eps_ls, steps (K), PPL, BLEU,
# parameters (M).
PAPER = """
base 6  512 2048  8  64  64 0.1 0.1 100 4.92 25.8  65
A    6  512 2048  1 512 512 0.1 0.1 100 5.29 24.9   -
A    6  512 2048  4 128 128 0.1 0.1 100 5.00 25.5   -
A    6  512 2048 16  32  32 0.1 0.1 100 4.91 25.8   -
A    6  512 2048 32  16  16 0.1 0.1 100 5.01 25.4   -
B    6  512 2048  8  16  64 0.1 0.1 100 5.16 25.1  58
B    6  512 2048  8  32  64 0.1 0.1 100 5.01 25.4  60
C    2  512 2048  8  64  64 0.1 0.1 100 6.11 23.7  36
C    4  512 2048  8  64  64 0.1 0.1 100 5.19 25.3  50
C    8  512 2048  8  64  64 0.1 0.1 100 4.88 25.5  80
C    6  256 2048  8  32  32 0.1 0.1 100 5.75 24.5  28
C    6 1024 2048  8 128 128 0.1 0.1 100 4.66 26.0 168
C    6  512 1024  8  64  64 0.1 0.1 100 5.12 25.4  53
C    6  512 4096  8  64  64 0.1 0.1 100 4.75 26.2  90
D    6  512 2048  8  64  64 0.0 0.1 100 5.77 24.6   -
D    6  512 2048  8  64  64 0.2 0.1 100 4.95 25.5   -
D    6  512 2048  8  64  64 0.1 0.0 100 4.67 25.3   -
D    6  512 2048  8  64  64 0.1 0.2 100 5.47 25.7   -
E    6  512 2048  8  64  64 0.1 0.1 100 4.92 25.7   -
big  6 1024 4096 16  64  64 0.3 0.1 300 4.33 26.4 213
"""
COLUMNS = "N d_model d_ff h d_k d_v P_drop eps_ls".split()


def test_table_3_is_the_papers():
    rows = find("table3").rows
    lines = PAPER.strip().split("\n")
    assert len(rows) == len(lines) == 20
    for row, line in zip(rows, lines, strict=True):
        group, *values = line.split()
        assert row.group == group
        flat = config.flatten(row.config)
        assert [str(flat[name]) for name in COLUMNS] == values[:8]
        assert flat["steps"] == 1000 * int(values[8])
        assert flat["positions"] == ("learned" if group == "E" else "sinusoid")
        paper = [row.PPL, row.BLEU, row.params]
        assert [x if x is None else float(x) for x in paper] == [
            None if x == "-" else float(x) for x in values[9:]
        ]


def test_the_paper_preset_is_the_paper():
    for row in find("table3").rows:
        assert shrink(row.config, preset("paper")) == row.config
    c = find("table3").rows[0].config
    assert (c.data.corpus, c.data.source, c.data.target) == ("wmt14", "en", "de")
    assert (c.decoding.beam, c.decoding.alpha, c.decoding.max_extra) == (4, 0.6, 50)
    assert (c.training.average, c.training.warmup, c.data.batch_tokens) == (1, 4000, 25_000)
    assert (c.model.norm, c.data.vocabulary) == ("post", 37_000)


@pytest.mark.parametrize("name", PRESETS)
def test_what_holds_at_the_papers_scale_holds_at_every_scale(name):
    scale = preset(name)
    for row in find("table3").rows:
        full, small = row.config, shrink(row.config, scale)
        assert (full.model.h * full.model.d_k == full.model.d_model) == (
            small.model.h * small.model.d_k == small.model.d_model
        )
        for field in ("d_model", "d_ff", "d_k", "d_v"):
            assert getattr(full.model, field) == scale.width * getattr(small.model, field)
        assert small.model.N * scale.depth == full.model.N
        assert full.training.steps / small.training.steps == 100_000 / scale.steps
        assert small.training.P_drop * scale.dropout == full.training.P_drop
        assert small.model.h == full.model.h


def test_parameters_at_the_papers_scale_round_to_the_papers():
    table3 = find("table3")
    for row in table3.rows:
        if row.params and row.group != "big":  # which fits no vocabulary that the others do
            assert round(parameters(row.config, table3.V) / 1e6) == row.params, row.name


def test_table_2_compares_models_of_one_size():
    table2 = find("table2")
    sizes = {row.name: parameters(row.config, table2.V) / 1e6 for row in table2.rows}
    assert sizes.pop("Transformer big") == pytest.approx(218, abs=1)
    assert all(64 < size < 70 for size in sizes.values()), sizes
    assert [row.config.training.average for row in table2.rows] == [5, 20, 5, 5, 5, 5]
    for row in table2.rows:
        small = shrink(row.config, preset("demo")).training
        assert small.evaluate_every * small.average <= small.steps / 8


def test_table_4_is_the_papers_and_reads_trees_alone():
    table4 = find("table4")
    c = table4.rows[0].config
    assert (c.model.N, c.model.d_model, c.data.vocabulary) == (4, 1024, 16_000)
    assert (c.decoding.beam, c.decoding.alpha, c.decoding.max_extra) == (21, 0.3, 300)
    assert (c.data.corpus, table4.rows[0].F1) == ("wsj", 91.3)
    Grid(table4, preset("treebank"), table4.rows, {}, Path("nowhere")).check()
    with pytest.raises(UsageError, match="choose --preset paper or treebank"):
        Grid(table4, preset("demo"), table4.rows, {}, Path("nowhere")).check()
    rows = find("table3").rows
    with pytest.raises(UsageError, match="choose --preset paper or multi30k or demo"):
        Grid(find("table3"), preset("treebank"), rows, {}, Path("nowhere")).check()


def test_nothing_stands_beside_a_samples_f1():
    table4 = find("table4")
    sample, whole = (
        Grid(table4, preset(name), table4.rows, {}, Path("nowhere"))
        for name in ("treebank", "paper")
    )
    assert papers(whole, table4.rows[0]) == 91.3
    assert papers(sample, table4.rows[0]) is None
    entry = Entry(table4.rows[0], sample.config(table4.rows[0]), (), "")
    for made, value in ((whole, 91.3), (sample, None)):
        assert records(made, lines(made, [entry]))[0]["paper"]["F1"] == value


def test_a_row_or_scale_that_does_not_fit_is_refused():
    with pytest.raises(UsageError, match=r"'d_modle'.*'d_model'"):

        @study("", columns="", split="dev", V=9)
        def typo():
            return [replace(find("table3").rows[0], changes=dict(d_modle=3))]

    with pytest.raises(UsageError, match="d_k=4 cannot be divided by 8"):
        shrink(config.replace(Config(), d_k=4), preset("demo"))
    with pytest.raises(UsageError, match="N=3 cannot"):
        shrink(config.replace(Config(), N=3), preset("demo"))


def test_unknown_names_bring_the_near_ones():
    with pytest.raises(UsageError, match=r"'tabel3'.*'table3'"):
        find("tabel3")
    with pytest.raises(UsageError, match=r"'dmo'.*'demo'"):
        preset("dmo")
    with pytest.raises(UsageError, match=r"'C:N=3'.*'C:N=[248]'"):
        select(find("table3"), ["C:N=3"])


def test_rows_are_chosen_by_name_or_group_and_base_comes_along():
    table3 = find("table3")
    chosen = select(table3, ["big", "B"])
    assert [row.name for row in chosen] == ["base", "B:d_k=16", "B:d_k=32", "big"]
    assert select(table3, []) == table3.rows


def test_a_study_is_one_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from t2t_jax.study.registry import Row, study\n"
        "@study('Mine', columns='h', split='test', V=9)\n"
        "def mine():\n"
        "    return [Row('base'), Row('A', dict(h=4, d_k=128))]\n"
    )
    assert [row.name for row in studies(tmp_path)["mine"].rows] == ["base", "A:h=4,d_k=128"]
    (tmp_path / "broken.py").write_text("1 +")
    with pytest.raises(UsageError, match=r"broken\.py cannot be loaded: SyntaxError"):
        studies(tmp_path)


@pytest.mark.parametrize("name", ["demo", "multi30k"])
def test_rows_at_equal_flops_cost_what_base_does(name):
    study = find("attention_flops")
    made = Grid(study, preset(name), study.rows, {}, Path("nowhere"))
    V = made.data.vocabulary
    costs = {row.name: run_flops(made.config(row), V) for row in study.rows}
    assert len(set(costs.values())) > 5
    for name, cost in costs.items():
        assert cost == pytest.approx(costs["scaled dot product"], rel=2e-3), name
