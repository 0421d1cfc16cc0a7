"""Constituency trees: read from Penn Treebank files, linearised for a sequence model, rebuilt.

A tree has a label and children, which are trees; a part of speech has one word as its child. The
linearised tree labels its brackets and has XX in place of every word (Vinyals et al. 2015):

    (S (NP XX )NP (VP XX (NP XX XX )NP )VP )S
"""

import re
from collections.abc import Iterator, Sequence
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

    Raises UsageError if the file is not UTF-8, is cut within a tree, or has unbalanced brackets.
    """
    try:
        return parse(path.read_text("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 ({error}): restore it.") from None


def parse(text: str, where: str) -> Iterator[Tree]:
    """The trees of a text; `where` names it in messages, as `read` does."""
    stack: list[list[Tree | str]] = []  # the contents of the open brackets
    for n, line in enumerate(text.splitlines(), 1):
        for token in _TOKEN.findall(line):
            if token == "(":
                stack.append([])
            elif not stack:
                raise UsageError(f"{where}, line {n}: {token!r} is in no tree; restore the file.")
            elif token == ")":
                content = stack.pop()
                # The outermost bracket of the Penn Treebank has no label.
                label = str(content.pop(0)) if content and isinstance(content[0], str) else ""
                tree = Tree(label, tuple(content))
                if stack:
                    stack[-1].append(tree)
                else:
                    yield tree
            else:
                stack[-1].append(token)
    if stack:
        raise UsageError(f"{where} ends within a tree: it is cut; restore it.")


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
    children = tuple(c for x in tree.children if isinstance(x, Tree) and (c := strip(x)))
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
    """The tree of a linearised string over (tag, word) pairs, and whether it was well-formed.

    A malformed string is repaired, so that it can be scored: a closing bracket without an open one
    of its label is dropped; one whose label is open further out closes everything up to there;
    brackets still open are closed at the end; superfluous words are dropped, and missing words are
    added at the end. A tree without one bracket around everything gets the label S.
    """
    stack: list[tuple[str, list[Tree]]] = [("S", [])]  # the open brackets, behind an implicit one
    rest, well_formed = [Tree(tag, (word,)) for tag, word in reversed(words)], True

    def close() -> None:
        label, children = stack.pop()
        if children:  # an empty one is dropped
            stack[-1][1].append(Tree(label, tuple(children)))

    for token in tokens:
        if token == WORD and rest:
            stack[-1][1].append(rest.pop())
        elif token.startswith("(") and len(token) > 1:
            stack.append((token[1:], []))
        else:
            labels = [f"){label}" for label, _ in stack[1:]]
            well_formed &= token in labels[-1:] and bool(stack[-1][1])
            if token in labels:
                for _ in range(labels[::-1].index(token) + 1):
                    close()
    well_formed &= len(stack) == 1 and not rest
    while len(stack) > 1:
        close()
    (_, children), missing = stack[0], rest[::-1]
    if len(children) == 1 and not children[0].is_word:
        return Tree(children[0].label, (*children[0].children, *missing)), well_formed
    return Tree("S", (*children, *missing)), False


def right_branching(words: Sequence[tuple[str, str]]) -> Tree:
    """The right-branching tree, a baseline: each bracket has a word and all that follows it."""
    tree = Tree("NP", tuple(Tree(tag, (word,)) for tag, word in words[-2:]))
    for tag, word in reversed(words[:-2]):
        tree = Tree("NP", (Tree(tag, (word,)), tree))
    return Tree("S", tree.children)
