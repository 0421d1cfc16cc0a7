"""Sweeps: which trial is chosen, on which sentences it is scored, and what the table says of it."""

import argparse
import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from t2t_jax import files
from t2t_jax.commands import running
from t2t_jax.data.prepare import opener
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.bleu import sentence_statistics
from t2t_jax.report.study import study_page
from t2t_jax.runs import names, published, store, workers
from t2t_jax.study import collecting, comparison, formats, publish, sweep, tables
from t2t_jax.study.declaration import Row, find, study
from t2t_jax.study.grid import Grid
from t2t_jax.study.presets import preset
from tests import stored, toy


@study("Two rows", columns="P_drop", split="")
def two():
    return [Row("base", {}, dict(PPL=5.0)), Row("D", dict(P_drop=0.2), dict(PPL=6.0))]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr_scale=0.25,1", (0.25, 1.0)),
        ("h=1,8", (1, 8)),
        ("peak_lr=1e-4..1e-2:3", (1e-4, 1e-3, 1e-2)),
        ("warmup=100..800:4", (100, 200, 400, 800)),
        ("encoder_attention=local:w=2;sparse_fixed:l=8,c=2", ("local:w=2", "sparse_fixed:l=8,c=2")),
    ],
)
def test_values_are_listed_or_a_geometric_range_of_the_fields_type(text, values):
    ((name, parsed),) = sweep.parse([text]).items()
    assert parsed == values
    assert [type(x) for x in parsed] == [type(x) for x in values]
    assert name == text.split("=")[0]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["lr_scale"], "NAME=V1,V2"),
        (["lr=1,2"], "no config field 'lr'"),
        (["lr_scale=a,1"], "of type float"),
        (["lr_scale=1..2"], "LOW..HIGH:N"),
        (["lr_scale=0..2:3"], "LOW..HIGH:N"),
        (["lr_scale=1,1.0"], "occurs twice"),
        (["h=1,2", "h=4"], "occurs twice"),
        (["seed=1,2"], "cannot be swept"),
        (["vocabulary=500,1000"], "cannot be swept"),
        (["pairs=500,1000"], "cannot be swept"),
        (["normalization=identity,nmt_nfkc"], "cannot be swept"),
        (["architecture=decoder,encoder"], "cannot be swept"),
    ],
)
def test_a_bad_sweep_is_wrong_use(texts, message):
    with pytest.raises(UsageError, match=message):
        sweep.parse(texts)


@pytest.fixture(scope="module")
def open_data(tmp_path_factory):
    return opener(tmp_path_factory.mktemp("cache"), lambda _: None)


@pytest.fixture
def grid(corpus, tmp_path):
    swept = {"lr_scale": (0.5, 1.0, 2.0)}
    made = Grid(two, preset("multi30k"), two.rows, toy.of_a_grid(corpus), tmp_path, swept)
    made.check()
    return made


def finish(job, open_data, PPL):
    """Makes a result, given the perplexity of the even and of the odd sentences of dev."""
    files.make_directory(job.directory)
    likelihood = [[float(np.log(PPL[i % 2])), 1] for i in range(20)]
    checksum = store.write_statistics(job.directory, store.LIKELIHOOD, likelihood)
    stored.finish(
        job.directory, job.c, open_data(job.c.data), row_of(job),  # a program for each row
        dev_perplexity=99.0, likelihood={"statistics": checksum}, training_seconds=1.0,
        overhead_seconds=1.0, memory=1, flops=1.0, compiled_flops=1.0, peak_flops=None,
        averaged_steps=[40],
    )  # fmt: skip


def fail(job, open_data):
    finish(job, open_data, (1.0, 1.0))
    (job.directory / "result.json").unlink()
    store.write_failure(job.directory, RuntimeError("the loss is not a number"))


def row_of(job):
    """Returns the name of a job's row."""
    return names.parts(job.name)[3]


# By row and factor of the learning rate: the perplexity of even sentences, and of odd ones.
FOUND = {
    ("base", 0.5): (7.0, 3.0),
    ("base", 1.0): (5.0, 6.0),
    ("base", 2.0): (6.0, 2.0),
    ("D:P_drop=0.2", 0.5): (4.0, 9.0),
    ("D:P_drop=0.2", 1.0): (8.0, 8.0),
    ("D:P_drop=0.2", 2.0): (9.0, 1.0),
}


