"""CTranslate2, on the weights that `t2t_jax` translates with."""

import os

import ctranslate2

from t2t_jax.bench import work
from t2t_jax.bench.contenders import serve


def translate(size, beam, directory, parallel=""):
    """A round by all cores at one batch after the other, or by a core a batch."""
    s = work.size(size, 2048)
    inter, intra = (os.cpu_count(), 1) if parallel else (1, 0)
    translator = ctranslate2.Translator(
        directory, compute_type="float32", inter_threads=inter, intra_threads=intra
    )
    names = [[f"▁{i}" for i in row] for row in work.sentences(s.V)]

    def round_():
        translator.translate_batch(
            names, beam_size=int(beam), length_penalty=0.6, max_batch_size=work.ROWS,
            min_decoding_length=work.LENGTH, max_decoding_length=work.LENGTH,
        )  # fmt: skip

    return round_


if __name__ == "__main__":
    serve({"translate": translate}, "ctranslate2")
