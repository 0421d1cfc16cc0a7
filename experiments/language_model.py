"""Decoder-only and encoder-only models beside the encoder-decoder, and parts of a decoder.

    launch/local.sh run language_model --preset hour       in miniature on the built-in corpus
    launch/local.sh run language_model --preset multi30k   on real text
    launch/local.sh run language_models --preset text --train F --dev F --test F   on your own text

The first takes 4 minutes on 2 CPU cores for each of --seeds. Expected with 3 seeds
(experiments/results/language_model-hour): a perplexity of 1.59 ± 0.01 for the encoder-decoder, 10.1
± 0.0 for the decoder and 55.9 ± 1.4 for the encoder, 35.6 ± 2.7 after three times the steps.

Every model predicts the target's subwords: the decoder (a causal language model) from those before,
the encoder (a masked language model) from those on both sides, the encoder-decoder from those
before and the source. The encoder's perplexity is a pseudo-perplexity: each token is masked in
turn, and the end mark is easy to guess. In a step, the encoder learns from the 15% of tokens that
are masked, the others from all tokens.

`language_models` compares position schemes (P), norms (N), feed-forward layers (F), what concerns
the softmax (S), smaller states (K), mechanisms (A) and hybrids (H) of a decoder on documents (`help
corpus` says which files it reads), by the NLL of the test documents. In decoding, base stores h
(d_k + d_v) = 1024 numbers for each position and layer, h_kv heads h_kv (d_k + d_v), and a latent
d_c, so that h_kv=1 and d_c=128 store as much.
Base takes 10 minutes on 2 CPU cores for each of --seeds, other rows at most twice as long. Base and
two mechanisms with three seeds (`--steps 300 --warmup 30 --seeds 3 --base-seeds 3 --rows
A:decoder_attention=local:w=64 A:decoder_attention=gated_linear`) take nine minutes on 4 MB of text.

`decoders` compares more mechanisms in the same decoder. `decisions.py` asks which cheap experiment
predicts their order:

    launch/local.sh run decoders --preset text --steps 600 --warmup 60 --evaluate_every 150 \
      --seeds 3 --base-seeds 3 --train F --dev F --test F

It takes 100 minutes on 2 CPU cores. Expected (experiments/results/decoders-text): a perplexity of
247.2 ± 1.8 for base, 233.6 ± 1.3 for differential attention, 236.1 ± 3.1 for linear attention.
"""

from t2t_jax.study import Row, study


@study("Decoder-only and encoder-only models", columns="architecture steps", split="")
def language_model():
    return [
        Row("both", {}),
        Row("decoder, causal", dict(architecture="decoder")),
        Row("encoder, masked", dict(architecture="encoder")),
        Row("encoder, masked, 3 x", dict(architecture="encoder", steps=300_000)),
    ]


@study(
    "Parts of a language model on documents",
    columns="positions norm feed_forward h_kv d_c decoder_attention",
    split="test",
    base=dict(architecture="decoder", corpus="documents", N=8),
)
def language_models():
    norms = (
        dict(norm="rms_norm"),
        dict(norm_placement="post"),
        dict(norm_placement="parallel"),
        dict(norm="layer_norm_no_bias", feed_forward="relu_no_bias"),
    )
    softmax = dict(embeddings="untied"), dict(logit_cap=30.0), dict(z_loss=1e-4)
    mechanisms = ("local:w=64", "streaming:w=64", "linear", "retention", "gated_linear", "mamba2")
    return [
        Row("base"),
        *(Row("P", dict(positions=x)) for x in ("learned", "rotary", "relative", "alibi", "none")),
        *(Row("N", x) for x in norms),
        *(Row("F", dict(feed_forward=x)) for x in ("gelu", "geglu", "swiglu")),
        *(Row("S", x) for x in softmax),
        *(Row("K", x) for x in (dict(h_kv=1), dict(d_c=128), dict(d_c=256))),
        *(Row("A", dict(decoder_attention=x)) for x in (*mechanisms, "delta", "gated_delta")),
        *(
            Row("H", dict(decoder_attention=f"{x},scaled_dot_product"))
            for x in ("local:w=64", "gated_linear", "mamba2", "gated_delta")
        ),
    ]


@study(
    "Attention mechanisms as decoders of documents",
    columns="decoder_attention",
    split="test",
    base=dict(architecture="decoder", corpus="documents", N=8),
)
def decoders():
    mechanisms = (
        "dot_product; cosine; softmax1; sink; differential; forgetting; local:w=64; "
        "streaming:w=64; sparse_strided:l=16; linear; cosformer; retention; gated_linear; mamba2; "
        "delta; gated_delta"
    )
    return [Row("base"), *(Row("A", dict(decoder_attention=x)) for x in mechanisms.split("; "))]
