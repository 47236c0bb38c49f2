"""The dispatch-mode tracker: every block that a pass allocates, from its allocation to its release."""

import weakref

import torch
from torch import nn
from torch.autograd.function import BackwardCFunction
from torch.utils._pytree import tree_leaves

from ctxbench.base.call_sites import CallSite
from ctxbench.meta.calls import Operation, Writer
from ctxbench.meta.recorder import Recorder, tensors_in
from ctxbench.meta.watch import OperatorCall
from ctxbench.plugins.memory.convention import BY_VALUES, UnpredictableError
from ctxbench.plugins.memory.kernel_rules import Call
from ctxbench.plugins.memory.kernels import CHANGED, INPUT_KEPT, THEN, MemoryRules
from ctxbench.plugins.memory.profile import Allocation, Category, KeptInput, MemoryStep, Phase, Since2020
from ctxbench.plugins.memory.training import OPTIMIZER

# Dtypes of an index that chooses by value.
MASKS = (torch.bool, torch.uint8)
# What PyTorch's backward formulas call in place on a map that they have just made, unless a dispatch mode is on or the
# tensors are on meta (torch/csrc/autograd/FunctionsManual.cpp, areAnyTensorSubclassLike).
FORMULAS_IN_PLACE = frozenset(
    f"aten.{name}" for name in ("scatter", "scatter_add", "index_add", "index_fill", "index_put", "masked_fill", "put")
)


