"""What each command does: it reads its words, calls one function, and prints."""

import dataclasses
import gzip
import io
import shutil
import sys
import tempfile
import time
import zlib
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_jax import config, files
from t2t_jax.config import Config
from t2t_jax.errors import RunError, UsageError, near
from t2t_jax.recipes import recipe

if TYPE_CHECKING:
    from t2t_jax.data.cache import Dataset, Split
    from t2t_jax.runs.job import Job
    from t2t_jax.study.grid import Grid
    from t2t_jax.study.tables import Line


def _changes(arguments: Namespace) -> dict[str, Any]:
    """The config fields given on the command line."""
    return {n: v for n, v in vars(arguments).items() if n in config.SECTION_OF}


def _config(arguments: Namespace) -> Config:
    profile = getattr(arguments, "profile", "paper")
    return config.replace(recipe(arguments.recipe, profile), **_changes(arguments))


def train(arguments: Namespace) -> None:
    c = _config(arguments)
    directory = arguments.run or Path("runs") / f"{arguments.recipe}-{c.training.seed}"
    from t2t_jax.runs.execution import execute
    from t2t_jax.training.progress import Progress, duration

    first = not arguments.hosts or _join(arguments.hosts, c.data, arguments.cache)
    progress = Progress() if first else Progress(io.StringIO())
    try:
        if arguments.profile != "paper":
            papers = config.replace(recipe(arguments.recipe), **_changes(arguments))
            sets = config.describe(c, papers)
            rest = "all that neither it nor a flag sets is as in the paper"
            progress.say(f"profile {arguments.profile} sets {sets}; {rest}")
        dataset = _dataset(c.data, arguments.cache, progress.say)
        _keep_programs(arguments.cache)
        scored = (lambda split: split.startswith("test")), progress
        (result,) = execute([(c, directory)], dataset, *scored, arguments.mesh)
        if isinstance(result, Exception):
            raise result
    finally:
        progress.close()
    if not first:
        return
    scoring = sum(s["seconds"] for s in result["scoring"].values())
    took = duration(result["training_seconds"] + result["overhead_seconds"] + scoring)
    progress.say(f"done in {took}: {directory / 'result.json'}")
    print(f"dev perplexity {result['dev_perplexity']:.3f}")
    for name, scores in result["scores"].items():
        _print_scores(name, scores)


def _join(several: str, data: config.Data, cache: Path) -> bool:
    """Joins the other processes; the first prepares what all open. Whether this is the first."""
    from t2t_jax.data.corpora import prepare
    from t2t_jax.training import hosts

    hosts.join(several)
    hosts.decide(lambda: prepare(data, cache, report=_say))
    return hosts.first()


def _grid(arguments: Namespace) -> "Grid":
    from t2t_jax.study.grid import Grid
    from t2t_jax.study.presets import preset
    from t2t_jax.study.registry import find, select

    study = find(arguments.study)
    rows = select(study, arguments.rows)
    grid = Grid(study, preset(arguments.preset), rows, _changes(arguments), arguments.store)
    grid.check()
    return grid


def run(arguments: Namespace) -> None:
    from t2t_jax.data.corpora import opener
    from t2t_jax.report import plots
    from t2t_jax.training.progress import Progress

    grid = _grid(arguments)
    if arguments.tasks:
        print(len(grid.rows))
        return
    _check_run(grid, arguments)
    progress = Progress()
    try:
        open_data = opener(arguments.cache, progress.say)
        jobs = grid.plan(arguments.seeds, open_data)
        if arguments.worker or arguments.task is not None:
            _part(grid, jobs, arguments, open_data, progress)
            return
        failed = _all(jobs, arguments, progress)
    finally:
        progress.close()
    arguments.mix = True  # what `run` keeps of other code is marked
    table(arguments)
    sentences = open_data(grid.data).splits.get(grid.study.split)
    for path in plots.draw(grid, _lines_of(grid, arguments), sentences):
        print(f"plot: {path}")
    if failed:
        raise RunError(f"{failed} of {len(jobs)} runs failed: the same command tries them again.")


