"""Tables for a paper: their symbols, their alignment, and what pdflatex makes of them."""

import re
import shutil
import subprocess

import pytest

from t2t_jax.study import declaration, formats, presets, tables
from t2t_jax.study.grid import Grid
from t2t_jax.study.latex import as_latex, tex
from t2t_jax.study.typeset import Cell, Table
from tests import stored

RESULTS = stored.DEMO.parent
STORED = {"table3": ("multi30k", 20), "table2": ("hour", 6), "attention": ("demo", 10)}
HEADER = ("", ""), ("", "d_model"), ("PPL", "paper"), ("PPL", "ours"), ("BLEU", "ours"), ("", "n")


def made(*groups, header=HEADER, notes=()):
    """Returns the lines of TeX of groups of lines of cells, of which `!` marks the best."""
    cells = tuple(tuple(tuple(map(cell, line)) for line in group) for group in groups)
    return as_latex(Table("A title.", header, cells, notes), "a-label").splitlines()


def cell(text):
    made = Cell(text.removeprefix("!"))
    made.best = text.startswith("!")
    return made


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
        r" &  & \multicolumn{3}{c}{PPL} & \multicolumn{2}{c}{BLEU} &  \\",
        r"\cmidrule(lr){3-5}",
        r" & $d_{\mathrm{model}}$ & paper & \multicolumn{2}{c}{ours} & \multicolumn{2}{c}{ours} & "
        r"$n$ \\",
        r"\midrule",
    ]


def test_numbers_are_split_at_their_points_and_padded_to_equal_widths():
    lines = made(*SMALL)
    assert r"\begin{tabular}{lcrr@{}lr@{}lr}" in lines
    i = lines.index(r"\midrule") + 1
    assert lines[i : i + 7] == [
        r"base & 512$\to$64 & 4.92 & 11 & .753 $\pm$ \phantom{0}0.181 & 30 & .21 & 3 \\",
        r"\midrule",
        r"(A) & \multicolumn{2}{c}{a long label} & "
        r"9 & .5\phantom{00} $\pm$ 10.250$^{*}$ & \textbf{31} & \textbf{.73} & 1 \\",
        r" &  & 15.16 & \multicolumn{2}{c}{$\infty$} & & & 1 \\",
        r"\midrule",
        r"big\_one &  & 4.33 & \textbf{3} & \textbf{.091}$^{*\dagger}$ & 28 & .11 & 12 \\",
        r"\bottomrule",
    ]


def test_powers_and_signs_are_those_of_mathematics():
    header = ("", ""), ("training FLOPs", "counted"), ("", "effect")
    lines = made([("a", "2.29e+13", "+0.50"), ("b", "1.10e+09", "-1.25")], header=header)
    assert r"a & 2.29$\cdot10^{13}$ & $+$0.50 \\" in lines
    assert r"b & 1.10$\cdot10^{9}$ & $-$1.25 \\" in lines


def test_text_is_escaped_and_hyperparameters_are_symbols():
    assert tex("tau (-0.11 to 1e-3), x-1 of N × h") == (
        r"tau ($-$0.11 to 1e-3), x-1 of $N$ $\times$ $h$"
    )
    assert tex("A:h=4,d_k=128 of max_length 5% & P_drop in d_model_x") == (
        r"A:$h$=4,$d_k$=128 of max\_length 5\% \& $P_{\mathrm{drop}}$ in d\_model\_x"
    )


def test_a_table_for_one_column_of_a_page_becomes_one_for_both_as_it_grows():
    begun = []
    for count in (3, 6, 8, 25):
        header = ("", ""), *((f"metric {i}", "ours") for i in range(count))
        lines = made([("a", *["30.21"] * count)], header=header)
        begun.append((lines[1], lines[2].split("\\")[2]))
    assert begun == [
        (r"\begin{table}", "small"),
        (r"\begin{table}", "scriptsize"),
        (r"\begin{table*}", "small"),
        (r"\begin{table*}", "scriptsize"),
    ]


def test_columns_are_chosen():
    grid = stored.grid(rows=4)
    lines = stored.compared(grid)
    out = formats.render([(grid, lines)], "text", ("h", "n"), costs=False)
    assert re.split(r" {2,}", out.splitlines()[3].strip()) == ["h", *["paper", "ours"] * 2, "n"]
    assert "Cost of a run" not in out
    table, _ = formats.render([(grid, lines)], "md", ["N"]).split("**Cost of a run**")
    assert "| A:h=4,d_k=128,d_v=128 |" in table  # as no column shows how it differs
    assert "params" not in table.split("\n\n")[1]


def test_unknown_columns_are_refused(refused):
    words = ["table", "table3", "--store", stored.DEMO, "--rows", "E", "--columns"]
    refused([*words, "h,d_modle"], "did you mean 'd_model'")
    refused([*words, "h", "--format", "csv"], "leave out --columns")


PAGE = r"""\documentclass[twocolumn]{article}
\usepackage{times,booktabs,graphicx}
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
    words = ["kpsewhich", "times.sty", "booktabs.sty", "graphicx.sty", "ptmr7t.tfm"]
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
