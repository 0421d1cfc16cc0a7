"""Rows that differ in what a preset sets: seven rows are seven runs, in one table that says so."""

import dataclasses
import io

import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.prepare import opener
from t2t_jax.models.flops import run_flops
from t2t_jax.runs import identity, store, workers
from t2t_jax.runs.identity import compile_key
from t2t_jax.runs.results import Run
from t2t_jax.study import collecting, comparison, measuring, notes, tables
from t2t_jax.study.declaration import Row, find, study
from t2t_jax.study.grid import Grid
from t2t_jax.study.presets import preset
from t2t_jax.terminal import Progress
from tests import stored, toy


@study("What a preset sets", columns="norm_placement schedule warmup beam", split="dev")
def seven():
    return [
        Row("base"),
        Row("A", dict(norm_placement="post")),
        Row("A", dict(schedule="inverse_sqrt")),
        Row("A", dict(warmup=8000)),
        Row("A", dict(batch_tokens=12_500)),
        Row("A", dict(max_length=64)),
        Row("A", dict(vocabulary=29_600)),
        Row("A", dict(beam=4)),
    ]


@pytest.fixture(scope="module")
def open_data(tmp_path_factory):
    return opener(tmp_path_factory.mktemp("cache"), lambda _: None)


@pytest.fixture
def grid(corpus, tmp_path):
    """Of the toy corpus, with an empty store."""
    fields = toy.of_a_grid(corpus)
    del fields["beam"]  # which a row is about
    changes = fields | dict(steps=40, evaluate_every=40, warmup=10)
    made = Grid(seven, preset("demo"), seven.rows, changes, tmp_path)
    made.check()
    return made


def test_seven_rows_are_seven_runs_and_populations_share_their_data(grid, open_data):
    cells = grid.plan(lambda _: range(2), open_data)
    assert len({cell.directory for cell in cells}) == 2 * len(seven.rows)
    for cell in cells:
        key = identity.key(cell.c, identity.data_facts(open_data(cell.c.data)))
        assert cell.directory.name == key
    opened = {id(open_data(cell.c.data)) for cell in cells}
    assert len(opened) == 3  # base's, that of shorter sentences and that of fewer subwords
    programs = {}
    for cell in cells:
        programs.setdefault(compile_key(cell.c), set()).add(id(open_data(cell.c.data)))
    assert len(programs) == len(seven.rows) - 1  # base's is that of a longer warm-up
    assert all(len(data) == 1 for data in programs.values())


def test_a_program_with_more_than_a_workers_share_is_divided(grid, open_data, monkeypatch):
    cells = grid.plan(lambda _: range(3), open_data)
    whole = workers._populations(cells, open_data)
    assert workers._populations(cells, open_data, 50) == whole  # compiling would take longer
    monkeypatch.setattr(workers, "LEAST_FLOPS", 1.0)
    assert {len(group) for group in whole} == {3, 6}  # base and a row share a program
    costs = {cell: run_flops(cell.c, open_data(cell.c.data).vocabulary.size) for cell in cells}
    total = sum(costs.values())
    for count in (1, 2, 4, 50):
        groups = workers._populations(cells, open_data, count)
        assert sorted(id(cell) for group in groups for cell in group) == sorted(map(id, cells))
        for group in groups:
            assert len({compile_key(cell.c) for cell in group}) == 1
            most = max(costs[cell] for cell in group)  # parts differ by one run
            assert len(group) == 1 or sum(map(costs.get, group)) < total / count + most
        assert len(groups) == len(whole) or count > 2
    assert len(groups) == len(cells)


@pytest.mark.full
def test_rows_have_results_of_their_own(grid, open_data):
    """Rows of one program, of another shape, and of another translation; all others compile."""
    names = "base", "A:warmup=8000", "A:batch_tokens=12500", "A:beam=4"
    grid = dataclasses.replace(grid, rows=[row for row in seven.rows if row.name in names])
    cells = grid.plan(lambda _: range(1), open_data)
    workers.run_jobs(cells, open_data, Progress(io.StringIO()), "")
    entries = collecting.collect(grid)
    assert all(len(e.runs) == 1 for e in entries), [e.status for e in entries]
    found = [(e.runs[0].result["dev_perplexity"], e.runs[0].score) for e in entries]
    assert len(set(found)) == len(names)
    same = [e.row.name for e, (ppl, _) in zip(entries, found, strict=True) if ppl == found[0][0]]
    assert same == ["base", "A:beam=4"]  # which is trained as base is


@pytest.fixture
def finished(grid, open_data):
    """As if every row had been run, for perplexity alone."""
    grid = dataclasses.replace(grid, study=dataclasses.replace(seven, split=""))
    for i, cell in enumerate(grid.plan(lambda _: range(1), open_data)):
        ppl = 5.0 + (i if cell.c.data.vocabulary == 50 else -1)  # least with fewer subwords
        stored.finish(cell.directory, cell.c, open_data(cell.c.data), dev_perplexity=ppl)
    return grid


