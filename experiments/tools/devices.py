"""Accelerators that programs can be compiled for without having them, and limits of their speed.

Bandwidths and peaks are taken from the manufacturers' data sheets.
"""

import os
from typing import Any, NamedTuple


class Device(NamedTuple):
    """One device.

    Attributes:
      bandwidth: bytes a second between its memory and its cores.
      peak: dense bfloat16 FLOP/s.
      memory: bytes.
      platform: gpu (of the Hopper generation) or tpu.
      package: the Python package that compiles for it, which the extra `extra` installs.
    """

    kind: str
    bandwidth: float
    peak: float
    memory: int
    platform: str = "gpu"
    package: str = "jax_cuda13_plugin"
    extra: str = "cuda"


DEVICES = {
    "h100": Device("NVIDIA H100 80GB HBM3", 3_352_320_000_000, 989e12, 84_929_347_584),
    "h200": Device("NVIDIA H200", 4_800_000_000_000, 989e12, 150_754_820_096),
    "v5e": Device("TPU v5e", 819e9, 197e12, 17_179_869_184, "tpu", "libtpu", "tpu"),
}
SLICES = {1: "2x2", 4: "2x2", 8: "2x4", 16: "4x4", 64: "8x8", 256: "16x16"}  # TPU chips: topology

_TARGET = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: {memory}
  cuda_compute_capability {{ major: 9 }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 13 minor: 0 patch: 0 }}
device_description_str: "{kind}"
"""


def target(name: str) -> str:
    """The description of a GPU that XLA's compiler takes, in text format."""
    d = DEVICES[name]
    return _TARGET.format(bandwidth=int(d.bandwidth), memory=d.memory, kind=d.kind)


def without_devices() -> None:
    """Sets up JAX to compile for devices that are not present, before it looks for devices."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    # Kernels cannot be tuned without a device.
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"
    os.environ |= {"XLA_FLAGS": flags, "TPU_SKIP_MDS_QUERY": "1"}


def described(name: str, chips: int = 1) -> list[Any]:
    """JAX devices to compile for; no program can run on them.

    Args:
      chips: number of devices; of TPUs, a key of SLICES.
    """
    from jax.experimental import topologies

    if DEVICES[name].platform == "tpu":
        slice_ = topologies.get_topology_desc(f"{name}:{SLICES[chips]}", platform="tpu")
        return list(slice_.devices)[:chips]
    topology = topologies.get_topology_desc(
        name, platform="cuda", target_config=target(name), topology=f"1x{chips}x1"
    )
    return list(topology.devices)
