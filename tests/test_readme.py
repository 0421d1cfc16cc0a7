"""Tables, links, commands and code in README.md and experiments/README.md are correct."""

import itertools
import json
import re
import shlex
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import t2t_jax
from experiments.tools import gpu, kernels, readme
from t2t_jax import config
from t2t_jax.attention import MECHANISMS, build
from t2t_jax.cli import _parse, main
from t2t_jax.commands import machine
from t2t_jax.commands.arguments import TOPICS
from t2t_jax.errors import UsageError
from t2t_jax.recipes import recipe
from t2t_jax.runs import study_file
from t2t_jax.study import declaration, presets
from t2t_jax.study.grid import Grid
from t2t_jax.study.sweep import declared
from tests import toy

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "experiments" / "README.md"
PAGES = pytest.mark.parametrize("page", [README, RESULTS], ids=["README", "experiments"])
PLACEHOLDERS = {"RECIPE": "grammar", "SEED": "0", "TOPIC": "row"}


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.M | re.S)


def tables(page):
    """Returns the lines of every table."""
    grouped = itertools.groupby(page.read_text().splitlines(), lambda x: x.startswith("|"))
    return [list(lines) for inside, lines in grouped if inside]


def commands_on(page):
    """Yields the words of every command of this project, after the name of the script."""
    lines = "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    lines += [
        f"launch/local.sh {x}" for x in re.findall(r"`launch/local\.sh\s([^`]+)`", text(page))
    ]
    for line in lines:
        words = shlex.split(line.partition("| ")[2] or line, comments=True)
        if "launch/local.sh" in words:
            after = words[words.index("launch/local.sh") + 1 :]
            yield [PLACEHOLDERS.get(word, word) for word in after]


