"""Tables for a paper: their symbols, their alignment, and what pdflatex makes of them."""

import re
import shutil
import subprocess
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_jax.study import declaration, formats, presets, tables
from t2t_jax.study.grid import Grid
from t2t_jax.study.latex import as_latex, tex
from t2t_jax.study.typeset import Cell, Table, as_markdown, as_text
from tests import stored

RESULTS = stored.DEMO.parent
STORED = {"table3": ("multi30k", 20), "table2": ("hour", 6), "attention": ("demo", 10)}
HEADER = ("", ""), ("", "d_model"), ("PPL", "paper"), ("PPL", "ours"), ("BLEU", "ours"), ("", "n")


def made(*groups, header=HEADER, notes=()):
    """Returns the lines of TeX of groups of lines of cells, of which `!` marks the best."""
    cells = tuple(tuple(tuple(map(cell, line)) for line in group) for group in groups)
    return as_latex(Table("A title.", header, cells, notes), "a-label").splitlines()


def cell(text):
    return Cell(text.removeprefix("!"), text.startswith("!"))


SMALL = (
    [("base", "512→64", "4.92", "11.753 ± 0.181", "30.21", "3")],
    [
        ("(A)", "a long label", "", "9.5 ± 10.250*", "!31.73", "1"),
        ("(A)", "", "15.16", "inf ± nan", "", "1"),
    ],
    [("big_one", "", "4.33", "!3.091*†", "28.11", "12")],
)


def test_headings_are_shared_and_have_the_papers_symbols():
    lines = made(*SMALL)
    assert r"\caption{A title.}" in lines
    assert r"\label{tab:a-label}" in lines
    i = lines.index(r"\toprule")
    assert lines[i + 1 : i + 5] == [
        r" &  & \multicolumn{2}{c}{PPL} & \multicolumn{1}{c}{BLEU} &  \\",
        r"\cmidrule(lr){3-4}",
        r" & $d_{\mathrm{model}}$ & \multicolumn{1}{c}{paper} & \multicolumn{1}{c}{ours} & "
        r"\multicolumn{1}{c}{ours} & \multicolumn{1}{c}{$n$} \\",
        r"\midrule",
    ]


def test_numbers_are_whole_in_their_cells_and_aligned_at_their_points():
    lines = made(*SMALL)
    assert r"\begin{tabular}{lcD{.}{.}{2.3}D{.}{.}{2.9}D{.}{.}{2.3}D{.}{.}{2.0}}" in lines
    i = lines.index(r"\midrule") + 1
    assert lines[i : i + 7] == [
        r"base & 512$\to$64 & 4.92 & 11.753\dev{0.181} & 30.21 & 3 \\",
        r"\midrule",
        r"(A) & \multicolumn{2}{c}{a long label} & 9.5\dev{10.250}^{*} & "
        r"\mathbf{31}.\mathbf{73} & 1 \\",
        r" &  & 15.16 & \multicolumn{1}{c}{$\infty$} &  & 1 \\",
        r"\midrule",
        r"big\_one &  & 4.33 & \mathbf{3}.\mathbf{091}^{*\dagger} & 28.11 & 12 \\",
        r"\bottomrule",
    ]


def test_a_score_beside_an_empty_cell_is_no_label():
    header = ("", ""), ("", "PPL"), ("", "BLEU")
    lines = made([("a", "1.61 ± 0.02*", ""), ("b", "1.60", "5.1")], header=header)
    assert r"a & 1.61\dev{0.02}^{*} &  \\" in lines


def test_powers_and_signs_are_those_of_mathematics():
    header = ("", ""), ("training FLOPs", "counted"), ("", "effect")
    lines = made([("a", "2.29e+13", "+0.50"), ("b", "1.10e+09", "-1.25")], header=header)
    assert r"a & 2.29\cdot10^{13} & +0.50 \\" in lines
    assert r"b & 1.10\cdot10^{9} & -1.25 \\" in lines


def test_text_is_escaped_and_hyperparameters_are_symbols():
    assert tex("tau (-0.11 to 1e-3), x-1 of N × h") == (
        r"tau ($-$0.11 to 1e-3), x-1 of $N$ $\times$ $h$"
    )
    assert tex("A:h=4,d_k=128 of max_length 5% & P_drop in d_model_x") == (
        r"A:$h$=4,$d_k$=128 of max\_length 5\% \& $P_{\mathrm{drop}}$ in d\_model\_x"
    )


@pytest.mark.parametrize(("columns", "wide"), [(3, False), (5, False), (8, True)])
def test_a_table_of_three_rows_and_six_columns_fits_a_column(columns, wide):
    header = ("", ""), *((f"metric {i}", "ours") for i in range(columns))
    numbers = [f"{x}.21 ± 0.18" for x in range(10, 10 + columns)]
    lines = made(*([(name, *numbers)] for name in ("base", "(A)", "one of mine")), header=header)
    assert lines[1] == r"\begin{table*}" if wide else r"\begin{table}"


NAMES = st.text(st.sampled_from("[]|<>&*_\\`$%#{}~^\"'-αΩλé中½²ﬁ\n\t ab1.=") | st.characters())
ESCAPES = re.compile(r"\\(?:[&%#_{}$]|\^\{\}|[A-Za-z]+)")


