"""What a compiled step moves between devices."""

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
# The devices of a group: listed, as an iota, or by axes of a mesh, of which parts may be named.
_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_IOTA = re.compile(r"replica_groups=\[\d+,(\d+)\]")
_AXES = re.compile(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(.*?\))? ?\{([^}]*)\}")


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
    """The collective operations of a compiled program; one in a loop counts once.

    A TPU's compiler writes one that overlaps with others several times, under one channel, and a
    reduce-scatter as an all-reduce of which a fusion keeps a part.
    """
    fusion, channels = "", set()
    for line in compiled.as_text().splitlines():
        if line.endswith("{") and not line.startswith(" "):
            fusion = line.split(" ")[0]
        found, channel = _OPERATION.search(line), _CHANNEL.search(line)
        if found is None or (channel and channel[1] in channels):
            continue
        channels.add(channel[1] if channel else "")
        arrays = _ARRAY.findall(found["result"])
        if found["start"] and found["kind"] in ("all-gather", "collective-permute"):
            arrays = [x for x in arrays if x != ("u32", "")]  # its contexts
            arrays = arrays[len(arrays) // 2 :]  # behind what it is given
        result = sum(
            _BYTES[kind] * prod(map(int, filter(None, shape.split(",")))) for kind, shape in arrays
        )
        group = _group(line) or devices
        scattered = "all-reduce-scatter" in fusion
        kind, kept = ("reduce-scatter", result // group) if scattered else (found["kind"], result)
        if group > 1:
            yield Move(kind, group, kept)


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
