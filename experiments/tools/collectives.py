"""The collective operations of a compiled step, and the bytes that they send between devices."""

import re
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "f64": 8}
_OPERATION = re.compile(
    r"= (?P<result>\(.*?\)|\S+) "
    r"(?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?P<start>-start)?\("
)
_CHANNEL = re.compile(r"channel_id=(\d+)")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
# A group of devices is written as a list, as an iota, or as axes of a mesh (or parts of axes).
_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_IOTA = re.compile(r"replica_groups=\[\d+,(\d+)\]")
_AXES = re.compile(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(.*?\))? ?\{([^}]*)\}")


class Move(NamedTuple):
    """A collective operation: its kind, devices in a group, and bytes of its result."""

    kind: str
    group: int
    result: int

    @property
    def sent(self) -> float:
        """Bytes that each device sends in a ring algorithm."""
        others = (self.group - 1) / self.group
        return {
            "all-reduce": 2 * self.result * others,
            "all-gather": self.result * others,
            "reduce-scatter": self.result * (self.group - 1),
            "all-to-all": self.result * others,
            "collective-permute": self.result,
        }[self.kind]


def moves(compiled: Any, devices: int) -> Iterator[Move]:
    """Yields the collective operations of a compiled program; one in a loop counts once.

    A TPU's compiler writes an operation that overlaps with others several times, under one channel;
    it counts once. It writes a reduce-scatter as an all-reduce in a fusion that keeps a part.
    """
    fusion, channels = "", set()
    for line in compiled.as_text().splitlines():
        if line.endswith("{") and not line.startswith(" "):
            fusion = line.split(" ")[0]
        operation, channel = _OPERATION.search(line), _CHANNEL.search(line)
        if operation is None or (channel and channel[1] in channels):
            continue
        channels.add(channel[1] if channel else "")
        kind, result, group = operation["kind"], _result_bytes(operation), _group(line) or devices
        if "all-reduce-scatter" in fusion:
            kind, result = "reduce-scatter", result // group
        if group > 1:
            yield Move(kind, group, result)


def _result_bytes(operation: re.Match[str]) -> int:
    """Returns the bytes of an operation's result."""
    arrays = _ARRAY.findall(operation["result"])
    if operation["start"] and operation["kind"] in ("all-gather", "collective-permute"):
        arrays = [x for x in arrays if x != ("u32", "")]  # context handles
        arrays = arrays[len(arrays) // 2 :]  # the operands come first
    return sum(
        _BYTES[dtype] * prod(map(int, filter(None, shape.split(",")))) for dtype, shape in arrays
    )


def _group(line: str) -> int | None:
    """Returns the number of devices in a group; None if the program does not state it."""
    if match := _LISTED.search(line):
        return len(match[1].split(","))
    if match := _IOTA.search(line):
        return int(match[1])
    if match := _AXES.search(line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", match[1]))
        axes = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", match[2])
        return prod(int(part or sizes[axis]) for axis, part in axes)
    return None
