"""Constituency trees: Penn Treebank files in, strings that a sequence model learns, trees back.

A tree is a label with children, each a tree or, under a part of speech, one word. The string of a
tree names its brackets and stands XX for every word (Vinyals et al. 2015):

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
    """The trees of a Penn Treebank .mrg file as they stand there, traces and functions included.

    Raises:
      UsageError: the file is not UTF-8, is cut in the middle of a tree, or has a bracket too many.
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
    stack: list[tuple[int, str, list[Tree | str]]] = []  # line, label, children of what is open
    expect_label = False
    number = 0
    for number, line in enumerate(text.splitlines(), 1):
        for token in _TOKEN.findall(line):
            if token == "(":
                stack.append((number, "", []))
                expect_label = True
            elif token == ")":
                if not stack:
                    raise UsageError(
                        f"{where}, line {number}: a bracket closes that was not open; restore the "
                        "file."
                    )
                _, label, children = stack.pop()
                tree = Tree(label, tuple(children))
                expect_label = False
                if stack:
                    stack[-1][2].append(tree)
                else:
                    yield tree
            elif expect_label:
                stack[-1] = (stack[-1][0], token, stack[-1][2])
                expect_label = False
            elif not stack:
                raise UsageError(
                    f"{where}, line {number}: {token!r} stands outside of a tree; restore the file."
                )
            else:
                stack[-1][2].append(token)
    if stack:
        raise UsageError(
            f"{where} ends in line {number} within the tree that begins in line {stack[0][0]}: "
            "it is cut; restore it."
        )


def write(tree: Tree) -> str:
    """A tree in a line, as `parse` reads it."""
    children = (c if isinstance(c, str) else write(c) for c in tree.children)
    return f"({tree.label} {' '.join(children)})"


def strip(tree: Tree) -> Tree | None:
    """Without traces, what they leave empty, functions, indices and the outermost bracket.

    None if nothing is left.
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
    """NP-SBJ-1 and NP=2 as NP; -LRB- as it is."""
    return label if label.startswith("-") else re.split(r"[-=]", label)[0]


def leaves(tree: Tree) -> list[tuple[str, str]]:
    """(part of speech, word) from left to right."""
    if tree.is_word:
        return [(tree.label, str(tree.children[0]))]
    return [x for child in tree.children if isinstance(child, Tree) for x in leaves(child)]


def linearise(tree: Tree) -> list[str]:
    """The string of a stripped tree."""
    if tree.is_word:
        return [WORD]
    inside = [x for child in tree.children if isinstance(child, Tree) for x in linearise(child)]
    return [f"({tree.label}", *inside, f"){tree.label}"]


def rebuild(tokens: Sequence[str], words: Sequence[tuple[str, str]]) -> tuple[Tree, bool]:
    """The tree that a string means over (part of speech, word) pairs, and whether it was sound.

    What is not is mended, so that it can be scored: a closing bracket that fits nothing open is
    left out, one that fits something further out closes all up to there, what stays open ends with
    the sentence, words too many are left out, and missing ones end the sentence. A string without
    one bracket around all gets an S.
    """
    sound = True
    stack: list[tuple[str, list[Tree | str]]] = [("S", [])]
    rest = list(reversed([Tree(tag, (word,)) for tag, word in words]))

    def close() -> None:
        label, children = stack.pop()
        if children:
            stack[-1][1].append(Tree(label, tuple(children)))

    for token in tokens:
        if token == WORD:
            if rest:
                stack[-1][1].append(rest.pop())
            else:
                sound = False
        elif token.startswith("(") and len(token) > 1:
            stack.append((token[1:], []))
        elif token.startswith(")") and len(token) > 1:
            open_labels = [label for label, _ in stack[1:]]
            sound &= bool(open_labels) and open_labels[-1] == token[1:] and bool(stack[-1][1])
            if token[1:] in open_labels:
                while len(stack) > 1:
                    label = stack[-1][0]
                    close()
                    if label == token[1:]:
                        break
        else:
            sound = False
    sound &= len(stack) == 1 and not rest
    while len(stack) > 1:
        close()
    top = stack[0][1]
    if len(top) == 1 and isinstance(top[0], Tree) and not top[0].is_word:
        label, children = top[0]
        return Tree(label, (*children, *reversed(rest))), sound
    return Tree("S", (*top, *reversed(rest))), False


def right_branching(words: Sequence[tuple[str, str]], label: str = "NP") -> Tree:
    """Every word with all that follows it: the baseline."""
    tree: Tree = Tree(label, tuple(Tree(tag, (word,)) for tag, word in words[-2:]))
    for tag, word in reversed(words[:-2]):
        tree = Tree(label, (Tree(tag, (word,)), tree))
    return Tree("S", tree.children)
