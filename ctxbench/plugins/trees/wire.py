"""The cases of a source tree, as its process lists them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ctxbench.model.case import Case


@dataclass(frozen=True, slots=True)
class ListedCase:
    """A case and the file that its module comes from."""

    case: Case
    file: str


@dataclass(frozen=True, slots=True)
class Cases:
    """The cases of a suite in one source tree; `missing` says why a module has none, `foreign` are files of the other
    tree.

    Of `without_class`, the file is there and the class is not; the code of the `raising` ones fails where it is loaded.
    """

    cases: Sequence[ListedCase]
    missing: Mapping[str, str]
    foreign: Sequence[str]
    without_class: Sequence[str] = ()
    raising: Sequence[str] = ()
