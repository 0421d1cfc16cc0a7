"""Every stored result with the command that made it, as experiments/README.md.

    launch/local.sh experiments/tools/readme.py        a few seconds

Writes experiments/README.md from experiments/results.toml, which lists the results with their
commands, and the files under experiments/results: tables, outputs and plots are included as they
are stored, and numbers beside them are read from the JSON in the same folder. It also writes the
rows of Table 3 in README.md. Run it after a result has changed; tests/test_readme.py fails until
then.
"""

import json
import math
import re
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from t2t_jax.environment import made_on
from t2t_jax.runs import published
from t2t_jax.runs.results import costs
from t2t_jax.study.typeset import pipe_table
from t2t_jax.terminal import duration

HOME = Path(__file__).parents[1]
README = HOME.parent / "README.md"
RESULTS = HOME / "results"
COST = "**Cost of a run**"
WIDTH = 100


def page() -> str:
    """The text of experiments/README.md."""
    source = tomllib.loads(HOME.joinpath("results.toml").read_text("utf-8"))
    contents = ["- [Reading a table](#reading-a-table)"]
    body = []
    for section in source["section"]:
        titles = [result["title"] for result in section["result"]]
        contents.append(f"- [{section['title']}](#{anchor(section['title'])})")
        contents += [f"  - [{title}](#{anchor(title)})" for title in titles]
        body.append(f"## {section['title']}")
        body += [block for result in section["result"] for block in entry(**result)]
    parts = [source["head"].strip(), "\n".join(contents), source["reading"].strip(), *body]
    return "\n\n".join(parts) + "\n"


def front(text: str) -> str:
    """The text of README.md with the stored rows of Table 3 in place of those in it."""
    stored = _rows((RESULTS / "table3-hour" / "table.md").read_text("utf-8"))
    return text.replace(_rows(text), stored)


def _rows(text: str) -> str:
    """The first table of a text that has our perplexities."""
    return next(x for x in re.findall(r"(?:^\|.*\n)+", text, re.M) if "PPL ours" in x)


def anchor(title: str) -> str:
    """The fragment by which GitHub links to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def entry(title: str, command: str, text: str, files: Sequence[str]) -> Iterator[str]:
    """The blocks of one result; results.toml describes the arguments."""
    yield f"### {title}"
    yield f"```sh\n{command.strip()}\n```"
    words = " ".join(text.split())
    yield textwrap.fill(words, WIDTH, break_long_words=False, break_on_hyphens=False)
    paths = [RESULTS / name for name in files]
    for path in paths:
        yield shown(path, title)
    if made := origin(paths):
        yield made
    if paths[0].name == "table.md" and (others := _beside(paths)):
        yield f"Also stored: {', '.join(f'[{p.name}]({_link(p)})' for p in others)}."


def shown(path: Path, title: str) -> str:
    """A stored file as Markdown."""
    if path.suffix == ".png":
        return f"![{title}]({_link(path)})"
    if path.name == published.NAME:
        return scores(_results(path.parent)[0])
    text = path.read_text("utf-8")
    if path.suffix == ".txt":
        return f"```\n{text.strip(chr(10))}\n```"
    table, _, costs = text.partition(COST)
    if not costs:
        return text.strip()
    folded = f"<details><summary>Cost of a run</summary>\n\n{costs.strip()}\n\n</details>"
    return f"{table.strip()}\n\n{folded}"


def scores(result: dict[str, Any]) -> str:
    """The size, the time and the scores of one run."""
    kept = ("bleu", "chrf")
    names = {s: x for s, x in next(iter(result["scores"].values())).items() if s in kept}
    heads = "split", *(x["name"] for x in names.values())
    lines = [
        [split, *(f"{of_split[s]['score']:.2f}" for s in kept)]
        for split, of_split in result["scores"].items()
    ]
    took = duration(result["training_seconds"])
    facts = [f"{x['name']}: `{x['signature']}`" for x in names.values()] + [
        f"{result['parameters']:,} parameters, {result['steps']:,} steps, dev perplexity "
        f"{result['dev_perplexity']:.3f}, {took} of training"
    ]
    return "\n".join([pipe_table(heads, lines), *(f"- {fact}" for fact in facts)])


def origin(paths: Sequence[Path]) -> str:
    """Where a result was made, from the JSON beside its last file or the runs beside all files."""
    beside = paths[-1].with_suffix(".json")
    if beside.exists():
        return made_on(json.loads(beside.read_text("utf-8"))["environment"])
    stored = dict.fromkeys(x for path in paths for x in path.parent.rglob(published.NAME))
    results = [x for runs in stored for x in _results(runs.parent)]
    if not results:
        return ""
    made = list(dict.fromkeys(made_on(result["environment"]) for result in results))
    seconds = [x for result in results if (x := result["training_seconds"]) is not None]
    total = f"{duration(math.fsum(seconds))} of training in sum"
    untimed = len(results) - len(seconds)
    partly = f" of the {len(seconds)} that have times" * bool(untimed)
    count = f"{len(results)} runs, {total}{partly}. " if len(results) > 1 else ""
    return count + " ".join(made)


def _results(folder: Path) -> list[dict[str, Any]]:
    """The result of every run that is published in a folder, with the costs that tables show."""
    found = []
    for run in published.directories(folder):
        result = published.read(run, "result.json")
        found.append(result | costs(result, published.read(run, "metrics.jsonl")))
    return found


def _beside(shown: Sequence[Path]) -> list[Path]:
    """The other plots and logs in the folder of a result."""
    folder = shown[0].parent
    return [p for p in sorted(folder.glob("*")) if p.suffix in (".png", ".txt") and p not in shown]


def _link(path: Path) -> str:
    return path.relative_to(HOME).as_posix()


if __name__ == "__main__":
    (HOME / "README.md").write_text(page(), "utf-8")
    README.write_text(front(README.read_text("utf-8")), "utf-8")
