"""The collective operations of a compiled step, and the bytes that they send between devices."""

import re
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from experiments.tools.roofline import ARRAY, Operation, array_bytes, parse

KINDS = "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"
_CHANNEL = re.compile(r"channel_id=(\d+)")
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
    channels = set()
    for fusion, operations in parse(compiled.as_text())[0].items():
        for operation in operations:
            kind, channel = operation.op.removesuffix("-start"), _CHANNEL.search(operation.line)
            if kind not in KINDS or (channel and channel[1] in channels):
                continue
            channels.add(channel[1] if channel else "")
            result, group = _result_bytes(operation), _group(operation.line) or devices
            if "all-reduce-scatter" in fusion:
                kind, result = "reduce-scatter", result // group
            if group > 1:
                yield Move(kind, group, result)


def _result_bytes(operation: Operation) -> int:
    """Returns the bytes of an operation's result."""
    arrays = list(ARRAY.finditer(operation.type))
    if operation.op in ("all-gather-start", "collective-permute-start"):
        arrays = [x for x in arrays if x[1] + x[2] != "u32"]  # context handles
        arrays = arrays[len(arrays) // 2 :]  # the operands come first
    return sum(map(array_bytes, arrays))


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
