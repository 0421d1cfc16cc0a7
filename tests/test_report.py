"""The page of a study, as text and in a browser."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
from scipy import stats

from t2t_jax.report.study import marked, study_page
from t2t_jax.study import comparison, statistics
from t2t_jax.study.notes import notes
from tests import stored
from tests.browser import open_page, wait_for_charts

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def write(home, entries, split, rows=20):
    grid = stored.grid(home, rows)
    words = ["table3", "--store", f"runs {HOSTILE}"]
    text = study_page(grid, comparison.compare_with_base(grid, entries), split, words)
    path = home / "page.html"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The page of the demo study, with sentences and translations."""
    home = tmp_path_factory.mktemp("report")
    entries = stored.translated(home, stored.entries(20), f"ein {HOSTILE} Wort")
    return write(home, entries, stored.split(home, source=HOSTILE))


def test_a_page_shows_all_results_and_requests_nothing(demo):
    text = demo.read_text()
    assert len(text) < 5e6
    assert text.count("<script") == 3
    for hostile in ("<img src=x", "<script>alert", f"runs {HOSTILE}"):  # it is escaped
        assert hostile not in text
    with open_page(demo, 1200) as page:
        assert page.locator("#result tbody tr").count() == 20
        assert page.locator("#matrix td.above, #matrix td.below").count() == 0  # one seed: no test
        assert page.locator("#matrix td.open").count() == 20 * 19
        wait_for_charts(page, 5)
        sample = page.locator("dl.samples:not([hidden])")
        assert sample.count() == 1
        for selector in ("dd", "ins"):
            assert sample.locator(selector).first.inner_text() == HOSTILE
        page.select_option("#sentence", "3")
        assert sample.get_attribute("data-sentence") == "3"
        page.set_viewport_size({"width": 360, "height": 900})  # of a phone
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.full
def test_a_row_shows_its_config_by_keyboard_and_by_mouse(demo):
    with open_page(demo, 1200) as page:
        row = page.locator("#result tbody tr").nth(1)
        assert row.get_attribute("title") == "A:h=1,d_k=512,d_v=512: h=1, d_k=64, d_v=64; n = 1"
        row.locator("button").focus()
        page.keyboard.press("Enter")
        details = page.locator("[popover]:popover-open")
        assert '"d_model": 64' in details.inner_text()
        page.keyboard.press("Escape")
        assert details.count() == 0
        row.locator("button").click()
        assert details.count() == 1


@pytest.mark.full
def test_without_scripts_charts_are_pictures(demo):
    with open_page(demo, 1200, scripts=False) as page:
        assert page.locator(".chart > svg").count() == 5
        assert page.locator("dl.samples").count() == 12
        buttons = page.locator("button:visible, input:visible, select:visible")
        assert buttons.count() == 20  # each row's config, which opens without scripts


@pytest.mark.full
def test_unfinished_runs_are_listed(tmp_path):
    entries = stored.entries(20)
    entries[3] = dataclasses.replace(entries[3], runs=(), status="seed 0 failed: <b>boom</b>")
    entries[5] = dataclasses.replace(
        entries[5], runs=(), status="seed 0 is running, at step 5 of 9"
    )
    path = write(tmp_path, entries, None)
    with open_page(path, 1200) as page:
        unfinished = page.locator("#unfinished").inner_text()
        assert "failed: <b>boom</b>" in unfinished
        assert "running, at step 5 of 9" in unfinished
        status = page.locator("[role=status]").inner_text()
        assert "18 runs of 18 of 20 rows are finished" in status
        assert page.locator("#samples").count() == 0


def test_an_empty_study_is_a_page(tmp_path):
    empty = [dataclasses.replace(e, runs=(), status="") for e in stored.entries(20)]
    with open_page(write(tmp_path, empty, None), 1200) as page:
        assert "No run of this table is finished yet." in page.locator("#result").inner_text()
        assert page.locator("#result tbody tr").count() == 20
        assert page.locator("#charts").count() == 0