def _check_run(grid: "Grid", arguments: Namespace) -> None:
    from t2t_jax.runs import published

    if arguments.seeds < 1 or arguments.workers < 0:
        raise UsageError("--seeds must be at least 1, and --workers if it is given.")
    if arguments.task is not None and not 0 <= arguments.task < len(grid.rows):
        rows = f"rows 0 to {len(grid.rows) - 1}"
        raise UsageError(f"--task {arguments.task}: {grid.study.name} has {rows}.")
    if (grid.home / published.NAME).exists():
        raise UsageError(
            f"{grid.home} holds published runs, which are only read: choose another --store."
        )


def _all(jobs: "Sequence[Job]", arguments: Namespace, progress: Any) -> int:
    """Starts workers on all jobs and follows them; how many failed."""
    from t2t_jax.runs import workers

    _claim(jobs, arguments, progress)
    logs = arguments.store / "workers"
    return workers.watch(jobs, arguments.words, arguments.workers, logs, progress)


def _part(
    grid: "Grid", jobs: "Sequence[Job]", arguments: Namespace, open_data: Any, progress: Any
) -> None:
    """Works on what one worker takes of all jobs, or on one row alone."""
    from t2t_jax.runs import workers

    how = open_data, progress, arguments.mesh
    if arguments.worker:
        workers.become(arguments.worker)
        _keep_programs(arguments.cache)
        workers.work(jobs, *how)
        return
    jobs = [job for job in jobs if job.row == grid.rows[arguments.task].name]
    _claim(jobs, arguments, progress)
    _keep_programs(arguments.cache)
    workers.one_row(jobs, *how)


def _claim(jobs: "Sequence[Job]", arguments: Namespace, progress: Any) -> None:
    """Sets aside or reports what other code made, and writes down what the runs are called."""
    from t2t_jax.runs import names

    _outdated(jobs, arguments.rerun, progress.say)
    for job in jobs:
        names.add(job.directory, job.name)


def _outdated(jobs: "Sequence[Job]", rerun: bool, report: Callable[[str], object]) -> None:
    """Says which runs were made by other code; sets them aside if they are to be made again."""
    from t2t_jax.runs import store
    from t2t_jax.runs.code import several

    changes = {job: store.outdated(job.directory, job.c) for job in jobs}
    runs = [job for job, names in changes.items() if names]
    if not runs:
        return
    names = sorted({name for names in changes.values() for name in names})
    what = f"{len(runs)} of {len(jobs)} runs were made or begun by code that has changed "
    what += f"({several(names)})"
    if rerun:
        homes = {store.set_aside(job.directory).parent for job in runs}
        report(f"{what}: they are made again; the old ones are in {', '.join(map(str, homes))}")
    else:
        report(f"{what}: they are kept, and the table says so; --rerun makes them again")


def table(arguments: Namespace) -> None:
    from t2t_jax.study import tables

    grid = _grid(arguments)
    print(tables.FORMATS[arguments.format](grid, _lines_of(grid, arguments)), end="")


def plot(arguments: Namespace) -> None:
    from t2t_jax.report import plots

    grid = _grid(arguments)
    found = _lines_of(grid, arguments)
    drawn = plots.draw(grid, found, _sentences(grid, found, arguments.cache))
    if not drawn:
        raise RunError(f"{grid.home} has no finished run of {grid.study.name}: run it first.")
    print(*drawn, sep="\n")


def report(arguments: Namespace) -> None:
    from t2t_jax.report.study import REFRESH, study_page

    grid = _grid(arguments)
    out = arguments.out or grid.home / f"{grid.name}.html"
    rows = ["--rows", *arguments.rows] if arguments.rows else []
    words = [arguments.study, "--preset", arguments.preset, *rows, "--store", str(arguments.store)]
    words += [w for name, value in _changes(arguments).items() for w in (f"--{name}", str(value))]
    idle = 0  # looks at which nothing ran: one may fall between two runs
    while True:
        found = _lines_of(grid, arguments)
        idle = 0 if any("running," in x.entry.standing for x in found) else idle + 1
        live = arguments.watch and idle < 2
        sentences = _sentences(grid, found, arguments.cache)
        files.make_directory(out.parent)
        files.write(out, study_page(grid, found, sentences, words, live))
        if not live:
            break
        time.sleep(REFRESH)
    print(out)