@pytest.fixture
def swept(grid, open_data):
    """The grid with all of its runs, under two seeds."""
    for jobs in sweep.stages(grid, lambda _: range(2), open_data):
        for job in jobs:
            if store.read_result(job.directory) is None:
                even, odd = FOUND[row_of(job), job.c.training.lr_scale]
                finish(job, open_data, (even, odd + job.c.training.seed % sweep.TRIAL_SEED))
    return grid


def test_trials_have_a_seed_of_their_own_and_the_chosen_values_all_others(grid, open_data):
    stages = sweep.stages(grid, lambda _: range(2), open_data)
    trials = next(stages)
    assert len(trials) == 6
    assert all(job.splits == () and job.c.training.seed == sweep.TRIAL_SEED for job in trials)
    assert {(row_of(job), job.c.training.lr_scale) for job in trials} == FOUND.keys()
    for job in trials:
        finish(job, open_data, FOUND[row_of(job), job.c.training.lr_scale])
    (final,) = stages
    expected = {("base", 1.0), ("D:P_drop=0.2", 1.0), ("D:P_drop=0.2", 0.5)}
    found = [(row_of(job), job.c.training.lr_scale, job.c.training.seed) for job in final]
    assert sorted(found) == sorted((*pair, seed) for pair in expected for seed in (0, 1))


@study("Rows that are all equal at all values", columns="P_drop", split="")
def flat():
    return [Row("base"), *(Row("D", dict(P_drop=i / 100)) for i in range(1, 41) if i != 10)]


@pytest.mark.full
@pytest.mark.parametrize(("seed", "gain"), [(sweep.TRIAL_SEED, 0.0), (0, -0.85)])
def test_a_flat_landscape_gains_nothing_from_trials(seed, gain, grid, open_data, monkeypatch):
    """What the seed that chose, 0, would gain: the mean of the least of three normal values."""
    monkeypatch.setattr(sweep, "TRIAL_SEED", seed)
    monkeypatch.setattr(collecting, "TRIAL_SEED", sweep.TRIAL_SEED or None)
    made, random = dataclasses.replace(grid, study=flat, rows=flat.rows), np.random.default_rng(1)
    for jobs in sweep.stages(made, lambda _: [0], open_data):
        for job in jobs:
            if store.read_result(job.directory) is None:
                finish(job, open_data, [np.exp(random.normal())] * 2)  # of both halves of dev
    found = sweep.choices(made)
    assert {trial.seed for choice in found for trial in choice.trials} == {seed}
    lines = stored.compared(made)
    gains = [np.log(x.PPL.spread.mean / x.untuned.PPL.spread.mean) for x in lines]
    assert np.mean(gains) == pytest.approx(gain, abs=0.35)
    said = [x for x in tables.quality(made, lines).notes if "seed is also scored" in x]
    assert len(said) == (seed == 0)


def test_a_trial_that_diverged_is_not_chosen(grid, open_data):
    stages = sweep.stages(grid, lambda _: [0], open_data)
    for job in next(stages):
        if job.c.training.lr_scale == 1.0:
            fail(job, open_data)
        else:
            finish(job, open_data, FOUND[row_of(job), job.c.training.lr_scale])
    base, row = sweep.choices(grid)
    assert base.chosen.values == {"lr_scale": 2.0}
    assert base.at_edge == ["lr_scale"]
    assert row.chosen.values == {"lr_scale": 0.5}
    assert [trial.PPL for trial in row.trials] == pytest.approx([4, np.inf, 9])
    (base.trials[0].directory / "result.json").unlink()
    first, *_ = tables.trials(grid, stored.compared(grid)).groups[0]
    assert first == ("base", "unfinished", "diverged", "6.000‡")


def test_a_row_whose_trials_all_failed_is_run_untuned(grid, open_data):
    stages = sweep.stages(grid, lambda _: [0], open_data)
    for job in next(stages):
        fail(job, open_data)
    assert [choice.chosen for choice in sweep.choices(grid)] == [None, None]
    (final,) = stages
    assert {job.c.training.lr_scale for job in final} == {1.0}
    lines = stored.compared(grid)
    assert "base: every trial failed." in tables.quality(grid, lines).notes


