"""Studies and presets: the paper's table to the digit, and what holds at every scale."""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError
from t2t_jax.models import build
from t2t_jax.models.flops import step_flops
from t2t_jax.study import declaration
from t2t_jax.study.collecting import RowResult, collect
from t2t_jax.study.comparison import compare_with_base
from t2t_jax.study.declaration import Row, declared, find, select, study
from t2t_jax.study.formats import record
from t2t_jax.study.grid import Grid
from t2t_jax.study.presets import PRESETS, preset, shrink

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


def parameters(c, V):
    """Returns the number of parameters of a model with V subwords, without allocating them."""
    token = jnp.ones((1, 1), jnp.int32)
    shapes = jax.eval_shape(build(c, V).init, jax.random.key(0), token, token)
    return sum(math.prod(x.shape) for x in jax.tree.leaves(shapes["params"]))


COLUMNS = "N d_model d_ff h d_k d_v P_drop eps_ls".split()


def test_table_3_is_the_papers():
    study = find("table3")
    rows = study.rows
    lines = PAPER.strip().split("\n")
    assert len(rows) == len(lines) == 20
    for row, line in zip(rows, lines, strict=True):
        group, *values = line.split()
        assert row.group == group
        flat = config.flatten(study.config(row))
        assert [str(flat[name]) for name in COLUMNS] == values[:8]
        assert flat["steps"] == 1000 * int(values[8])
        assert flat["positions"] == ("learned" if group == "E" else "sinusoid")
        paper = [row.paper.get(name) for name in ("PPL", "BLEU", "params")]
        assert [x if x is None else float(x) for x in paper] == [
            None if x == "-" else float(x) for x in values[9:]
        ]


def test_the_paper_preset_is_the_paper():
    for table in map(find, declared()):
        for row in table.rows:
            assert shrink(table.config(), row.changes, preset("paper")) == table.config(row)
    c = find("table3").config()
    assert (c.data.corpus, c.data.source, c.data.target) == ("wmt14", "en", "de")
    assert (c.decoding.beam, c.decoding.alpha, c.decoding.max_extra) == (4, 0.6, 50)
    assert (c.training.average, c.training.warmup, c.data.batch_tokens) == (1, 4000, 25_000)
    assert (c.model.norm_placement, c.data.vocabulary) == ("post", 37_000)


@pytest.mark.parametrize("name", PRESETS)
def test_what_holds_at_the_papers_scale_holds_at_every_scale(name):
    scale, table3 = preset(name), find("table3")
    dropout = shrink(Config(), {}, scale).training.P_drop
    for row in table3.rows:
        full, small = table3.config(row), shrink(Config(), row.changes, scale)
        assert (full.model.h * full.model.d_k == full.model.d_model) == (
            small.model.h * small.model.d_k == small.model.d_model
        )
        for field in ("d_model", "d_ff", "d_k", "d_v"):
            assert getattr(full.model, field) == scale.width * getattr(small.model, field)
        assert small.model.N * scale.depth == full.model.N
        assert full.training.steps / small.training.steps == 100_000 / scale.steps
        assert small.training.P_drop == pytest.approx(full.training.P_drop * dropout / 0.1)
        assert small.model.h == full.model.h


def test_fewer_heads_are_wider_and_keep_the_width_of_all_together():
    table3, flags = find("table3"), dict(h=4, d_k=16, d_v=16, d_model=64)
    rows = {row.name: shrink(Config(), row.changes, preset("paper"), flags) for row in table3.rows}
    heads = [(c.model.h, c.model.d_k, c.model.d_v) for c in rows.values() if c.model.d_model == 64]
    assert heads[:7] == [
        (4, 16, 16), (1, 64, 64), (2, 32, 32), (8, 8, 8), (16, 4, 4), (4, 4, 16), (4, 8, 16)
    ]  # fmt: skip


V = 41_100  # where the paper's parameters come out, big's apart


def test_parameters_at_the_papers_scale_round_to_the_papers():
    table3 = find("table3")
    for row in table3.rows[:-1]:  # big fits no vocabulary that the others do
        if "params" in row.paper:
            millions = parameters(table3.config(row), V) / 1e6
            assert round(millions) == row.paper["params"], row.name


