"""The bound of a GPU program is that of its kernels, read from its text."""

import json

import pytest

from experiments.tools import programs, roofline
from experiments.tools.devices import DEVICES, Device, target
from t2t_jax.runs import workers

# Two kernels in a loop of three trips, a fused product, cuDNN's attention and a kernel of ours.
PROGRAM = """HloModule jit_step

%fused (a: bf16[8,16], b: bf16[16,4]) -> bf16[8,4] {
  %a = bf16[8,16]{1,0} parameter(0)
  %b = bf16[16,4]{1,0} parameter(1)
  ROOT %dot.1 = bf16[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (x: (s32[], f32[10])) -> (s32[], f32[10]) {
  %x = (s32[], f32[10]{0}) parameter(0)
  %n = s32[] get-tuple-element(%x), index=0
  %y = f32[10]{0} get-tuple-element(%x), index=1
  %add.2 = s32[] fusion(%n), kind=kLoop, calls=%one
  %scale.2 = f32[10]{0} fusion(%y), kind=kLoop, calls=%two, metadata={op_name="jit(step)/mul"}
  ROOT %out = (s32[], f32[10]{0}) tuple(%add.2, %scale.2)
}

ENTRY %main (p: bf16[8,16], q: bf16[16,4], h: bf16[2,6,3,8], s: f32[10]) -> bf16[8,4] {
  %p = bf16[8,16]{1,0} parameter(0)
  %q = bf16[16,4]{1,0} parameter(1)
  %h = bf16[2,6,3,8]{3,2,1,0} parameter(2)
  %s = (s32[], f32[10]{0}) parameter(3)
  %gemm.1 = bf16[8,4]{1,0} fusion(%p, %q), kind=kCustom, calls=%fused, metadata={op_name="jit(step)/transpose(jvp(T.encode))/encoder_1/add_norm_feed_forward/feed_forward/dot_general"}
  %fmha.1 = (bf16[2,3,6,8]{3,1,2,0}, u8[0]{0}) custom-call(%h, %h, %h), custom_call_target="__cudnn$fmhaSoftmax", metadata={op_name="jit(step)/jvp(T.decode)/decoder_0/add_norm_attention/attention/attention.fused/fwd"}, backend_config={"mask_type": "PADDING_CAUSAL"}
  %ours.1 = f32[10]{0} custom-call(%q), custom_call_target="__gpu$xla.gpu.triton", metadata={op_name="jit(step)/jvp(log_sum_exp_1234_flops)/pallas_call"}
  %loop = (s32[], f32[10]{0}) while(%s), condition=%less, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %copy = bf16[8,4]{1,0} bitcast(%gemm.1)
}
"""  # noqa: E501


def test_bytes_products_and_trips_are_counted():
    found = {k.name: k for k in roofline.kernels(PROGRAM)}
    assert {name: k.times for name, k in found.items()} == {
        "gemm.1": 1, "fmha.1": 1, "ours.1": 1, "add.2": 3, "scale.2": 3,
    }  # fmt: skip
    assert found["gemm.1"].moved == 2 * (8 * 16 + 16 * 4 + 8 * 4)
    assert found["gemm.1"].flops == 2 * 8 * 16 * 4
    assert found["scale.2"].moved == 4 * 20
    assert found["scale.2"].flops == 0
    assert found["fmha.1"].flops == 2 * 2 * 2 * 3 * 6 * 6 * 8 // 2  # half of it, as it is causal
    assert found["ours.1"].flops == 1234
    assert {k.name: k.flops for k in roofline.kernels(PROGRAM, 3)}["ours.1"] == 3 * 1234


def test_a_kernel_takes_the_longer_of_its_bytes_and_its_products():
    device = Device("toy", bandwidth=100.0, peak=10.0, memory=1)
    total = roofline.bound(roofline.kernels(PROGRAM), device)
    gemm, fmha = max(448 / 100, 1024 / 10), max(4 * 2 * 288 / 100, 3456 / 10)
    ours, loop = max((128 + 40) / 100, 1234 / 10), 3 * (8 / 100 + 80 / 100)
    assert total.seconds == pytest.approx(gemm + fmha + ours + loop)
    assert total.kernels == 9
    parts = dict(roofline.by_part(roofline.kernels(PROGRAM), device))
    assert parts == pytest.approx(
        {
            "encoder/feed_forward, backward": gemm,
            "decoder/attention": fmha,
            "softmax and loss": ours,
            "optimizer": loop,
        }
    )


TUNED = """ENTRY %main (p: bf16[5,8,16], q: bf16[5,4,16]) -> (bf16[5,8,4], s8[64]) {
  %p = bf16[5,8,16]{2,1,0} parameter(0)
  %q = bf16[5,4,16]{2,1,0} parameter(1)
  ROOT %gemm = (bf16[5,8,4]{2,1,0}, s8[64]{0}) custom-call(%p, %q), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["2"],"rhs_contracting_dimensions":["2"],"lhs_batch_dimensions":["0"],"rhs_batch_dimensions":["0"]}}}
}
"""  # noqa: E501


