"""A program's hash is that of the computation, and those of `golden.py` are the stored ones."""

import json

import pytest

from tests import golden

STORED = json.loads(golden.FILE.read_text())


@pytest.mark.parametrize("name", golden.configs())
def test_the_programs_of_a_config_are_the_stored_ones(name):
    if golden.versions() != STORED["versions"]:
        pytest.skip(f"programs.json has the programs of {STORED['versions']}")
    changed = {
        program: (STORED["programs"].get(name, {}).get(program), now)
        for program, now in golden.programs_of(name).items()
        if STORED["programs"].get(name, {}).get(program) != now
    }
    assert not changed, (
        f"config {name!r} computes something else: rewrite the file by `launch/local.sh "
        "tests/golden.py` if that is what the change is for"
    )