class Tracker(Recorder):
    """Counts the bytes in memory during one pass on meta tensors, as they would be on the device of `table`.

    A weak reference on each storage shows when it is freed, so a block lives as long as anything refers to it: a Python
    variable, a saved tensor, a gradient. What a kernel allocates for itself comes from the table; an operator that the
    table does not know is added to `marks`.
    """

    def __init__(self, table: MemoryRules, module: nn.Module) -> None:
        super().__init__(module)
        self.table = table
        self.in_backward = self.in_optimizer = False
        self.writer = Writer(lambda tensor: tensor.is_meta)
        self.allocations: list[Allocation] = []
        self.timeline: list[MemoryStep] = []
        self.marks: dict[str, str] = {}
        self.unfused: dict[str, str] = {}  # line of an attention without a fused kernel -> the reason
        self.scans: dict[str, int] = {}  # line of a scan -> bytes that a fused kernel would move
        self.replaced = False  # other operators have run than the module's own
        self.live_bytes = 0
        self._blocks: dict[int, Allocation | None] = {}  # storage -> its block; None: not counted
        self._places: dict[Allocation, int] = {}  # of each block among the allocations
        self.adds_in_place = False  # inside functional.linear, or attention without a fused kernel
        self._node: tuple[str, int] | None = None  # the autograd node that is running
        self._node_reads: list[Allocation | None] = []  # what its operators have read
        self._node_step = 0  # its first step
        self.since_2020 = Since2020()
        self._kept: dict[int, KeptInput] = {}  # storage of an output -> the input that was kept beside it
        self._read: KeptInput | None = None  # that of the output which the last call's backward read
        # A call that may really be in place: its argument, its output, whether it sums gradients.
        self._sum: tuple[Allocation, Allocation, bool] | None = None

    def add_weight(self, name: str, tensor: torch.Tensor) -> None:
        """Count a parameter or buffer from the start."""
        if self._key(tensor) not in self._blocks:
            self._register(tensor, "", "weights", self.places.of_weight(name))

    def add_state(self, tensor: torch.Tensor) -> None:
        """Count what an optimizer keeps from the step before."""
        if self.table.counts_host or tensor.is_meta:
            self._register(tensor, "", "optimizer state", OPTIMIZER)

    def ignore(self, tensor: torch.Tensor) -> None:
        """Leave a tensor that exists before the pass out of the count: the input."""
        self._blocks.setdefault(self._key(tensor), None)

    def add_host_number(self, tensor: torch.Tensor, op: str) -> None:
        """Count a number that autograd saved as a tensor on the host, where the host is the device."""
        if self._key(tensor) not in self._blocks:
            block = self._register(tensor, op, "saved for backward", self.place())
            block.saved_by = "number"

    def mark_saved(self, tensor: torch.Tensor, node: str) -> None:
        """Note that an autograd node saves a tensor for the backward pass."""
        block = self._blocks.get(self._key(tensor))
        if block is not None and block.category == "temporary":
            block.category = "saved for backward"
            block.saved_by = node

    def mark_kept(self, tensor: torch.Tensor) -> None:
        """Note that autocast keeps the cast of a weight."""
        block = self._blocks.get(self._key(tensor))
        if block is not None:
            block.by_autocast = True

    def note_unfused(self, reason: str) -> None:
        """Note why the attention that the module calls now takes no fused kernel."""
        self.unfused[str(self.place())] = reason

    def note_scan(self, arguments: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        """Note the bytes that one kernel would read and write for a scan, and another for its gradients."""
        read, written = (sum(each.nbytes for each in tree_leaves(some)) for some in (arguments, output))
        trained = output.requires_grad  # then read the same and the output's gradient, and write the arguments'
        line = str(self.place())
        self.scans[line] = self.scans.get(line, 0) + (read + written) * (1 + trained) + read * trained

    def mark_category(self, tensor: torch.Tensor, category: Category) -> None:
        """Set the category of a tensor's block, which is known only later in the pass."""
        block = self._blocks.get(self._key(tensor))
        if block is not None and block.category != "weights":
            block.category = category

    def finish(self) -> None:
        """After the pass: decide whether its last addition was in place."""
        self._settle_sum()
        self.replaced |= not self.runs_scans_once

    @property
    def phase(self) -> Phase:
        """The part of the pass that runs."""
        return "optimizer" if self.in_optimizer else "backward" if self.in_backward else "forward"

    def run(self, seen: OperatorCall) -> None:
        """Run a call, and count what it allocates."""
        self._settle_sum()
        if self._read:
            self._read.until, self._read = len(self.timeline), None
        call = Call(seen.func, seen.args, tensors_in((seen.args, seen.kwargs)), self.phase == "backward")
        self._refuse_data_dependent(call)
        self.replaced |= torch.is_inference_mode_enabled()  # which hands on composite operators whole
        place = seen.place
        self.timeline.append(MemoryStep(call.name, self.phase, 0, place=place))
        reads = [self._blocks.get(self._key(tensor)) for tensor in call.tensors]
        for block in reads:
            if block is not None:
                block.reads.append(len(self.timeline) - 1)
        self._note_node()
        seen.output = self.table.outputs(call, call.func(*seen.args, **seen.kwargs))
        call.out = tensors_in(seen.output)
        new = [block for tensor in call.out if (block := self._note(tensor, call.name, place)) is not None]
        step = self.timeline[-1]
        step.call = self.writer.operation(call.func, call.args, call.tensors, call.out)
        step.inner = self._inner(call)
        step.live_bytes = self.live_bytes + sum(step.inner)
        step.workspace = self.table.workspace_limit(call)
        if call.packet == "aten.add" and len(new) == 1:
            self._note_sum(call, new[0])
        self._node_reads += reads
        if call.packet in FORMULAS_IN_PLACE and len(new) == 1:
            self._note_in_place(reads[0], new[0])
        self._note_kept(call)

    def written(self, call: OperatorCall) -> Operation:
        """The call as plain data; of one that has run, what its step has."""
        if call.func is None:
            return Operation(call.name.replace("::", "."), tuple(call.args), tuple(call.args), ())
        return self.timeline[-1].call if call.is_whole else super().written(call)

    def _inner(self, call: Call) -> tuple[int, ...]:
        sizes, reason = self.table.inner(call)
        if reason and (call.tensors or call.out):
            self.marks[call.packet] = reason
        if self.table.device == "cuda" and call.operator in CHANGED:
            then, other = THEN.inner(call)
            self.since_2020.inner[len(self.timeline) - 1] = tuple(self.table.round(size) for size in then if size)
            self.since_2020.others |= bool(reason or other)
        return tuple(self.table.round(size) for size in sizes if size)

    @staticmethod
    def _key(tensor: torch.Tensor) -> int:
        return int(tensor.untyped_storage()._cdata)

    def _note_node(self) -> None:
        """Remember at which step an autograd node begins."""
        node = torch._C._current_autograd_node()
        running = None if node is None else (node.name(), node._sequence_nr())
        if running != self._node:
            self._node, self._node_reads, self._node_step = running, [], len(self.timeline) - 1
            if node is not None and node.name() in BY_VALUES:
                self.marks[node.name()] = "predicted by its formula for data that may hold zeros; other data take less"

    def _note(self, tensor: torch.Tensor, op: str, place: CallSite) -> Allocation | None:
        """Count an output's storage if it is new, or its growth if it was resized."""
        if tensor.device.type != "meta" and not self.table.counts_host:
            return None
        key = self._key(tensor)
        if key not in self._blocks:
            if not tensor.untyped_storage().nbytes():
                return None
            # with gradients on, the backward pass is recomputing a checkpointed part of the forward pass
            is_gradient = self.phase == "backward" and not torch.is_grad_enabled()
            category: Category = "gradient" if is_gradient else "temporary"
            return self._register(tensor, op, category, place)
        block = self._blocks[key]
        size = self.table.round(tensor.untyped_storage().nbytes())
        if block is not None and size != block.bytes:
            self.live_bytes += size - block.bytes
            block.bytes = size
        return None

    def _register(self, tensor: torch.Tensor, op: str, category: Category, place: CallSite) -> Allocation:
        storage = tensor.untyped_storage()
        key = storage._cdata
        size = self.table.round(storage.nbytes())
        dtype = str(tensor.dtype).removeprefix("torch.")
        born = max(len(self.timeline) - 1, 0)
        block = Allocation(size, tuple(tensor.shape), dtype, op, category, place, born)
        self._blocks[key] = block
        self._places[block] = len(self.allocations)
        self.allocations.append(block)
        self.live_bytes += size
        # weakly: a tracker has the model, whose own storages wait for this call
        weakref.finalize(storage, _free, weakref.ref(self), key, block).atexit = False
        return block

    def _note_sum(self, call: Call, total: Allocation) -> None:
        """Remember an addition that PyTorch does in place unless a dispatch mode is on.

        Where two branches meet, the engine adds the second gradient into the first if it has the last reference to it
        (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace), linear adds the bias into the product
        (aten/src/ATen/native/Linear.cpp), and attention without a fused kernel the mask into the logits
        (transformers/attention.cpp). Whether it was the last reference shows right after: the first block is then
        freed before the next operator.
        """
        if len(call.tensors) != 2 or call.tensors[0].device.type != "meta":
            return
        first = call.tensors[0]
        block = self._blocks.get(self._key(first))
        if call.in_backward:
            is_dense = torch.empty_like(first).stride() == first.stride()
            # the node's incoming gradient stays in memory until its outgoing ones are added
            is_shared = block in self._node_reads or block is self._blocks.get(self._key(call.tensors[1]))
            is_shared = is_shared or first._is_view()  # a view refers to its base
            is_shared = is_shared or self._is_of_formula(block, call)
            wanted = is_dense and not is_shared and block is not None and block.category == "gradient"
        else:
            wanted = self.adds_in_place
        if wanted and block is not None:
            self._sum = (block, total, call.in_backward)

    def _is_of_formula(self, first: Allocation | None, call: Call) -> bool:
        """Return whether an addition is a part of its node's formula, and not the engine's.

        The engine adds gradients of one shape. One that the same node has just made is added to another of it only
        where two of the node's gradients go to the same place.
        """
        if call.tensors[0].shape != call.tensors[1].shape:
            return True
        node = torch._C._current_autograd_node()
        if node is None or first is None or first.born < self._node_step:
            return False
        return len(set(node.next_functions)) == len(node.next_functions)

    def _note_in_place(self, first: Allocation | None, out: Allocation) -> None:
        """Remember a call that a formula of PyTorch makes in place; the node of a custom Function runs what it calls.

        Its argument is of this node; that it is not read again shows right after, as with a sum.
        """
        node = torch._C._current_autograd_node()
        is_formula = node is not None and not isinstance(node, BackwardCFunction) and not torch.is_grad_enabled()
        if is_formula and first is not None and first.born >= self._node_step and first.bytes == out.bytes:
            self._sum = (first, out, False)

    def _note_kept(self, call: Call) -> None:
        """Note an input that autograd kept, and the call whose backward reads the output beside it."""
        if call.packet in INPUT_KEPT and torch.is_grad_enabled() and call.tensors[0].requires_grad:
            one, output = (self._blocks.get(self._key(each)) for each in (call.tensors[0], call.out[0]))
            self._kept.pop(self._key(call.out[0]), None)
            if one and output:
                saved_by = call.name if one.category == "temporary" else ""
                kept = KeptInput(self._places[one], self._places[output], saved_by)
                self._kept[self._key(call.out[0])] = kept
                self.since_2020.kept.append(kept)
        if call.packet in INPUT_KEPT.values():
            self._read = self._kept.pop(self._key(call.tensors[1]), None)

    def _settle_sum(self) -> None:
        if self._sum is None:
            return
        (first, total, is_of_gradients), self._sum = self._sum, None
        step = len(self.timeline) - 1
        if first.died == step + 1:
            if is_of_gradients:
                self.since_2020.sums.append((step, self._places[first], self._places[total], total.bytes))
            first.died = step
            total.reused = True
            self.timeline[step].live_bytes -= total.bytes
            self.live_bytes += first.bytes - total.bytes
            total.bytes = first.bytes  # a view's gradient keeps its whole storage

    def place(self) -> CallSite:
        """The place of the code that runs now."""
        return OPTIMIZER if self.in_optimizer else super().place()

    def _refuse_data_dependent(self, call: Call) -> None:
        tags = call.func.tags
        dependent = torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags
        if call.packet == "aten.index":  # integers in an index are no mask: they set no shape
            dependent = any(tensor.dtype in MASKS for tensor in call.tensors[1:])
        if dependent and any(tensor.device.type == "meta" for tensor in call.tensors):
            raise UnpredictableError(
                f"{self.place()} reads a tensor's values ({call.packet}: .item(), a branch on a value, a mask that "
                "sets a shape); what it allocates depends on the data, so only a measurement can tell"
            )


def _free(reference: weakref.ReferenceType[Tracker], key: int, block: Allocation) -> None:
    tracker = reference()
    if tracker is not None:
        del tracker._blocks[key]
        block.died = len(tracker.timeline)
        tracker.live_bytes -= block.bytes
