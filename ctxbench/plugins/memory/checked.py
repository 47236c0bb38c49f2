"""Versions and devices that the rules of kernels were compared with, and this machine's differences from them."""

import platform

import torch

# Minor versions of PyTorch under which the tests compared the CPU's rules with the profiler, to the byte.
CPU_VERSIONS = ("2.11", "2.12", "2.13", "2.14", "2.15")
# The version in whose sources CUDA's rules were read.
CUDA_VERSION = "2.13"
# Names of x86-64, by system.
PROCESSORS = ("x86_64", "AMD64")


def unchecked(device: str) -> list[str]:
    """Sentences, each on a reason why a prediction for this device may not hold under this PyTorch or machine."""
    version, machine = torch.__version__, platform.machine()
    if device != "cpu":
        if _minor(version) == CUDA_VERSION:
            return []
        return [f"The rules of CUDA's kernels were read in the sources of PyTorch {CUDA_VERSION}, not of {version}."]
    sentences = []
    if _minor(version) not in CPU_VERSIONS:
        tested = f"{CPU_VERSIONS[0]} to {CPU_VERSIONS[-1]}"
        sentences.append(f"The rules of the CPU's kernels were compared with PyTorch {tested}, not with {version}.")
    if machine not in PROCESSORS:
        sentences.append(f"The rules of the CPU's kernels were compared on x86-64 processors, not on {machine}.")
    return sentences


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