def test_a_trial_that_could_not_be_scored_keeps_its_perplexity(swept):
    trial = sweep.choices(swept)[0].trials[1]
    store.write_failure(trial.directory, RuntimeError("no space is left"))
    assert sweep.choices(swept)[0].chosen == trial


def test_workers_run_the_stage_that_they_are_started_for(grid, open_data, monkeypatch):
    """Even if a trial failed that is to run again, as a row at the preset's own values is."""
    stages, done = sweep.stages(grid, lambda _: range(2), open_data), []
    for job in next(stages):
        if job.c.training.lr_scale != 1.0:  # the preset's, whose failure has been deleted
            finish(job, open_data, FOUND[row_of(job), job.c.training.lr_scale])
    monkeypatch.setattr(workers, "set_up_worker", lambda number: None)
    monkeypatch.setattr(running, "cache_programs", lambda cache: None)
    monkeypatch.setattr(workers, "run_jobs", lambda jobs, *_: done.extend(jobs))
    arguments = argparse.Namespace(worker="0/1", stage=1, cache=None, mesh="", store=grid.home)
    running._work(sweep.stages(grid, lambda _: range(2), open_data), arguments, open_data, None)
    (final,) = stages
    assert [job.name for job in done] == [job.name for job in final]
    assert {job.c.training.seed for job in done} == {0, 1}


def test_base_has_sqrt_k_times_the_seeds_of_k_rows(grid):
    table3 = dataclasses.replace(grid, rows=find("table3").rows)
    for rows, seeds, base, expected in ((20, 3, None, 12), (20, 1, None, 1), (20, 3, 5, 5)):
        made = dataclasses.replace(table3, rows=table3.rows[:rows])
        of = sweep.seeds_of(made, seeds, base)
        assert [len(of(row)) for row in made.rows] == [expected] + [seeds] * (rows - 1)
    of = sweep.seeds_of(dataclasses.replace(table3, rows=table3.rows[:4]), 3)
    assert [len(of(row)) for row in table3.rows[:4]] == [6, 3, 3, 3]


def test_no_count_is_zero(refused, tmp_path):
    words = "table3", "--store", tmp_path
    for command, flags in (("run", ["--tasks", "--seeds", "0"]), ("plan", ["--base-seeds", "-3"])):
        refused([command, *words, *flags], f"{flags[-2]}: {flags[-1]}: give 1 or more")


def test_tasks_are_the_trials_and_the_seeds_of_rows(grid, open_data, monkeypatch):
    """Each is run alone: its trial, or its seed, untuned and tuned."""
    tasks, done = sweep.tasks(grid, lambda _: range(2)), []
    monkeypatch.setattr(running, "cache_programs", lambda cache: None)
    monkeypatch.setattr(running, "_prepare_directories", lambda *_: None)
    monkeypatch.setattr(workers, "run_row", lambda jobs, *_: done.append(jobs) or 0)
    expected = []
    for stage, jobs in enumerate(sweep.stages(grid, lambda _: range(2), open_data)):
        first = sum(map(len, tasks[:stage]))
        for i in range(first, first + len(tasks[stage])):
            arguments = argparse.Namespace(task=i, cache=None, mesh="")
            running._run_task(grid, tasks, arguments, open_data, None)
        for job in jobs:
            expected.append(job.directory)
            finish(job, open_data, FOUND.get((row_of(job), job.c.training.lr_scale), 9.0))
    trials, seeds = done[: len(tasks[0])], done[len(tasks[0]) :]
    assert {len(jobs) for jobs in trials} == {1}
    assert {len({job.c.training.seed for job in jobs}) for jobs in seeds} == {1}
    ran = [job.directory for jobs in done for job in jobs]
    assert {*ran} == {*expected}
    assert len(ran) == len(expected)


def test_a_trial_of_other_code_is_not_compared_without_a_note(swept):
    trial = sweep.choices(swept)[1].trials[2]
    stored.made_by_other_code(trial.directory)
    lines = stored.compared(swept)
    assert not any(line.unusual or line.untuned.unusual for line in lines)
    (note,) = [x for x in tables.quality(swept, lines).notes if x.startswith("The trial of")]
    assert "D:P_drop=0.2 at lr_scale=2.0 is of code " in note
    assert not note.detail


