"""Tables in LaTeX for a paper: the paper's symbols, and numbers aligned at decimal points."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from t2t_jax.study.typeset import Cell, Table, extends

_ESCAPED = str.maketrans(
    {"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\^{}"}
    | {"→": r"$\to$", "±": r"$\pm$", "†": r"$^\dagger$", "‡": r"$^\ddagger$", "×": r"$\times$"}
    | {"*": r"$^*$", "\\": r"\textbackslash{}", "−": "$-$"}
    | {"<": r"$<$", ">": r"$>$", "|": r"\textbar{}", "{": r"\{", "}": r"\}", "$": r"\$"}
)
SYMBOLS = {
    "N": "$N$",
    "d_model": r"$d_{\mathrm{model}}$",
    "d_ff": r"$d_{\mathrm{ff}}$",
    "h": "$h$",
    "h_kv": "$h_{kv}$",
    "d_k": "$d_k$",
    "d_v": "$d_v$",
    "P_drop": r"$P_{\mathrm{drop}}$",
    "eps_ls": r"$\epsilon_{\mathrm{ls}}$",
    "n": "$n$",
    "steps": "train steps",
    "params (M)": r"params $\times10^6$",
    "-": "$-$",
}
_SYMBOL = re.compile(
    r"\b(?:d_model|d_ff|d_k|d_v|P_drop|eps_ls|[Nh](?==| ×|$))(?!\w)|(?<![\w.-])-(?=\d)"
)
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d+)(?P<decimals>\.\d+)?(?:e(?P<power>[+-]\d+))?"
    r"(?: ± (?P<deviation>[\d.]+))?(?P<marks>[*†‡]*)"
)
_MARKS = str.maketrans({"†": r"\dagger", "‡": r"\ddagger"})
_UNKNOWN = re.compile(r"(nan|-?inf)( ± \w+)?[*†‡]*")

# Environment, its width, size of type, width of an em, half the space between columns (in points).
# A table takes the first of these that it fits. The widths are for a two-column article in
# Computer Modern; Times, which conferences use, is an eighth narrower.
_FITTINGS = (
    ("table", 229, "small", 9.3, 4),
    ("table", 229, "footnotesize", 8.5, 3),
    ("table", 229, "scriptsize", 8, 2.5),
    ("table*", 469, "small", 9.3, 4),
    ("table*", 469, "footnotesize", 8.5, 3),
    ("table*", 469, "scriptsize", 8, 2.5),
)
_FRAME = r"""%% \usepackage{booktabs,graphicx}
\begin{%(environment)s}
\centering\%(size)s\setlength{\tabcolsep}{%(space)gpt}
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


@dataclass(frozen=True)
class _Column:
    """A column of a table: one column of TeX's, or two that meet at the decimal point.

    Attributes:
      upper, lower: its headings, in TeX.
      format: its alignment, in TeX.
      cells: in TeX, one for each line of the table.
      width: an estimate, in ems.
    """

    upper: str
    lower: str
    format: str
    cells: tuple[str, ...]
    width: float

    @property
    def span(self) -> int:
        """The number of columns of TeX's."""
        return 2 if "@{}" in self.format else 1

    @property
    def heading(self) -> str:
        return rf"\multicolumn{{2}}{{c}}{{{self.lower}}}" if self.span == 2 else self.lower


def as_latex(table: Table, label: str) -> str:
    """Returns a floating table, as wide as one column of a page or both.

    It needs the packages booktabs and graphicx.
    """
    lines = [line for group in table.groups for line in group]
    columns = [_column(table.header[i], [x[i] for x in lines], i) for i in range(len(table.header))]
    ems = _width(columns)
    fitting = (x for x in _FITTINGS if x[3] * ems + 2 * x[4] * len(columns) <= x[1])
    environment, _, size, _, space = next(fitting, _FITTINGS[-1])
    return _FRAME % dict(
        environment=environment,
        size=size,
        space=space,
        caption=tex(table.title),
        label=label,
        columns="".join(column.format for column in columns),
        header=_header(columns),
        body=_body(table, columns),
        notes="\\par\n".join(map(tex, table.notes)),
    )


def _width(columns: Sequence[_Column]) -> float:
    """Returns the approximate width of a table in ems, without the space between columns."""
    groups = [list(group) for _, group in groupby(columns, key=lambda column: column.upper)]
    widths = [(sum(column.width for column in group), _ems(group[0].upper)) for group in groups]
    return sum(max(lower, upper) for lower, upper in widths)


def tex(text: str) -> str:
    """Returns plain text in TeX, with the paper's symbols for hyperparameters."""
    out, end = "", 0
    for match in _SYMBOL.finditer(text):
        out += text[end : match.start()].translate(_ESCAPED) + SYMBOLS[match.group()]
        end = match.end()
    return out + text[end:].translate(_ESCAPED)


def _heading(text: str) -> str:
    return SYMBOLS.get(text) or tex(text.replace("_", " "))


