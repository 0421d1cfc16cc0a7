"""Decoder-only and encoder-only models beside the encoder-decoder.

    launch/local.sh run language_model --preset hour       in miniature on the built-in corpus
    launch/local.sh run language_model --preset multi30k   on real text

The first takes 4 minutes on 2 CPU cores for each of --seeds. Expected with 3 seeds
(experiments/results/language_model-hour): a perplexity of 1.59 ± 0.01 for the encoder-decoder, 10.1
± 0.0 for the decoder and 55.9 ± 1.4 for the encoder, 35.6 ± 2.7 after three times the steps.

Every model predicts the target's subwords: the decoder (a causal language model) from those before,
the encoder (a masked language model) from those on both sides, the encoder-decoder from those
before and the source. The encoder's perplexity is a pseudo-perplexity: each token is masked in
turn, and the end mark is easy to guess. In a step, the encoder learns from the 15% of tokens that
are masked, the others from all tokens.
"""

from t2t_jax.study import Row, study


@study("Decoder-only and encoder-only models", columns="architecture steps", split="", V=41_100)
def language_model():
    return [
        Row("both", {}),
        Row("decoder, causal", dict(architecture="decoder")),
        Row("encoder, masked", dict(architecture="encoder")),
        Row("encoder, masked, 3 x", dict(architecture="encoder", steps=300_000)),
    ]