def test_a_published_sweep_keeps_failed_trials_and_every_name(swept, tmp_path):
    trial = sweep.choices(swept)[1].trials[2]
    (trial.directory / "result.json").unlink()
    store.write_failure(trial.directory, RuntimeError("the loss is not a number"))
    copied = dataclasses.replace(swept, home=tmp_path / "published")
    copied.home.mkdir()
    made = publish.runs_of(swept, stored.compared(swept), translations=False)
    published.write(copied.home, made)
    assert [x.PPL for x in sweep.choices(copied)[1].trials] == pytest.approx([4, 8, np.inf])
    called = [names.names(directory) for directory in published.directories(copied.home)]
    (both,) = (x for x in called if any(n.endswith("/base/0") and "lr_scale=1.0" in n for n in x))
    assert len(both) == 2  # it is both untuned and chosen
    assert "lr_scale" not in both[0]


def test_rows_are_scored_on_the_sentences_by_which_nothing_was_chosen(swept):
    base, row = stored.compared(swept)
    assert base.c.training.lr_scale == 1.0
    assert base.PPL.values == pytest.approx((6, 7))
    assert base.untuned.PPL.values == pytest.approx((6, 7))
    assert row.c.training.lr_scale == 0.5  # though 2 has the lowest perplexity of the rest
    assert row.PPL.values == pytest.approx((9, 10))
    assert row.untuned.PPL.values == pytest.approx((8, 9))
    assert row.PPL.difference.size == pytest.approx(90**0.5 - 42**0.5)
    assert row.untuned.PPL.difference.size == pytest.approx(72**0.5 - 42**0.5)


def test_a_score_on_dev_is_of_the_same_half_and_one_on_test_of_all_sentences(swept):
    """Odd sentences are translated perfectly, and the score that is stored is kept."""
    outputs = ["v w x y z", "a b c d e"] * 10
    statistics = sentence_statistics(outputs, ["a b c d e"] * 20)
    for split in ("dev", "test"):
        made = dataclasses.replace(swept, study=dataclasses.replace(swept.study, split=split))
        found = collecting.collect(swept)
        entries = [stored.changed(x, score=25.0, statistics=statistics) for x in found]
        for line in comparison.compare_with_base(made, entries):
            expected = 100.0 if split == "dev" else 25.0
            assert line.score.values == pytest.approx((expected, expected))


def test_the_table_shows_each_row_untuned_and_tuned_and_marks_an_edge(swept):
    lines = stored.compared(swept)
    table = tables.quality(swept, lines)
    rows = cells(table)
    assert [row["tuned lr_scale"] for row in rows] == ["1.0", "0.5‡"]
    assert [row["PPL untuned"] for row in rows] == ["6.500 ± 0.707", "8.500 ± 0.707"]
    assert [row["PPL tuned"] for row in rows] == ["6.500 ± 0.707", "9.500 ± 0.707"]
    (note,) = [note for note in table.notes if note.startswith("Tuned:")]
    assert "lr_scale from 0.5, 1.0, 2.0; of 3 trials" in note
    assert not any("also differs from base in lr_scale" in note for note in table.notes)
    text = formats.render([(swept, lines)], "latex")
    assert r"0.5^{\ddagger}" in text
    assert "‡" not in text


def test_the_page_shows_every_trial_and_each_row_untuned(swept):
    lines = stored.compared(swept)
    text = study_page(swept, lines, None, [])
    (trials,) = re.findall(r"<caption>Trials\..*?</table>", text, re.DOTALL)
    chosen = {"base": ("7.000", "<strong>5.000</strong>", "6.000"),
              "D:P_drop=0.2": ("<strong>4.000‡</strong>", "8.000", "9.000")}  # fmt: skip
    for row, cells in chosen.items():
        assert f"{row}</th>" + "".join(f"<td>{cell}</td>" for cell in cells) in trials
    (data,) = re.findall(r'id="data">(.*?)</script>', text)
    specs = json.loads(data)["specs"]
    (difference,) = specs["differences"]["data"]["values"]
    # Differences of PPL are those of geometric means.
    assert (difference["size"], difference["untuned"]) == pytest.approx((3, 2), rel=0.01)


def cells(table):
    """Returns the cells of each row by their headings."""
    heads = [" ".join(head).strip() for head in table.header]
    return [dict(zip(heads, line, strict=True)) for group in table.groups for line in group]


