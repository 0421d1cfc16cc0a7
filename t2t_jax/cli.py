"""The commands. Each reads its words, calls one function, and prints.

Exit codes: 0 done, 1 failed, 2 wrong use, 75 stopped (the same command goes on).
"""

import argparse
import gzip
import io
import logging
import os
import sys
import zlib
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from t2t_jax import config
from t2t_jax.config import SECTIONS, Config
from t2t_jax.errors import Interrupted, RunError, UsageError, near
from t2t_jax.recipes import RECIPES, recipe

if TYPE_CHECKING:
    from t2t_jax.data.cache import Dataset
    from t2t_jax.study.grid import Grid
    from t2t_jax.study.registry import Row


_LISTED = "studies, presets, recipes, profiles, mechanisms, fields, or the name of a study"
_MESH = "devices by axis, as in data=2,fsdp=2,tensor=2 (and population) [all along data]"
_HOSTS = "several processes on one run: auto (srun, mpirun, TPU pod), or I/N@ADDRESS:PORT"
_WORKERS = "processes at work [one a core of a CPU, one on accelerators]"


class _Parser(argparse.ArgumentParser):
    """Errors in one sentence, with the nearest name."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help).")


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax warns of what is meant to be
    try:
        arguments = _parse(sys.argv[1:] if words is None else words)
        arguments.command(arguments)
    except UsageError as error:
        print(f"t2t-jax: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"t2t-jax: {error}", file=sys.stderr)
        return Interrupted.CODE if isinstance(error, Interrupted) else 1
    except KeyboardInterrupt:
        print("t2t-jax: interrupted.", file=sys.stderr)
        return Interrupted.CODE
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="t2t-jax", description="Ablations of the Transformer.", allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Any, help: str) -> argparse.ArgumentParser:
        p = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        p.set_defaults(command=function, parser=p)
        return p

    p = command("train", _train, "train a model, score it on its test sets, keep everything")
    p.add_argument("recipe", help=f"one of {', '.join(RECIPES)}")
    p.add_argument("--profile", default="paper", help="paper or t2t: see `list profiles` [paper]")
    p.add_argument("--run", type=Path, help="the run's directory [runs/RECIPE-SEED]")
    p.add_argument("--mesh", default="", help=_MESH)
    p.add_argument("--hosts", default="", help=_HOSTS)
    _add_cache(p)
    _add_fields(p, *SECTIONS)

    p = command("run", _run, "run a study: every row under every seed, then its table")
    _add_study(p)
    p.add_argument("--seeds", type=int, default=1, metavar="K", help="runs of each row [1]")
    p.add_argument("--workers", type=int, default=0, metavar="W", help=_WORKERS)
    p.add_argument("--task", type=int, metavar="I", help="row I alone, from 0, without the table")
    p.add_argument("--mesh", default="", help=_MESH)
    p.add_argument("--worker", default="", help=argparse.SUPPRESS)  # I/W: one that `run` started
    p.set_defaults(format="text")
    _add_cache(p)
    _add_fields(p, *SECTIONS)

    p = command("table", _table, "the table of a study, from the results in a store")
    _add_study(p)
    p.add_argument("--format", default="text", choices=("text", "md", "latex", "csv", "json"))
    _add_fields(p, *SECTIONS)

    p = command("keep", _keep, "copy a study's results, tables and plots, without checkpoints")
    _add_study(p)
    p.add_argument("--to", type=Path, required=True, help="takes the directory STUDY-PRESET")
    _add_fields(p, *SECTIONS)

    p = command("prepare", _prepare, "tokenise a corpus into the cache that training reads")
    p.add_argument("recipe", help=f"one of {', '.join(RECIPES)}")
    _add_cache(p)
    _add_fields(p, "data")

    p = command("translate", _translate, "translate standard input, a line for each line")
    p.add_argument("run", type=Path, help="a run's directory")
    _add_cache(p)
    _add_fields(p, "decoding")

    p = command("evaluate", _evaluate, "score a run on a test set")
    p.add_argument("run", type=Path, help="a run's directory")
    p.add_argument("--split", default="test", help="a split of the run's corpus [test]")
    p.add_argument("--sources", type=Path, help="or a file of sentences,")
    p.add_argument("--references", type=Path, help="and one of their translations")
    _add_cache(p)
    _add_fields(p, "decoding")

    p = command("bench", _bench, "measure what things cost on this device")
    p.add_argument("what", choices=("attention",), help="attention: time and memory against length")
    p.add_argument("--lengths", nargs="+", type=int, metavar="N", help="[256 512 ... 16384]")
    p.add_argument("--mechanisms", nargs="+", metavar="NAME", help="[all, and one written naively]")
    p.add_argument("--seconds", type=float, default=20, help="the longest call to be tried [20]")
    p.add_argument("--out", type=Path, default=Path("bench"), help="directory of results [bench]")

    p = command("doctor", _doctor, "whether this machine can train, and what to mend")
    p.add_argument("--store", type=Path, default=Path("runs"), help="directory of runs [runs]")
    p.add_argument("--mesh", default="", help=_MESH)
    _add_cache(p)

    p = command("list", _list, "what there is, or the rows of a study")
    p.add_argument("what", nargs="?", default="", help=_LISTED)
    formats = "text", "json", "names"
    p.add_argument("--format", default="text", choices=formats, help="of a study's rows")

    arguments, rest = parser.parse_known_args(words)
    arguments.words = list(words)
    if rest:
        options = [o for o in arguments.parser._option_string_actions if o.startswith("--")]
        raise UsageError(f"there is no option {rest[0]!r} here: {near(rest[0], options)}")
    return arguments


def _add_study(p: argparse.ArgumentParser) -> None:
    p.add_argument("study", help="see `list studies`")
    p.add_argument("--preset", default="demo", help="its scale: see `list presets` [demo]")
    p.add_argument("--rows", nargs="+", default=(), metavar="ROW", help="rows or groups [all]")
    p.add_argument("--store", type=Path, default=Path("runs"), help="directory of runs [runs]")
    p.add_argument("--only", default="", help="show only runs of this data, metric or code")
    p.add_argument("--mix", action="store_true", help="show runs of any of these, and mark them")


def _add_cache(p: argparse.ArgumentParser) -> None:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    default = Path(os.environ.get("T2T_JAX_CACHE") or f"{home}/t2t_jax").expanduser()
    p.add_argument("--cache", type=Path, default=default, help="of corpora [~/.cache/t2t_jax]")


def _add_fields(p: argparse.ArgumentParser, *sections: str) -> None:
    for section in sections:
        group = p.add_argument_group(section)
        for f in fields(SECTIONS[section]):
            kind = config.field_type(f.name)
            group.add_argument(
                f"--{f.name}",
                default=argparse.SUPPRESS,
                type=str if isinstance(kind, tuple) else kind,
                metavar="|".join(kind) if isinstance(kind, tuple) else kind.__name__.upper(),
                help=f.metadata["help"].replace("%", "%%"),
            )


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """The config fields given on the command line."""
    return {n: v for n, v in vars(arguments).items() if n in config.SECTION_OF}


def _config(arguments: argparse.Namespace) -> Config:
    profile = getattr(arguments, "profile", "paper")
    return config.replace(recipe(arguments.recipe, profile), **_changes(arguments))


def _train(arguments: argparse.Namespace) -> None:
    c = _config(arguments)
    directory = arguments.run or Path("runs") / f"{arguments.recipe}-{c.training.seed}"
    from t2t_jax.study.runner import execute
    from t2t_jax.training.progress import Progress, duration

    first = not arguments.hosts or _join(arguments.hosts, c.data, arguments.cache)
    progress = Progress() if first else Progress(io.StringIO())
    try:
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
    took = duration(result["training_seconds"] + result["scoring_seconds"])
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


def _grid(arguments: argparse.Namespace) -> "Grid":
    from t2t_jax.study.grid import Grid
    from t2t_jax.study.presets import preset
    from t2t_jax.study.registry import find, select

    study = find(arguments.study)
    rows = select(study, arguments.rows)
    grid = Grid(study, preset(arguments.preset), rows, _changes(arguments), arguments.store)
    grid.check()
    return grid


def _run(arguments: argparse.Namespace) -> None:
    from t2t_jax.study import distances, plots, workers
    from t2t_jax.training.progress import Progress

    grid, progress = _grid(arguments), Progress()
    if arguments.seeds < 1 or arguments.workers < 0:
        raise UsageError("--seeds must be at least 1, and --workers if it is given.")
    row = None if arguments.task is None else _row(grid, arguments.task)
    try:
        dataset = _dataset(grid.data, arguments.cache, progress.say)
        cells = grid.plan(arguments.seeds, dataset)
        how = grid.study.split, dataset, progress, arguments.mesh
        if row:
            _keep_programs(arguments.cache)
            workers.one_row([cell for cell in cells if cell.row is row], *how)
            return
        if arguments.worker:
            workers.become(arguments.worker)
            _keep_programs(arguments.cache)
            workers.work(cells, *how)
            return
        logs = arguments.store / "workers"
        failed = workers.watch(cells, arguments.words, arguments.workers, logs, progress)
    finally:
        progress.close()
    _table(arguments)
    shown: dict[str, Any] = dict(only=arguments.only, mix=arguments.mix, report=_say)
    print(f"plot: {plots.draw(grid, **shown)}")
    scored = dataset.splits.get(grid.study.split)
    if scored and (path := distances.draw(grid, scored, **shown)):
        print(f"plot: {path}")
    if failed:
        raise RunError(f"{failed} of {len(cells)} runs failed: the same command tries them again.")


def _row(grid: "Grid", number: int) -> "Row":
    if not 0 <= number < len(grid.rows):
        raise UsageError(f"--task {number}: {grid.study.name} has rows 0 to {len(grid.rows) - 1}.")
    return grid.rows[number]


def _table(arguments: argparse.Namespace) -> None:
    from t2t_jax.study import results, tables

    grid = _grid(arguments)
    entries = results.collect(grid, only=arguments.only, mix=arguments.mix, report=_say)
    print(tables.FORMATS[arguments.format](grid, tables.lines(grid, entries)), end="")


def _keep(arguments: argparse.Namespace) -> None:
    from t2t_jax.study import results
    from t2t_jax.study.keep import keep

    grid = _grid(arguments)
    entries = results.collect(grid, only=arguments.only, mix=arguments.mix, report=_say)
    print(keep(grid, entries, arguments.to))


def _prepare(arguments: argparse.Namespace) -> None:
    from t2t_jax.data.corpora import prepare

    print(prepare(_config(arguments).data, arguments.cache, report=_say))


def _translate(arguments: argparse.Namespace) -> None:
    from t2t_jax.inference.translate import translate
    from t2t_jax.study.runner import load

    _keep_programs(arguments.cache)
    c, model, params, vocabulary = load(arguments.run)
    c = config.replace(c, **_changes(arguments))
    lines = _lines("standard input", sys.stdin.buffer.read())
    out = translate(model, params, lines, vocabulary, c.decoding, longest=model.limit, warn=_say)
    sys.stdout.buffer.write("".join(f"{line}\n" for line in out).encode())
    sys.stdout.buffer.flush()


def _evaluate(arguments: argparse.Namespace) -> None:
    from t2t_jax.study.runner import evaluate

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
    scores = evaluate(
        arguments.run, arguments.cache, arguments.split, lines, _changes(arguments), _say
    )
    _print_scores(str(pair[0] or arguments.split), scores)


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


def _bench(arguments: argparse.Namespace) -> None:
    from t2t_jax.attention import TABLE, choice
    from t2t_jax.bench import NAIVE
    from t2t_jax.study import store

    lengths = arguments.lengths
    if lengths and min(lengths) < 1:
        raise UsageError(f"--lengths must be positive, not {min(lengths)}.")
    names = arguments.mechanisms or (*TABLE, NAIVE)
    for name in names:
        if name != NAIVE:
            choice.parse(name)
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {arguments.out}: {error.strerror}.") from None
    from t2t_jax.bench import attention as bench

    found = bench.measure(
        names,
        lengths or bench.LENGTHS,
        arguments.seconds,
        lambda x: print(x, file=sys.stderr, flush=True),
    )
    store.write_json(arguments.out / "attention.json", found)
    lines = bench.table(found)
    store.write(arguments.out / "attention.txt", "\n".join(lines) + "\n")
    bench.draw(found, arguments.out / "attention")
    print(*lines, sep="\n")


def _doctor(arguments: argparse.Namespace) -> None:
    from t2t_jax import doctor

    wrong = 0
    for finding in doctor.examine(arguments.cache, arguments.store, arguments.mesh):
        print(f"{'mend' if finding.mend else 'ok':4}  {finding.about:10}  {finding.found}")
        if finding.mend:
            print(f"{'':16}  {finding.mend}")
            wrong += 1
    if wrong:
        raise RunError(f"{wrong} of these are to be mended.")


def _list(arguments: argparse.Namespace) -> None:
    from t2t_jax.listing import listing

    print("\n".join(listing(arguments.what, arguments.format)))


if __name__ == "__main__":
    sys.exit(main())
