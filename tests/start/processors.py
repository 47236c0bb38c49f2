"""The processor that tests run on: its instruction sets are capped, so that no number depends on this machine's."""

import os
from pathlib import Path

# Names one of CAPS, in this process and in all that it starts.
VARIABLE = "CTXBENCH_TEST_CPU"
# By name: the instruction set that the processor must have, and what keeps oneDNN, PyTorch and MKL to it.
CAPS = {
    "sse41": ("sse4_1", {"ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}),
    "avx2": ("avx2", {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}),
    "avx512": ("avx512bw", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "ATEN_CPU_CAPABILITY": "avx512"}),
    "none": ("", {}),
}
SETTINGS = {name for _, settings in CAPS.values() for name in settings}


def within_reach() -> list[str]:
    """The caps that this processor can be held to; an ARM processor has none of these instruction sets."""
    try:
        flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        flags = ""
    return [name for name, (needed, _) in CAPS.items() if not needed or needed in flags.split()]


def usual() -> str:
    """The cap of tests for which nobody has chosen one."""
    return "avx2" if "avx2" in within_reach() else "none"


def cap() -> None:
    """Hold this process, before it imports torch, and all that it starts to the cap that the environment names."""
    name = os.environ.setdefault(VARIABLE, usual())
    for setting in SETTINGS:
        os.environ.pop(setting, None)
    os.environ.update(CAPS[name][1])
