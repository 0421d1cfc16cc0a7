"""The programs of small configs; `tests/programs.json` keeps them for the versions CI installs.

    launch/local.sh tests/golden.py      rewrites the file, and prints which configs changed

A refactoring changes none of them; a change that does says which.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from t2t_jax import config
from t2t_jax.attention.registry import MECHANISMS
from t2t_jax.parts import FEED_FORWARD, NORMS, POSITIONS
from t2t_jax.runs.programs import programs

FILE = Path(__file__).with_name("programs.json")
V = 29
SMALL = dict(N=1, d_model=16, max_length=48, batch_tokens=99, max_extra=7, beam=2)
HEADS = dict(SMALL, d_ff=24, h=2, d_k=8, d_v=4)
OPTIONS = {
    "local": "local:w=4",
    "linformer": "linformer:n=64,k=5",
    "performer": "performer:m=6",
    "cosformer": "cosformer:M=64",
    "nystrom": "nystrom:m=4",
}
FUSED = dict(kernels="fused", dtype="bfloat16", d_k=64, d_v=64, h=1)


def _mechanism(name: str) -> dict:
    """Returns the fields that give a mechanism to every role that it can have."""
    piece = OPTIONS.get(name, name)
    return {f"{role}_attention": piece for role in MECHANISMS[name].roles}


def configs() -> dict[str, dict]:
    """Returns the fields of every config, by its name."""
    named: dict[str, dict] = {name: dict(HEADS, **_mechanism(name)) for name in MECHANISMS}
    for field, table in (("norm", NORMS), ("feed_forward", FEED_FORWARD), ("positions", POSITIONS)):
        named |= {f"{field}={x}": dict(HEADS, **{field: x}) for x in list(table)[1:]}
    others = {
        "pre-norm, two layers": dict(N=2, norm_placement="pre"),
        "parallel": dict(norm_placement="parallel"),
        "untied": dict(embeddings="untied"),
        "capped logits": dict(logit_cap=3.0),
        "qk_norm": dict(qk_norm="rms_norm"),
        "h_kv": dict(h_kv=1),
        "latent": dict(d_c=12, positions="rotary"),
        "gate of a head": dict(attention_gate="head"),
        "gate of an element": dict(attention_gate="element"),
        "convolutions": dict(decoder_conv=3),
        "dropout inside": dict(P_drop_attention=0.1, P_drop_ff=0.1),
        "mup": dict(parametrization="mup", mup_width=8),
        "accumulate": dict(accumulate=2),
        "smoothing=others": dict(smoothing="others"),
        "z-loss": dict(z_loss=1e-4),
        "linear schedule": dict(schedule="linear"),
        "greedy": dict(beam=1),
        "bfloat16": dict(dtype="bfloat16"),
        "encoder": dict(architecture="encoder"),
        "decoder": dict(architecture="decoder"),
        "hybrid": dict(N=2, encoder_attention="linear,local:w=4"),
        "relative, linear bias": dict(positions="relative", decoder_attention="local:w=4"),
        "rotary window": dict(positions="rotary", decoder_attention="local:w=4"),
        "fused": FUSED,
        "fused z-loss": dict(FUSED, z_loss=1e-4),
        "fused local": dict(FUSED, decoder_attention="local:w=4"),
        "fused strided": dict(FUSED, decoder_attention="sparse_strided"),
    }
    named |= {name: dict(HEADS, **changes) for name, changes in others.items()}
    architectures = {
        "lstm": dict(architecture="recurrent"),
        "gru, both": dict(architecture="recurrent", cell="gru", encoder_direction="both"),
        "lstm, input": dict(
            architecture="recurrent", attention_feeding="input", cross_attention="additive"
        ),
        "lstm, output": dict(
            architecture="recurrent", attention_feeding="output", cross_attention="dot_product"
        ),
        "coverage": dict(
            architecture="recurrent", attention_feeding="output", cross_attention="coverage"
        ),
        "convolutional": dict(architecture="convolutional", cross_attention="dot_product"),
        "convolutional, dilated": dict(architecture="convolutional", dilation=2, N=2),
    }
    return named | {name: dict(SMALL, **changes) for name, changes in architectures.items()}


def programs_of(name: str) -> dict[str, str]:
    """Returns the programs of a config of `configs`."""
    return programs(config.replace(config.Config(), **configs()[name]), V)


def versions() -> dict[str, str]:
    """Returns the versions on which the text of a program depends."""
    return {name: version(name) for name in ("jax", "flax", "optax")}


def main() -> None:
    old = json.loads(FILE.read_text())["programs"] if FILE.exists() else {}
    with ProcessPoolExecutor() as pool:
        new = dict(zip(configs(), pool.map(programs_of, configs(), chunksize=4), strict=True))
    FILE.write_text(json.dumps({"versions": versions(), "programs": new}, indent=1) + "\n")
    for name in {**old, **new}:
        before, after = old.get(name, {}), new.get(name, {})
        if changed := [p for p in {**before, **after} if before.get(p) != after.get(p)]:
            print(f"{name}: {', '.join(changed)}")


if __name__ == "__main__":
    main()