def test_products_of_cublas_are_counted():
    (gemm,) = roofline.kernels(TUNED)
    assert gemm.flops == 2 * 5 * 8 * 4 * 16


SLICES = """%update (x: f32[100,8], y: f32[1,8], i: s32[]) -> f32[100,8] {
  %x = f32[100,8]{1,0} parameter(0)
  %y = f32[1,8]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %flat = f32[100,1,8]{2,1,0} bitcast(%x)
  %row = f32[1,1,8]{2,1,0} bitcast(%y)
  %dus = f32[100,1,8]{2,1,0} dynamic-update-slice(%flat, %row, %i, %i, %i)
  ROOT %same = f32[100,8]{1,0} bitcast(%dus)
}

%take (u: f32[100,8], j: s32[], v: f32[1,8]) -> f32[1,8] {
  %u = f32[100,8]{1,0} parameter(0)
  %j = s32[] parameter(1)
  %v = f32[1,8]{1,0} parameter(2)
  %ds = f32[1,8]{1,0} dynamic-slice(%u, %j, %j), dynamic_slice_sizes={1,8}
  ROOT %sum = f32[1,8]{1,0} add(%ds, %v)
}

ENTRY %main (a: f32[100,8], b: f32[1,8], n: s32[]) -> f32[100,8] {
  %a = f32[100,8]{1,0} parameter(0)
  %b = f32[1,8]{1,0} parameter(1)
  %n = s32[] parameter(2)
  %taken = f32[1,8]{1,0} fusion(%a, %n, %b), kind=kLoop, calls=%take
  ROOT %put = f32[100,8]{1,0} fusion(%a, %taken, %n), kind=kLoop, calls=%update
}
"""


def test_of_an_array_that_is_sliced_or_updated_the_slice_counts():
    taken, put = roofline.kernels(SLICES)
    assert taken.moved == 3 * 32 + 4  # the slice, what is added to it, the sum, and the index
    assert put.moved == 2 * 32 + 4  # the update is read and written


def test_a_target_describes_its_device():
    text = target("h200")
    assert f"memory_bandwidth: {int(DEVICES['h200'].bandwidth)}" in text
    assert "cuda_compute_capability { major: 9 }" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "pip install -e '.[cuda]'"),
        (["--device", "v5e"], "pip install -e '.[tpu]'"),
        (["--device", "v5e", "--chips", "3"], "choose one of 1, 4, 8, 16, 64, 256."),
    ],
)
def test_what_cannot_be_compiled_is_refused(words, message, monkeypatch, capsys):
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        programs.parse(words)
    assert message in capsys.readouterr().err