def _lines_of(grid: "Grid", arguments: Namespace) -> "list[Line]":
    """The numbers of every row, as the store has them."""
    from t2t_jax.study import entries, tables

    how: Any = dict(only=arguments.only, mix=arguments.mix, report=_say)
    return tables.lines(grid, entries.collect(grid, **how))


def _sentences(grid: "Grid", found: "list[Line]", cache: Path) -> "Split | None":
    """What the study's runs were scored on, where it is at hand."""
    from t2t_jax.runs import identity, store

    entries = [line.entry for line in found if line.entry.runs]
    if not grid.study.split or not entries:
        return None
    try:
        dataset = _dataset(entries[0].c.data, cache, lambda _: None)
        store.check(entries[0].runs[0].directory, identity.about(dataset))
    except UsageError as error:
        _say(f"without the sentences of {grid.data.corpus}: {error}")
        return None
    return dataset.splits[grid.study.split]


def publish(arguments: Namespace) -> None:
    from t2t_jax.report import plots
    from t2t_jax.study import publish as publishing

    grid = _grid(arguments)
    found = _lines_of(grid, arguments)
    folder = publishing.publish(grid, found, arguments.to)
    sentences = _sentences(grid, found, arguments.cache)
    with tempfile.TemporaryDirectory() as aside:  # `plot` draws SVG and PDF from what is published
        for path in plots.draw(dataclasses.replace(grid, home=Path(aside)), found, sentences):
            shutil.copy(path, folder / path.name)
    print(folder)


def prepare(arguments: Namespace) -> None:
    from t2t_jax.data.corpora import prepare

    print(prepare(_config(arguments).data, arguments.cache, report=_say))


def _directory(arguments: Namespace) -> Path:
    """That of the run which is asked for by its directory or its name."""
    from t2t_jax.runs.names import resolve

    return resolve(arguments.run, arguments.store)


def translate(arguments: Namespace) -> None:
    from t2t_jax.inference.translate import translate
    from t2t_jax.runs.loading import load

    _keep_programs(arguments.cache)
    c, model, params, vocabulary = load(_directory(arguments), _say)
    c = config.replace(c, **_changes(arguments))
    lines = _lines("standard input", sys.stdin.buffer.read())
    limits: Any = dict(longest=model.limit, max_length=c.data.max_length, warn=_say)
    out = translate(model, params, lines, vocabulary, c.decoding, **limits)
    sys.stdout.buffer.write("".join(f"{line}\n" for line in out).encode())
    sys.stdout.buffer.flush()


def evaluate(arguments: Namespace) -> None:
    from t2t_jax.runs.loading import evaluate

    pair = (arguments.sources, arguments.references)
    if (pair[0] is None) != (pair[1] is None):
        raise UsageError("--sources and --references go together: give both, or a --split.")
    lines = None
    if pair[0] is not None:
        lines = _lines(str(pair[0]), _read(pair[0])), _lines(str(pair[1]), _read(pair[1]))
        if len(lines[0]) != len(lines[1]):
            raise UsageError(
                f"{pair[0]} has {len(lines[0])} lines and {pair[1]} has {len(lines[1])}: "
                "they must match line by line."
            )
    _keep_programs(arguments.cache)
    directory, changes = _directory(arguments), _changes(arguments)
    scores = evaluate(directory, arguments.cache, arguments.split, lines, changes, _say)
    _print_scores(str(pair[0] or arguments.split), scores)


def export(arguments: Namespace) -> None:
    from t2t_jax.inference.export import export
    from t2t_jax.runs.loading import load

    directory = _directory(arguments)
    c, _, params, vocabulary = load(directory)
    out = arguments.out or directory / arguments.format
    export(c, params, vocabulary, out)
    print(out)