def test_runs_of_other_code_are_marked_in_the_column_that_they_are_in(swept):
    entry = collecting.collect(swept)[1].untuned
    stored.made_by_other_code(entry.runs[1].directory)
    lines = stored.compared(swept)
    table = tables.quality(swept, lines)
    _, row = cells(table)
    assert row["PPL untuned"] == "8.500 ± 0.707†"
    assert row["PPL tuned"] == "9.500 ± 0.707"
    (note,) = [x for x in table.notes if x.startswith("†")]
    assert note.endswith("(D:P_drop=0.2, seed 1).")
    assert note.rows == ("D:P_drop=0.2",)


def test_json_has_every_trial(swept):
    _, row = json.loads(formats.render([(swept, stored.compared(swept))], "json"))
    assert (row["chosen"], row["at_edge"]) == ({"lr_scale": 0.5}, ["lr_scale"])
    trials = [(x["lr_scale"], round(x["PPL_choosing"], 6)) for x in row["trials"]]
    assert trials == [(0.5, 4.0), (1.0, 8.0), (2.0, 9.0)]
    assert row["untuned"]["PPL"]["mean"] == pytest.approx(8.5)
    assert [run["PPL"] for run in row["runs"]] == pytest.approx([9, 10])
    assert all(",lr_scale=0.5/D:P_drop=0.2/" in run["name"] for run in row["runs"])


def test_trials_that_are_not_finished_or_have_no_likelihoods(swept, grid):
    first, *_, last = (trial.directory for trial in collecting.collect(swept)[1].choice.trials)
    (last / "result.json").unlink()
    lines = stored.compared(swept)
    assert lines[1].choice.missing == 1
    notes = tables.quality(swept, lines).notes
    assert "D:P_drop=0.2: 1 of 3 trials not finished." in notes
    (first / "likelihood.statistics.json").unlink()
    with pytest.raises(UsageError, match="did not keep the likelihood"):
        sweep.choices(swept)
    for changes in (dict(changes=swept.changes | {"lr_scale": 0.5}), dict(sweep={"h": (1, 2)})):
        with pytest.raises(UsageError, match=r"--sweep varies (lr_scale|h)"):
            dataclasses.replace(swept, **changes).check()


@pytest.mark.full
def test_a_study_is_swept_by_the_command_and_continues_from_what_is_published(
    corpus, tmp_path, call, request
):
    """Workers run the trials, then the chosen values; a second call trains nothing."""
    fields = toy.fields(corpus, average=1, num_buckets=1, d_model=16, d_ff=32, d_k=2, d_v=2, h=8)
    fields |= dict(steps=30, evaluate_every=30, warmup=10, beam=1, max_extra=5)
    del fields["peak_lr"]
    home = tmp_path / "s"
    options = "table3 --preset multi30k --sweep lr_scale=0.001,1 --rows D:P_drop=0.0".split()
    options += [*toy.options(fields), "--cache", tmp_path / "c", "--store", home]
    table = call("run", *options).out.splitlines()
    assert sum(" 1.0‡ " in line for line in table) == 2
    results = sorted(home.glob("*/result.json"))
    scored = [bool(json.loads(path.read_text())["scores"]) for path in results]
    assert sorted(scored) == [False] * 4 + [True] * 2  # trials need no scores
    before = [path.stat().st_mtime_ns for path in results]
    request.getfixturevalue("undrawn")
    call("run", *options)
    assert [path.stat().st_mtime_ns for path in results] == before

    begun = shutil.copytree(home, tmp_path / "begun")
    (begun / results[scored.index(True)].parent.name / "result.json").unlink()
    call("publish", *options, "--store", begun, "--to", tmp_path / "part")
    part = tmp_path / "part" / "table3-multi30k"
    shown = call("table", *options, "--store", part, "--format", "md", "--notes").out
    assert (part / "table.md").read_text() == shown
    call("publish", *options, "--to", tmp_path / "to")
    shutil.rmtree(home)
    out, err = call("run", *options, "--published", tmp_path / "to" / "table3-multi30k")
    assert out.splitlines() == [line for line in table if not line.startswith("plot: ")]
    assert "6 runs taken from" in err
    assert not list(home.glob("*/final"))
