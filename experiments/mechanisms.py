"""Which attention for what: attention.py's mechanisms on one page, from stored results.

    launch/local.sh experiments/mechanisms.py        a minute on one CPU core

This trains nothing. It reads the stored results of attention.py (for equal steps and equal FLOPs),
recall.py, decisions.py and `bench attention`, and writes the table and the plot of
experiments/results/mechanisms.
"""

from pathlib import Path

from experiments.tools import grids
from t2t_jax import files, plotting
from t2t_jax.attention.choice import parse, pieces
from t2t_jax.attention.registry import MECHANISMS
from t2t_jax.bench.attention import BASE, crossing, state_bytes
from t2t_jax.study import comparison, distances, measuring, requests
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results"
FAR = "5 to 6", "7 to 9", "10 or more"  # words between two that must agree
FASTER = 1.5  # a smaller gain may be noise
N = 2048  # the length at which speed and state are shown
SEQUENCE = 56  # tokens of a sequence of recall, at most
HEADS = (
    "mechanism", "roles", "PPL", "BLEU", "equal FLOPs", "BLEU, longer", "minimal pairs, far",
    "recall, d_k 8", "d_k 32", f"speed at {N:,}", "faster from", f"state at {N:,} (KiB)",
)  # fmt: skip


def stored(name, scale, home=RESULTS):
    """Returns the numbers of every row of a stored study, with the settings of its runs."""
    home = home / f"{name}-{scale}"
    (request,) = requests.known(home, name)
    grid, rows = grids.collected(request, home)
    return comparison.compare_with_base(grid, rows, measuring.measure(grid, rows, {}))


def table(recall):
    """Returns Markdown: a line for each row of attention.py, and how far cheap scores predict."""
    attention, flops = (stored(name, "demo") for name in ("attention", "attention_flops"))
    paths = "bench_attention/attention.json", "decisions/decisions.json"
    cost, decisions = (files.read_json(RESULTS / path) for path in paths)
    accuracies = distances.contrastive_accuracies(attention)
    equal, by_name = ({line.row.name: line for line in x} for x in (flops, recall))
    lines, seen = [], set()
    for line in attention:
        row = line.row
        mechanism = mechanism_of(row)
        if mechanism in seen:  # in other roles than before
            mechanism = ""
        seen |= {mechanism}
        lines.append([
            row.name,
            roles(row),
            shown(line.measure("PPL"), 3),
            shown(line.measure("BLEU"), 1),
            shown(equal[row.name].measure("BLEU"), 1) if row.name in equal else "",
            shown(line.measure("BLEU@test_long"), 1),
            far(accuracies.get(row.name, ())),
            *recalled(by_name, mechanism),
            *costs(cost["mechanisms"], mechanism),
        ])  # fmt: skip
    return pipe_table(HEADS, lines) + f"\n- {trust(decisions)}\n"


def trust(decisions):
    """Returns sentences: how far the cheap scores of the table predict the order by PPL."""
    here, text = (x for x in decisions.values() if "recall, accuracy" in x)
    chosen = {
        "Pairs of rows that PPL separates, with one seed of a cheap score in the same order (a "
        "coin has 50%)": {
            "minimal pairs": here["minimal pairs, accuracy"],
            "recall": here["recall, accuracy"],
        },
        "The same for pairs of mechanisms as decoders of documents": {
            "PPL of the study": text["attention, demo, PPL"],
            "minimal pairs": text["attention, demo, minimal pairs"],
            "recall": text["recall, accuracy"],
        },
    }
    return " ".join(
        f"{begin}: {', '.join(percent(name, x['PPL']) for name, x in scores.items())}."
        for begin, scores in chosen.items()
    )


def percent(name, x):
    return f"{name} {x['share']:.0f}% ({x['low']:.0f} to {x['high']:.0f})"


def mechanism_of(row):
    """Returns the mechanism that a row changes; base's if it changes none, "" if something else."""
    names = {parse(x)[0] for n, x in row.changes.items() if n.endswith("_attention")}
    return names.pop() if names else "" if row.changes else BASE


