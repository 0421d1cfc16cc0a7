"""FLOPs of a training step from formulas, without JAX."""

from t2t_jax.attention.choice import entry, of_layer, products
from t2t_jax.attention.costs import Number, Shape
from t2t_jax.config import Config, Model, rotary_width
from t2t_jax.data.corpora import CORPORA
from t2t_jax.parts import ARCHITECTURES, CELLS, FEED_FORWARD, NORM_PLACEMENTS, implementation

_LENGTH = 32  # subwords of a typical sentence


def run_flops(c: Config, V: int) -> float:
    """FLOPs of a whole training run, to compare runs, as if all sentences had 32 subwords.

    Documents are read in sequences of `max_length`.
    """
    L = c.data.max_length if CORPORA[c.data.corpus].documents else _LENGTH
    return c.training.steps * step_flops(c.model, V, max(1, c.data.batch_tokens // L), L, L)


def step_flops(c: Model, V: int, B: int, S: int, T: int) -> float:
    """FLOPs of the matmuls of one training step on B pairs of S and T positions.

    A multiply-add counts as two FLOPs, the backward pass as twice the forward pass. Pairs that a
    mechanism computes and then masks count.
    """
    count = implementation(ARCHITECTURES[c.architecture].products, "t2t_jax.models")
    forward = count(c, S, T)
    return 3 * 2.0 * B * (forward + T * c.d_model * V)


def transformer(c: Model, S: int, T: int) -> Number:
    """Multiply-adds of a Transformer on one pair, the logits apart."""
    queries, keys = _projections(c, "cross")
    cross = c.N * (T * queries + S * keys) + _attention(c, "cross", T, S)
    return stack(c, "encoder", S) + stack(c, "decoder", T) + cross


def language_model(c: Model, S: int, T: int) -> Number:
    """Multiply-adds of one stack on a target of T positions."""
    return stack(c, c.architecture, T)


def stack(c: Model, role: str, L: int) -> Number:
    """Multiply-adds of self-attention and feed-forward layers on L positions."""
    parts = FEED_FORWARD[c.feed_forward], NORM_PLACEMENTS[c.norm_placement]
    layer = L * sum(_projections(c, role)) + sum(part.products(c, L) for part in parts)
    return c.N * layer + _attention(c, role, L, L)


def _projections(c: Model, role: str) -> tuple[int, int]:
    """Multiply-adds for each position: of W_Q, W_O and the gate; and of keys and values."""
    gate = {"none": 0, "head": 1, "element": c.d_v}[c.attention_gate]
    width, rotary = c.d_k + c.d_v, rotary_width(c, role)
    keys = c.d_model * (c.h_kv or c.h) * width
    if c.d_c:
        keys = c.d_model * (c.d_c + rotary) + c.d_c * c.h * width
    return c.d_model * c.h * (width + rotary + gate), keys


def _attention(c: Model, role: str, T: int, S: int) -> Number:
    """Multiply-adds of attention in all layers, with the projections of a mechanism's gates."""
    shape = Shape(T, S, c.d_k + rotary_width(c, role), c.d_v, causal=role == "decoder", h=c.h)
    layers = [of_layer(getattr(c, f"{role}_attention"), i) for i in range(c.N)]
    of_gates = sum(entry(x).gates(c.d_k) for x in layers)
    pairs = c.h * sum(products(x, shape) for x in layers)
    return pairs + (c.h_kv or c.h) * S * c.d_model * of_gates


def recurrent(c: Model, S: int, T: int) -> Number:
    """Multiply-adds of a recurrent model on one pair, the logits apart.

    Attention that feeds the recurrence is counted as if its queries were computed at once, so that
    a window has the padding of its blocks, too.
    """
    d, cell = c.d_model, CELLS[c.cell].products
    ways = 2 if c.encoder_direction == "both" else 1
    first = cell(2 * d if c.attention_feeding == "input" else d, d)
    cells = S * c.N * ways * cell(d, d // ways) + T * (first + (c.N - 1) * cell(d, d))
    if c.attention_feeding == "none":
        return cells
    return cells + products(c.cross_attention, Shape(T, S, d, d)) + T * 2 * d * d


def convolutional(c: Model, S: int, T: int) -> Number:
    """Multiply-adds of a convolutional model on one pair, the logits apart."""
    d = c.d_model
    convolutions = c.N * ((S + T) * c.kernel * 2 * d * d + T * 2 * d * d)
    shape = Shape(T, S, d, d)
    attention = sum(products(of_layer(c.cross_attention, i), shape) for i in range(c.N))
    return convolutions + attention
