"""The least time that a compiled GPU or TPU program can take, from its text.

A kernel takes at least as long as reading its operands and writing its results at full bandwidth,
and as its matrix products at peak speed. Kernels in a loop count as often as it runs. What a TPU
keeps in its vector memory costs nothing; copies between its memories are kernels of their own. The
sum is a bound, not a measurement: no kernel reaches its own, and launches come on top.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from experiments.tools.devices import Device

_BITS = {"pred": 8, "bf16": 16, "token": 0}  # of types whose name is not a letter and the bits
_FREE = {
    *("parameter", "get-tuple-element", "tuple", "constant", "bitcast", "after-all"),
    *("partition-id", "replica-id"),
}
_LINE = re.compile(r"(?:ROOT )?%([\w.\-]+) = (\(.*?\)|[\w\[\]{},\d:()]+) ([\w\-]+)\((.*)$")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{")
ARRAY = re.compile(r"(\w+)\[([\d,]*)\](\{[^}]*\})?")
_LAYERS = "attention", "cross_attention", "feed_forward", "norm"
_ATTENTION = "__cudnn$fmha"


class Kernel(NamedTuple):
    """A kernel of a program.

    Attributes:
      where: the path of the operation in the model.
      times: how often it runs.
      moved: bytes that it reads and writes in one run.
      flops: FLOPs of its matrix products in one run.
    """

    name: str
    where: str
    times: int
    moved: int
    flops: int

    def seconds(self, device: Device) -> float:
        """The least time of one run."""
        return max(self.moved / device.bandwidth, self.flops / device.peak)


class Operation(NamedTuple):
    name: str
    type: str
    op: str
    rest: str
    line: str


def kernels(text: str, members: int = 1) -> list[Kernel]:
    """The kernels of a compiled program.

    Args:
      text: `compiled.as_text()`.
      members: number of models trained at once; a kernel's name gives the FLOPs of one of them.
    """
    computations, entry = parse(text)
    types = {o.name: o.type for lines in computations.values() for o in lines}

    def flops(o: Operation) -> int:
        operands = _operands(o.rest)
        if o.op == "convolution":
            arrays = (o.type, *(types[x] for x in operands))
            return _convolution_flops(o.line, *(_sizes(_first(x)) for x in arrays))
        if o.op == "dot":
            over = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", o.line)
            return _product(o.type, types[operands[0]], over)
        if o.op == "custom-call":
            if _ATTENTION in o.line:
                return _attention_flops(o.line, [types.get(x, "") for x in operands])
            if named := re.search(r"_(\d+)_flops", o.line):
                return int(named[1]) * members
            over = re.search(r'"lhs_contracting_dimensions":\[([\d",]*)\]', o.line)
            return _product(o.type, types[operands[0]], over) if over else 0
        called = re.search(r"calls=%([\w.\-]+)", o.line)
        return sum(map(flops, computations.get(called[1], ()))) if called else 0

    def walk(computation: str, times: int) -> Iterator[Kernel]:
        for o in computations[computation]:
            if o.op in _FREE or o.op.endswith("-done"):
                continue
            if o.op in ("call", "while", "conditional"):
                for body in re.findall(r"(?:to_apply|body)=%([\w.\-]+)", o.line):
                    yield from walk(body, times * _trips(o.line, computations))
                continue
            called = re.search(r"calls=%([\w.\-]+)", o.line)
            moved = _moved(o, computations.get(called[1], []) if called else [], types)
            where = re.search(r'op_name="([^"]*)"', o.line)
            yield Kernel(o.name, where[1] if where else "", times, moved, flops(o))

    return list(walk(entry, 1))


class Bound(NamedTuple):
    """The sums over kernels: their number, bytes, FLOPs, and least time in seconds."""

    kernels: int
    moved: int
    flops: int
    seconds: float


def bound(found: Iterable[Kernel], device: Device) -> Bound:
    """The bound of a program's kernels on a device."""
    found = list(found)
    return Bound(
        sum(k.times for k in found),
        sum(k.times * k.moved for k in found),
        sum(k.times * k.flops for k in found),
        sum(k.times * k.seconds(device) for k in found),
    )


def by_part(found: Iterable[Kernel], device: Device) -> list[tuple[str, float]]:
    """The parts of the model and their least seconds, the longest first, summed over layers."""
    seconds: dict[str, float] = defaultdict(float)
    for k in found:
        seconds[part(k.where)] += k.times * k.seconds(device)
    return sorted(seconds.items(), key=lambda x: -x[1])


def part(where: str) -> str:
    """The part of the model in the path of an operation, such as `decoder/attention, backward`."""
    if "jvp(" not in where:
        return "optimizer"
    names = re.sub(r"_\d+(?=/)", "", where).split("/")
    stack = [x for x in names if x in ("encoder", "decoder", "embedding")][:1]
    layer = [x for x in names if x in _LAYERS][:1]
    if not stack:
        return "softmax and loss"
    return "/".join(stack + layer) + (", backward" if "transpose(jvp" in where else "")


def parse(text: str) -> tuple[dict[str, list[Operation]], str]:
    """The operations of every computation of a program, and the name of its entry."""
    computations: dict[str, list[Operation]] = {}
    current = entry = ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            current = head[2]
            computations[current] = []
            entry = current if head[1] else entry
        elif line.startswith("}"):
            current = ""
        elif current and (match := _LINE.match(line.strip())):
            computations[current].append(Operation(match[1], match[2], match[3], match[4], line))
    return computations, entry


