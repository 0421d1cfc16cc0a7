"""Tables in LaTeX for a paper: the paper's symbols, and numbers aligned at decimal points."""

import math
import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from t2t_jax.study.typeset import Cell, Table, extends, plain

_ESCAPED = {
    **{"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "$": r"\$"},
    **{"~": r"\textasciitilde{}", "^": r"\^{}", "\\": r"\textbackslash{}", "|": r"\textbar{}"},
    **{"<": "$<$", ">": "$>$", "[": "{[}", "]": "{]}", "*": "$^*$", "`": "{`}", '"': "{''}"},
    **{"→": r"$\to$", "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "≤": r"$\le$", "≥": r"$\ge$"},
    **{"†": r"$^\dagger$", "‡": r"$^\ddagger$", "–": "--", "—": "---", "’": "'"},
}
SYMBOLS = {
    "N": "$N$",
    "d_model": r"$d_{\mathrm{model}}$",
    "d_ff": r"$d_{\mathrm{ff}}$",
    "h": "$h$",
    "h_kv": "$h_{kv}$",
    "d_k": "$d_k$",
    "d_v": "$d_v$",
    "d_c": "$d_c$",
    "P_drop": r"$P_{\mathrm{drop}}$",
    "eps_ls": r"$\epsilon_{\mathrm{ls}}$",
    "n": "$n$",
    "steps": "train steps",
    "params (M)": r"params $\times10^6$",
    "-": "$-$",
}
_SYMBOL = re.compile(
    r"(\b(?:d_model|d_ff|d_[kvc]|P_drop|eps_ls|[Nh](?==| ×|$))(?!\w)|(?<![\w.\0-])-(?=\d))"
)
_NUMBER = re.compile(
    r"(?P<whole>[+-]?\d+)(?P<decimals>\.\d+)?(?:e(?P<power>[+-]\d+))?"
    r"(?: ± (?P<deviation>[\d.]+))?(?P<marks>[*†‡]*)"
)
_MARKS = str.maketrans({"†": r"\dagger", "‡": r"\ddagger"})
_UNKNOWN = re.compile(r"(nan|-?inf)( ± \w+)?[*†‡]*")
COLUMN = 72  # digits across the column of a page, if it is shrunk to 6 pt

_FRAME = r"""%% \usepackage{booktabs,dcolumn,graphicx}
\begin{%(environment)s}
\centering\footnotesize\setlength{\tabcolsep}{3pt}
\providecommand{\dev}[1]{\mbox{\tiny$\pm$#1}} %% a deviation
\caption{%(caption)s}
\label{tab:%(label)s}
\smallskip
%% Shrinks a table that is wider than the page.
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%%
\begin{tabular}{%(columns)s}
\toprule
%(header)s
\midrule
%(body)s
\bottomrule
\end{tabular}}

\medskip\raggedright\scriptsize
%(notes)s
\end{%(environment)s}
"""


class _Column(NamedTuple):
    """A column in TeX: its headings, alignment and cells, and its approximate width in digits."""

    upper: str
    lower: str
    format: str
    cells: tuple[str, ...]
    width: float


def as_latex(table: Table, label: str) -> str:
    """Returns a floating table, as wide as one column of a page or both."""
    lines = [line for group in table.groups for line in group]
    columns = [_column(table.header[i], [x[i] for x in lines], i) for i in range(len(table.header))]
    width = sum(column.width + 1.4 for column in columns)
    return _FRAME % dict(
        environment="table" if width <= COLUMN else "table*",
        caption=tex(table.title),
        label=re.sub(r"[^A-Za-z0-9:._-]", "-", label),
        columns="".join(column.format for column in columns),
        header=_header(columns),
        body=_body(table, columns),
        notes="\\par\n".join(map(tex, table.notes)),
    )


def tex(text: str) -> str:
    """Returns plain text in TeX, with the paper's symbols for hyperparameters."""
    parts = _SYMBOL.split(re.sub("-(?=-)", "-\0", plain(text)))
    escaped = (SYMBOLS[x] if i % 2 else "".join(map(_character, x)) for i, x in enumerate(parts))
    return "".join(escaped).replace("\0", "{}")


def _character(c: str) -> str:
    """Returns a character in TeX; one that pdflatex does not know is written as its code point."""
    if c in _ESCAPED or c.isascii():
        return _ESCAPED.get(c, c)
    compatible = unicodedata.normalize("NFKC", c)
    if compatible.isascii():
        return "".join(map(_character, compatible))
    letter = unicodedata.normalize("NFD", c)[0].isascii() or c in "ßæøœłÆØŒŁ"
    return c if letter else rf"\texttt{{U+{ord(c):04X}}}"


def _heading(text: str) -> str:
    return SYMBOLS.get(text) or tex(text.replace("_", " "))


def _column(headings: tuple[str, str], cells: Sequence[Cell], i: int) -> _Column:
    """Returns the i-th column, of numbers if every cell is a number, infinite or blank."""
    upper, lower = headings
    finite = [cell for cell in cells if cell and not _UNKNOWN.fullmatch(cell)]
    numbers = [match for cell in finite if (match := _NUMBER.fullmatch(cell))]
    if numbers and len(numbers) == len(finite):
        whole, rest = max(len(x["whole"]) for x in numbers), max(map(_places, numbers))
        format, width = f"D{{.}}{{.}}{{{whole}.{rest}}}", whole + rest
        made = [_number(x) for x in cells]
    else:
        format = "c" if i else "l"
        width = max((len(cell) for cell in cells if not (i == 1 and " " in cell)), default=0)
        made = [rf"\textbf{{{tex(x)}}}" if x.best else tex(x) for x in cells]
    words = lower.replace("_", " ").split(" ", 1)
    if not upper and lower not in SYMBOLS and len(words) > 1 and len(lower) > width:
        upper, lower = words  # in two lines, as the heading is wider than the cells
    below = _heading(lower)
    centred = rf"\multicolumn{{1}}{{c}}{{{below}}}" if format.startswith("D") else below
    return _Column(_heading(upper), centred, format, tuple(made), max(width, len(lower)))


def _places(number: re.Match[str]) -> int:
    """Returns the width of what follows the point of a number, in digits."""
    decimals, power, deviation, marks = (len(x or "") for x in number.groups()[1:])
    small = 0.8 * (deviation + 1.5 * bool(deviation) + power + marks)
    return math.ceil(1.15 * max(0, decimals - 1) + 3 * bool(power) + small)


def _number(cell: Cell) -> str:
    """Returns a number for a column that dcolumn aligns at its only point in math mode."""
    match = _NUMBER.fullmatch(cell)
    if match is None:
        unknown = cell.split(" ")[0].replace("inf", r"\infty").replace("nan", r"\mathrm{nan}")
        return rf"\multicolumn{{1}}{{c}}{{${unknown}$}}" if cell else ""
    whole, decimals, power, deviation, marks = match.groups(default="")
    parts = [whole, decimals[1:]] if decimals else [whole]
    out = ".".join(rf"\mathbf{{{x}}}" if cell.best else x for x in parts)
    out += rf"\cdot10^{{{int(power)}}}" if power else ""
    out += rf"\dev{{{deviation}}}" if deviation else ""
    return out + (f"^{{{marks.translate(_MARKS)}}}" if marks else "")


def _header(columns: Sequence[_Column]) -> str:
    """Returns both lines of headings; a rule joins the columns under one upper heading."""
    upper, rules, start = [], "", 1
    for text, group in groupby(columns, key=lambda column: column.upper):
        span = len(list(group))
        upper += [rf"\multicolumn{{{span}}}{{c}}{{{text}}}"] if text else [""] * span
        if text and span > 1:
            rules += rf"\cmidrule(lr){{{start}-{start + span - 1}}}"
        start += span
    lower = " & ".join(column.lower for column in columns)
    return "\n".join(filter(None, (f"{' & '.join(upper)} \\\\", rules, f"{lower} \\\\")))


def _body(table: Table, columns: Sequence[_Column]) -> str:
    """Returns the lines of every group, the first of which names it.

    Rules separate base, and groups with a letter; rows with names of their own stand together.
    """
    rows, out = zip(*(column.cells for column in columns), strict=True), list[str]()
    for i, group in enumerate(table.groups):
        lettered = any(len(x) > 1 or x[0][0].startswith("(") for x in table.groups[i - 1 : i + 1])
        if i == 1 or (i and lettered):
            out.append(r"\midrule")
        for n, line in enumerate(group):
            cells = list(next(rows))
            if n and line[0] == group[n - 1][0]:
                cells[0] = ""
            if extends(line):  # a label takes the empty cells after it
                end = next((j for j in range(2, len(line)) if line[j]), len(line))
                cells[1:end] = [rf"\multicolumn{{{end - 1}}}{{c}}{{{cells[1]}}}"]
            out.append(f"{' & '.join(cells)} \\\\")
    return "\n".join(out)
