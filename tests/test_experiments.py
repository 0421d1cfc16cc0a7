"""Scripts and tools of experiments/: what they write has the stored results' numbers.

scale.py compares grids with the paper, mechanisms.py writes a page of all mechanisms, and
tools/peers measures other toolkits and checkouts alternately with this one.
"""

import functools
import gzip
import itertools
import json
import lzma
import math
import os
import statistics
import sys

import numpy as np
import pytest
from scipy import stats

from experiments import decisions, mechanisms, scale
from experiments.tools import gpu, roofline, steps
from experiments.tools.peers import run
from t2t_jax.attention import registry
from t2t_jax.bench import train, workload
from t2t_jax.runs import published
from t2t_jax.study import requests
from t2t_jax.study.agreement import agreements
from t2t_jax.study.declaration import find
from tests import stored, toy

RESULTS = mechanisms.RESULTS


@pytest.mark.parametrize("name", [n for n, regime in scale.GRIDS.items() if not regime.stored])
def test_every_grid_is_valid_and_its_command_names_it(name, tmp_path):
    request = scale.request(name, tmp_path)
    grid = request.grid(find("table3"), tmp_path)
    assert requests.request_of(grid).flags == request.flags
    assert (f"{tmp_path}/dev" in request.flags) == (grid.data.corpus == "text")
    c = grid.config(grid.rows[0])
    if scale.kind(name) != scale.BUILT_IN:  # the paper's warm-up, heads and vocabulary
        assert c.training.warmup == round(0.04 * c.training.steps)
        assert c.model.h * c.model.d_k == c.model.d_model
        assert c.data.vocabulary / c.model.d_model == pytest.approx(37_000 / 512, rel=0.01)


def test_a_part_has_base_and_its_groups_alone():
    grid = stored.grid(rows=20)
    lines = stored.compared(grid)
    measured = scale.agreement_of(grid, lines)
    for part, groups in (("all", "ABCDEbig"), ("C, D", "CD"), ("A, B, E", "ABE")):
        kept = [x for x in lines if x.row.group == "base" or x.row.group in groups]
        rows = [(x.row.paper["PPL"], x.PPL.spread.mean) for x in kept]
        tau = stats.kendalltau(*zip(*rows, strict=True)).statistic
        assert measured[part]["PPL"]["tau"] == pytest.approx(tau)


def test_the_cost_of_a_grid_is_that_of_all_its_runs():
    measured, runs = scale.measure("demo", stored.DEMO)
    results = [run["result.json"] for run in runs.values()]
    assert measured["rows"] == len(results) == 20
    base = next(run for run in runs.values() if "/base/" in run["names.txt"])
    lengths = [n for _, n in base["likelihood.statistics.json"]]
    expected = 2000 * np.mean(lengths) / base["result.json"]["parameters"]
    assert measured["tokens_per_parameter"] == pytest.approx(expected)
    assert measured["flops"] == pytest.approx(sum(r["flops"] for r in results))
    steps = [[x.get("seconds_per_step", np.nan) for x in r["metrics.jsonl"]] for r in runs.values()]
    trained = [r["steps"] * np.nanmedian(x) for r, x in zip(results, steps, strict=True)]
    seconds = np.add(trained, [r["overhead_seconds"] for r in results])
    scoring = [r["scoring"]["dev"]["seconds"] for r in results]
    assert measured["core_hours"] == pytest.approx((np.sum(seconds) + np.sum(scoring)) / 3600)
    assert not any("dev.de" in run for run in runs.values())


def test_a_pair_of_rows_on_the_wrong_side_counts_for_both():
    grid = stored.grid(rows=20)
    lines = stored.compared(grid)
    found = scale.wrong(grid, lines)
    for x in agreements(grid, lines):
        others = found[x.metric]
        assert sum(map(len, others.values())) == 2 * (x.pairs - x.ordered)
        assert all(row in others[other] for row in others for other in others[row])


