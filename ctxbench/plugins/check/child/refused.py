"""References of a file that may not be called."""

from pathlib import Path

from ctxbench.registry.load import import_maker
from ctxbench.registry.reference import Reference
from ctxbench.registry.trust import RefusedReference


def refused(references: list[str], said_by: str) -> str:
    """Reason why one of these references may not be called because a file says it; "" if all may, or are not there."""
    for each in references:
        try:
            import_maker(Reference.read(each, Path(said_by)))
        except RefusedReference as error:
            return str(error)
        except Exception:  # told as the failure of its case
            pass
    return ""
