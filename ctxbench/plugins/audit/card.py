"""`ctxbench.card`: the costs of blocks as a published table for a paper's supplement, which `audit` recounts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import api, registry
from ctxbench.base import disk
from ctxbench.base.errors import UsageError, unknown
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.engine.progress import Quiet
from ctxbench.model.conditions import Shape
from ctxbench.plugins.macs.tools import counters, full_names
from ctxbench.registry.reference import Reference
from ctxbench.results.run_folder import RunFolder
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module
    from ctxbench.model.case import Case


def card(
    modules: "Sequence[Module] | Module",
    shape: Shape,
    *,
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    counted_as: Sequence[str] | None = None,
    measured: str | Path | None = None,
    out: str | Path = "card.toml",
    progress: Quiet | None = None,
) -> Result[str]:
    """Write the costs of blocks into a file for a supplement, which `audit` recounts. Nothing is measured.

    Args:
        modules: The blocks.
        shape: Their input (B, C, H, W).
        hparams: Hyper-parameters by module, such as `{"ham_nmf": {"steps": 3}}`.
        counted_as: Counters whose figures it has, as in `show`; `all`: each that is known; default: the newest version
            of each.
        measured: A run folder with times of the blocks at this input, which it then has, with their intervals.
        out: The file.
        progress: Gets the progress.

    Returns:
        The text of the file.

    Raises:
        UsageError: For a wrong argument, a block that cannot be counted without data, and a run without the blocks.

    Example:
        >>> found = ctxbench.card("sa", (1, 64, 8, 8), counted_as=["fvcore"])
        >>> found.value.count("[rows")
        2
    """
    from ctxbench.plugins.audit import card_text
    from ctxbench.plugins.audit.function import counts_of

    disk.check_place(Path(out))
    tools = full_names(counted_as or counters())
    run = RunFolder.open(Path(measured)) if measured else None
    lines: list[str] = []
    with progress or Quiet() as shown, IsolatedLoader(static=True) as loader:
        cases = _cases(modules, shape, hparams or {})
        for number, (name, case) in enumerate(cases.items(), 1):
            shown.stage(f"[{number}/{len(cases)}] counting {name}")
            counts, missing = counts_of(loader, case, card_text.asked(tools))
            if "macs" in missing or not counts:
                raise UsageError(f"{name} cannot be counted: {missing.get('macs', 'it gives no count')}")
            lines += card_text.counted(name, case, tools, counts, missing)
            lines += card_text.measured(name, case, run) if run else ()
    text = "\n".join([card_text.head(cases, Path(out), run), *lines, ""])
    disk.write(Path(out), text, is_named=True)
    return Result(text, (f"wrote {out}; to recount it: ctxbench audit {out}",))


def _cases(
    modules: "Sequence[Module] | Module", shape: Shape, hparams: Mapping[str, Mapping[str, Any]]
) -> "dict[str, Case]":
    """The cases of blocks by their names, as a file can say them. UsageError for one that is no class of a file."""
    names = api.module_names(modules) or []
    if not names:
        raise UsageError("the card names no block")
    own = {name: {name, registry.get(name).key, ""} for name in names}
    for each in hparams:
        if not any(each in known for known in own.values()):
            raise unknown("block of this card", each, names)
    for name in names:
        if Reference.parse(name).is_object:
            raise UsageError(f"{name} is an object of this session, which a file cannot name; give path.py:Class")
    return {
        name: api.case_of(
            name, {key: value for of in known & hparams.keys() for key, value in hparams[of].items()}, shape=shape,
            device="meta",
        )
        for name, known in own.items()
    }  # fmt: skip
