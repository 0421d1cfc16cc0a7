"""The code of a run has every function that it executes, and changes only if one of them does."""

import inspect
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import jax
import pytest

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.cache import open_dataset
from t2t_jax.data.prepare import prepare
from t2t_jax.runs import code
from t2t_jax.runs.execution import execute
from t2t_jax.training.progress import Progress
from tests import toy

PACKAGE = Path(code.__file__).parents[1]

MODELS = {
    "transformer": dict(encoder_attention="linear", decoder_attention="sparse_strided:l=3"),
    "recurrent": dict(
        architecture="recurrent", attention_feeding="output", cross_attention="additive"
    ),
    "convolutional": dict(architecture="convolutional", cross_attention="dot_product"),
    "decoder": dict(architecture="decoder", decoder_attention="local:w=2", positions="rotary"),
}
EXHAUSTIVE = ("recurrent", "convolutional", "decoder")


def definition(executed):
    """Returns the definition of this package that a code object belongs to, or None."""
    path, name = Path(executed.co_filename), executed.co_qualname.split(".")[0]
    function = executed.co_flags & inspect.CO_OPTIMIZED  # not the body of a module or class
    if not function or not path.is_relative_to(PACKAGE):
        return None
    # Those of registries; `check` and `parse_options` serve config alone.
    if name in ("<lambda>", "_Lazy", "check", "parse_options"):
        return None
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return code.Definition(module.removesuffix(".__init__"), name)


@pytest.mark.full
@pytest.mark.parametrize("model", ["transformer", *EXHAUSTIVE])
def test_every_function_that_a_run_executes_is_part_of_its_code(model, corpus, tmp_path):
    """The syntax tree must lead to every function that the interpreter calls."""
    small = {
        n: str(x) if isinstance(x, Path) else x
        for n, x in toy.fields(corpus, num_buckets=1).items()
    }
    if "architecture" in MODELS[model] and model != "decoder":
        small = {n: x for n, x in small.items() if n not in ("h", "d_k", "d_v", "d_ff")}
    c = config.replace(Config(), **small, steps=3, evaluate_every=2, accumulate=2, **MODELS[model])
    dataset = open_dataset(prepare(c.data, tmp_path / "cache"))
    executed = set()

    def trace(frame, event, argument):  # it returns None, so that lines are not traced
        executed.add(frame.f_code)

    jax.clear_caches()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        (result,) = execute(
            [(c, tmp_path / "run")], dataset, lambda name: name == "dev", Progress()
        )
    finally:
        sys.settrace(None)
        threading.settrace(None)
    assert not isinstance(result, Exception), result
    decisive = {
        str(d)
        for d in map(definition, executed)
        if d and d.module not in code.WITHOUT_EFFECT and d not in code.REGISTRIES
    }
    assert len(decisive) > 80
    assert decisive <= code.code_of(c).keys()


ROWS = {
    "base": {},
    "local": dict(decoder_attention="local:w=4"),
    "linear": dict(encoder_attention="linear"),
    "gated": dict(decoder_attention="gated_delta"),
    "strided": dict(encoder_attention="sparse_strided:l=4"),
    "hybrid": dict(decoder_attention="linear,local:w=4"),
    "fixed": dict(encoder_attention="sparse_fixed:l=4,c=1"),
    "recurrent": dict(architecture="recurrent"),
}
PRINT = """
import json
from t2t_jax import config
from t2t_jax.runs.identity import key
from t2t_jax.runs.code import code_of, digest
rows = json.loads(input())
configs = {name: config.replace(config.Config(), **changes) for name, changes in rows.items()}
print(json.dumps({name: [key(c, {}), digest(code_of(c))] for name, c in configs.items()}))
"""


def identities(root):
    """Returns the key and the code of every row, according to the package under a root."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT],
        input=json.dumps(ROWS),
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def unchanged():
    """The identities of the package as it is."""
    return identities(PACKAGE.parent)


@pytest.fixture
def root(tmp_path):
    """A copy of the package."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=ignored)
    return tmp_path


def edit(root, name, *pairs):
    path = root / PACKAGE.name / name
    text = path.read_text()
    for old, new in pairs:
        assert old in text, (name, old)
        text = text.replace(old, new, 1)
    path.write_text(text)