@pytest.mark.full
def test_table_2_compares_models_of_one_size():
    table2 = find("table2")
    sizes = {row.name: parameters(table2.config(row), V) / 1e6 for row in table2.rows}
    assert sizes.pop("Transformer big") == pytest.approx(218, abs=1)
    assert all(64 < size < 70 for size in sizes.values()), sizes
    assert [table2.config(row).training.average for row in table2.rows] == [5, 20, 5, 5, 5, 5]
    for row in table2.rows:
        small = shrink(table2.config(), row.changes, preset("demo")).training
        assert small.evaluate_every * small.average <= small.steps / 8


def grid_of(study, scale="demo", **changes):
    return Grid(study, preset(scale), study.rows, changes, Path("nowhere"))


def test_table_4_is_the_papers_and_reads_trees_alone():
    table4 = find("table4")
    c = table4.config(table4.rows[0])
    assert (c.model.N, c.model.d_model, c.data.vocabulary) == (4, 1024, 16_000)
    assert (c.decoding.beam, c.decoding.alpha, c.decoding.max_extra) == (21, 0.3, 300)
    assert (c.data.corpus, table4.rows[0].paper["F1"]) == ("wsj", 91.3)
    grid_of(table4, "treebank").check()
    with pytest.raises(UsageError, match="choose --preset paper or treebank"):
        grid_of(table4).check()
    with pytest.raises(UsageError, match="--preset paper or multi30k or text or demo or hour"):
        grid_of(find("table3"), "treebank").check()
    for scale, value in (("paper", 91.3), ("treebank", None)):  # a sample's F1 is another's
        grid = grid_of(table4, scale)
        entry = RowResult(table4.rows[0], grid.config(table4.rows[0]), (), "")
        assert record(grid, *compare_with_base(grid, [entry]))["paper"]["F1"] == value


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (dict(changes=dict(d_modle=3)), "'d_modle'.*'d_model'"),
        (dict(changes=dict(seed=3)), "names the seed: .* --seeds K"),
        (dict(changes=dict(h=4), paper=dict(PLP=5.0)), "did you mean 'PPL'"),
    ],
)
def test_a_row_of_unknown_names_is_refused(row, message):
    with pytest.raises(UsageError, match=message):
        of([Row("A", **row)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(d_k=4), "d_k=4 x 1/8 is not a positive integer"),
        (dict(N=3), "N=3 x 1/2 is not"),
        (dict(batch_tokens=1250), "batch of 13 tokens"),
    ],
)
def test_a_row_that_does_not_fit_a_scale_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        shrink(Config(), changes, preset("demo"))


def test_rows_are_chosen_by_name_or_group_and_base_comes_along():
    table3 = find("table3")
    chosen = select(table3, ["big", "B"])
    assert [row.name for row in chosen] == ["base", "B:d_k=16", "B:d_k=32", "big"]
    assert select(table3, []) == table3.rows
    named = of([Row("A", dict(h=4), name="four heads"), Row("A", dict(h=16)), Row("norms")])
    assert [row.name for row in select(named, ["A"])] == ["base", "four heads", "A:h=16"]


MINE = """
from t2t_jax.study import Row, study
@study('Mine', columns='h', split='test')
def mine():
    return [Row('base'), Row('A', dict(h=4, d_k=128))]
@study(
    'Yours',
    columns='h', split='test',
)
def yours():
    return [Row('base')]
"""


def test_a_file_is_named_as_a_shell_completes_it(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE.partition("@study(\n")[0])
    monkeypatch.chdir(tmp_path)
    for text in ("mine.py", "./mine.py", "./mine.py:mine", f"{tmp_path}//mine.py"):
        assert find(text).title == "Mine"


