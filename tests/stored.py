"""Three rows of the demo's stored runs, and sentences that they could have been scored on."""

import dataclasses
import json
import lzma
from pathlib import Path

from t2t_jax.data.cache import Split
from t2t_jax.files import make_directory, read_json, write_json
from t2t_jax.runs import claim, identity, provenance, store
from t2t_jax.study import collecting, comparison, declaration, presets
from t2t_jax.study import grid as grids

DEMO = Path(__file__).parents[1] / "experiments" / "results" / "table3-demo"
N = 1000


def grid(home=DEMO, rows=3):
    study = declaration.find("table3")
    return grids.Grid(study, presets.preset("demo"), study.rows[:rows], {}, home)


def entries(rows=3):
    return collecting.collect(grid(rows=rows))


def compared(grid):
    """Returns the rows of a grid with their stored results."""
    return comparison.compare_with_base(grid, collecting.collect(grid))


def attention(rows=16):
    """Returns the grid and the first lines of a study whose rows have three seeds."""
    study = declaration.find("attention")
    home = DEMO.parent / "attention-demo"
    made = grids.Grid(study, presets.preset("demo"), study.rows[:rows], {}, home)
    return made, compared(made)


def unpacked(directory, folder=DEMO):
    """Writes a published folder as a store of directories, read independently of the package."""
    for line in lzma.decompress((folder / "runs.jsonl.xz").read_bytes()).decode().splitlines():
        run = json.loads(line)
        home = directory / run.pop("directory")
        home.mkdir()
        for name, content in run.items():
            if name.endswith(".jsonl"):
                content = "".join(f"{json.dumps(record)}\n" for record in content)
            text = content if isinstance(content, str) else json.dumps(content)
            (home / name).write_text(text)
    return directory


def split(directory, source="a word", target=("ein Wort", "noch ein Wort mehr")):
    """Writes and returns N sentences of two lengths whose longest dependencies differ."""
    lines = [target[2 * i // N] for i in range(N)]
    (directory / "dev.source.txt").write_text(f"{source}\n" * N)
    (directory / "dev.target.txt").write_text("".join(f"{line}\n" for line in lines))
    extras = "".join(f'{{"dependency": {i % 9}}}\n' for i in range(N))
    (directory / "dev.extras.jsonl").write_text(extras)
    return Split(None, None, directory / "dev")


def translated(directory, entries, text):
    """Returns entries whose runs translate every sentence as `text`."""
    out = []
    for i, entry in enumerate(entries):
        runs = []
        for run in entry.runs:
            home = directory / f"run-{i}-{run.seed}"
            home.mkdir()
            (home / "dev.de").write_text(f"{text}\n" * N)
            records = store.read_curves(run.directory)
            (home / "metrics.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))
            runs.append(dataclasses.replace(run, directory=home))
        out.append(dataclasses.replace(entry, runs=tuple(runs)))
    return out


def changed(entry, **changes):
    """Returns an entry with changes in each of its runs."""
    runs = tuple(dataclasses.replace(run, **changes) for run in entry.runs)
    return dataclasses.replace(entry, runs=runs)


def judged(entries, judgements, signature="set:1"):
    """Keeps judgements in the runs of entries, and returns these.

    Args:
      judgements: of each row and seed, as (type, distance, right).
    """
    out = []
    for entry, of_row in zip(entries, judgements, strict=True):
        runs = []
        for run, made in zip(entry.runs, of_row, strict=True):
            checksum = store.write_statistics(run.directory, "contrastive", made)
            score = 100 * sum(right for *_, right in made) / len(made)
            mark = {"score": score, "signature": signature, "statistics": checksum}
            runs.append(dataclasses.replace(run, result={**run.result, "contrastive": mark}))
        out.append(dataclasses.replace(entry, runs=tuple(runs)))
    return out


def finish(directory, c, dataset, program="0123456789ab", dtype="float32", **result):
    """Writes a finished run of a config, as if a program had trained it."""
    make_directory(directory)
    facts = identity.data_facts(dataset) | {"dtype": dtype}
    origin = provenance.origin(c, {"step": program})
    claim.claim(directory, c, facts, dataset.vocabulary, origin)
    made = dict(scores={}, scoring={}, parameters=9, steps=40, trained_together=1)
    made["environment"] = provenance.made_in(directory)
    store.write_result(directory, made | result)


def made_by_other_code(directory, program="step", git="0123456789ab"):
    """Marks a run as made by code with another program; its store has compared it."""
    result = store.read_result(directory)
    before, c = result["environment"], store.read_config(directory)
    remembered(directory, c, before)
    programs = before["programs"] | {program: "000000000000"}
    environment = before | {"programs": programs, "git": git, "source": "of other code"}
    store.write_result(directory, result | {"environment": environment})


def remembered(directory, c, environment):
    """Makes the store of a run remember its programs as those of today's code."""
    path = directory.parent / provenance.MEMORY
    known = read_json(path)["programs"] if path.exists() else {}
    known.setdefault(provenance._key(directory, c), environment["programs"])
    versions = {name: environment[name] for name in ("device", "jax", "flax", "optax")}
    source = provenance.package_source()
    write_json(path, {"source": source, "environment": versions, "programs": known})
