"""Manifest of a checkpoint: the sha256 of every file, written with it, checked before reading."""

import hashlib
import json
from pathlib import Path

NAME = "sha256.json"
_LATER = {NAME, "_CHECKPOINT_METADATA", "commit_success.txt"}  # Orbax writes these when it commits


def write(directory: Path) -> None:
    """Writes the manifest of a directory, before anything reads from it."""
    (directory / NAME).write_text(json.dumps(_digests(directory), indent=1) + "\n")


def damage(directory: Path) -> str | None:
    """How a directory differs from its manifest, in a few words; None if it does not differ."""
    try:
        listed, present = json.loads((directory / NAME).read_text()), _digests(directory)
    except (OSError, ValueError) as error:
        return f"{NAME} cannot be read, {type(error).__name__}"
    for name, digest in listed.items():
        if present.get(name) != digest:
            return f"{name} is {'changed' if name in present else 'missing'}"
    return None


def _digests(directory: Path) -> dict[str, str]:
    digests = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and str(path.relative_to(directory)) not in _LATER:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            digests[str(path.relative_to(directory))] = digest
    return digests
