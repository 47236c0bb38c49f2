"""Python runs this first in each process that a test starts: the machine of the tests takes the real one's place, its
processor is capped, and another system takes the place of Linux.
"""

import contextlib
import os

if "CTXBENCH_TEST_CPU" in os.environ:
    import processors

    processors.cap()
if "CTXBENCH_TEST_SYSTEM" in os.environ:
    import other_systems

    other_systems.hide()
if "CTXBENCH_TEST_MACHINE" in os.environ:
    with contextlib.suppress(ImportError):  # an interpreter without ctxbench
        import machines

        machines.take_place()