def test_a_study_is_found_without_executing_other_files(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(declaration, "EXPERIMENTS", tmp_path)
    (tmp_path / "tool.py").write_text("def study(): pass\n1 / 0")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("@study('Other')\ndef other():\n    1 +")
    assert [row.name for row in find("mine").rows] == ["base", "A:h=4,d_k=128"]
    assert find("yours").title == "Yours"
    assert not capsys.readouterr().err
    with pytest.raises(UsageError, match=r"broken\.py cannot be loaded \(SyntaxError: "):
        find("other")
    titles = {name: title for name, (title, _) in declared().items()}
    assert titles == {"other": "Other", "mine": "Mine", "yours": "Yours"}


# Values of every field that a row may name; where a preset sets the field, also others than its.
NAMED = dict(
    architecture=("recurrent", "decoder"), N=(4, 12), d_model=(1024,), d_ff=(1024,), h=(4,),
    h_kv=(2,), d_k=(128,), d_v=(32,), d_c=(256,), positions=("rotary",), norm=("rms_norm",),
    norm_placement=("pre", "post"), feed_forward=("swiglu",), qk_norm=("rms_norm",),
    embeddings=("untied",), logit_cap=(30.0,),
    attention_gate=("head", "element"), decoder_conv=(3,), encoder_attention=("local:w=3",),
    decoder_attention=("linear",), cross_attention=("additive",), cell=("gru",),
    encoder_direction=("both",), attention_feeding=("output",), kernel=(5,), dilation=(2,),
    P_drop_attention=(0.1,), P_drop_ff=(0.1,), parametrization=("mup",), mup_width=(1024, 256),
    dtype=("bfloat16",), kernels=("plain",), corpus=("text", "grammar"), source=("de",),
    target=("fr",), bleu_tokenizer=("char",), directory=("there",),
    train=("there",), dev=("there",), test=("there",), document_attention=("within",),
    grade=("easy", "hard"), task_options=("length=9",), pairs=(1, 4_000_000),
    vocabulary=(18_500, 9999), normalization=("identity",), max_length=(128, 200),
    batch_tokens=(12_500, 33_333),
    num_buckets=(4, 2), steps=(300_000, 50_000), schedule=("linear", "inverse_sqrt"),
    warmup=(8000, 777, 1), peak_lr=(1e-3,), lr_scale=(2.0,), optimizer=("lion",),
    weight_decay=(0.01,), clip_norm=(1.0,), beta1=(0.8,), beta2=(0.99,), eps=(1e-6,),
    P_drop=(0.3, 0.0), eps_ls=(0.0,), z_loss=(1e-4,), smoothing=("others",), accumulate=(2,),
    evaluate_every=(500, 1), patience=(3,), average=(5,), beam=(4, 1, 12), alpha=(1.0,),
    max_extra=(20,), output_rule=("none",),
    init_offset=(1,), order_offset=(1,), dropout_offset=(1,),
)  # fmt: skip
RECURRENT, CONVOLUTIONAL = dict(architecture="recurrent"), dict(architecture="convolutional")
BESIDE = dict(  # what a study's base needs for a field to mean anything
    d_c=dict(d_c=64),  # a proportion
    cell=RECURRENT, encoder_direction=RECURRENT, attention_feeding=RECURRENT, kernel=CONVOLUTIONAL,
    dilation=CONVOLUTIONAL, document_attention=dict(architecture="decoder", corpus="documents"),
    mup_width=dict(parametrization="mup"), task_options=dict(corpus="copy"),
)  # fmt: skip
PROPORTIONAL = (
    "d_model d_ff d_k d_v d_c h mup_width N P_drop steps warmup batch_tokens vocabulary max_length "
    "evaluate_every"
).split()


def test_every_field_but_the_seed_is_tried():
    assert {*NAMED} == {*config.SECTION_OF} - {"seed"}


@pytest.mark.parametrize("scale", PRESETS)
@pytest.mark.parametrize("name", NAMED)
def test_a_row_wins_over_a_preset(name, scale):
    if name == "document_attention" and "corpus" in preset(scale).changes:
        pytest.skip("the corpus of the preset has no documents")
    full = config.replace(Config(), **BESIDE.get(name, {}))
    base = shrink(full, {}, preset(scale))
    paper, small = config.flatten(full), config.flatten(base)
    for value in NAMED[name]:
        c = shrink(full, {name: value}, preset(scale))
        expected = value
        if name in PROPORTIONAL:
            expected = value * small[name] / paper[name]
            expected = pytest.approx(expected) if name == "P_drop" else max(1, round(expected))
        assert config.flatten(c)[name] == expected
        others = {n for n in config.difference(c, base) if n != name}
        if name in ("architecture", "parametrization"):  # which bring and take fields
            others = {n for n in others if config.has(c.model, n) and config.has(base.model, n)}
        if name == "average":  # checkpoints are averaged that lie close together
            assert others == ({"evaluate_every"} if scale != "paper" else set())
            assert c.training.evaluate_every == (1000 if not others else c.training.steps // 40)
        elif name == "corpus":
            assert others <= {"grade", "pairs"}  # which a preset sets for its own corpus alone
        else:
            assert not others


def test_a_latent_shrinks_as_the_heads_do():
    latent, none = (shrink(Config(), dict(d_c=x), preset("demo")).model.d_c for x in (256, 0))
    assert (latent, none) == (256 // 8, 0)


def test_a_row_brings_back_what_its_base_lacks_at_the_presets_scale():
    demo, lstm = preset("demo"), config.replace(Config(), architecture="recurrent")
    assert shrink(lstm, dict(architecture="transformer"), demo) == shrink(Config(), {}, demo)


def test_dropout_is_scaled_in_decimals():
    rows = find("table3").rows
    for flags, expected in (
        ({}, {0.06, 0.0, 0.12, 0.18}),
        (dict(P_drop=0.03), {0.03, 0.0, 0.06, 0.09}),
    ):
        scaled = (shrink(Config(), row.changes, preset("demo"), flags) for row in rows)
        assert {c.training.P_drop for c in scaled} == expected


def test_a_preset_replaces_the_scale_of_a_study_and_its_rows_keep_their_proportion():
    table4 = find("table4")
    base = shrink(table4.config(), {}, preset("treebank"))
    assert (base.model.N, base.model.d_model) == (2, 128)
    assert (base.data.vocabulary, base.data.corpus, base.decoding.beam) == (2000, "wsj_sample", 4)
    assert (base.decoding.alpha, base.decoding.max_extra) == (0.3, 300)
    half = shrink(table4.config(), dict(vocabulary=8000, beam=21), preset("treebank"))
    assert (half.data.vocabulary, half.decoding.beam) == (1000, 21)


def of(rows, **fields):
    """A study of rows."""

    @study("Made up", columns="steps", split="dev", base=fields)
    def mine():
        return [Row("base"), *rows]

    return mine


def test_a_command_line_gives_bases_value_and_rows_keep_their_proportion():
    table3 = find("table3")
    big = table3.rows[-1]
    assert shrink(Config(), big.changes, preset("demo")).training.steps == 3840
    changed = grid_of(table3, steps=2560, d_ff=128, P_drop=0.05)
    changed.check()
    assert changed.config(table3.rows[0]).training.steps == 2560
    c = changed.config(big)
    assert (c.training.steps, c.model.d_ff) == (7680, 256)
    assert c.training.P_drop == pytest.approx(0.15)
    parsing = find("table4")
    assert grid_of(parsing, "treebank", N=1).config(parsing.rows[0]).model.N == 1


@pytest.mark.parametrize(
    ("name", "scale", "changes", "message"),
    [
        ("table3", "demo", dict(eps_ls=0.3), r"row D:eps_ls=0\.0 of table3 sets eps_ls itself"),
        ("table3", "demo", dict(d_ff=101), "d_ff=1024 x 101/2048 is not a positive integer"),
        ("table3", "demo", dict(architecture="recurrent"), "h=1 has no effect with arch"),
        ("table3", "demo", dict(position="learned"), "'positions'"),
        ("table3", "demo", dict(P_drop=0.0), r"base and D:P_drop=0\.0 of table3 are the same run"),
        ("table4", "treebank", dict(d_k=8), "row Transformer of table4 sets d_k itself"),
    ],
)
def test_a_command_line_that_does_not_fit_the_rows_is_refused(name, scale, changes, message):
    with pytest.raises(UsageError, match=message):
        grid_of(find(name), scale, **changes).check()


def test_a_command_line_decides_how_close_averaged_checkpoints_lie():
    table2, at_equal_flops = find("table2"), find("table2_flops")
    lstm = table2.rows[2]
    assert grid_of(table2).config(lstm).training.evaluate_every == 1280 // 40
    assert grid_of(table2, steps=5120).config(lstm).training.evaluate_every == 5120 // 40
    for made in (table2, at_equal_flops):
        assert grid_of(made, evaluate_every=7).config(made.rows[1]).training.evaluate_every == 7
    for row in at_equal_flops.rows:
        t = grid_of(at_equal_flops).config(row).training
        assert t.evaluate_every == t.steps // (8 * t.average)


def test_rows_may_cut_the_same_sentences_otherwise():
    changes = dict(vocabulary=9250, max_length=64, batch_tokens=50_000, num_buckets=7)
    grid = grid_of(of([Row("A", {name: value}) for name, value in changes.items()]))
    grid.check()
    assert grid.config(grid.rows[1]).data.vocabulary == 250
    other = grid_of(of([Row("A", dict(corpus="text", train="a", dev="b"))]), "paper")
    with pytest.raises(UsageError, match=r"reads corpus 'text' and base 'wmt14'.*same sentences"):
        other.check()
    other = grid_of(of([Row("A", dict(grade="hard"))]))
    with pytest.raises(UsageError, match=r"reads grade 'hard' and base 'easy'.*same sentences"):
        other.check()


def test_two_rows_that_come_to_one_run_are_refused():
    mine = of([Row("A", dict(norm_placement="pre"))])
    with pytest.raises(UsageError, match="rows base and A:norm_placement=pre of mine are the same"):
        grid_of(mine).check()
    grid_of(mine, "paper").check()


def costs_of(study, scale, L):
    """Returns the FLOPs of each row of a study on batches of one pair of L positions."""
    grid = grid_of(find(study), scale)
    configs, V = {row.name: grid.config(row) for row in grid.rows}, grid.data.vocabulary
    return {n: c.training.steps * step_flops(c.model, V, 1, L, L) for n, c in configs.items()}


@pytest.mark.parametrize(("name", "L"), [("demo", 15), ("multi30k", 20), ("paper", 32)])
def test_rows_at_equal_flops_cost_what_base_does_with_sentences_of_the_presets_length(name, L):
    costs = costs_of("attention_flops", name, L)
    assert len(set(costs.values())) > 5
    for row, cost in costs.items():
        assert cost == pytest.approx(costs["scaled dot product"], rel=2e-3), row


def test_the_study_at_equal_flops_has_the_rows_whose_flops_differ():
    costs = costs_of("attention", "demo", 15)
    base = costs.pop("scaled dot product")
    different = {name for name, cost in costs.items() if abs(cost / base - 1) > 0.07}
    assert {row.name for row in find("attention_flops").rows} == {"scaled dot product", *different}


def test_stored_runs_at_equal_flops_have_equal_flops():
    """As counted in training, with the lengths that the sentences have."""
    home = Path(__file__).parents[1] / "experiments" / "results" / "attention_flops-demo"
    study = find("attention_flops")
    found = collect(Grid(study, preset("demo"), study.rows, {}, home))
    measured = [run.result["flops"] for entry in found for run in entry.runs]
    assert len(measured) == 3 * len(study.rows)
    assert measured == pytest.approx([measured[0]] * len(measured), rel=0.025)


def test_a_preset_takes_all_pairs_of_another_corpus():
    demo = preset("demo")
    own = dict(corpus="text", train="a", dev="b")
    assert demo.changes["pairs"]
    for c in (shrink(Config(), {}, demo, own), shrink(Config(), own, demo)):
        assert (c.data.pairs, c.data.grade) == (0, "normal")
    assert shrink(Config(), {}, demo, dict(corpus="grammar")) == shrink(Config(), {}, demo)
    assert shrink(Config(), {}, demo, own | dict(pairs=7)).data.pairs == 7