@pytest.mark.parametrize("groups", ["", "ABE"])
@pytest.mark.parametrize(("metric", "gap"), [("PPL", 0.1), ("BLEU", 0.3)])
def test_the_attainable_tau_is_that_of_a_random_order_of_close_rows(metric, gap, groups):
    rows = [r for r in stored.grid(rows=20).rows if not groups or r.group in ("base", *groups)]
    paper = np.array([row.paper[metric] for row in rows])
    rng, n = np.random.default_rng(0), len(paper)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    size = np.sqrt(len(pairs) * sum(paper[i] != paper[j] for i, j in pairs))  # tau-b's denominator

    def tau():
        far = (abs(paper[i] - paper[j]) > gap - 1e-6 for i, j in pairs)
        return sum(1 if x else rng.choice([-1, 1]) for x in far) / size

    drawn = [tau() for _ in range(2000)]
    assert scale.attainable(metric, groups) == pytest.approx(np.mean(drawn), abs=0.02)


def test_the_stored_agreement_is_that_of_the_published_runs(tmp_path):
    """Their curves are left out, and so are runs that the folder of a preset has."""
    name, folder = "demo, 4 heads", scale.RESULTS / "demo-4-heads"
    for home in (folder, stored.DEMO):
        published.unpack(home, tmp_path)
    known = json.loads((scale.RESULTS / "agreement.json").read_text())
    found, runs = scale.measure(name, tmp_path)
    assert found.pop("core_hours") == pytest.approx(known[name].pop("core_hours"), rel=1e-4)
    assert found == known[name]
    assert {*scale.without_curves(next(iter(runs.values())))["metrics.jsonl"][0]} == {
        "step", "seconds_per_step"
    }  # fmt: skip
    kept = {path.name for path in published.directories(folder)}
    assert kept == {*runs} - {path.name for path in published.directories(stored.DEMO)}


def test_a_seed_costs_what_one_run_of_every_row_costs():
    """Base of preset hour has 12 seeds, the other rows have 3."""
    known = json.loads((scale.RESULTS / "agreement.json").read_text())
    assert known["demo"]["flops_of_a_seed"] == known["demo"]["flops"]
    runs = published.directories(scale.RESULTS.parent / "table3-hour")
    base = published.read(next(x for x in runs if "/base/" in published.read(x, "names.txt")),
                          "result.json")["flops"]  # fmt: skip
    a_seed = (known["hour"]["flops"] - 9 * base) / 3
    assert known["hour"]["flops_of_a_seed"] == pytest.approx(a_seed)


@pytest.mark.parametrize("name", ["hour, tuned", "text, d_model 64, 5,600 pairs, 6 epochs"])
def test_an_unfinished_grid_is_left_out(name):
    assert scale.measure(name, stored.DEMO)[0] is None


@pytest.mark.full
def test_the_part_of_a_gpu_runs_wide_grids_and_collects_them(tmp_path, monkeypatch):
    """Here on a CPU, three rows of a few steps."""
    few = toy.of_a_grid(toy.write(tmp_path)) | dict(steps=2, evaluate_every=2, P_drop=0.1)
    regime = scale.Regime(few, preset="paper", rows=("base", "D:P_drop=0.0", "D:eps_ls=0.2"))
    monkeypatch.setattr(scale, "GRIDS", {"text, d_model 128": regime})
    monkeypatch.setattr(scale, "STORE", tmp_path / "store")
    monkeypatch.setattr(gpu, "WORKERS", ("--workers", "2"))
    monkeypatch.setenv("T2T_JAX_TEXT", str(tmp_path))
    monkeypatch.setenv("T2T_JAX_CACHE", str(tmp_path / "cache"))
    assert gpu.scale_grids(tmp_path, [])
    measured = json.loads((tmp_path / "agreement.json").read_text())["text, d_model 128"]
    assert measured["rows"] == 3
    assert measured["seeds"] == [3, 3]


