"""Memory of a card: whether a pass fits it, and what is in it beside the pass. Imports no torch."""

from collections.abc import Iterator
from dataclasses import dataclass

# What needs more than this share of a card's memory may not fit: ECC, the driver and CUDA's context take a part.
SURE_SHARE = 0.9
# Workspaces of cuBLAS, on compute capability 9.0: the forward pass's thread and autograd's. Others have a quarter.
CUBLAS_BYTES = 2 * 32 * 2**20


@dataclass(frozen=True)
class Card:
    """A device that memory is predicted for, by its data sheet: kind, and memory in GiB, None where it is not known."""

    name: str
    title: str
    backend: str
    memory_gib: float | None

    @property
    def room(self) -> float | None:
        """The bytes that a pass may surely take."""
        if self.memory_gib is None:
            return None
        return SURE_SHARE * self.memory_gib * 2**30 - (CUBLAS_BYTES if self.backend == "cuda" else 0)

    def fits(self, allocated: float, reserved: float) -> str:
        """Sentence on whether a pass fits that takes so many bytes, of so many that the allocator reserves for it."""
        if self.memory_gib is None:
            return f"The data sheet of {self.title} has no memory_gib: whether the pass fits is not known."
        size = self.memory_gib * 2**30
        may = "it may not fit" if reserved > SURE_SHARE * size else "it fits"
        fits = "it does not fit" if allocated > size else may
        if allocated <= SURE_SHARE * size < reserved:
            fits += (
                ", since as much would be reserved; before it fails, PyTorch gives back what it keeps free, and goes on"
            )
        predicted = "Its blocks are predicted for CUDA from compute capability 8.0 on, not for one card."
        return f"{self.title} has {size / 2**20:,.0f} MiB: {fits}. {predicted}"

    def beside(self, optimizer: str) -> Iterator[str]:
        """Sentences on what the predicted memory does not hold."""
        if self.backend != "cuda":
            return
        yield (
            f"Workspaces in addition: up to {CUBLAS_BYTES / 2**20:,.0f} MiB of cuBLAS, for two threads (PyTorch's "
            "cuda/CublasHandlePool.cpp); those of other libraries are below."
        )
        yield (
            f"CUDA's context comes on top: not predicted, it depends on the driver; {1 - SURE_SHARE:.0%} of the card "
            "is left for it and for ECC (assumed)."
        )
        if not optimizer:
            yield "An optimizer's state comes on top: --optimizer adamw counts it."