def _trips(line: str, computations: Mapping[str, Sequence[Operation]]) -> int:
    """How often a loop runs: a GPU's program states it; in a TPU's, the condition contains it."""
    if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', line):
        return int(known[1])
    condition = re.search(r"condition=%([\w.\-]+)", line)
    lines = computations.get(condition[1], ()) if condition else ()
    limits = [o.rest for o in lines if o.op == "constant" and o.type.startswith("s32")]
    return int(limits[0].split(")")[0]) if len(limits) == 1 else 1


def _moved(o: Operation, fused: Sequence[Operation], types: Mapping[str, str]) -> int:
    """Bytes that an operation reads and writes; of an array that is only sliced, only the slice.

    Args:
      fused: the operations within it, if it is a fusion.
    """
    operands = _operands(o.rest)
    if o.op in ("copy-start", "slice-start"):
        return _copied(o.type)
    if not fused:
        alone = {"dynamic-slice": operands[1:], "dynamic-update-slice": operands[1:] * 2}
        result = 0 if o.op == "dynamic-update-slice" else _bytes(o.type)
        twice = 2 if o.op == "dynamic-slice" else 1
        read = alone.get(o.op, operands)
        return twice * result + sum(_bytes(types.get(x, "")) for x in read)
    known = {x.name: x for x in fused}

    def source(x: Operation) -> Operation:
        return source(known[_operands(x.rest)[0]]) if x.op == "bitcast" else x

    root = next(x for x in fused if x.line.strip().startswith("ROOT"))
    results = [known[x] for x in _operands(root.rest)] if root.op == "tuple" else [root]
    moved = 0
    for x in map(source, results):
        updated = x.op == "dynamic-update-slice"
        moved += _bytes(types[_operands(x.rest)[1]] if updated else x.type)
    for x in fused:
        if x.op != "parameter":
            continue
        names = {y.name for y in fused if source(y) is x}
        readers = [y for y in fused if y.op != "bitcast" and names & {*_operands(y.rest)}]
        first = all(_operands(y.rest)[0] in names for y in readers)
        kinds = {y.op for y in readers}
        if first and kinds == {"dynamic-slice"}:
            moved += sum(_bytes(y.type) for y in readers)
        elif not (first and kinds == {"dynamic-update-slice"}):
            moved += _bytes(x.type)
    return moved


def _operands(rest: str) -> list[str]:
    return re.findall(r"%([\w.\-]+)", rest.split("), ")[0])


def _sizes(shape: str) -> list[int]:
    return [int(x) for x in shape.split(",") if x]


def _first(type_: str) -> str:
    """The sizes of the first array of a type, as text."""
    match = ARRAY.search(type_)
    return match[2] if match else ""


def _bytes(type_: str) -> int:
    """Bytes in the device's main memory."""
    return sum(array_bytes(x) for x in ARRAY.finditer(type_) if not _in_vector_memory(x))


def array_bytes(array: re.Match[str]) -> int:
    bits = _BITS.get(array[1], int(re.sub(r"\D", "", array[1][1:]) or 32))
    return prod(_sizes(array[2])) * bits // 8


def _in_vector_memory(array: re.Match[str]) -> bool:
    return "S(" in (array[3] or "")


def _copied(type_: str) -> int:
    """Bytes that a copy moves from or to main memory, by the type of its result."""
    ends = list(ARRAY.finditer(type_))[:2]
    return min(map(array_bytes, ends)) * sum(not _in_vector_memory(x) for x in ends)


def _product(result: str, left: str, over: re.Match[str] | None) -> int:
    """FLOPs of a matrix product from its result, its left operand and the axes summed over."""
    if over is None:
        return 0
    sizes = _sizes(_first(left))
    summed = prod(sizes[int(i)] for i in re.findall(r"\d+", over[1]))
    return 2 * prod(_sizes(_first(result))) * summed


def _attention_flops(line: str, operands: list[str]) -> int:
    """FLOPs of cuDNN's attention: two products of [T, S, d] forward, five backward."""
    q, k = (_sizes(match[2]) for match in map(ARRAY.search, operands[:2]) if match)
    (B, T, h, d), S = q, k[1]
    products = 5 if _ATTENTION + "SoftmaxBackward" in line else 2
    return products * 2 * B * h * T * S * d // (2 if "CAUSAL" in line else 1)


def _convolution_flops(line: str, out: list[int], left: list[int], right: list[int]) -> int:
    """FLOPs of a convolution without padding; a TPU's compiler writes every product as one."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", line)
    assert labels is not None
    window = dict(re.findall(r"(\w+)=([\d_x]+)[ }]", line))
    n = len(labels[1]) - 2  # axes along which a window moves
    ones = "x".join("1" * n)
    size, stride, dilation = (
        [int(x) for x in window.get(name, ones).split("x") if x]
        for name in ("size", "stride", "lhs_dilate")
    )
    before = [int(x.split("_")[0]) for x in window.get("pad", "x".join("0" * n)).split("x") if x]
    total = 2 * right[labels[2].index("i")] * prod(out[labels[3].index(x)] for x in "bf")
    for i in range(n):
        last = dilation[i] * (left[labels[1].index(str(i))] - 1)
        starts = (stride[i] * t - before[i] for t in range(out[labels[3].index(str(i))]))
        read = (x for start in starts for x in range(start, start + size[i]))
        total *= sum(0 <= x <= last and x % dilation[i] == 0 for x in read)
    return total
