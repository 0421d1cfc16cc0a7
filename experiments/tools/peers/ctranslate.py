"""CTranslate2, with weights exported from this project."""

import os

import ctranslate2
from serve import serve

from t2t_jax.bench import workload


def translate(size, beam, directory, parallel=""):
    """Returns a round; all cores share each batch or, if parallel, each core has its own."""
    w = workload.workload(size, 2048)
    inter, intra = (os.cpu_count(), 1) if parallel else (1, 0)
    translator = ctranslate2.Translator(
        directory, compute_type="float32", inter_threads=inter, intra_threads=intra
    )
    sources = [[f"▁{i}" for i in row] for row in workload.sentences(w.V)]

    def run_round():
        translator.translate_batch(
            sources, beam_size=int(beam), length_penalty=0.6, max_batch_size=workload.ROWS,
            min_decoding_length=workload.LENGTH, max_decoding_length=workload.LENGTH,
        )  # fmt: skip

    return run_round


if __name__ == "__main__":
    serve({"translate": translate}, "ctranslate2")