# A TPU's program: a product written as a convolution, whose second operand a copy brings into
# vector memory, and a batched product, whose batch is an axis of the window.
TPU = """HloModule jit_step

%fused (a: bf16[8,16], b: bf16[16,4]) -> bf16[8,4] {
  %a = bf16[8,16]{1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[16,4]{1,0:T(8,128)(2,1)S(1)} parameter(1)
  ROOT %convolution.1 = bf16[8,4]{1,0:T(8,128)(2,1)} convolution(%a, %b), dim_labels=bf_io->bf
}

%batched (c: bf16[3,8,16], d: bf16[3,16,5]) -> bf16[3,8,5] {
  %c = bf16[3,8,16]{2,1,0:T(8,128)(2,1)} parameter(0)
  %d = bf16[3,16,5]{2,1,0:T(8,128)(2,1)} parameter(1)
  ROOT %convolution.2 = bf16[3,8,5]{2,1,0:T(8,128)(2,1)} convolution(%c, %d), window={size=3 stride=2 lhs_dilate=3}, dim_labels=0bf_0io->0bf
}

%padded (e: bf16[1,8,16], f: bf16[4,16,5]) -> bf16[4,8,5] {
  %e = bf16[1,8,16]{2,1,0:T(8,128)(2,1)} parameter(0)
  %f = bf16[4,16,5]{2,1,0:T(8,128)(2,1)} parameter(1)
  ROOT %convolution.3 = bf16[4,8,5]{2,1,0:T(8,128)(2,1)} convolution(%e, %f), window={size=4 pad=3_3 rhs_reversal=1}, dim_labels=0bf_0io->0bf
}

%less (x: (s32[], f32[10])) -> pred[] {
  %seven = s32[]{:T(128)} constant(7)
  %x = (s32[]{:T(128)}, f32[10]{0:T(128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%x), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %seven), direction=LT
}

%body (x: (s32[], f32[10])) -> (s32[], f32[10]) {
  %x.2 = (s32[]{:T(128)}, f32[10]{0:T(128)}) parameter(0)
  %y = f32[10]{0:T(128)} get-tuple-element(%x.2), index=1
  ROOT %turn = (s32[]{:T(128)}, f32[10]{0:T(128)}) fusion(%x.2), kind=kLoop, calls=%two
}

ENTRY %main (p: bf16[8,16], q: bf16[16,4], c: bf16[3,8,16], d: bf16[3,16,5]) -> bf16[8,4] {
  %p = bf16[8,16]{1,0:T(8,128)(2,1)} parameter(0)
  %q = bf16[16,4]{1,0:T(8,128)(2,1)} parameter(1)
  %c = bf16[3,8,16]{2,1,0:T(8,128)(2,1)} parameter(2)
  %d = bf16[3,16,5]{2,1,0:T(8,128)(2,1)} parameter(3)
  %e = bf16[1,8,16]{2,1,0:T(8,128)(2,1)} parameter(4)
  %f = bf16[4,16,5]{2,1,0:T(8,128)(2,1)} parameter(5)
  %copy-start.1 = (bf16[16,4]{1,0:T(8,128)(2,1)S(1)}, bf16[16,4]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) copy-start(%q)
  %copy-done.1 = bf16[16,4]{1,0:T(8,128)(2,1)S(1)} copy-done(%copy-start.1)
  %slice-start.1 = ((bf16[3,8,16]{2,1,0}), bf16[1,8,16]{2,1,0:S(1)}, s32[]{:S(2)}) slice-start(%c), slice={[0:1], [0:8], [0:16]}
  %product.1 = bf16[8,4]{1,0:T(8,128)(2,1)S(1)} fusion(%p, %copy-done.1), kind=kOutput, calls=%fused
  %product.2 = bf16[3,8,5]{2,1,0:T(8,128)(2,1)} fusion(%c, %d), kind=kOutput, calls=%batched
  %product.3 = bf16[4,8,5]{2,1,0:T(8,128)(2,1)} fusion(%e, %f), kind=kOutput, calls=%padded
  %loop.1 = (s32[]{:T(128)}, f32[10]{0:T(128)}) while(%s), condition=%less, body=%body
  ROOT %end = bf16[8,4]{1,0:T(8,128)(2,1)} copy(%product.1)
}
"""  # noqa: E501


def test_vector_memory_costs_nothing_and_products_are_convolutions():
    found = {k.name: k for k in roofline.kernels(TPU)}
    assert {name: k.flops for name, k in found.items() if k.flops} == {
        "product.1": 2 * 8 * 16 * 4,
        "product.2": 2 * 3 * 8 * 16 * 5,
        "product.3": 2 * 4 * 8 * 16 * 5,
    }
    assert {name: k.moved // 2 for name, k in found.items()} == {
        "copy-start.1": 16 * 4,
        "slice-start.1": 8 * 16,
        "product.1": 8 * 16 + 8 * 4,  # as its root is in main memory
        "product.2": 3 * (8 * 16 + 16 * 5 + 8 * 5),
        "product.3": 8 * 16 + 4 * (16 * 5 + 8 * 5),
        "turn": 2 * (4 + 40) // 2,
        "end": 8 * 4,
    }
    assert found["turn"].times == 7


def test_stored_bounds_were_made_by_the_kernels_of_the_steps():
    steps, plain = (
        json.loads((programs.RESULTS / f"compile-h100{x}.json").read_text())["steps"]
        for x in ("", "-plain")
    )
    for size, step in steps.items():
        assert step["ms"] < plain[size]["ms"]
        assert step["gib"] < plain[size]["gib"]


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, ["0", "1", "10"]), ("3,5", ["3", "5"]), ("", [])]
)
def test_gpus_are_those_of_the_environment_or_of_the_machine(
    visible, expected, monkeypatch, tmp_path
):
    for name in ("nvidia0", "nvidia10", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert workers.gpus(tmp_path) == expected


@pytest.mark.parametrize(
    ("n", "shares", "fraction"),
    [
        (1, ["3,5,6,7"], None),
        (2, ["3,6", "5,7"], "0.90"),
        (4, list("3567"), "0.90"),
        (6, [*"3567", "3", "5"], "0.45"),
    ],
)
def test_every_worker_has_gpus_of_its_own(n, shares, fraction, monkeypatch):
    monkeypatch.setattr(workers.os, "sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr(workers.threading.Thread, "start", lambda self: None)
    for i, share in enumerate(shares):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6,7")
        monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
        workers.set_up_worker(f"{i}/{n}")
        assert workers.os.environ["CUDA_VISIBLE_DEVICES"] == share
        assert workers.os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None) == fraction


@pytest.mark.parametrize("name", programs.BENCHES)
def test_the_options_of_the_stored_programs_exist(name, monkeypatch):
    monkeypatch.setattr(programs, "find_spec", lambda name: True)
    assert programs.name_of(programs.parse(programs.BENCHES[name].split())) == name
    assert (programs.RESULTS / f"{name}.json").exists()
