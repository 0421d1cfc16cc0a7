"""A checkpoint is restored only if it is intact: every file is damaged in every way."""

import errno
import json
import os
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from experiments.tools.faults import flip, truncate
from t2t_jax.config import Training
from t2t_jax.errors import RunError
from t2t_jax.training import checkpoints, manifest
from t2t_jax.training.checkpoints import History
from t2t_jax.training.step import State


def state(step):
    return State(
        jnp.int32(step),
        {"w": jnp.arange(6.0).reshape(2, 3) + step},
        {"mu": jnp.full(5, 0.1 * step)},
    )


@pytest.fixture(scope="module")
def checkpoint_directory(tmp_path_factory):
    """A directory with checkpoints of steps 1 and 2."""
    directory = tmp_path_factory.mktemp("two") / "checkpoints"
    with checkpoints.manager(directory, Training(evaluate_every=1, steps=2, average=2)) as manager:
        for step in (1, 2):
            checkpoints.save(manager, state(step), History(batch=step))
    return directory


def test_the_metadata_keep_the_names_of_older_checkpoints(checkpoint_directory):
    saved = json.loads((checkpoint_directory / "2" / "standing" / "metadata").read_text())
    names = "epoch batch seconds overhead flops compiled_flops memory evaluations"
    assert list(saved) == names.split()
    assert saved["batch"] == 2
    assert History(**saved) == History(batch=2, evaluations=[])


def test_a_full_disk_at_the_commit_of_final_parameters_is_a_runs_error(tmp_path, monkeypatch):
    def full(directory):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(manifest, "write", full)
    with pytest.raises(RunError, match=r"^cannot write .*params.*No space left on device"):
        checkpoints.write_params(tmp_path / "params", {"w": jnp.ones(3)})


@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
def test_a_checkpoint_with_a_damaged_file_is_never_restored(damage, checkpoint_directory, tmp_path):
    """Files that Orbax adds at the commit are not in the manifest and may be damaged."""
    files = [
        p.relative_to(checkpoint_directory / "2")
        for p in (checkpoint_directory / "2").rglob("*")
        if p.is_file()
    ]
    assert len(files) > 15
    for number, name in enumerate(files):
        copy = shutil.copytree(checkpoint_directory, tmp_path / str(number) / "checkpoints")
        if damage is not Path.unlink and not (copy / "2" / name).stat().st_size:
            continue
        damage(copy / "2" / name)
        warnings = []
        with checkpoints.manager(copy, Training(evaluate_every=1)) as manager:
            step = max(checkpoints.whole_steps(manager, warnings.append))
            restored, history = checkpoints.restore(manager, state(0), step)
        assert step in ((1, 2) if len(name.parts) == 1 else (1,)), name
        assert int(restored.step) == history.batch == step
        assert bool(warnings) == (step == 1), name
        for ours, theirs in zip(
            jax.tree.leaves(restored), jax.tree.leaves(state(step)), strict=True
        ):
            assert (ours == theirs).all(), name


def test_checkpoints_of_interruptions_replace_no_evaluated_checkpoint(tmp_path):
    t = Training(evaluate_every=3, steps=11, average=2)
    kept = {}
    with checkpoints.manager(tmp_path, t) as manager:
        for step in (3, 4, 6, 7, 8, 9, 10, 11):
            checkpoints.save(manager, state(step), History())
            manager.wait_until_finished()
            kept[step] = manager.all_steps()
    assert kept == {
        3: [3],
        4: [3, 4],
        6: [3, 6],
        7: [3, 6, 7],
        8: [3, 6, 8],
        9: [3, 6, 9],
        10: [3, 6, 9, 10],
        11: [6, 9, 11],
    }


def test_checkpoints_after_the_step_to_resume_from_are_made_again(checkpoint_directory, tmp_path):
    copy = shutil.copytree(checkpoint_directory, tmp_path / "checkpoints")
    with checkpoints.manager(copy, Training(evaluate_every=1, steps=9, average=4)) as manager:
        checkpoints.delete_after(manager, 1)
        assert manager.all_steps() == [1]
        checkpoints.save(manager, state(2), History(batch=9))
        manager.wait_until_finished()
        assert checkpoints.restore(manager, state(0), 2)[1].batch == 9


def test_a_full_disk_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    full = shutil.disk_usage(tmp_path)._replace(free=40)
    with checkpoints.manager(tmp_path, Training(evaluate_every=1)) as manager:
        checkpoints.save(manager, state(1), History())
        monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
        with pytest.raises(RunError, match="make room"):  # 4 + 24 + 20 bytes
            checkpoints.save(manager, state(2), History())
        assert manager.all_steps() == [1]
        assert [p.name for p in tmp_path.iterdir()] == ["1"]


def test_a_failed_save_in_the_background_is_an_error_in_one_sentence(tmp_path, monkeypatch):
    def full(directory):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(manifest, "write", full)
    with (
        pytest.raises(RunError, match=r"^cannot write .*No space left on device.*continues\.$"),
        checkpoints.manager(tmp_path, Training(evaluate_every=1)) as manager,
    ):
        checkpoints.save(manager, state(1), History())
    assert not checkpoints.newest(tmp_path)