def test_rows_of_other_subwords_stand_in_one_table_but_are_not_compared(finished):
    table = tables.quality(finished, stored.compared(finished))
    assert any("PPL is per subword" in x and "A:vocabulary=29600." in x for x in table.notes)
    best = [cell for group in table.groups for line in group for cell in line if cell.best]
    assert best == ["5.000"]


def test_bits_per_character_compare_rows_of_other_subwords(grid, open_data):
    grid = dataclasses.replace(grid, study=dataclasses.replace(seven, split=""))
    dev, nats, random = open_data(grid.data).splits["dev"], {}, np.random.default_rng(0)
    for job in grid.plan(lambda _: range(2), open_data):
        tokens = 20 if job.c.data.vocabulary == 50 else 30  # of each sentence
        nats[job.name] = random.uniform(1, 2, len(dev.references)) * 20
        made = [[float(x), tokens] for x in nats[job.name]]
        job.directory.mkdir()
        checksum = store.write_statistics(job.directory, store.LIKELIHOOD, made)
        ppl, likelihood = float(np.exp(np.mean(made) / tokens)), {"statistics": checksum}
        stored.finish(job.directory, job.c, open_data(job.c.data), dev_perplexity=ppl,
                      likelihood=likelihood)  # fmt: skip
    rows = collecting.collect(grid)
    assert grid.scores[:2] == ("PPL", "BPC")
    lines = comparison.compare_with_base(grid, rows, measuring.measure(grid, rows, {"dev": dev}))
    characters = sum(map(len, dev.references))
    for line in lines:
        expected = [nats[grid.run_name(line.row, i)].sum() / characters / np.log(2) for i in (0, 1)]
        assert line.measure("BPC").values == pytest.approx(expected)
        other = line.row.changes.get("vocabulary") is not None
        assert (line.PPL.difference is None) == (other or line is lines[0])
        assert (line.measure("BPC").difference is None) == (line is lines[0])
    assert not comparison.same_subwords(lines[6], lines[0])
    assert comparison.same_subwords(lines[1], lines[0])


def test_one_size_and_other_subwords_are_not_compared(grid, open_data):
    rows = []
    for row, tokens, vocabulary in zip("abcd", (9, 8, 9, 0), "vvwv", strict=True):
        origins = {"data": "d", "vocabulary": vocabulary}
        likelihood = [[1.0, tokens]] * bool(tokens)  # the last has none
        run = Run(grid.home, 0, {}, likelihood=likelihood, origins=origins)
        rows.append(collecting.RowResult(Row(row * 2), grid.config(seven.rows[0]), (run,), ""))
    assert [comparison.same_subwords(x, rows[0]) for x in rows] == [True, False, False, True]


def test_data_that_is_not_a_rows_own_is_still_told_apart(finished, open_data, monkeypatch):
    """Runs of a row that has other subwords than base must still share theirs."""
    other = next(
        job
        for job in finished.plan(lambda _: range(2), open_data)
        if "/A:vocabulary=29600/" in job.name
    )
    dataset = open_data(other.c.data)
    facts = identity.data_facts(dataset) | {"data": "another"}
    monkeypatch.setattr(identity, "data_facts", lambda dataset: facts)
    again = config.replace(other.c, seed=1)
    stored.finish(other.directory.with_name("again"), again, dataset, dev_perplexity=4.0)
    (row,) = (x for x in collecting.collect(finished) if x.unusual)
    assert row.row.name == "A:vocabulary=29600"
    assert [run.unusual for run in row.runs] == ["", "data of vocabulary 40 another"]


def test_newer_runs_alone_say_what_is_usual(finished, open_data, monkeypatch):
    """All rows were run again on other data; the older runs had more seeds."""
    dataset, old = open_data(finished.data), [*finished.plan(lambda _: range(1), open_data)]
    for job in old:
        again = config.replace(job.c, seed=7)
        stored.finish(job.directory.with_name(f"0{job.directory.name}"), again, dataset,
                      dev_perplexity=9.0)  # fmt: skip
    facts = identity.data_facts(dataset) | {"data": "another"}
    monkeypatch.setattr(identity, "data_facts", lambda dataset: facts)
    for job in old:
        for seed in (0, 7):
            home = job.directory.with_name(f"{job.directory.name}{seed}")
            stored.finish(home, config.replace(job.c, seed=seed), dataset, dev_perplexity=4.0)
    lines = collecting.collect(finished)
    assert {run.result["dev_perplexity"] for line in lines for run in line.runs} == {4.0}
    assert not any(line.unusual for line in lines)


