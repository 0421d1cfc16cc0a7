"""A study file runs from any folder, and its code is a part of the runs that use it."""

import dataclasses
import io
import json
import sys
from contextlib import redirect_stdout

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.cli import main
from t2t_jax.config import Config
from t2t_jax.data.prepare import open_corpus
from t2t_jax.errors import UsageError
from t2t_jax.models.feed_forward import FeedForward
from t2t_jax.models.norms import norm
from t2t_jax.models.positions import PositionBias
from t2t_jax.runs import programs, provenance, published, store, study_file
from t2t_jax.study import declaration, sweep
from t2t_jax.study.grid import Grid
from t2t_jax.study.presets import PRESETS, preset
from t2t_jax.training.optimizer import learning_rate
from tests import small, toy

TEXT = """
import random

import jax
import jax.numpy as jnp

from t2t_jax.attention.dense import DotProduct
from t2t_jax.study import Row, corpus, mechanism, study

EPSILON = 1e-6


@mechanism("angle", "softmax(tau cos(q, k)) v", options=dict(tau=10.0))
class Cosine(DotProduct):
    tau: float

    def scores(self, q, keys, t, s):
        q, keys = (x * jax.lax.rsqrt(jnp.square(x).sum(-1, keepdims=True) + EPSILON) for x in (q, keys))
        return self.tau * super().scores(q, keys, t, s)


@corpus("reversal", splits="train dev")
def reversal(split):
    draw = random.Random(split)
    for _ in range(200 if split == "train" else 20):
        letters = draw.choices("abcdef", k=draw.randint(1, 7))
        yield " ".join(letters), " ".join(letters[::-1])


@study(
    "Cosine attention", columns="", split="dev", sweep=dict(lr_scale=[0.5, 1]),
    base=dict(corpus="reversal", vocabulary=14),
)
def angles():
    return [Row("base"), Row("angle", dict(encoder_attention="angle:tau=5.0"))]
"""  # noqa: E501
SMALL = toy.options(
    dict(
        steps=6, evaluate_every=6, batch_tokens=200, max_length=20, num_buckets=1, N=1, d_model=16,
        d_ff=20, h=2, d_k=8, d_v=8, max_extra=5,
    )
)  # fmt: skip


ONE = ["--lr_scale", "1.0"]  # in place of the sweep


def forget():
    """Makes this process load study files again, like another one."""
    for name in [name for name in sys.modules if name.startswith("/")]:
        del sys.modules[name]
    for table, entries in study_file.TABLES.items():
        for name in entries.keys() - BEFORE[table].keys():
            del entries[name]
    programs._lowered.cache_clear()


BEFORE = study_file.entries()


@pytest.fixture(autouse=True)
def fresh():
    forget()
    yield
    forget()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return ["--cache", str(tmp_path_factory.mktemp("cache"))]


@pytest.fixture(scope="module")
def ran(cache, tmp_path_factory):
    """A folder with the study file and the runs that `run`, in the folder above, made beside it."""
    folder = tmp_path_factory.mktemp("anywhere") / "mine"
    printed = printed_by(folder, ["--workers", "1", *ONE, *SMALL, *cache])
    (folder / "printed.txt").write_text(printed)
    return folder


def printed_by(folder, options):
    """Returns what `run` prints for the study file in a folder, from the folder above."""
    folder.mkdir()
    (folder / "angles.py").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.chdir(folder.parent)
        assert main(["run", "mine/angles.py", *options]) == 0
    forget()
    return out.getvalue()


@pytest.fixture
def folder(ran, monkeypatch):
    """The same with its original file; the working directory is elsewhere."""
    monkeypatch.chdir(ran.parent)
    (ran / "angles.py").write_text(TEXT)
    return ran


