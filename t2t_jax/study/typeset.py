"""Tables typeset as text and Markdown, which escape texts here; `study.latex` typesets LaTeX."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Cell(str):
    """The text of a cell; it is bold if it is the `best` of its column."""

    best: bool

    def __new__(cls, text: str, best: bool = False) -> "Cell":
        cell = super().__new__(cls, text)
        cell.best = best or getattr(text, "best", False)
        return cell


class Table(NamedTuple):
    """A table of texts."""

    title: str
    header: tuple[tuple[str, str], ...]  # upper and lower; neighbours may share an upper heading
    groups: tuple[tuple[tuple[Cell, ...], ...], ...]  # of lines, separated by a rule
    notes: tuple[str, ...]  # sentences below the table


def table(
    title: str,
    header: Sequence[tuple[str, str]],
    groups: Iterable[Sequence[Sequence[str]]],
    notes: Iterable[str] = (),
) -> Table:
    """Returns a table of groups of lines of texts, without the columns that have no text."""
    groups = list(groups)
    kept = [i for i in range(len(header)) if not i or any(x[i] for group in groups for x in group)]
    return Table(
        title,
        tuple(header[i] for i in kept),
        tuple(tuple(tuple(Cell(x[i]) for i in kept) for x in group) for group in groups),
        tuple(notes),
    )


def extends(line: Sequence[str]) -> bool:
    """Returns whether the second cell is a label that extends across the empty cells after it."""
    return len(line) > 2 and " " in line[1] and "±" not in line[1] and not line[2]


def plain(text: str) -> str:
    """Returns a text on one line: a space in place of whatever is not printed."""
    return "".join(c if c.isprintable() else " " for c in text)


def markdown(text: str) -> str:
    """Returns a text in Markdown."""
    special = r"[\\`*~$]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<=\])[(\[]|(?<![^\W_])_|_(?![^\W_])"
    return re.sub(special, r"\\\g<0>", plain(text))


def as_text(table: Table) -> str:
    """Returns a table for a terminal."""
    groups = [
        [[f"[{plain(x)}]" if x.best else plain(x) for x in line] for line in group]
        for group in table.groups
    ]
    upper, lower = ([plain(x) for x in headings] for headings in zip(*table.header, strict=True))
    upper = ["" if i and x == upper[i - 1] else x for i, x in enumerate(upper)]
    every = [upper, lower, *(line for group in groups for line in group)]
    # A label that extends across the cells after it does not widen its own column.
    widths = [
        max(len(line[i]) for line in every if not (i == 1 and extends(line)))
        for i in range(len(table.header))
    ]

    def set_line(line: Sequence[str]) -> str:
        out = ""
        for i, (text, width) in enumerate(zip(line, widths, strict=True)):
            end = sum(widths[: i + 1]) + 2 * i
            out = out.ljust(end - width) if not text else out
            left = i == 0 or (i == 1 and extends(line))
            out += text.ljust(width) if left else text.rjust(end - len(out))
            out += "  "
        return out.rstrip()

    rule = "-" * (sum(widths) + 2 * len(widths) - 2)
    body = [plain(table.title), "", set_line(upper), set_line(lower)]
    for group in groups:
        body += [rule, *map(set_line, group)]
    notes = [plain(x).replace("best in bold", "best in [brackets]") for x in table.notes]
    return "\n".join([*body, rule, *notes]) + "\n"


def pipe_table(header: Sequence[str], lines: Iterable[Iterable[str]]) -> str:
    """Returns a Markdown table of cells that are Markdown themselves."""
    every_line = [header, ["---"] * len(header), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in every_line)


def as_markdown(table: Table) -> str:
    """Returns a Markdown table with its title and notes, without rules between groups."""

    def cell(text: str) -> str:
        escaped = markdown(text).replace("|", r"\|")
        return f"**{escaped}**" if getattr(text, "best", False) else escaped

    names = [cell(f"{upper} {lower}".strip()) for upper, lower in table.header]
    body = pipe_table(names, (map(cell, line) for group in table.groups for line in group))
    notes = "\n".join(f"- {markdown(note)}" for note in table.notes)
    return f"**{markdown(table.title)}**\n\n{body}\n{notes}\n"