def test_a_finished_seed_has_no_unfinished_one(finished, open_data):
    job, *_ = finished.plan(lambda _: range(1), open_data)
    for seed in (0, 1):
        home = job.directory.with_name(f"begun{seed}")
        stored.finish(home, config.replace(job.c, seed=seed), open_data(job.c.data))
        (home / "result.json").unlink()
    base = collecting.collect(finished)[0]
    assert [run.seed for run in base.runs] == [0]
    assert base.status == "seed 1 stopped at step 0 of 40"


def test_rows_of_other_sizes_and_types_are_compared_with_base(grid, open_data):
    """The rows set what differs, so that it does not count as another origin."""
    rows = [Row("base"), Row("A", dict(pairs=7)), Row("A", dict(dtype="bfloat16"))]
    mine = dataclasses.replace(grid, study=dataclasses.replace(seven, split=""), rows=rows)
    for job in mine.plan(lambda _: range(2), open_data):
        dataset, dtype = open_data(job.c.data), job.c.model.dtype.replace("auto", "float32")
        stored.finish(job.directory, job.c, dataset, dtype=dtype, dev_perplexity=3.0)
    lines = collecting.collect(mine)
    assert [len(line.runs) for line in lines] == [2, 2, 2]
    assert not any(line.unusual for line in lines)


def test_seeds_with_other_dev_sets_are_shown_without_a_test(finished, open_data):
    job, *_ = finished.plan(lambda _: range(1), open_data)
    for seed, sentences in ((1, 5), (2, 4)):
        home = job.directory.with_name(f"seed{seed}")
        home.mkdir()
        made = store.write_statistics(home, store.LIKELIHOOD, [[1.5, 2]] * sentences)
        stored.finish(home, config.replace(job.c, seed=seed), open_data(job.c.data),
                      dev_perplexity=3.0, likelihood={"statistics": made})  # fmt: skip
    job.directory.rename(job.directory.with_name("elsewhere"))
    rows = [x for x in collecting.collect(finished) if x.row.name == "base"]
    base = dataclasses.replace(rows[0], runs=tuple(run for run in rows[0].runs if run.seed))
    (line,) = comparison.compare_with_base(finished, [base])
    assert (line.PPL.spread.n, line.PPL.draws) == (2, None)


def test_a_corpus_of_another_size_is_of_other_data():
    base = config.replace(Config(), corpus="grammar")
    sizes = {n: config.replace(base, pairs=n) for n in (0, 20_000, 60_000, 60_001)}
    names = [collecting.preparation(c, base) for c in sizes.values()]
    assert names == ["", " of pairs 20000", " of pairs 60000", " of pairs 60001"]
    assert collecting.preparation(base, sizes[60_001]) == " of pairs 0"
    hard = config.replace(base, grade="hard", vocabulary=40)
    assert collecting.preparation(hard, base) == " of grade hard of vocabulary 40"


def test_a_table_says_in_what_its_base_differs_from_the_papers(grid):
    note = notes.scale(grid)
    for words in ("N 1 (paper: 6)", "corpus text (paper: wmt14)", "warmup 10 (paper: 4000)"):
        assert words in note
    assert str(grid.changes["train"]) not in note
    table3, table4 = find("table3"), find("table4")
    parsing = Grid(table4, preset("treebank"), table4.rows, {}, grid.home)
    assert "vocabulary 2000 (paper: 16000)" in notes.scale(parsing)
    paper = Grid(table3, preset("paper"), table3.rows, {}, grid.home)
    assert "paper:" not in notes.scale(paper)
    flags = dict(corpus="text", N=1, directory="there")
    changed = dataclasses.replace(paper, changes=flags, rows=table3.rows[:4])
    assert changed.flags == "corpus text, N 1"
    own = dict(norm_placement="pre", N=4)  # of a study that no paper has
    mine = study("Mine", columns="d_ff", split="dev", base=own)(lambda: [Row("base")])
    note = notes.scale(Grid(mine, preset("paper"), mine.rows, {}, grid.home))
    assert "N 4 (paper: 6), norm_placement pre (paper: post)" in note


def test_a_table_shows_where_a_row_differs_from_base_without_naming_it(tmp_path):
    """A preset sets fields in rows that do not name them; base names two of them here."""

    def rows():
        own = dict(norm_placement="post", schedule="inverse_sqrt")
        return [Row("base", own), Row("wide", dict(d_ff=4096)), Row("same", own | dict(d_ff=1024))]

    mine = study("Mine", columns="d_ff norm_placement", split="dev")(rows)
    grid = Grid(mine, preset("demo"), mine.rows, {}, tmp_path)
    table = tables.quality(grid, stored.compared(grid))
    cells = [[str(cell) for cell in line[:3]] for group in table.groups for line in group]
    assert cells == [
        ["base", "2048→256", "post"],
        ["wide", "4096→512", "post→pre"],
        ["same", "1024→128", "post"],
    ]
    assert "wide also differs from base in schedule linear (base: inverse_sqrt)." in table.notes
    assert not any("same also" in note for note in table.notes)
