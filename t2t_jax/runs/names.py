"""What runs are called, and which run a name means.

A run of a study is called STUDY-PRESET/ROW/SEED, as in `table3-demo/base/0`, with the fields that a
command line changed behind the preset, as in `table3-demo:steps=60/base/0`. A run that several
studies share has a name in each; names.txt in its directory has one a line. Any other run is called
what its directory is: `grammar-0`.
"""

import difflib
from pathlib import Path

from t2t_jax.errors import UsageError, writing
from t2t_jax.files import make_directory
from t2t_jax.runs import published

FILE = "names.txt"


def add(directory: Path, name: str) -> None:
    """Writes down what a run is called, beside the names that it has."""
    if name in _recorded(directory):
        return
    make_directory(directory)
    path = directory / FILE
    with writing(path), path.open("a") as file:
        file.write(f"{name}\n")


def names(directory: Path) -> list[str]:
    """What a run is called; it has one name at least."""
    return _recorded(directory) or [directory.name]


def title(directory: Path) -> str:
    """A run's name and where it is: `table3-demo/base/0 (runs/105c230e313b)`."""
    if _recorded(directory) or published.is_published(directory):
        return f"{names(directory)[0]} ({published.where(directory)})"
    return str(directory)


def _recorded(directory: Path) -> list[str]:
    text = published.read(directory, FILE) or ""
    return list(dict.fromkeys(text.splitlines()))  # two processes may have added one name


def resolve(text: str, home: Path) -> Path:
    """The directory of the run that a person means: its path, or a name in the store `home`.

    The preset of a name and its changed fields may be left out: `table3/base/0`.

    Raises:
      UsageError: the store has no such run, or several.
    """
    path = Path(text)
    if path.is_dir() or published.is_published(path):
        return path
    known = [(name, run) for run in published.directories(home) for name in names(run)]
    if not known:
        raise UsageError(
            f"{text!r} is no run: no directory is called so, and the store {home} has no runs; "
            "train one first, or correct --store."
        )
    exact = [(name, run) for name, run in known if text in (name, run.name)]
    meant = exact or [(name, run) for name, run in known if _short_for(text, name)]
    if not meant:
        nearest = difflib.get_close_matches(text, dict(known), n=3, cutoff=0.0)
        raise UsageError(
            f"{home} has no run called {text!r}: the nearest are {_listed(nearest)} "
            f"(`t2t-jax list runs --store {home}` shows all)."
        )
    runs = {run: name for name, run in meant}
    if len(runs) > 1:
        same = len(set(runs.values())) < len(runs)
        choices = [str(run) if same else name for run, name in runs.items()]
        raise UsageError(
            f"{text!r} may be {len(runs)} runs in {home}: choose {_listed(choices[:3])} "
            f"(`t2t-jax list runs --store {home}` shows all)."
        )
    return next(iter(runs))


def _short_for(text: str, name: str) -> bool:
    """Whether a name is as a person wrote it, but for the preset or the changed fields."""
    (asked, *row), (study, *of) = text.split("/", 1), name.split("/", 1)
    scale = study.split(":")[0]
    return bool(row) and row == of and asked in (scale, scale.split("-")[0])


def _listed(choices: list[str]) -> str:
    *others, last = map(repr, choices)
    return f"{', '.join(others)} or {last}" if others else last