def attend(arguments: Namespace) -> None:
    from t2t_jax.report import attention
    from t2t_jax.runs.loading import load
    from t2t_jax.runs.names import title

    _keep_programs(arguments.cache)
    directory = _directory(arguments)
    c, model, params, vocabulary = load(directory, _say)
    c = config.replace(c, **_changes(arguments))
    if not (sentence := arguments.sentence.strip()):
        raise UsageError("the sentence is empty: give one.")
    if c.model.architecture == "recurrent" and c.model.attention_feeding == "none":
        raise UsageError(
            f"{title(directory)} has no attention (attention_feeding=none): name another run."
        )
    translation = arguments.translation
    if translation is None:
        from t2t_jax.inference.translate import translate

        limits: Any = dict(longest=model.limit, max_length=c.data.max_length, warn=_say)
        (translation,) = translate(model, params, [sentence], vocabulary, c.decoding, **limits)
    source, target = vocabulary.encode([sentence, translation])
    longest = max(len(source), len(target)) + 1
    if model.limit and longest > model.limit:
        raise UsageError(f"it has {longest} subwords, but the model {model.limit} positions.")
    shown = attention.attended(model, params, vocabulary, source, target)
    dev = _dev(directory, c.data, arguments.cache)
    known = None if dev is None else attention.heads(model, params, vocabulary, dev)
    out = arguments.out
    files.make_directory(out)
    attention.picture(shown, out / "attention")
    page = attention.attention_page(shown, c.model, known)
    files.write(out / "attention.html", page)
    print(translation, *(attention.told(known) if known else ()), sep="\n")
    print(out / "attention.html", out / "attention.png", sep="\n")


def _dev(directory: Path, data: config.Data, cache: Path) -> "Split | None":
    """The dev sentences of a run's corpus, where it is at hand."""
    from t2t_jax.runs import identity, store

    try:
        dataset = _dataset(data, cache, lambda _: None)
        store.check(directory, identity.about(dataset))
    except UsageError as error:
        _say(f"without the corpus, on which heads are measured: {error}")
        return None
    return dataset.splits["dev"]


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not a whole gzip file"
        raise UsageError(f"cannot read {path}: {reason}.") from None


def _lines(name: str, content: bytes) -> list[str]:
    """Lines as the newline alone divides them; other separators stay in their line."""
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    try:
        return [line.decode() for line in lines]
    except UnicodeDecodeError:
        bad = next(i for i, line in enumerate(lines, 1) if not _is_utf8(line))
        raise UsageError(f"{name}, line {bad}, is not UTF-8: convert it.") from None


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _dataset(data: config.Data, cache: Path, report: Any) -> "Dataset":
    from t2t_jax.data.cache import open_dataset
    from t2t_jax.data.corpora import prepare

    return open_dataset(prepare(data, cache, report=report))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_scores(name: str, scores: dict[str, Any]) -> None:
    print(name)
    for s in scores.values():
        print(f"  {s['score']:6.2f}  {s['name']}  [{s['signature']}]")


def _keep_programs(cache: Path) -> None:
    """Compiled programs are kept from one process to the next."""
    import jax

    jax.config.update("jax_compilation_cache_dir", str(cache / "programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1)


def bench(arguments: Namespace) -> None:
    from t2t_jax.bench import command

    getattr(command, arguments.what)(arguments)


def doctor(arguments: Namespace) -> None:
    from t2t_jax import doctor

    wrong = 0
    for finding in doctor.examine(arguments.cache, arguments.store, arguments.mesh):
        print(f"{'mend' if finding.mend else 'ok':4}  {finding.about:10}  {finding.found}")
        if finding.mend:
            print(f"{'':16}  {finding.mend}")
            wrong += 1
    if wrong:
        raise RunError(f"{wrong} of these are to be mended.")


def list_(arguments: Namespace) -> None:
    from t2t_jax.listing import listing

    print("\n".join(listing(arguments.what, arguments.format, arguments.store)))


_HELP = Path(__file__).with_name("help")


def topics() -> list[str]:
    """What `help` knows of."""
    return sorted(path.stem for path in _HELP.glob("*.md"))


def help_(arguments: Namespace) -> None:
    if arguments.topic not in topics():
        raise UsageError(
            f"there is no help on {arguments.topic!r}: {near(arguments.topic, topics())}"
        )
    print((_HELP / f"{arguments.topic}.md").read_text(), end="")
