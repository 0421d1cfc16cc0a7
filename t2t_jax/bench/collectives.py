"""What a compiled step moves between devices."""

import re
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "f64": 8}
_OPERATION = re.compile(
    r"= (?P<result>\(.*?\)|\S+) "
    r"(?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
# The devices of a group: listed, as an iota, or by axes of a mesh, of which parts may be named.
_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_IOTA = re.compile(r"replica_groups=\[\d+,(\d+)\]")
_AXES = re.compile(r"replica_groups=mesh\[([^\]]*)\] ?\{([^}]*)\}")


class Move(NamedTuple):
    """A collective operation: its kind, the devices of a group, and the bytes of its result."""

    kind: str
    group: int
    result: int

    @property
    def sent(self) -> float:
        """Bytes that each device sends, in a ring."""
        others = (self.group - 1) / self.group
        return {
            "all-reduce": 2 * self.result * others,
            "all-gather": self.result * others,
            "reduce-scatter": self.result * (self.group - 1),
            "all-to-all": self.result * others,
            "collective-permute": self.result,
        }[self.kind]


def moves(compiled: Any, devices: int) -> Iterator[Move]:
    """The collective operations of a compiled program; one in a loop counts once."""
    for line in compiled.as_text().splitlines():
        found = _OPERATION.search(line)
        if found is None:
            continue
        arrays = _ARRAY.findall(found["result"])
        result = sum(
            _BYTES[kind] * prod(map(int, filter(None, shape.split(",")))) for kind, shape in arrays
        )
        group = _group(line) or devices
        if group > 1:
            yield Move(found["kind"], group, result)


def _group(line: str) -> int | None:
    """How many devices take part together; None where the program does not say."""
    if found := _LISTED.search(line):
        return len(found[1].split(","))
    if found := _IOTA.search(line):
        return int(found[1])
    if found := _AXES.search(line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", found[1]))
        named = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", found[2])
        return prod(int(part or sizes[axis]) for axis, part in named)
    return None
