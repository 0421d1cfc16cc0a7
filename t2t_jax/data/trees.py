"""Constituency trees: read from Penn Treebank files, linearised for a sequence model, rebuilt.

A tree has a label and children, which are trees; a part of speech has one word as its child. The
linearised tree labels its brackets and has XX in place of every word (Vinyals et al. 2015):

    (S (NP XX )NP (VP XX (NP XX XX )NP )VP )S
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Union

from t2t_jax.errors import UsageError

WORD = "XX"
_TOKEN = re.compile(r"\(|\)|[^\s()]+")


class Tree(NamedTuple):
    """A constituent; a part of speech has a single word as its child."""

    label: str
    children: tuple[Union["Tree", str], ...]

    @property
    def is_word(self) -> bool:
        return len(self.children) == 1 and isinstance(self.children[0], str)


def read(path: Path) -> Iterator[Tree]:
    """The trees of a Penn Treebank .mrg file, with traces and functional labels.

    Raises:
      UsageError: the file is not UTF-8, is cut within a tree, or has unbalanced brackets.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as text: {error}.") from None
    return parse(text, str(path))


def parse(text: str, where: str) -> Iterator[Tree]:
    """The trees of a text; `where` names it in messages.

    Raises:
      UsageError: as `read`.
    """
    stack: list[_OpenTree] = []
    for line, token in _tokens(text):
        if token == "(":
            stack.append(_OpenTree(line))
        elif not stack:
            problem = (
                "a bracket is closed that was not opened"
                if token == ")"
                else f"{token!r} stands outside of a tree"
            )
            raise UsageError(f"{where}, line {line}: {problem}; restore the file.")
        elif token == ")":
            tree = stack.pop().close()
            if stack:
                stack[-1].add(tree)
            else:
                yield tree
        elif stack[-1].label is None:
            stack[-1].label = token
        else:
            stack[-1].add(token)
    if stack:
        raise UsageError(
            f"{where} ends in line {len(text.splitlines())} within the tree that begins in line "
            f"{stack[0].line}: it is cut; restore it."
        )


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """The tokens of a text, each with the number of its line."""
    for number, line in enumerate(text.splitlines(), 1):
        for token in _TOKEN.findall(line):
            yield number, token


@dataclass
class _OpenTree:
    """A tree that is not closed; its label is the token behind its opening bracket, if any."""

    line: int
    label: str | None = None
    children: list[Tree | str] = field(default_factory=list)

    def add(self, child: Tree | str) -> None:
        if self.label is None:
            self.label = ""  # the outermost bracket of the Penn Treebank has no label
        self.children.append(child)

    def close(self) -> Tree:
        return Tree(self.label or "", tuple(self.children))


def write(tree: Tree) -> str:
    """The tree as one line that `parse` reads."""
    children = (c if isinstance(c, str) else write(c) for c in tree.children)
    return f"({tree.label} {' '.join(children)})"


def strip(tree: Tree) -> Tree | None:
    """The tree without traces, functional labels, indices and its unlabelled outermost bracket.

    Constituents that consist of traces are removed; None if nothing is left.
    """
    if tree.label in ("", "TOP") and len(tree.children) == 1 and isinstance(tree.children[0], Tree):
        return strip(tree.children[0])
    if tree.is_word:
        return None if tree.label == "-NONE-" else tree
    children = tuple(
        c for child in tree.children if isinstance(child, Tree) and (c := strip(child))
    )
    return Tree(bare(tree.label) or "TOP", children) if children else None


def bare(label: str) -> str:
    """A label without functions and indices: NP of NP-SBJ-1 and of NP=2; -LRB- is not changed."""
    return label if label.startswith("-") else re.split(r"[-=]", label)[0]


def leaves(tree: Tree) -> list[tuple[str, str]]:
    """The (part of speech, word) pairs of a tree from left to right."""
    if tree.is_word:
        return [(tree.label, str(tree.children[0]))]
    return [x for child in tree.children if isinstance(child, Tree) for x in leaves(child)]


def linearise(tree: Tree) -> list[str]:
    """The tokens of a stripped tree's linearised string."""
    if tree.is_word:
        return [WORD]
    inside = [x for child in tree.children if isinstance(child, Tree) for x in linearise(child)]
    return [f"({tree.label}", *inside, f"){tree.label}"]


def rebuild(tokens: Sequence[str], words: Sequence[tuple[str, str]]) -> tuple[Tree, bool]:
    """The tree of a linearised string over (part of speech, word) pairs.

    A malformed string is repaired, so that it can be scored: a closing bracket without an open one
    of its label is dropped; one whose label is open further out closes everything up to there;
    brackets still open are closed at the end; superfluous words are dropped, and missing words are
    added at the end. A tree without one bracket around everything gets the label S.

    Returns:
      The tree, and whether the string was well-formed.
    """
    builder = _Builder(words)
    for token in tokens:
        if token == WORD:
            builder.word()
        elif token.startswith("(") and len(token) > 1:
            builder.stack.append((token[1:], []))
        elif token.startswith(")") and len(token) > 1:
            builder.close_label(token[1:])
        else:
            builder.well_formed = False
    return builder.finish()


class _Builder:
    """Builds a tree from a linearised string.

    Attributes:
      stack: the label and children of every open bracket, the implicit outermost one first.
      rest: the words that have not been used, the next one last.
    """

    def __init__(self, words: Sequence[tuple[str, str]]) -> None:
        self.well_formed = True
        self.stack: list[tuple[str, list[Tree | str]]] = [("S", [])]
        self.rest = [Tree(tag, (word,)) for tag, word in reversed(words)]

    def word(self) -> None:
        if self.rest:
            self.stack[-1][1].append(self.rest.pop())
        else:
            self.well_formed = False

    def close(self) -> str:
        """Closes the innermost bracket and returns its label; an empty one is dropped."""
        label, children = self.stack.pop()
        if children:
            self.stack[-1][1].append(Tree(label, tuple(children)))
        return label

    def close_label(self, label: str) -> None:
        """Closes brackets up to the innermost one of a label; does nothing if there is none."""
        labels = [open_label for open_label, _ in self.stack[1:]]
        self.well_formed &= bool(labels) and labels[-1] == label and bool(self.stack[-1][1])
        if label in labels:
            while self.close() != label:
                pass

    def finish(self) -> tuple[Tree, bool]:
        self.well_formed &= len(self.stack) == 1 and not self.rest
        while len(self.stack) > 1:
            self.close()
        (_, children), rest = self.stack[0], self.rest[::-1]
        outermost = children[0] if len(children) == 1 else ""
        if isinstance(outermost, Tree) and not outermost.is_word:
            return Tree(outermost.label, (*outermost.children, *rest)), self.well_formed
        return Tree("S", (*children, *rest)), False


def right_branching(words: Sequence[tuple[str, str]], label: str = "NP") -> Tree:
    """The right-branching tree, a baseline: each bracket has a word and all that follows it."""
    tree: Tree = Tree(label, tuple(Tree(tag, (word,)) for tag, word in words[-2:]))
    for tag, word in reversed(words[:-2]):
        tree = Tree(label, (Tree(tag, (word,)), tree))
    return Tree("S", tree.children)
