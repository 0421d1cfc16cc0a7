"""Models of other libraries, and their names for our parameters and hyperparameters.

Their definitions are in `ctranslate2.specs.transformer_spec` and, of transformers, in the files
`modeling_*.py` of `models/marian`, `pegasus`, `openai`, `gpt2` and `llama`.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from t2t_jax import config
from t2t_jax.models.norms import EPSILON

LONGEST = 2048  # number of positions, unless it is the length of a learned table
_CROSS = "cross_attention", "add_norm_cross"  # which an encoder lacks
# The modules of a layer. A module beside several of ours concatenates their outputs.
_LAYER = """
ours                              ctranslate2               bart                    gpt         llama
attention/W_Q                     self_attention.linear.0   self_attn.q_proj        attn.c_attn self_attn.q_proj
attention/W_K                     self_attention.linear.0   self_attn.k_proj        attn.c_attn self_attn.k_proj
attention/W_V                     self_attention.linear.0   self_attn.v_proj        attn.c_attn self_attn.v_proj
attention/W_O                     self_attention.linear.1   self_attn.out_proj      attn.c_proj self_attn.o_proj
add_norm_attention/norm/affine    self_attention.layer_norm self_attn_layer_norm    ln_1        input_layernorm
cross_attention/W_Q               attention.linear.0        encoder_attn.q_proj     -           -
cross_attention/W_K               attention.linear.1        encoder_attn.k_proj     -           -
cross_attention/W_V               attention.linear.1        encoder_attn.v_proj     -           -
cross_attention/W_O               attention.linear.2        encoder_attn.out_proj   -           -
add_norm_cross/norm/affine        attention.layer_norm      encoder_attn_layer_norm -           -
feed_forward/W_1                  ffn.linear_0              fc1                     mlp.c_fc    mlp.gate_proj
feed_forward/W_2                  ffn.linear_1              fc2                     mlp.c_proj  mlp.down_proj
feed_forward/W_3                  ffn.linear_0_noact        -                       -           mlp.up_proj
add_norm_feed_forward/norm/affine ffn.layer_norm            final_layer_norm        ln_2        post_attention_layernorm
"""  # noqa: E501


@dataclass(frozen=True)
class Format:
    column: str  # the column of `_LAYER` with its names
    stacks: Mapping[str, str]  # what they begin with, before the index of a layer
    others: str  # its other modules, as THEIRS=OURS
    options: str  # its names of hyperparameters, as THEIRS=OURS
    fixed: Mapping[str, Any]  # its other options
    # Of scaled (embeddings are multiplied by sqrt(d_model)), grouped (it has h_kv heads of keys and
    # values), halves (it pairs feature i of sinusoids or rotations with i + d/2, not with its
    # neighbour), transposed (matrices are [in, out]), biases (linear layers may have a bias), zeros
    # (they must have it).
    traits: str
    name: str  # its class
    library: str = "transformers"
    positions: str = "max_position_embeddings"  # its name of the number of positions
    # A function that returns fields that it has no option for, and their values.
    only: Callable[[config.Model], Mapping[str, Any]] = lambda m: dict(d_model=m.h * m.d_k)
    note: str = ""  # what it computes otherwise

    def modules(self, N: int) -> dict[str, list[str]]:
        """Returns the names of its modules with N layers in a stack, and ours in each."""
        heading, *rows = (line.split() for line in _LAYER.strip().splitlines())
        out = {theirs: [ours] for theirs, ours in _pairs(self.others)}
        for (side, stack), i, row in itertools.product(self.stacks.items(), range(N), rows):
            ours, module = row[0], row[heading.index(self.column)]
            if module != "-" and not (side == "encoder" and ours.startswith(_CROSS)):
                out.setdefault(f"{stack}.{i}.{module}", []).append(f"{side}_{i}/{ours}")
        return out

    def settings(self, m: config.Model) -> dict[str, Any]:
        """Returns its options for a model, but for those that parts declare."""
        m = replace(m, h_kv=m.h_kv or m.h)
        return {name: getattr(m, ours) for name, ours in _pairs(self.options)} | dict(self.fixed)


def _pairs(text: str) -> list[list[str]]:
    return [word.split("=") for word in text.split()]


_MARIAN = Format(
    "bart",
    {"encoder": "model.encoder.layers", "decoder": "model.decoder.layers"},
    "model.shared=embedding/matrix",
    "d_model=d_model encoder_layers=N decoder_layers=N encoder_ffn_dim=d_ff decoder_ffn_dim=d_ff "
    "encoder_attention_heads=h decoder_attention_heads=h",
    dict(scale_embedding=True, is_encoder_decoder=True, forced_eos_token_id=None),
    "scaled halves biases zeros",
    "MarianMTModel",
    note=" Its norms add 1e-5 to the variance, where the norms in training added 1e-6.",
)
_PEGASUS = f"""
    {_MARIAN.others}
    model.encoder.layer_norm=encoder_norm/norm/affine
    model.decoder.layer_norm=decoder_norm/norm/affine
    model.encoder.embed_positions=source_positions/table
    model.decoder.embed_positions=target_positions/table
"""
_GPT = Format(
    "gpt",
    {"decoder": "transformer.h"},
    "transformer.tokens_embed=embedding/matrix transformer.positions_embed=positions/table",
    "n_embd=d_model n_layer=N n_head=h",
    dict(layer_norm_epsilon=EPSILON),
    "transposed biases zeros",
    "OpenAIGPTLMHeadModel",
    positions="n_positions",
    only=lambda m: dict(d_model=m.h * m.d_k, d_ff=4 * m.d_model),
)
_GPT2 = "transformer.wte=embedding/matrix transformer.wpe=positions/table "
_CTRANSLATE2 = """
    encoder.embeddings.0=embedding/matrix
    decoder.embeddings=embedding/matrix
    decoder.projection=embedding/matrix
    encoder.position_encodings=source_positions/table
    decoder.position_encodings=target_positions/table
    encoder.layer_norm=encoder_norm/norm/affine
    decoder.layer_norm=decoder_norm/norm/affine
"""

FORMATS: Mapping[str, Format] = {
    "ctranslate2": Format(
        "ctranslate2",
        {"encoder": "encoder.layer", "decoder": "decoder.layer"},
        _CTRANSLATE2,
        "num_layers=N num_heads=h head_dim=d_k",
        {},
        "scaled biases",
        "TransformerSpec",
        "CTranslate2",
        only=lambda m: {},
    ),
    "marian": _MARIAN,
    "pegasus": replace(_MARIAN, others=_PEGASUS, name="PegasusForConditionalGeneration"),
    "openai-gpt": _GPT,
    "gpt2": replace(
        _GPT,
        others=f"{_GPT2} transformer.ln_f=norm/norm/affine",
        options=f"{_GPT.options} n_inner=d_ff",
        name="GPT2LMHeadModel",
        only=_MARIAN.only,
    ),
    "llama": Format(
        "llama",
        {"decoder": "model.layers"},
        "model.embed_tokens=embedding/matrix model.norm=norm/norm/affine",
        "hidden_size=d_model intermediate_size=d_ff num_hidden_layers=N num_attention_heads=h "
        "num_key_value_heads=h_kv head_dim=d_k",
        dict(rms_norm_eps=EPSILON, rope_theta=10_000.0),
        "grouped halves",
        "LlamaForCausalLM",
        only=lambda m: {},
    ),
}
