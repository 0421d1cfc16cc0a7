"""Choosing and sorting rows on the page of a study, in a browser."""

import json
from urllib.parse import unquote

import pytest

from t2t_jax.report.study import study_page
from t2t_jax.study import formats
from tests import stored
from tests.browser import open_page, wait_for_charts

ROWS = 16


@pytest.fixture(scope="module")
def study():
    return stored.attention()


@pytest.fixture(scope="module")
def path(study, tmp_path_factory):
    """The page of a study with three seeds and translations, as if it were running."""
    home = tmp_path_factory.mktemp("choice")
    grid, lines = study
    lines = stored.translated(home, lines, "ein Wort zu viel")
    for run in (run for line in lines for run in line.runs):
        (run.directory / "dev.de").rename(run.directory / "test.de")
    page = home / "page.html"
    page.write_text(study_page(grid, lines, stored.split(home), ["attention"]))
    return page


def tick(page, *rows):
    for i in rows:
        page.locator(f"#result tr[data-index='{i}'] input").check()


def shown(page, selector):
    return page.locator(f"{selector} >> visible=true").count()


def drawn(page, figure):
    """Returns the names of the rows that have labels in a chart."""
    return {*page.locator(f"#{figure} .mark-text.role-mark text").all_text_contents()}


def column(page, heading):
    """Clicks a heading of the result; returns its column as text and the order of the rows."""
    header = page.locator("#result tr.sorting > *")
    names = header.all_inner_texts()
    i = max(j for j, name in enumerate(names) if name.startswith(heading))
    header.nth(i).locator("button").click()
    order = page.locator("#result tbody tr")
    cells = page.locator(f"#result tbody tr > :nth-child({i + 1})").all_inner_texts()
    return cells, [int(row.get_attribute("data-index")) for row in order.all()]


def test_everything_follows_the_ticked_rows(path, study):
    _, lines = study
    names = [line.row.name for line in lines]
    with open_page(path, 1600) as page:
        wait_for_charts(page, 4)
        assert drawn(page, "cost") == {*names}
        assert shown(page, "#matrix td.above, #matrix td.below, #matrix td.open") == ROWS * 15
        page.locator("#matrix summary").click()
        assert shown(page, "#matrix details tbody tr") == ROWS * 15 // 2
        tick(page, 1, 4, 6)
        assert page.locator("#chosen").inner_text() == f"3 of {ROWS} rows are shown."
        for figure in ("learning", "cost"):
            page.wait_for_selector(f"#{figure} text >> text={names[5]}", state="detached")
            assert drawn(page, figure) == {names[i] for i in (1, 4, 6)}
        assert page.locator("#differences .role-axis-label text").all_text_contents()[-3:] == [
            names[i] for i in (1, 4, 6)
        ]
        assert shown(page, ".matrix tbody td") == 9
        assert shown(page, "#matrix details tbody tr") == 3
        assert shown(page, "dl.samples [data-row]") == 3
        page.locator("#seeds").check()
        assert shown(page, "dl.samples [data-row]") == 9
        assert shown(page, "#result tbody tr") == ROWS
        page.locator("#all").click()
        assert shown(page, "#matrix details tbody tr") == ROWS * 15 // 2


def test_a_filter_hides_rows_and_no_match_is_no_error(path):
    with open_page(path, 1200) as page:
        page.fill("#filter", "local ACROSS")
        assert shown(page, "#result tbody tr") == 2
        page.fill("#filter", "nothing")
        assert page.locator("#chosen").inner_text() == f"0 of {ROWS} rows are shown."
        assert shown(page, "figure") == 0
        page.locator("#all").click()
        assert shown(page, "#result tbody tr") == ROWS


def alphabetical(name):
    """Returns a key by which names sort as in a browser, where _ is before any other mark."""
    return name.replace("_", "\0")


@pytest.mark.full
def test_a_heading_sorts_its_column_up_down_and_back(path, study):
    _, lines = study
    bleu = [line.score.spread.mean for line in lines]
    up = sorted(range(ROWS), key=bleu.__getitem__)
    with open_page(path, 1200) as page:
        header = page.locator("#result tr.sorting th[aria-sort]")
        assert column(page, "ours")[1] != up  # the last "ours" is the number of parameters
        heading = page.locator("#result tr.sorting th", has_text="ours").nth(1)
        heading.locator("button").focus()
        for order, expected in (("ascending", up), ("descending", up[::-1])):
            page.keyboard.press("Enter")
            assert header.get_attribute("aria-sort") == order
            rows = page.locator("#result tbody tr").all()
            assert [int(row.get_attribute("data-index")) for row in rows] == expected
        page.keyboard.press("Enter")
        assert header.count() == 0
        column(page, "cross_attention")
        cells, order = column(page, "cross_attention")  # a blank cell has the value of base
        changes = [line.row.changes.get("cross_attention", "") for line in lines]
        values = [value or "scaled_dot_product" for value in changes]
        assert order == sorted(range(ROWS), key=lambda i: alphabetical(values[i]), reverse=True)
        assert cells == [changes[i] if i else values[0] for i in order]


@pytest.mark.full
def test_tables_and_charts_are_downloaded(path, study):
    with open_page(path, 1200) as page:
        links = page.locator("a[download]").all()
        files = {x.get_attribute("download"): x.get_attribute("href") for x in links}
        wait_for_charts(page, 4)
        page.locator("#learning summary").click()
        with page.expect_download() as download:
            page.locator("#learning a[download$=png]").click()
        content = download.value.path().read_bytes()
        assert download.value.suggested_filename == "attention-demo-learning.png"
    assert content.startswith(b"\x89PNG")
    assert len(content) > 10_000
    records = json.loads(unquote(files["attention-demo.json"].split(",", 1)[1]))
    assert [len(x["runs"]) for x in records] == [3] * ROWS
    tex = unquote(files["attention-demo.tex"].split(",", 1)[1])
    assert tex == formats.render([study], "latex")


@pytest.mark.full
def test_a_printed_page_has_no_controls_and_fits_the_paper(path):
    with open_page(path, 1046) as page:  # A4 landscape without its margins
        page.emulate_media(media="print")
        wait_for_charts(page, 4)
        assert shown(page, "input, select, nav, #choice, .chart details, a[download]") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 1046
        for table in page.locator("table >> visible=true").all():
            assert table.bounding_box()["width"] <= 1046