@pytest.fixture(scope="module")
def attention():
    return stored.attention()


def test_the_environment_of_a_page_names_no_programs(attention):
    grid, (base, *others) = attention
    result = base.runs[0].result
    made = result["environment"] | {"programs": {"step": "0123456789ab"}}
    run = dataclasses.replace(base.runs[0], result={**result, "environment": made})
    lines = [dataclasses.replace(base, runs=(run, *base.runs[1:])), *others]
    shown = re.search(r"<dl><dt>.*?</dl>", study_page(grid, lines, None, []), re.DOTALL)[0]
    assert f"<dt>jax</dt><dd>{made['jax']}" in shown
    assert "0123456789ab" not in shown  # the data of the page has it


@pytest.mark.full
def test_the_commands_of_a_page_say_what_exists(attention):
    grid, lines = attention
    text = study_page(grid, lines, None, ["attention"])
    assert re.search("t2t-jax run attention +# .* --seeds and --base-seeds as in column n", text)
    named = re.search("--format gives (.*)</pre>|--format gives (.*)", text)[2]
    assert {x.lower() for x in re.findall("[A-Z]\\w+", named)} == {"markdown", "latex", "json"}
    scores = dataclasses.replace(grid, study=dataclasses.replace(grid.study, columns=()))
    assert 'class="across"' not in study_page(scores, lines, None, ["attention"])


def test_a_study_without_values_of_the_paper(attention, tmp_path):
    grid, lines = attention
    lines = [*lines[:2], dataclasses.replace(lines[2], status="stopped at step 3"), *lines[3:]]
    text = study_page(grid, lines, None, ["attention"])
    assert "Kendall" not in text
    assert "the paper's" not in text.partition('id="differences"')[2].partition("</figure>")[0]
    (tmp_path / "page.html").write_text(text)
    with open_page(tmp_path / "page.html", 1200) as page:
        assert page.locator("#result tbody tr").count() == len(lines)
        assert page.locator(".matrix tbody tr").count() == len(lines)
        wait_for_charts(page, 4)
        note = page.get_by_text(f"{lines[2].row.name}: stopped at step 3.")
        for row, visible in ((1, False), (2, True)):  # notes follow the rows that are shown
            page.locator(f"#result tr[data-index='{row}'] input").check()
            assert note.is_visible() == visible
        assert page.get_by_text("mean ± standard deviation").is_visible()


def test_rows_have_the_order_of_the_table_even_if_a_group_is_not_together(attention):
    """The page's script finds a row's notes and charts by the index that the table gives it."""
    grid, (base, a, b, c, *_) = attention
    groups = zip((base, a, b, c), ("base", "A", "B", "A"), strict=True)
    lines = [dataclasses.replace(x, row=dataclasses.replace(x.row, group=y)) for x, y in groups]
    text = study_page(grid, lines, None, [])
    assert re.findall(r'data-index="(\d)"', text) == list("0123")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])
    names = [line.row.name for line in (lines[0], lines[1], lines[3], lines[2])]
    assert [row["name"] for row in data["rows"]] == names


def test_words_added_to_the_reference_and_omitted_from_it_are_marked():
    assert marked("der Hund sah die Katze", "der Hund hört die Katze") == [
        ("der Hund", "same"), ("hört", "omitted"), ("sah", "added"), ("die Katze", "same"),
    ]  # fmt: skip
    assert marked("der die Katze", "der Hund die Katze")[1] == ("Hund", "omitted")
    assert marked("a b", "") == [("a b", "added")]
    assert marked("", "c") == [("c", "omitted")]