@settings(max_examples=300, deadline=None)
@given(NAMES)
@example("[12] of \\\\ α|<b>")
def test_any_name_is_text_in_latex(name):
    """Without commands and symbols, nothing is left that means something to TeX."""
    rows = "\n".join(made([(name, "1.5"), ("b", name)], header=(("", ""), ("", "x"))))
    body = rows.split("\\midrule\n")[1].split("\n\\bottomrule")[0]
    assert body.count("\\\\\n") == 1
    assert not re.search(r"\\\\\s*\[", body)
    text = tex(name)
    depth = 0
    for c in re.sub(r"\\[{}]", "", text):
        depth += (c == "{") - (c == "}")
        assert depth >= 0
    assert depth == 0
    words = re.sub(r"\$[^$]*\$", "", text.replace(r"\$", ""))
    assert not re.search(r"[&%#_^~$|<>\[\]`\\]", ESCAPES.sub("", re.sub(r"\{[\[\]`]\}", "", words)))
    assert all(c.isascii() or unicodedata.normalize("NFD", c)[0] < "\x80" or c in "ßæøœłÆØŒŁ"
               for c in words)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(NAMES, min_size=2, max_size=2))
@example(["a|b", "<b>[x](y)</b>"])
def test_any_name_is_text_in_markdown(names):
    """GitHub's rules: a row has as many cells as its header, and a cell has no other markup."""
    table = Table("", (("", "x"), ("y", "")), ((tuple(map(Cell, names)),),), ())
    tokens = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})
    parsed = tokens.parse(as_markdown(table))
    start = [token.type for token in parsed].index("tbody_open")
    cells = [token for token in parsed[start:] if token.type == "inline"][:2]
    assert [token.type for token in parsed[start:]].count("td_open") == 2
    for parsed_cell, name in zip(cells, names, strict=True):
        children = parsed_cell.children or []
        assert {token.type for token in children} <= {"text", "text_special"}
        shown = "".join(token.content for token in children)
        assert shown.split() == "".join(c if c.isprintable() else " " for c in name).split()


def test_any_name_is_one_line_of_text():
    table = Table("", (("", "x"), ("", "y")), (((cell("a\nb\x1b[31m"), cell("1")),),), ())
    assert "a b [31m  1" in as_text(table).split("\n")


def test_columns_are_chosen():
    grid = stored.grid(rows=4)
    lines = stored.compared(grid)
    out = formats.render([(grid, lines)], "text", ("h", "n"), costs=False)
    assert re.split(r" {2,}", out.splitlines()[3].strip()) == ["h", *["paper", "ours"] * 2, "n"]
    assert "Cost of a run" not in out
    table, _ = formats.render([(grid, lines)], "md", ["N"]).split("**Cost of a run**")
    assert "| A:h=4,d_k=128,d_v=128 |" in table  # as no column shows how it differs
    assert "params" not in table.split("\n\n")[1]
    grid = stored.grid(rows=20)
    fields = formats.render([(grid, stored.compared(grid))], "md", ["d_k"]).split("**Cost")[0]
    assert "| C:d_model=256,d_k=32,d_v=32 |" in fields  # its d_k alone would be that of another row
    assert "| (B) |" in fields


def test_unknown_columns_are_refused(refused):
    words = ["table", "table3", "--store", stored.DEMO, "--rows", "E", "--columns"]
    refused([*words, "h,d_modle"], "did you mean 'd_model'")
    refused([*words, "h", "--format", "json"], "leave out --columns")
    refused([*words[:-1], "--format", "json", "--notes"], "--notes")


PAGE = r"""\documentclass[twocolumn]{article}
\usepackage{times,booktabs,dcolumn,graphicx}
\let\resized\resizebox
\renewcommand{\resizebox}[3]{%%
  \sbox0{#3}\typeout{width \the\wd0 of \the\linewidth}\resized{#1}{#2}{\usebox0}}
\begin{document}
%s
\end{document}
"""


def typeset(tables, directory):
    """Returns what pdflatex prints, with each table's width before it is shrunk.

    Each table begins a page.
    """
    (directory / "t.tex").write_text(PAGE % "\n\\clearpage\n".join(tables))
    command = ["pdflatex", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=directory, timeout=100, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def installed():
    words = ["kpsewhich", "times.sty", "booktabs.sty", "dcolumn.sty", "ptmr7t.tfm"]
    which = shutil.which("pdflatex") and subprocess.run(words, capture_output=True, text=True)
    return bool(which) and len(which.stdout.split()) == len(words) - 1


@pytest.mark.skipif(not installed(), reason="pdflatex, booktabs or Times is not installed")
def test_tables_fit_their_page_in_type_of_their_own_size(tmp_path):
    made = []
    for name, (preset, rows) in STORED.items():
        study, home = declaration.find(name), RESULTS / f"{name}-{preset}"
        grid = Grid(study, presets.preset(preset), study.rows[:rows], {}, home)
        lines = stored.compared(grid)
        made += [tables.quality(grid, lines), tables.costs(lines)]
    made += [tables.quality(grid, lines, ["h_kv"])]
    written = [as_latex(table, f"table-{i}") for i, table in enumerate(made)]
    narrow = [r"\begin{table}" in text for text in written]
    assert narrow == [*[False] * 6, True]
    out = typeset(written, tmp_path)
    assert "Overfull" not in out
    assert f"({len(written)} pages" in out
    widths = re.findall(r"width ([\d.]+)pt ?of ([\d.]+)pt", out)
    assert len(widths) == len(written)
    assert float(widths[-1][1]) < float(widths[0][1]) / 2  # a column
    for width, line in widths:
        assert 0.7 * float(line) < float(width) < 1.05 * float(line)
