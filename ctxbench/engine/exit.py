"""Exit of a process that was to perform a task, in the words of a row and of a sentence."""

from dataclasses import dataclass

from ctxbench.base.notes import Note
from ctxbench.model.failures import NO_THREAD, lacks_threads, last_line, signal_name


@dataclass(frozen=True)
class Exit:
    """Exit of a child: exit code, signal that killed it (0: none), whether it ran out of time, last output.

    With `early` it left before its task was done. `notes` tell what it did besides its task.
    """

    code: int
    signal: int
    timed_out: bool
    output: str
    early: bool = False
    notes: tuple[Note, ...] = ()

    @property
    def unexpected_exit(self) -> str:
        """Unexpected end, as a clause that follows a name; "" if the task was done."""
        if self.signal:
            return f"was killed by {signal_name(self.signal)}; {last_line(self.output)}"
        if self.code or self.early:
            return f"ended its process with exit code {self.code}; {last_line(self.output)}"
        return ""

    def status(self, timeout_s: float, doing: str, kernel_killed: bool) -> tuple[str, str]:
        """Status and sentence of a row whose child reported no failure of its own."""
        if self.timed_out:
            return "timeout", f"still in {doing} after {timeout_s:g} s"
        if kernel_killed and signal_name(self.signal) == "SIGKILL":
            return "oom", f"killed in {doing} by the kernel, which was out of memory"
        if self.signal:
            return "crashed", f"killed in {doing} by {signal_name(self.signal)}; {last_line(self.output)}"
        if (self.code or self.early) and lacks_threads(self.output):
            return "crashed", f"{NO_THREAD} in {doing}; {last_line(self.output)}"
        if self.code or self.early:
            return "crashed", f"the process ended in {doing} with exit code {self.code}; {last_line(self.output)}"
        return "ok", ""


# A process that did its task, or went on to the next.
WENT_ON = Exit(0, 0, False, "")