def edit(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


@pytest.fixture
def table(folder, call):
    """A function that returns what `table` prints, and its notes on standard error."""

    def shown(*words):
        forget()
        return call("table", folder / "angles.py", *ONE, *SMALL, *words)

    return shown


def test_one_command_prints_the_table_of_a_file_and_keeps_its_runs_beside_it(folder, table):
    printed = (folder / "printed.txt").read_text()
    assert printed.startswith("Cosine attention, preset demo.")
    assert table().out == printed.partition("plot: ")[0]
    assert {x.name for x in folder.iterdir()} == {"angles.py", "printed.txt", "runs"}
    assert not (folder.parent / "runs").exists()


def test_a_command_line_replaces_the_sweep_of_a_study(tmp_path):
    (tmp_path / "angles.py").write_text(TEXT)
    study = declaration.find(str(tmp_path / "angles.py"))
    own = {"lr_scale": (0.5, 1.0)}
    assert repr(sweep.declared(study, [], {})) == repr(own)  # of the field's type
    assert sweep.declared(study, [], {"lr_scale": 2.0}) == {}
    assert sweep.declared(study, ["lr_scale=2,3"], {}) == {"lr_scale": (2.0, 3.0)}
    assert sweep.declared(study, ["warmup=5,7"], {}) == own | {"warmup": (5, 7)}


def test_a_run_keeps_a_copy_of_the_file_and_its_programs(folder):
    for directory in published.directories(folder / "runs"):
        assert (directory / "study.py").read_text() == TEXT
        environment = json.loads((directory / "environment.json").read_text())
        assert environment["study_file"] == str(folder / "angles.py")
        assert "study_file" not in published.contents(directory)["environment.json"]
        kept = {"initialisation", "step", "likelihood", "decoding", "batches"}
        assert environment["programs"].keys() == kept


def test_the_same_command_has_nothing_left_to_do(folder, cache, call):
    before = {x: x.stat().st_mtime_ns for x in folder.glob("runs/*/result.json")}
    said = call("run", "mine/angles.py", "--task", "1", *ONE, *SMALL, *cache).err
    assert {x: x.stat().st_mtime_ns for x in folder.glob("runs/*/result.json")} == before
    assert "angle/0: PPL" in said


def test_changed_code_is_noticed_and_a_changed_comment_is_not(folder, table):
    path, note = folder / "angles.py", "something else than this code (decoding, likelihood, step)"
    edit(path, "    tau: float\n", '    """An angle."""\n\n    tau: float  # a temperature\n')
    edit(path, '"softmax(tau cos(q, k)) v"', '"a better description"')
    edit(path, "range(200 if", "range(100 + 100 if")
    assert "2 of 2 runs are not compared with this code" in "".join(table())
    assert "this code" not in "".join(table("--compare"))
    edit(path, "EPSILON = 1e-6", "EPSILON = 1e-5")
    assert f"1 of 2 runs compute {note}" in "".join(table("--compare"))
    (folder / "runs" / provenance.MEMORY).unlink()


def test_a_run_is_not_used_with_other_code_than_its_own(folder, cache, call, refused):
    (run,) = (x.parent for x in folder.glob("runs/*/names.txt") if "/angle/" in x.read_text())
    path = folder.parent / "changed.py"
    words = "evaluate", run, *cache, "--split", "dev", "--import", path
    path.write_text(TEXT.replace("EPSILON = 1e-6", "EPSILON = 1e-5"))
    refused(words, f"{run} was trained with other code than the file {path} has now")
    forget()
    path.write_text(TEXT.replace("def angles(", "def other_angles("))  # studies do not count
    call(*words)


@pytest.mark.full
def test_two_files_do_not_share_a_store_with_one_name_for_two_things(folder, cache, call, refused):
    other = folder / "other.py"
    words = ["run", other, "--task", "1", *ONE, *SMALL, *cache]
    other.write_text(TEXT.replace("EPSILON = 1e-6", "EPSILON = 1e-5"))
    try:
        refused(words, f"{folder / 'angles.py'} has made angles-demo", "--store")
        other.write_text(TEXT)  # with the same code, they share their runs
        forget()
        call(*words)
    finally:
        other.unlink()


@pytest.fixture
def lines(tmp_path):
    """A file with two lines to translate."""
    (tmp_path / "input").write_text("a b c\nd\n")
    with (tmp_path / "input").open() as file:
        yield file


def test_a_run_is_used_by_its_name_without_its_file(folder, cache, call, monkeypatch, lines):
    (folder / "angles.py").unlink()
    monkeypatch.setattr(sys, "stdin", lines)
    store = ["--store", folder / "runs"]
    called = " ".join(x.read_text() for x in folder.glob("runs/*/names.txt"))
    name = next(x for x in called.split() if x.endswith("angle/0"))
    assert call("translate", name, *store, *cache, "--beam", "1").out.count("\n") == 2
    forget()
    out, err = call("list", "runs", *store)
    assert "angle/0" in out
    assert err == "2 of 2 runs have ended; 0 running; 0 waiting\n"


HEAD, REST = TEXT.split("EPSILON = 1e-6\n", 1)
MECHANISM, REST = REST.split("@corpus", 1)
BESIDE = {
    "angles.py": f"{HEAD}\nimport scoring\n\n@corpus{REST}",
    "scoring.py": f"{HEAD}\nfrom constants import EPSILON\n{MECHANISM}",
    "constants.py": "EPSILON = 1e-6\n",
}


@pytest.mark.full
def test_a_file_imports_modules_beside_it_and_its_runs_keep_them(
    tmp_path, cache, call, monkeypatch, lines
):
    for folder in "other", "mine":  # the names of modules belong to a folder
        (tmp_path / folder).mkdir()
        for name, text in BESIDE.items():
            text = text.replace("1e-6", "1e-6" if folder == "mine" else "1.0")
            for declared in "angle", "reversal":
                text = text.replace(f'"{declared}', f'"{declared}_{folder}')
            (tmp_path / folder / name).write_text(text)
    study_file.load(tmp_path / "other" / "angles.py")
    mine = tmp_path / "mine"
    run = [mine / "angles.py", *ONE, *SMALL]
    call("run", *run, "--task", "1", *cache)
    (directory,) = published.directories(mine / "runs")
    kept = json.loads((directory / "modules.json").read_text())
    assert kept == {x: (mine / f"{x}.py").read_text() for x in ("scoring", "constants")}
    printed = call("table", *run).out
    made = call("publish", *run, "--to", tmp_path).out.strip()
    forget()
    assert call("table", f"{made}/angles.py", *run[1:], "--store", made).out == printed
    edit(mine / "constants.py", "6", "2")
    forget()
    note = "something else than this code (decoding, likelihood, step)"
    assert note in "".join(call("table", *run, "--compare"))
    for path in mine.glob("*.py"):
        path.unlink()
    forget()
    monkeypatch.setattr(sys, "stdin", lines)
    (name,) = (directory / "names.txt").read_text().split()
    call("translate", name, "--store", mine / "runs", *cache, "--beam", "1")
    assert sys.modules["constants"].EPSILON == 1e-6
    V = store.read_data(directory)["subwords"]  # the copy has no files beside it
    memory = provenance._lower({"the run": (store.read_config(directory), V)})
    kept = provenance.made_in(directory)["programs"]
    assert memory["programs"]["the run"].items() <= kept.items()


def test_a_bad_module_beside_a_file_is_named(tmp_path, refused):
    for name, text in BESIDE.items():
        (tmp_path / name).write_text(text.replace("= 1e-6", "= 1e-6 +"))
    message = "constants.py cannot be loaded (SyntaxError: invalid syntax, line 1)"
    refused(["list", tmp_path / "angles.py"], message)
    assert study_file.entries() == BEFORE


def test_a_run_without_its_copy_says_which_name_is_missing(folder, refused, tmp_path):
    (run,) = (x.parent for x in folder.glob("runs/*/names.txt") if "/angle/" in x.read_text())
    aside = (run / "study.py").rename(tmp_path / "study.py")
    try:
        refused(["evaluate", run], "config.json of angles-demo", "corpus cannot be 'reversal'")
    finally:
        aside.rename(run / "study.py")


BAD = {
    "def angles": ("", "angles.py defines no study"),
    "Row(": ("Row(]", "SyntaxError: closing parenthesis ']' does not match"),
    "import random": ("import randon", "No module named 'randon', line 2)"),
    'mechanism("angle"': ('mechanism("additive"', "attention 'additive' exists in the package"),
    'corpus("reversal"': ('corpus("text"', "corpus 'text' exists in the package"),
    'columns=""': ('columns="hh"', "there is no config field 'hh'"),
    'split="dev"': ('split="dev", bse=1', "unexpected keyword argument 'bse'"),
    "sweep=dict(lr_scale=[0.5, 1])": (
        'metrics=dict(gramar="PPL")',
        "metrics of corpus 'gramar': did you mean 'grammar'?",
    ),
    "encoder_attention=": ("encoder_atention=", ", line 30: there is no config field"),
    "lr_scale=[0.5, 1]": ("lr_scale=[1, 1.0]", "list different values of lr_scale"),
    "[0.5, 1]": ("0.5", "list different values of lr_scale"),
    "lr_scale=": ("seed=", "seed cannot be swept"),
}


@pytest.mark.parametrize("old", BAD)
def test_a_bad_file_is_refused_in_a_sentence(old, tmp_path, refused):
    new, message = BAD[old]
    path = tmp_path / "angles.py"
    path.write_text(TEXT.partition("@study")[0] if not new else TEXT.replace(old, new, 1))
    for _ in range(2):  # the second time is no different
        said = refused(["table", path], message)
    if "line" in said:  # the others are found out later
        assert study_file.entries() == BEFORE


def test_a_pattern_of_a_file_is_refused_between_two_sequences(tmp_path, refused):
    path = tmp_path / "sinks.py"
    path.write_text(
        "from t2t_jax.attention.reach import Reach\n"
        "from t2t_jax.study import Row, mechanism, study\n"
        "@mechanism('sinks')\ndef sinks():\n"
        "    return Reach(lambda t, s: (abs(s - t) < 9) | (s < 4), 8, kept=lambda s: s < 4)\n"
        "@study('Sinks', columns='', split='')\ndef compared():\n"
        "    return [Row('base'), Row('cross', dict(cross_attention='sinks'))]\n"
    )
    refused(["run", path], "sinks", "cross", "its pattern relates positions of one sequence")


def test_a_file_that_is_missing_or_has_several_studies_is_refused(tmp_path, call, refused):
    refused(["run", tmp_path / "none.py"], f"cannot read {tmp_path / 'none.py'}: No such file")
    path = tmp_path / "two.py"
    path.write_text(
        "from t2t_jax.study import Row, study\n"
        "@study('One', columns='', split='')\ndef one(): return [Row('base')]\n"
        "@study('Two', columns='', split='')\ndef two(): return [Row('first')]\n"
    )
    refused(["list", path], f"name one of them, {path}:one or {path}:two")
    assert call("list", f"{path}:two").out == "first\n"
    refused(["list", f"{path}:tow"], "did you mean 'two'")


def test_two_loaded_files_may_share_a_name_if_its_code_is_the_same(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.py").write_text(TEXT)
    edit(tmp_path / "b.py", "EPSILON = 1e-6\n", "EPSILON = 1e-6  # small\n")
    edit(tmp_path / "c.py", "EPSILON = 1e-6", "EPSILON = 1e-5")
    study_file.load(tmp_path / "a.py")
    study_file.load(tmp_path / "b.py")
    before = study_file.entries()
    with pytest.raises(UsageError, match=r"c\.py and .*b\.py define attention 'angle'"):
        study_file.load(tmp_path / "c.py")
    assert study_file.entries() == before


def test_a_file_can_be_moved_and_renamed(tmp_path):
    digests = []
    for path in (tmp_path / "angles.py", tmp_path / "moved" / "renamed.py"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(TEXT)
        forget()
        study = declaration.find(str(path))
        c = config.replace(study.config(study.rows[1]), N=1, P_drop=0.0)
        digests.append(programs.programs(c, 14))
    assert digests[0] == digests[1]


PARTS = """
import jax, jax.numpy as jnp, flax.linen as nn
from typing import Any
from t2t_jax.study import feed_forward, norm, positions, schedule

@norm("l1")
class L1(nn.Module):
    dtype: Any
    axis: str = "d_model"

    @nn.compact
    def __call__(self, x):
        return x / (jnp.abs(x).mean(-1, keepdims=True) + 1e-6)

@feed_forward("squared_relu")
def squared(x):
    return jnp.square(jax.nn.relu(x))

@positions("halved", "bias", "a slope of a half")
def halved(module, h, causal):
    return lambda distance: jnp.tile(-0.5 * jnp.abs(distance)[None], (h, *[1] * distance.ndim))

@positions("halved", "encode")
def ramp(module, positions, d_model):
    return jnp.tile(positions[:, None] / 10.0, (1, d_model))

@schedule("cosine_decay")
def cosine_decay(step, warmup, steps):
    after = 0.25 * (1 + jnp.cos(jnp.pi * (step - warmup) / (steps - warmup)))
    return jnp.where(step < warmup, step / warmup, after)
"""


@pytest.fixture
def parts(tmp_path):
    path = tmp_path / "parts.py"
    path.write_text(PARTS)
    study_file.load(path)
    return path


def test_parts_of_a_file_are_used(parts):
    x = jnp.array([[1.0, -2.0, 3.0]])
    np.testing.assert_allclose(norm("l1", jnp.float32).apply({}, x), x / 2, rtol=1e-5)
    bias = PositionBias("halved", 3, causal=False).apply({})
    np.testing.assert_allclose(bias(jnp.array([-2, 4])), [[-1, -2]] * 3)
    steps = 5, 8, 10, 20, 30
    rates = [float(learning_rate(jnp.int32(s), 2.0, 10, 30, "cosine_decay")) for s in steps]
    np.testing.assert_allclose(rates, [1, 1.6, 1, 0.5, 0], atol=1e-6)
    own, params = small.make(norm="l1", feed_forward="squared_relu", positions="halved")
    assert jnp.isfinite(small.full_logits(own, params)).all()
    layer, x = FeedForward(own.c, jnp.float32), jnp.ones((2, 3, 5))
    W = layer.init(jax.random.key(0), x, False)["params"]
    hidden = np.maximum(np.asarray(x @ nn.meta.unbox(W)["W_1"]), 0) ** 2
    y = layer.apply({"params": W}, x, False)
    np.testing.assert_allclose(y, hidden @ nn.meta.unbox(W)["W_2"], rtol=1e-5)


def test_the_file_of_a_part_is_the_file_of_the_runs_that_use_it(parts):
    study_file.load(parts)
    for field, name in dict(
        norm="l1", qk_norm="l1", feed_forward="squared_relu", positions="halved",
        schedule="cosine_decay",
    ).items():  # fmt: skip
        c = config.replace(Config(), **{field: name})
        assert study_file.file_of(c) == str(parts)
        assert provenance.source(c) != provenance.source(Config())
    assert study_file.file_of(Config()) is None
    with pytest.raises(UsageError, match="norm cannot be 'l2'"):
        config.replace(Config(), norm="l2")


def test_a_corpus_is_prepared_again_if_its_code_changes(tmp_path):
    path, directories = tmp_path / "angles.py", []
    for new in ("letters[::-1]", "letters[::-1]  # reversed", "letters[::2]"):
        path.write_text(TEXT.replace("yield", "# a comment\n        yield"))
        edit(path, '" ".join(letters[::-1])', f'" ".join({new.partition("  #")[0]})')
        forget()
        study_file.load(path)
        c = config.replace(Config(), corpus="reversal", vocabulary=14)
        dataset = open_corpus(c.data, tmp_path / "cache", toy.quiet)
        directories.append(dataset.directory)
        assert len(dataset.splits["train"].source) == 200
    sources, references = dataset.splits["dev"].sources, dataset.splits["dev"].references
    assert [x.split()[::2] for x in sources] == [x.split() for x in references]
    assert directories[0] == directories[1] != directories[2]


def test_a_corpus_is_prepared_again_if_a_file_that_it_reads_changes(tmp_path):
    (tmp_path / "angles.py").write_text(TEXT.replace('"train dev"', '"train dev", files=["list"]'))
    study_file.load(tmp_path / "angles.py")
    c = config.replace(Config(), corpus="reversal", vocabulary=14)
    directories = []
    for content in ("one", "two", "one"):
        (tmp_path / "list").write_text(content)
        directories.append(open_corpus(c.data, tmp_path / "cache", toy.quiet).directory)
    assert directories[0] == directories[2] != directories[1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('yield " ".join(letters),', "yield 3,", r"corpus reversal yields \(3, '.*'\) in dev"),
        (
            'yield " ".join(letters),',
            'yield open("/not/there").read(),',
            "corpus reversal fails in .*angles.py, line .*: FileNotFoundError: .*/not/there",
        ),
        ("letters[::-1])", r"letters[::-1]) + '\nx'", "a text of several lines in dev"),
        ('yield " ".join(letters),', r"yield '\ud800',", "are not UTF-8"),
    ],
)
def test_a_corpus_that_yields_no_texts_is_refused(old, new, message, tmp_path):
    (tmp_path / "angles.py").write_text(TEXT.replace(old, new))
    study_file.load(tmp_path / "angles.py")
    c = config.replace(Config(), corpus="reversal")
    with pytest.raises(UsageError, match=message):
        open_corpus(c.data, tmp_path / "cache", toy.quiet)


@pytest.mark.parametrize("scale", PRESETS)
def test_a_preset_leaves_the_corpus_of_a_file(scale, tmp_path):
    (tmp_path / "angles.py").write_text(TEXT)
    study = declaration.find(str(tmp_path / "angles.py"))
    grid = Grid(study, preset(scale), study.rows, {}, tmp_path)
    grid.check()
    data = grid.config(study.rows[1]).data
    assert (data.corpus, data.vocabulary, data.pairs, data.grade) == ("reversal", 14, 0, "normal")
    ordinary = dataclasses.replace(study, base={})
    other = Grid(ordinary, preset(scale), study.rows, {}, tmp_path).config(study.rows[0]).data
    assert data.batch_tokens == other.batch_tokens


@pytest.mark.full
def test_a_file_of_declarations_serves_every_command(tmp_path, corpus, call, refused):
    path, run, other = tmp_path / "parts.py", tmp_path / "run", tmp_path / "other.py"
    path.write_text(PARTS)
    train = toy.train(corpus, tmp_path / "cache", steps=4, evaluate_every=4, average=1)
    train += ["--run", run, "--norm", "l1"]
    refused(train, "'l1'")  # without the file
    refused([*train, "--import", tmp_path / "absent.py"], "absent.py")
    call(*train, "--import", path)
    assert (run / "study.py").read_text() == PARTS
    path.unlink()
    forget()
    sources = ["--sources", corpus / "test.en", "--references", corpus / "test.de"]
    call("evaluate", run, *sources, "--cache", tmp_path / "cache")
    forget()
    path.write_text(PARTS)
    sign = "@optimizer('sign')\ndef sign():\n    return optax.scale_by_sign()\n"
    other.write_text(f"from t2t_jax.study import optimizer\nimport optax\n{sign}")
    both = ["--import", path, "--import", other, "--optimizer", "sign"]
    refused([*train, "--run", tmp_path / "mixed", *both], path, other)
    assert not (tmp_path / "mixed").exists()