def text(page):
    """Returns the text outside of code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


@pytest.fixture
def distance(tmp_path, monkeypatch):
    """The study file that README.md teaches, in the working directory."""
    (code,) = (x for x in blocks(README, "python") if "@study" in x)
    (tmp_path / "distance.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    before = study_file.entries()
    yield declaration.find("distance.py")
    study_file.forget(tmp_path / "distance.py", before)


def test_the_results_are_those_of_the_store():
    """If this fails, run launch/local.sh experiments/tools/readme.py."""
    assert RESULTS.read_text() == readme.page()


def test_every_stored_result_is_shown():
    page = RESULTS.read_text()
    for path in sorted(readme.RESULTS.rglob("*")):
        if path.suffix == ".png":
            folder = path.parent.relative_to(ROOT / "experiments").as_posix()
            assert f"({folder}/{path.name})" in page, path
        if path.name == "table.md" or (path.suffix == ".txt" and path.name != "run.txt"):
            assert path.read_text().partition(readme.COST)[0].strip() in page, path


@pytest.mark.parametrize(
    ("part", "table"), [("kernels", kernels.table), ("peers", gpu.table_of_peers)]
)
def test_the_tables_of_a_gpu_are_those_of_its_measurements(part, table):
    folder = gpu.RESULTS / part
    results = json.loads((folder / f"{part}.json").read_text())
    assert "NVIDIA" in results.pop("environment")["device"]
    assert (folder / f"{part}.txt").read_text() == table(results)


def test_rows_of_table_3_are_the_stored_ones():
    text = README.read_text()
    assert text.count("| base | ") == text.count("| big | ") == 1
    assert readme.front(text.replace("| base | ", "| base, older | ")) == text


def test_mechanisms_are_those_of_the_registry():
    (lines,) = (lines for lines in tables(README) if "mechanisms" in lines[0])
    named = re.findall(r"`(\w+)`", "".join(lines))
    assert sorted(named) == sorted(MECHANISMS)


@PAGES
def test_links_have_a_target(page):
    links = re.findall(r"\]\(([^)]+)\)", text(page))
    assert len(links) > 10
    for link in links:
        if link.startswith("https://"):
            continue
        name, _, heading = link.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), link
        if heading:
            titles = re.findall(r"^#+ (.*)$", text(path), re.M)
            assert heading in [readme.anchor(title) for title in titles], link


@PAGES
def test_named_files_exist(page):
    words = re.findall(r"`([^`\s]+)`", text(page))
    words += shlex.split("\n".join(blocks(page, "sh")), comments=True)
    known = ("t2t_jax/", "experiments/", "launch/", "tests/")
    named = {word for word in words if word.startswith(known)}
    assert len(named) > 3
    for name in named - {"t2t_jax/commands.py"}:  # a file of an older commit
        assert (ROOT / name).exists(), name


def check_command(words):
    """Raises UsageError for a command, study, row, preset, recipe or flag that does not exist."""
    arguments = _parse(words)
    changes = {n: v for n, v in vars(arguments).items() if n in config.SECTION_OF}
    if hasattr(arguments, "preset"):
        for name in getattr(arguments, "studies", None) or [arguments.study]:
            study = declaration.find(name)
            rows = declaration.select(study, arguments.rows)
            preset = presets.preset(arguments.preset or presets.DEFAULT)
            Grid(study, preset, rows, changes, Path()).check()
    elif hasattr(arguments, "recipe"):
        config.replace(recipe(arguments.recipe), **changes)
    elif arguments.command in ("machine.list_", "machine.help_"):
        if getattr(arguments, "what", "") == "runs":
            arguments.store = declaration.EXPERIMENTS / "results" / "table3-demo"
        getattr(machine, arguments.command.partition(".")[2])(arguments)


@PAGES
def test_commands_are_valid(page, distance):
    commands_found = list(commands_on(page))
    assert len(commands_found) > 10
    for words in commands_found:
        if words[0].endswith(".py"):
            assert (ROOT / words[0]).exists()
        else:
            check_command(words)


def test_every_topic_of_help_is_named():
    sentence = " ".join(text(README).split()).split("`launch/local.sh help TOPIC`")[1].split(".")[0]
    assert sorted(re.findall(r"`(\w+)`", sentence)) == TOPICS


def test_the_study_of_the_readme_runs(distance, tmp_path):
    assert [row.name for row in distance.rows] == ["base", "distance"]
    sweep = declared(distance, [], {})
    for name in ("paper", "multi30k", "demo"):
        grid = Grid(distance, presets.preset(name), distance.rows, {}, tmp_path, sweep)
        grid.check()
        assert len(grid.trials) == 3
    q, keys = (jax.random.normal(jax.random.key(i), (2, 3, 4, 5)) for i in range(2))
    scores = build("distance").scores(q, keys.transpose(0, 2, 1, 3), *map(jnp.arange, (3, 3)))
    assert scores.shape == (2, 4, 3, 3)
    distances = [float(jnp.square(q[1, 2, 3] - keys[1, s, 3]).sum()) for s in (0, 1)]
    actual = float(scores[1, 3, 2, 0] - scores[1, 3, 2, 1])
    assert actual == pytest.approx((distances[1] - distances[0]) / 10, rel=1e-4)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:line 1 of 1")  # the model is not trained
def test_the_code_of_the_readme_runs(corpus, tmp_path, monkeypatch, capsys):
    (code,) = (x for x in blocks(README, "python") if "t2t_jax.load" in x)
    monkeypatch.chdir(tmp_path)
    words = toy.train(corpus, tmp_path / "cache", steps=2, evaluate_every=2, num_buckets=1)
    assert main([*words, "--run", "runs/grammar-0"]) == 0
    capsys.readouterr()
    exec(code, names := {})
    _, difference, maps = capsys.readouterr().out.splitlines()
    assert float(difference) > 0
    assert names["logits"].shape == (1, names["ids"][1].shape[1], names["vocabulary"].size)
    assert re.findall(r"'(\w+)', 0", maps) == ["encoder", "decoder", "cross"]
    Path("runs/grammar-0/names.txt").write_text("distance-demo/base/0\n")
    for name in ("distance/base/0", Path("runs/grammar-0")):
        assert t2t_jax.load(name)[0] == names["c"]
    with pytest.raises(UsageError, match="no run called 'distance/base/1'"):
        t2t_jax.load("distance/base/1")