def test_an_addition_changes_no_key_and_no_code(root, unchanged):
    (root / PACKAGE.name / "attention" / "mine.py").write_text(
        "from t2t_jax.attention.dot_product import DotProduct\nclass Mine(DotProduct): pass\n"
    )
    entry = '    "mine": Entry("mine:Mine", "a new mechanism"),\n'
    edit(
        root,
        "attention/registry.py",
        ('    "dot_product": Entry(', entry + '    "dot_product": Entry('),
    )
    field = '    temperature: float = _field(1.0, "a new field")\n'
    edit(root, "config.py", ("    seed: int = _field(0", field + "    seed: int = _field(0"))
    cost = "def mine(o, s):\n    return 1\n\n\n"
    edit(root, "attention/costs.py", ("def dense(", f"{cost}def dense("))
    part = '    "mine": FeedForward("tanh", "a new layer"),\n'
    edit(root, "parts.py", ('    "gelu": FeedForward(', f'{part}    "gelu": FeedForward('))
    edit(root, "training/step.py", ('"""The pure train step', '"""A better description'))
    edit(root, "attention/local.py", ("class Local(", "# a comment\nclass Local("))
    edit(root, "training/progress.py", ("{seconds:.0f} s", "{seconds:.1f} s"))
    edit(root, "study/registry.py", ("class Study:", "class Study:  # a comment"))
    assert identities(root) == unchanged


@pytest.mark.parametrize(
    ("name", "old", "new", "rows"),
    [
        ("attention/local.py", "class Local(", "class Local(object, ", {"local", "hybrid"}),
        ("attention/registry.py", "block=16", "block=32", {"local", "hybrid"}),
        ("parts.py", '"relu", "max', '"tanh", "max', set(ROWS) - {"recurrent"}),
        ("models/positions.py", "def sinusoid(", "def sinusoid(*_, ", set(ROWS) - {"recurrent"}),
        (
            "attention/costs.py",
            'and head."""\n    return 2',
            'and head."""\n    return 3',
            {"gated"},
        ),
        ("attention/linear.py", "_SMALLEST = 1e-30", "_SMALLEST = 1e-20", {"linear", "hybrid"}),
        pytest.param(
            "attention/sparse.py",
            "class Strided(",
            "class Strided(object, ",
            {"strided"},
            marks=pytest.mark.full,
        ),
        pytest.param(
            "models/recurrent.py",
            "class Recurrent(",
            "class Recurrent(object, ",
            {"recurrent"},
            marks=pytest.mark.full,
        ),
        pytest.param("tokens.py", "range(4)", "range(4 + 0)", set(ROWS), marks=pytest.mark.full),
        (
            "runs/execution.py",
            "directory, trained.params, result)",
            "directory, None, result)",
            set(ROWS),
        ),
        ("training/optimizer.py", ") ** -0.5)", ") ** -0.4)", set(ROWS)),
    ],
)
def test_a_change_affects_exactly_the_runs_that_reach_it(root, unchanged, name, old, new, rows):
    edit(root, name, (old, new))
    after = identities(root)
    assert {row for row in ROWS if unchanged[row][1] != after[row][1]} == rows
    assert [key for key, _ in unchanged.values()] == [key for key, _ in after.values()]


def test_code_that_shares_no_changed_definition_does_not_conflict():
    base, local = (code.code_of(config.replace(Config(), **ROWS[n])) for n in ("base", "local"))
    assert code.changed(base, local)
    assert not code.conflict(base, local)
    shared = next(name for name in base if name in local)
    assert code.conflict(base | {shared: "0"}, local)
    assert code.changed(base | {shared: "0"}, base) == [shared]
    assert code.changed(base | {"data.registry.CORPORA": "0"}, base) == []
    assert not code.conflict(*(base | {"data.registry.CORPORA": x} for x in "01"))
    assert code.changed(base | {"parts.NORMS[layer_norm]": "0"}, base) == [
        "parts.NORMS[layer_norm]"
    ]


@pytest.mark.parametrize(
    ("device", "kernels", "counts"),
    [("2 x cpu", "auto", 0), ("2 x cpu", "fused", 1), ("1 x NVIDIA H200", "auto", 1)],
)
def test_kernels_are_part_of_the_code_of_the_runs_that_can_use_them(device, kernels, counts):
    c = config.replace(Config(), kernels=kernels)
    now = code.code_of(c)
    kernel = "ops.flash_attention.flash_attention"
    assert kernel in now
    codes = [code.used(x, c, device) for x in (now, now | {kernel: "0"})]
    assert code.changed(*codes) == [kernel] * counts
    assert code.conflict(*codes) == bool(counts)
