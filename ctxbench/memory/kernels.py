"""What kernels hold inside themselves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
import torch

@dataclass
class Call:
    func: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: tuple[torch.Tensor, ...]
    out: tuple[torch.Tensor, ...] = ()
    name: str = ""
    packet: str = ""
    def __post_init__(self):
        self.name = str(self.func); self.packet = str(self.func.overloadpacket)

def nb(t): return t.numel()*t.element_size()

class Table:
    def __init__(self, device):
        self.device=device; self.counts_host = device=="cpu"
    def round(self, n):
        return n if self.device=="cpu" else -(-n//512)*512
    def inner(self, call):
        f = globals().get("_%s_%s"%(self.device, call.packet.replace("aten.","")))
        return (f(call) if f else ()), ""

def _cuda__softmax_backward_data(c):
    g,o=c.args[:2]
    return (nb(o),)+(() if g.is_contiguous() else (nb(o),))
def _cuda_bmm(c): return tuple(nb(t) for t in c.args if not (t.is_contiguous() or t.transpose(1,2).is_contiguous()))
def _cuda_convolution(c): return tuple(nb(t) for t in c.args[:2] if not t.is_contiguous())
def _cuda_convolution_backward(c): return tuple(nb(t) for t in c.args[:3] if not t.is_contiguous())
def _cuda_native_batch_norm_backward(c): return tuple(nb(t) for t in c.args[:2] if not t.is_contiguous())
