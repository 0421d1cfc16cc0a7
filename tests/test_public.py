"""The public names of `import t2t_jax`."""

import doctest

import t2t_jax
from tests.process import python


def test_every_public_name_exists_and_is_documented():
    assert dir(t2t_jax) == sorted(t2t_jax.__all__)
    for name in dir(t2t_jax):
        assert getattr(t2t_jax, name).__doc__


def test_the_examples_run():
    results = doctest.testmod(t2t_jax)
    assert results.attempted > 2
    assert results.failed == 0


def test_names_that_need_no_jax_do_not_import_it():
    program = (
        "import sys, t2t_jax; t2t_jax.Config(), t2t_jax.Row, t2t_jax.MECHANISMS, t2t_jax.load;"
    )
    program += "sys.exit('jax' in sys.modules)"
    python(program)
