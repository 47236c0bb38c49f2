"""A CUDA graph of one inference, replayed: the device's time without the host's."""

from typing import TYPE_CHECKING

from ctxbench.executions.base import Execution

if TYPE_CHECKING:
    from ctxbench.devices import Device
    from ctxbench.devices.clock import Step


class Graph(Execution):
    name = "graph"
    about = "a CUDA graph of one inference, replayed"
    order = 2
    modes = ("infer",)
    no_training = "a CUDA graph is captured of an inference only"
    no_memory = "a CUDA graph keeps its memory in a separate pool"
    no_error = "a CUDA graph replays the kernels of execution 'eager'; its numbers are the same"

    def step(self, step: "Step", device: "Device") -> "Step":
        return device.captured(step)


EXECUTION = Graph()