@pytest.mark.full
def test_the_parts_of_a_gpu_measure_steps_and_mechanisms_and_continue(tmp_path, monkeypatch):
    """Here on a CPU, tiny on few tokens, three variants and two mechanisms."""
    few = steps.FLOAT32, steps.DEFAULT, "plain dropout, RBG"
    two = "scaled_dot_product", "local"
    monkeypatch.setattr(gpu, "batch_tokens", lambda: 256)
    monkeypatch.setattr(gpu, "LENGTHS", (64,))
    monkeypatch.setattr(train, "ROUNDS", 1)
    monkeypatch.setattr(registry, "MECHANISMS", {name: registry.MECHANISMS[name] for name in two})
    monkeypatch.setattr(steps, "VARIANTS", {name: steps.VARIANTS[name] for name in few})
    flags = os.environ.get("XLA_FLAGS", "")
    monkeypatch.setenv("XLA_FLAGS", flags)  # restored after the test
    names, kernels, times_of_kernels = [], roofline.kernels, steps.times_of_kernels

    def remembered(text):
        names[:] = [kernel.name for kernel in kernels(text)]
        return kernels(text)

    def times(trace):
        assert not times_of_kernels(trace)  # a CPU has no tracks of kernels
        return dict.fromkeys([*names, "unknown"], (1.0, 1))

    with monkeypatch.context() as patched:
        patched.setattr(roofline, "kernels", remembered)
        patched.setattr(steps, "times_of_kernels", times)
        assert gpu.profile(tmp_path, ["tiny"])
    found = json.loads((tmp_path / "profile.json").read_text())["sizes"]["tiny"]
    assert "decoder/cross_attention" in {kernel.get("part") for kernel in found["kernels"]}
    assert "part" not in found["kernels"][-1]
    assert "ms a step" in (tmp_path / "profile.txt").read_text()

    assert steps.NO_COMMAND_BUFFERS in os.environ["XLA_FLAGS"]

    monkeypatch.setenv("XLA_FLAGS", flags)
    assert gpu.variants(tmp_path, ["tiny"])
    variants = json.loads((tmp_path / "variants.json").read_text())["variants"]
    assert [*variants] == [*few]
    losses = [x["loss"] for x in variants.values()]
    assert losses == pytest.approx([losses[0]] * 3, rel=0.01)
    assert losses[0] == losses[1] != losses[2]  # other draws
    assert (tmp_path / "variants.txt").read_text().count("%") == 9

    assert gpu.attention(tmp_path, [])
    lines = (tmp_path / "attention.txt").read_text().splitlines()[2:]
    assert [line.split()[:2] for line in lines] == [["scaled_dot_product", "64"], ["local", "64"]]

    monkeypatch.setattr(steps.subprocess, "run", None)  # nothing is measured twice
    for measure in ("attention", "profile"):
        monkeypatch.setattr(steps, measure, None)
    assert gpu.profile(tmp_path, ["tiny"])
    assert gpu.variants(tmp_path, ["tiny"])
    assert gpu.attention(tmp_path, [])


def test_a_trace_of_a_gpu_counts_runs_of_operations_and_keeps_kernels_with_scopes(tmp_path):
    """Two runs of an attention of three kernels, one of a product, and what other tracks have."""
    attention, product = "custom-call.4", "custom-call.3"
    kernels = [
        ("dot_do_o", attention, 10),
        ("void cudnn::bprop<64>", attention, 100),
        ("convert_dq", attention, 15),
    ] * 2 + [("void cutlass::Kernel2<f>", product, 500)]
    events = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": name}}
        for tid, name in ((2, "Stream #13(Compute)"), (3, "XLA Ops"))
    ] + [
        {"ph": "X", "name": name, "pid": 1, "tid": tid, "dur": us, "args": {"hlo_op": operation}}
        for name, operation, us in kernels
        for tid in (2, 3)
    ]  # fmt: skip
    path = tmp_path / "a.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    times = steps.times_of_kernels(path)
    assert [*times] == [product, attention]
    assert times[product] == (pytest.approx(0.5), 1)
    assert times[attention] == (pytest.approx(0.25), 2)


def test_the_table_of_variants_marks_what_computes_something_else():
    exact = {"ms": 4.0, "tokens_per_second": 100.0, "loss": 9.0, "grad_norm": 2.0}
    shaped, undropped = "batches of 8 shapes", "no dropout"
    changes = {
        steps.FLOAT32: {}, steps.DEFAULT: {"tokens_per_second": 200.0, "loss": 9.01},
        "no tuning": {"loss": 9.2}, "no kernels": {"grad_norm": float("nan")},
        shaped: {"loss": 12.0}, undropped: {"loss": 12.0},
    }  # fmt: skip
    known = {name: exact | changed for name, changed in changes.items()}
    lines = steps.variants_table(known | {"two accumulated parts": {}}).splitlines()[1:]
    assert lines[0].startswith(steps.DEFAULT)
    assert lines[-1] == "two accumulated parts failed"
    marked = {name for name in known for line in lines if line.startswith(name) and "WRONG" in line}
    assert marked == {"no tuning", "no kernels"}
    (slow,) = (line for line in lines if line.startswith(steps.FLOAT32))
    assert slow.split()[-3:] == ["-50.0%", "+0.00%", "+0.00%"]