def test_the_matrix_and_the_list_show_differences_and_their_tests(attention):
    grid, lines = attention
    text = study_page(grid, lines, None, [])
    values = [line.score.values for line in lines]
    prior = statistics.prior(np.var(values, axis=1, ddof=1), np.array([len(x) for x in values]))
    for one, other, shown in ((0, 1, "above"), (1, 0, "below")):
        a, b = (lines[i].score for i in (one, other))
        d = statistics.compare(b.values, a.values, b.draws, a.draws, prior)
        assert (d.size < 0) == (shown == "above")
        title = f"{lines[one].row.name} minus {lines[other].row.name}: {-d.size:+.2f} "
        assert f'class="{shown}" title="{title}' in text
    a, b = (lines[i].score for i in (3, 1))
    d = statistics.compare(b.values, a.values, b.draws, a.draws, prior)
    names = [lines[i].row.name for i in (1, 3)]
    row = re.search(rf'>{names[0]}</th><th scope="row">{names[1]}</th>(.*)</tr>', text)
    cells = re.findall(r"<td>(?:<strong>)?([^<]*)", row[1])
    pairs = len(lines) * (len(lines) - 1) // 2
    d = d.corrected(pairs)
    assert cells == [f"{d.size:+.2f}", f"{d.low:.2f} to {d.high:.2f}", f"{d.p:.3g}"]


@pytest.mark.full
def test_a_run_that_diverged_has_no_place_in_charts(attention, tmp_path):
    grid, lines = attention
    entries = list(lines)
    run = entries[2].runs[0]
    diverged = dataclasses.replace(run, result=run.result | {"dev_perplexity": float("inf")})
    entries[2] = dataclasses.replace(entries[2], runs=(diverged,))
    lines = comparison.compare_with_base(grid, entries)
    text = study_page(grid, lines, None, [])
    (data,) = re.findall(r'id="data">(.*?)</script>', text)
    json.loads(data, parse_constant=pytest.fail)
    (tmp_path / "page.html").write_text(text)
    with open_page(tmp_path / "page.html", 1200) as page:
        wait_for_charts(page, 4)


def test_a_row_with_one_seed_and_scores_without_counts_are_not_tested(attention):
    grid, lines = attention
    entries = list(lines)
    entries[2] = dataclasses.replace(entries[2], runs=entries[2].runs[:1])
    name = entries[2].row.name
    compared = comparison.compare_with_base(grid, entries)
    assert compared[2].score.p is None
    shown = [x for line in compared for x in (line.PPL, line.score) if x.p is not None]
    assert len(shown) == 2 * (len(lines) - 2)
    assert {x.difference.tests for x in shown} == {len(shown)}  # all columns are one family
    d = compared[3].score.difference
    moderated, own = (2 * stats.t.sf(abs(d.size) / error, freedom) for error, freedom in d.scales)
    assert d.p == pytest.approx(min(1, max(len(shown) * moderated, statistics.OWN * own)))
    for x in shown:
        assert x.significant == (x.difference.low > 0 or x.difference.high < 0)
    text = study_page(grid, compared, None, [])
    assert f'class="open" title="{name} minus local: ' in text
    assert ", not tested: one seed" in text
    said = "PPL is not tested, as it is infinite or the counts of each sentence were not kept."
    assert said not in notes(grid, lines)
    still = [stored.changed(entry, likelihood=[[1.0, 1]] * 9) for entry in lines]
    assert not any(" nan " in x for x in notes(grid, comparison.compare_with_base(grid, still)))
    unknown = [stored.changed(entry, likelihood=()) for entry in lines]
    assert said in notes(grid, comparison.compare_with_base(grid, unknown))
    infinite = stored.changed(
        lines[2], result=lines[2].runs[0].result | {"dev_perplexity": math.inf}
    )
    said = said.replace(", as", f" for {name}, as")
    assert said in notes(grid, comparison.compare_with_base(grid, [*lines[:2], infinite]))
    one = dataclasses.replace(lines[0], runs=lines[0].runs[:1])
    said = notes(grid, comparison.compare_with_base(grid, [one, *lines[1:]]))
    assert any(x.startswith("No row is tested, as scaled dot product has one seed") for x in said)
