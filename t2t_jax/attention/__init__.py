"""Attention mechanisms: Figure 2 (left) and its alternatives, behind one contract.

A mechanism is a Flax module that sees heads, and neither the projections nor its role in the model:

    out = mechanism(q, k, v, visibility, dropout, bias)

with q [B, T, h, d_k], k [B, S, h, d_k], v [B, S, h, d_v] and out [B, T, h, d_v]; T and S may
differ, and so may d_k and d_v. `Visibility` says which keys each query sees. A query that sees no
key has output zero. The contents of padding and of later positions, even NaN, affect no output.
`dropout` is None, or the function that drops attention weights; `bias` is None, or a function of
the distances s - t whose value is added to the scores. A mechanism computes weighted sums of the
values; its method `finish` is applied to these sums, for instance as a norm.

A mechanism may also need gates: further features of each key and head, whose number its entry in
the registry gives. The layer projects them from the input of the keys and appends them to the keys:
k is then [B, S, h, d_k + gates]. Gates are neither normalised nor rotated by position; their bias
is a parameter of the mechanism.

Decoding proceeds one position at a time, with all rows at the same position:

    state = mechanism.start(k, v, visibility)
    out, state = mechanism.step(state, q, t, k, v, bias)

`start` takes the keys and values that are known before decoding. In cross-attention, the source has
them; the steps get neither k nor v, and the state does not change, except for the
entries that the registry names, which only a recurrent decoder can carry. In self-attention
(`visibility.causal`), k and v have room for all S positions, of which the first
`visibility.kv_lengths` are known (usually none). Each step adds the key and value [B, 1, h, d] of
position t (int32 scalar), which the query [B, 1, h, d_k] at t also sees. Steps at t = 0, 1, ...
give the same outputs as one causal call.

In grouped-query attention, `models/multihead.py` has h_kv < h heads of keys and values. It repeats
each for its group of queries before it calls a mechanism, so that `mechanism(...)` always gets h
heads. So do `start` and `step`, unless the mechanism is `grouped`: then they get h_kv heads, the
state stores these, and a step repeats what it reads (`mechanism.repeat_heads`).

>>> import jax
>>> from t2t_jax.attention import build
>>> from t2t_jax.attention.visibility import Visibility
>>> q, k, v = (jax.random.normal(jax.random.key(i), (2, 5, 4, 8)) for i in range(3))
>>> attention = build("scaled_dot_product")
>>> variables = attention.init(jax.random.key(3), q, k, v, Visibility())
>>> attention.apply(variables, q, k, v, Visibility(causal=True)).shape
(2, 5, 4, 8)

`build` makes the module that a config names (`choice.py`). A new mechanism is a file here and an
entry in `registry.py`.
"""

from t2t_jax.attention.choice import build as build
from t2t_jax.attention.registry import MECHANISMS as MECHANISMS