@pytest.fixture(scope="module")
def page():
    return mechanisms.table(mechanisms.stored("recall", "diagnostic"))


def test_decision_accuracy_counts_the_pairs_that_the_target_separates():
    """Of twelve rows, the first two do not differ; of the other pairs, one is reversed."""
    means, seeds = np.array([1.0, 1.001, *range(2, 12)]), np.array([-0.01, 0.0, 0.01])
    target = means[:, None] + seeds
    pairs = itertools.combinations(range(12), 2)
    signs = dict(zip(pairs, decisions.separated(target), strict=True))
    assert signs.pop((0, 1)) == 0
    assert {*signs.values()} == {-1}
    order = np.array([[*range(10), 11.0, 10.0]])
    found = decisions.accuracy(target, decisions.Cheap("", order, [[]], 1.0))
    assert found.pairs == 65
    assert found.share == pytest.approx(100 * 64 / 65)
    assert found.low < found.share <= found.high
    tied = decisions.accuracy(target, decisions.Cheap("", order * 0, [[]], 1.0))
    assert tied.share == 50
    order[0, 1] = np.nan
    twice = decisions.Cheap("", np.concatenate([order, order]), [[0], [2]], 1.0)
    found = decisions.accuracy(target, twice)  # each time with the two other seeds as the target
    assert found.pairs == 55
    assert found.share == pytest.approx(100 * 54 / 55)


def test_two_cheap_experiments_together_are_the_sum_of_their_standardised_scores():
    """The first has three rows of one scale and lacks the fourth; the second has two seeds."""
    first = decisions.Cheap("a", np.array([[1.0, 2.0, 3.0, np.nan]]), [[]], 2.0)
    seeds = np.array([[300.0, 100.0, 200.0, 0.0], [100.0, 200.0, 300.0, 0.0]])
    found = decisions.together(first, decisions.Cheap("b", seeds, [[0], [1]], 3.0))
    deviation = (2 / 3) ** 0.5
    expected = np.array([[4.0, 3.0, 5.0, np.nan], [2.0, 4.0, 6.0, np.nan]]) / deviation
    np.testing.assert_allclose(found.values, expected)
    assert found[:1] + found[2:] == ("a + b", [[0], [1]], 5.0)


def test_a_study_elsewhere_has_scores_for_the_first_row_of_each_mechanism_that_it_knows():
    lines, known = mechanisms.stored("attention", "demo"), {"local": "local", "linear": "linear"}
    others = {x.row.name: x for x in lines if x.row.name in known}
    one, three = decisions.elsewhere("demo", lines, others, "PPL")
    names = [line.row.name for line in lines]
    assert {names[n] for n in np.flatnonzero(~np.isnan(one.values[0]))} == {"local", "linear"}
    local = [math.log(x) for x in others["local"].measure("PPL").values]
    np.testing.assert_allclose(one.values[:, names.index("local")], local)
    np.testing.assert_allclose(three.values[:, names.index("local")], np.mean(local))
    assert three.name == "demo, mean of 3 seeds"
    assert one.left_out == three.left_out == [[]] * 3
    assert three.flops == 3 * one.flops


@pytest.mark.full
def test_stored_decisions_are_those_of_the_stored_runs():
    stored = json.loads((RESULTS / "decisions" / "decisions.json").read_text())
    assert decisions.stored() == stored


def test_the_means_of_seeds_have_as_many_pairs_in_the_papers_order_as_the_table_says():
    known = json.loads((scale.RESULTS / "agreement.json").read_text())["hour"]["agreement"]["all"]
    lines = mechanisms.stored("table3", "hour")
    for metric, sign in (("PPL", 1), ("BLEU", -1)):
        paper = sign * np.array([[line.row.paper[metric]] for line in lines])
        means = sign * np.array([[line.measure(metric).spread.mean for line in lines]])
        signs = functools.partial(decisions.separated_in_paper, metric)
        found = decisions.accuracy(paper, decisions.Cheap("", means, [[]], 1.0), signs)
        assert found.pairs == known[metric]["pairs"]
        assert found.share * found.pairs / 100 == pytest.approx(known[metric]["ordered"])


def runs(folder, row):
    with lzma.open(RESULTS / folder / "runs.jsonl.xz", "rt") as lines:
        found = [json.loads(line) for line in lines]
    return [x for x in found if f"/{row}/" in x["names.txt"]]