def roles(row):
    named = [n.removesuffix("_attention") for n in row.changes if n.endswith("_attention")]
    return ", ".join(named) if 0 < len(named) < 3 else "all"


def shown(measure, digits):
    if measure is None:
        return ""
    deviation = f" ± {measure.spread.deviation:.{digits}f}" if measure.spread.n > 1 else ""
    return f"{measure.spread.mean:.{digits}f}{deviation}" + "\\*" * measure.significant


def far(accuracies):
    """Returns the contrastive accuracy of words that are far apart, over all types of error."""
    parts = [x for x in accuracies if x.distance in FAR]
    pairs = sum(x.n for x in parts)
    return f"{sum(x.share * x.n for x in parts) / pairs:.1f}" if pairs else ""


def recalled(by_name, mechanism):
    """Returns the accuracy on recall with either size of d_k."""
    label = "softmax" if mechanism == BASE else mechanism
    found = (by_name.get(f"{label}, d_k {d_k}") for d_k in (8, 32))
    return [shown(line.score, 1) if line else "" for line in found]


def costs(measured, mechanism):
    """Returns the speed relative to dense attention at N, the crossover, and the decoding state."""
    speed = from_n = state = ""
    if mechanism in measured:
        ours, dense = measured[mechanism]["at"], measured[BASE]["at"]
        mine, base = ({x["n"]: x["seconds"] for x in m}.get(N) for m in (ours, dense))
        speed = f"{base / mine:.2g}x" if mine and base else ""
        n = crossing(ours, dense) if mine and base and base / mine > FASTER else None
        from_n = f"{n:,.0f}" if n else ""
    if mechanism and "decoder" in MECHANISMS[mechanism].roles:
        state = f"{state_bytes(mechanism, N) / 2**10:,.0f}"
    return [speed, from_n, state]


def memory(line):
    """Returns the bytes of the decoding state of a row of recall, and whether it has a fixed size.

    The state belongs to the second layer, after a whole sequence.
    """
    m = line.c.model
    name = pieces(m.decoder_attention)[-1]
    size, of_half = (state_bytes(name, n, m.h, m.d_k, m.d_v) for n in (SEQUENCE, SEQUENCE // 2))
    return size, size == of_half


def plot_recall(lines, path):
    """Plots the accuracy of recall, with the range of seeds, against bytes of the decoding state.

    Rows above 99% whose state grows with the sequence have no label.
    """
    rows, values = [line.row for line in lines], []
    styles = plotting.styles([row.name for row in rows], [row.group for row in rows])
    for line in lines:
        size, fixed = memory(line)
        mean, seeds = line.score.spread.mean, line.score.values
        values.append({**styles[line.row.name], "size": size / 2**10, "mean": mean,
                       "low": min(seeds), "high": max(seeds), "fixed": fixed})  # fmt: skip
    sizes = (v["size"] for v in values)
    x = plotting.Axis.over("size", "decoding state of the second layer (KiB)", sizes, log=True)
    y = plotting.Axis("mean", "accuracy of recall (%), range of seeds", -4, 104)
    filled = {"condition": {"test": "datum.fixed", "value": 1}, "value": 0}
    point = {"type": "point", "size": 35, "filled": False}, plotting.SHAPE | {"fillOpacity": filled}
    point[1]["fill"] = plotting.COLOUR["color"]
    named = [v for v in values if v["mean"] < 99 or v["fixed"]]
    body = plotting.panel(x, y, (380, 380), [plotting.interval(y), point], named)
    title = ["Recall and decoding state", "filled: of a fixed size; open: it grows"]
    body["data"] = {"values": values}
    plotting.write(path, plotting.chart(body, [v["row"] for v in values], title))


def main():
    recall = stored("recall", "diagnostic")
    text = table(recall)
    files.make_directory(RESULTS / "mechanisms")
    files.write(RESULTS / "mechanisms" / "table.md", text)
    # The last inputs, which convolutions keep, are in no state of a mechanism.
    of_window = [line for line in recall if not line.c.model.decoder_conv]
    plot_recall(of_window, RESULTS / "mechanisms" / "recall")
    print(text)


if __name__ == "__main__":
    main()