def _column(headings: tuple[str, str], cells: Sequence[Cell], i: int) -> _Column:
    """Returns the i-th column, of numbers if every cell is a number, infinite or blank."""
    upper, lower = headings
    finite = [cell for cell in cells if cell and not _UNKNOWN.fullmatch(cell)]
    numbers = [match for cell in finite if (match := _NUMBER.fullmatch(cell))]
    if numbers and len(numbers) == len(finite):
        return _numbers(_heading(upper), _heading(lower), cells, numbers)
    width = max((_ems(cell) for cell in cells if not (i == 1 and " " in cell)), default=0.0)
    words = lower.replace("_", " ").split(" ", 1)
    if not upper and lower not in SYMBOLS and len(words) > 1 and _ems(lower) > width:
        upper, lower = words  # in two lines, as the heading is wider than the cells
    every = tuple(_bold(tex(cell), cell.best) for cell in cells)
    width = max(width, _ems(lower))
    return _Column(_heading(upper), _heading(lower), "c" if i else "l", every, width)


def _numbers(
    upper: str, lower: str, cells: Sequence[Cell], numbers: Sequence[re.Match[str]]
) -> _Column:
    """Returns a column of numbers, split before the decimal point unless all have the same form.

    What follows the point is aligned at the left, so neither marks nor bold digits move it.
    """
    decimals, deviation, marks = (
        max(len(x[name] or "") for x in numbers) for name in ("decimals", "deviation", "marks")
    )
    uneven = len({len(x["decimals"] or "") for x in numbers}) > 1 or any(
        cell.best for cell in cells
    )
    split = uneven or deviation or marks

    def texed(cell: Cell) -> str:
        match = _NUMBER.fullmatch(cell)
        if match is None:
            unknown = cell.split(" ")[0].replace("inf", r"$\infty$")
            return (
                rf"\multicolumn{{{2 if split else 1}}}{{c}}{{{unknown}}}"
                if cell
                else "&" * bool(split)
            )
        sign, whole, fraction, power, error, mark = match.groups(default="")
        after = _bold(fraction, cell.best) + _phantom(decimals - len(fraction))
        after += rf"$\cdot10^{{{int(power)}}}$" if power else ""
        after += rf" $\pm$ {_phantom(deviation - len(error))}{error}" if error else ""
        after += f"$^{{{mark.translate(_MARKS)}}}$" if mark else ""
        before = (f"${sign}$" if sign else "") + _bold(whole, cell.best)
        return f"{before} & {after}" if split else before + after

    whole = max(len(x["sign"] + x["whole"]) for x in numbers)
    power = any(x["power"] for x in numbers)
    width = 0.5 * (whole + decimals + deviation + marks) + 1.2 * bool(deviation) + 2.2 * power
    alignment = "r@{}l" if split else "r"
    return _Column(upper, lower, alignment, tuple(map(texed, cells)), max(width, _ems(lower)))


def _bold(text: str, best: bool) -> str:
    return rf"\textbf{{{text}}}" if best and text else text


def _phantom(digits: int) -> str:
    """Returns blank space as wide as this number of digits."""
    return rf"\phantom{{{'0' * digits}}}" if digits > 0 else ""


def _ems(text: str) -> float:
    """Returns the approximate width in ems of a text in TeX, without commands."""
    printed = re.sub(r"\\[a-z]+|[${}^]", "", text)
    return sum(0.3 if c in "iljtf.,:;'()|[] " else 0.8 if c in "mwMW→" else 0.52 for c in printed)


def _header(columns: Sequence[_Column]) -> str:
    """Returns both lines of headings; a rule joins the columns under one upper heading."""
    upper, rules, start = [], "", 1
    for text, group in groupby(columns, key=lambda column: column.upper):
        together = list(group)
        span = sum(column.span for column in together)
        side = "r" if len(together) == 1 and together[0].format == "r" else "c"
        upper += [rf"\multicolumn{{{span}}}{{{side}}}{{{text}}}"] if text else [""] * span
        if text and len(together) > 1:
            rules += rf"\cmidrule(lr){{{start}-{start + span - 1}}}"
        start += span
    lower = " & ".join(column.heading for column in columns)
    return "\n".join([f"{' & '.join(upper)} \\\\", *([rules] if rules else []), f"{lower} \\\\"])


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
            out.append(f"{' & '.join(_spread(line, cells))} \\\\")
    return "\n".join(out)


def _spread(line: Sequence[Cell], cells: Sequence[str]) -> list[str]:
    """Returns the cells of a line, in which a label takes the empty cells after it."""
    if len(line) < 2 or not extends(line, 1):
        return list(cells)
    end = next((i for i in range(2, len(line)) if line[i]), len(line))
    span = sum(1 + (cell == "&") for cell in cells[1:end])
    return [cells[0], rf"\multicolumn{{{span}}}{{c}}{{{cells[1]}}}", *cells[end:]]