def cells(page, row):
    header, _, *lines = (line.strip("|\n").split("|") for line in page.splitlines())
    (found,) = (line for line in lines if line[0].strip() == row)
    return {name.strip(): cell.strip() for name, cell in zip(header, found, strict=True)}


@pytest.mark.full
def test_the_stored_page_is_that_of_the_stored_results(page):
    assert (RESULTS / "mechanisms" / "table.md").read_text() == page


def test_a_line_has_the_numbers_of_its_studies(page):
    line, made = cells(page, "linear"), runs("attention-demo", "linear")
    assert len(made) == 3
    for name, split in (("BLEU", "test"), ("BLEU, longer", "test_long")):
        assert line[name].split()[0] == mean(made, split, "bleu")
    assert line["equal FLOPs"].split()[0] == mean(runs("attention_flops-demo", "linear"))
    assert cells(page, "additive")["equal FLOPs"] == ""
    far = [
        judged
        for run in made
        for _, distance, judged in run["contrastive.statistics.json"]
        if distance >= 5
    ]
    assert float(line["minimal pairs, far"]) == pytest.approx(100 * statistics.mean(far), abs=0.05)
    assert line["roles"] == "all"


def mean(runs, split="test", metric="bleu"):
    return (
        f"{statistics.mean(x['result.json']['scores'][split][metric]['score'] for x in runs):.1f}"
    )


@pytest.mark.parametrize(
    ("row", "name", "column", "n"),
    [
        ("linear", "linear, d_k 8", "recall, d_k 8", 3),
        ("linear", "linear, d_k 32", "d_k 32", 3),
        ("scaled dot product", "softmax, d_k 8", "recall, d_k 8", 12),
    ],
)
def test_recall_is_that_of_the_mechanism(page, row, name, column, n):
    made = runs("recall-diagnostic", name)
    assert len(made) == n
    assert cells(page, row)[column].split()[0] == mean(made, metric="accuracy")


def test_a_state_that_keeps_all_keys_grows_and_a_memory_does_not(page):
    name = "state at 2,048 (KiB)"
    assert cells(page, "scaled dot product")[name] == f"{2 * 2048 * 8 * 64 * 4 // 1024:,}"
    assert cells(page, "delta")[name] == f"{8 * 64 * 64 * 4 // 1024:,}"
    assert cells(page, "nystrom")[name] == ""


@pytest.fixture
def one_short_round(monkeypatch):
    monkeypatch.setattr(run, "ROUNDS", 1)
    monkeypatch.setattr(run, "PAUSE", 0)


def checkout(directory, program, text):
    """Writes another checkout of this project whose program has this text."""
    path = directory / program
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return directory


def words(out, *more):
    return ["--python", sys.executable, "--tasks", "greedy-tiny", "--out", str(out), *more]


@pytest.mark.full
def test_toolkits_and_checkouts_are_compared(one_short_round, tmp_path, capsys):
    ctranslate2 = pytest.importorskip("ctranslate2")
    endless = "while True: print(8.0, flush=True); input()"
    before = checkout(tmp_path / "before", run.OURS[-1], endless)
    run.main(words(tmp_path, "--against", str(before)))
    printed = capsys.readouterr()
    assert "JoeyNMT is left out: ModuleNotFoundError" in printed.err
    assert (tmp_path / "peers.txt").read_text() == printed.out
    results = json.loads((tmp_path / "peers.json").read_text())
    assert results["versions"] == {"CTranslate2": ctranslate2.__version__}
    speeds = results["tasks"]["greedy-tiny"]
    assert list(speeds) == ["t2t_jax, before", "CTranslate2", "CTranslate2, a batch a core"]
    previous = speeds["t2t_jax, before"]
    assert previous["per_second"] == [workload.SENTENCES / 8] * 3
    _, least, most = previous["ours_per_second"]
    assert previous["ours_to_it"][1:] == pytest.approx(
        [8 * x / workload.SENTENCES for x in (least, most)]
    )


def test_a_contender_that_ends_early_is_named(one_short_round, tmp_path, monkeypatch):
    root = checkout(tmp_path / "here", run.OURS[0], "print(1.0, flush=True); input(); print(1.0)")
    other = checkout(tmp_path / "other", run.OURS[0], "print(1.0, flush=True); input()")
    monkeypatch.setattr(run, "ROOT", root)
    with pytest.raises(SystemExit, match="t2t_jax, other ended in round 1"):
        run.main(words(tmp_path, "--against", str(other)))
