"""Programs identify what a run computes; those of `golden.py` are the stored ones."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from t2t_jax.environment import PACKAGE
from t2t_jax.runs import provenance
from t2t_jax.runs.programs import fingerprint
from tests import golden

STORED = json.loads(golden.FILE.read_text())


# The others with --full.
DEFAULT = (
    "scaled_dot_product,local,linear,delta,positions=rotary,accumulate,encoder,convolutional"
).split(",")


def test_a_run_that_was_begun_elsewhere_names_both_environments():
    before = {"jax": "1", "git": "a", "cores": 2, "programs": {"step": "s", "batches": "b"}}
    now = {"jax": "2", "git": "a", "cores": 2, "programs": {"step": "t", "batches": "b"}}
    both = {"jax": "1, then 2", "git": "a", "cores": 2}
    programs = {"step": "s, then t", "batches": "b"}
    assert provenance.merged(before, now) == both | {"programs": programs}
    once = both | {"programs": programs}
    assert provenance.merged(once, now) == once  # nothing has changed since
    del before["programs"]  # of older code
    assert provenance.merged(before, now) == both


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.full] * (x not in DEFAULT)) for x in golden.configs()],
)
def test_the_programs_of_a_config_are_the_stored_ones(name):
    if golden.versions() != STORED["versions"]:
        pytest.skip(f"programs.json has the programs of {STORED['versions']}")
    assert golden.programs_of(name) == STORED["programs"].get(name), (
        f"config {name!r} computes something else: rewrite the file by `launch/local.sh "
        "tests/golden.py` if that is what the change is for"
    )


def test_names_of_symbols_do_not_count_and_their_places_do():
    text = 'call @f(%0) call @"g h"(%1) call @f(%1)'
    assert fingerprint(text) == fingerprint(text.replace("@f", "@other"))
    assert fingerprint(text) != fingerprint(text.replace("call @f(%1)", 'call @"g h"(%1)'))


PRINT = """
import json
from tests import golden
print(json.dumps({name: golden.programs_of(name) for name in NAMES}))
"""


def programs_of_edited(root, *edits, appended=(), names=("local", "linear")):
    """Returns the programs of some configs, as an edited copy of the package lowers them."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, root / PACKAGE.name, ignore=ignored)
    shutil.copytree(golden.FILE.parent, root / "tests", ignore=ignored)
    for name, old, new in edits:
        path = root / PACKAGE.name / name
        text = path.read_text()
        assert old in text, (name, old)
        path.write_text(text.replace(old, new))
    for name, statement in dict(appended).items():
        with (root / PACKAGE.name / "attention" / f"{name}.py").open("a") as file:
            file.write(f"\n\n{statement}\n")
    done = subprocess.run(
        [sys.executable, "-c", PRINT.replace("NAMES", repr(names))],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    return json.loads(done.stdout)


def changed(after):
    """Returns the programs that differ from those of this code, by config."""
    known = golden.versions() == STORED["versions"]  # lowering takes longer
    before = STORED["programs"] if known else {x: golden.programs_of(x) for x in after}
    differing = {
        name: sorted(p for p in programs if programs[p] != before[name][p])
        for name, programs in after.items()
    }
    return {name: programs for name, programs in differing.items() if programs}


@pytest.mark.full
def test_renames_comments_and_new_fields_change_no_program(tmp_path):
    field = "    seed: Seed = "
    after = programs_of_edited(
        tmp_path,
        ("training/step.py", "_accumulate", "_sum_gradients"),
        ("training/step.py", '"""The pure train step', '"""A better description'),
        ("models/transformer.py", "AddNorm", "Residual"),
        ("attention/patterns.py", "class Pattern(", "# a comment\nclass Pattern("),
        ("config.py", field, '    temperature: float = _field(1.0, "new")\n' + field),
    )
    assert changed(after) == {}


def test_a_change_is_seen_in_the_configs_that_it_reaches(tmp_path):
    """A constant that only one mechanism reads, and a default set where nothing names it."""
    default = (
        "import optax as _o\n_o.scale_by_adam.__defaults__ = (0.9, 0.99, 1e-8, 0.5, None)\n\n\n"
    )
    after = programs_of_edited(
        tmp_path,
        ("attention/linear.py", "_SMALLEST = 1e-30", "_SMALLEST = 1e-20"),
        ("training/step.py", "def shift(", f"{default}def shift("),
    )
    assert changed(after) == {"local": ["step"], "linear": ["decoding", "likelihood", "step"]}


@pytest.mark.full
def test_what_modules_execute_after_their_definitions_is_seen(tmp_path):
    """An entry of a table, an attribute of a class, a loop, and a function under `if`."""
    statements = {
        "registry": 'MECHANISMS["linear"].sizes["chunk"] = 32',
        "gathered": "LSH.finish = lambda self, out: 2 * out",
        "memory": "for _name in ['_unit']:\n    globals()[_name] = lambda x: 2 * x",
        "softmax": "if True:\n    def _sum(support, x):\n        return jnp.sum(x, -1)[..., None]",
    }
    names = ("linear", "lsh", "delta", "sparsemax", "additive")
    after = programs_of_edited(tmp_path, names=names, appended=statements)
    assert {*changed(after)} == {*names[:4]}
