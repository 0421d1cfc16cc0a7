"""Models of Hugging Face's transformers in plain numpy, from a folder's config and weights.

They follow the published definitions: Marian (Junczys-Dowmunt et al. 2018), PEGASUS (Zhang et al.
2020), GPT (Radford et al. 2018), GPT-2 (Radford et al. 2019) and Llama (Touvron et al. 2023).
"""

import numpy as np


def logits(c, p, source, tokens):
    """Returns logits [T, V] of one unpadded sequence; only translators read `source`.

    Args:
      c: the content of config.json.
      p: the arrays of model.safetensors by name.
    """
    p = {name: x.astype(np.float64) for name, x in p.items()}
    used = Reads(p)
    out = MODELS[c["model_type"]](c, used, source, tokens)
    assert used.names == set(p)  # no weight of the file is ignored
    return out


class Reads(dict):
    """Arrays by name that know which of them were read."""

    def __init__(self, arrays):
        super().__init__(arrays)
        self.names = set()

    def __getitem__(self, name):
        self.names.add(name)
        return super().__getitem__(name)


def translator(c, p, source, tokens, *, pre):
    d, act, eps = c["d_model"], ACTIVATIONS[c["activation_function"]], 1e-5
    E, scale = p["model.shared.weight"], np.sqrt(d) if c["scale_embedding"] else 1

    def linear(name, x):
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def norm(name, x):
        return layer_norm(x, p[f"{name}.weight"], p[f"{name}.bias"], eps)

    def attend(name, x, y, h, causal):
        q, k, v = (linear(f"{name}.{n}_proj", z) for n, z in (("q", x), ("k", y), ("v", y)))
        return linear(f"{name}.out_proj", attention(q, k, v, h, h, causal))

    def stack(side, ids, encoded=None):
        h, causal = c[f"{side}_attention_heads"], side == "decoder"
        table = sinusoids(len(ids), d)
        if pre:  # the file has the table as well
            stored = p[f"model.{side}.embed_positions.weight"]
            assert stored.shape == (c["max_position_embeddings"], d)
            np.testing.assert_allclose(stored[: len(ids)], table, atol=1e-6)
        x = E[ids] * scale + table
        for i in range(c[f"{side}_layers"]):
            at = f"model.{side}.layers.{i}"
            for name in ("self_attn", "encoder_attn", "final"):
                if name == "encoder_attn" and encoded is None:
                    continue
                y = norm(f"{at}.{name}_layer_norm", x) if pre else x
                if name == "final":
                    y = linear(f"{at}.fc2", act(linear(f"{at}.fc1", y)))
                else:
                    own = name == "self_attn"
                    y = attend(f"{at}.{name}", y, y if own else encoded, h, own and causal)
                x = x + y if pre else norm(f"{at}.{name}_layer_norm", x + y)
        return norm(f"model.{side}.layer_norm", x) if pre else x

    return stack("decoder", tokens, stack("encoder", source)) @ E.T


def gpt(c, p, source, tokens, *, pre):
    words, positions = ("wte", "wpe") if pre else ("tokens_embed", "positions_embed")
    d, act = c["n_embd"], ACTIVATIONS[c["activation_function" if pre else "afn"]]
    eps = c["layer_norm_epsilon"]
    E, table = p[f"transformer.{words}.weight"], p[f"transformer.{positions}.weight"]
    assert table.shape == (c["n_positions"], d)

    def conv1d(name, x):  # a matrix [in, out]
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def norm(name, x):
        return layer_norm(x, p[f"{name}.weight"], p[f"{name}.bias"], eps)

    x = E[tokens] + table[: len(tokens)]
    for i in range(c["n_layer"]):
        at = f"transformer.h.{i}"

        def attend(z, at=at):
            q, k, v = np.split(conv1d(f"{at}.attn.c_attn", z), 3, axis=1)
            return conv1d(f"{at}.attn.c_proj", attention(q, k, v, c["n_head"], c["n_head"], True))

        def transform(z, at=at):
            return conv1d(f"{at}.mlp.c_proj", act(conv1d(f"{at}.mlp.c_fc", z)))

        for name, f in ((f"{at}.ln_1", attend), (f"{at}.ln_2", transform)):
            x = x + f(norm(name, x)) if pre else norm(name, x + f(x))
    return (norm("transformer.ln_f", x) if pre else x) @ E.T


def llama(c, p, source, tokens):
    act, E = ACTIVATIONS[c["hidden_act"]], p["model.embed_tokens.weight"]
    h, h_kv, width = (c[n] for n in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    eps = c["rms_norm_eps"]
    assert E.shape[1] == c["hidden_size"]

    def linear(name, x):
        return x @ p[f"{name}.weight"].T

    def norm(name, x):
        return x / np.sqrt((x**2).mean(1, keepdims=True) + eps) * p[f"{name}.weight"]

    def rotate(x):
        """x [T, h d]: feature i of a head is paired with feature i + d/2."""
        out, half = x.reshape(len(x), -1, width).copy(), width // 2
        for t, i in np.ndindex(len(x), half):
            z = out[t, :, i] + 1j * out[t, :, i + half]
            z = z * np.exp(1j * t / c["rope_theta"] ** (2 * i / width))
            out[t, :, i], out[t, :, i + half] = z.real, z.imag
        return out.reshape(len(x), -1)

    x = E[tokens]
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}"
        y = norm(f"{at}.input_layernorm", x)
        q, k, v = (linear(f"{at}.self_attn.{n}_proj", y) for n in "qkv")
        out = attention(rotate(q), rotate(k), v, h, h_kv, True)
        x = x + linear(f"{at}.self_attn.o_proj", out)
        y = norm(f"{at}.post_attention_layernorm", x)
        y = act(linear(f"{at}.mlp.gate_proj", y)) * linear(f"{at}.mlp.up_proj", y)
        x = x + linear(f"{at}.mlp.down_proj", y)
    return norm("model.norm", x) @ E.T


def attention(q, k, v, h, h_kv, causal):
    """q [T, h d], k and v [S, h_kv d] -> [T, h d]; scores are divided by sqrt(d)."""
    d, out = q.shape[1] // h, []
    for i in range(h):
        j = i * h_kv // h
        scores = q[:, i * d : (i + 1) * d] @ k[:, j * d : (j + 1) * d].T / np.sqrt(d)
        if causal:
            scores = np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf)
        a = np.exp(scores - scores.max(1, keepdims=True))
        out.append(a / a.sum(1, keepdims=True) @ v[:, j * d : (j + 1) * d])
    return np.concatenate(out, axis=1)


def sinusoids(length, d):
    """Returns [length, d]: sines in the first half of the features, cosines in the second."""
    angles = np.arange(length)[:, None] / 10000 ** (2 * np.arange(d // 2) / d)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def layer_norm(x, scale, bias, eps):
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + eps) * scale + bias


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu_new": gelu,
    "gelu_pytorch_tanh": gelu,
    "gelu": gelu,  # in GPT, whose code calls gelu_new so
    "silu": lambda x: x / (1 + np.exp(-x)),
}
MODELS = {
    "marian": lambda *x: translator(*x, pre=False),
    "pegasus": lambda *x: translator(*x, pre=True),
    "openai-gpt": lambda *x: gpt(*x, pre=False),
    "gpt2": lambda *x: gpt(*x, pre=True),
    "llama": llama,
}
