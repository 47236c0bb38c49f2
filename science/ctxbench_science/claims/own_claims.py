"""The claims of a person's own suite: the `CLAIMS` of NAME.py beside NAME.toml; a failure in it is a sentence.

They are decided when the run ends, and kept in its run.json: who reads a run folder runs none of its code.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctxbench.base import disk
from ctxbench.base.errors import ModuleCodeError, UsageError, is_interrupt
from ctxbench.model.read_suite import code_beside
from ctxbench.registry.load import import_source
from ctxbench.results.run_folder import RunFolder
from ctxbench.results.run_meta import StoredClaim
from ctxbench_science.claims.findings import Claim, ClaimVerdict, Finding, Missing, Rows

NAME = "CLAIMS"


def decided(folder: RunFolder) -> dict[str, Any]:
    """For `run.json`: what a run says of its own suite's claims. UsageError as `own_claims`."""
    title = (folder.meta.get("definition") or {}).get("title", "")
    claims = own_claims(folder.meta.get("suite_file") or {}, title)
    rows = Rows.of_run(folder.rows()) if claims else Rows([])
    return {"claims": [stored(claim, rows).model_dump() for claim in claims]}


def stored(claim: Claim, rows: Rows) -> StoredClaim:
    """A claim with what the rows of a run say of it."""
    verdict, found = claim.judge(rows)
    return StoredClaim(
        claim=claim.text, criterion=claim.criterion, verdict=str(verdict), found=found, proxy=claim.proxy
    )


def own_claims(suite_file: Mapping[str, Any], title: str) -> Sequence[Claim]:
    """The claims beside the suite file that a run names, which must still have this title; none if there are none.

    A file beside it that binds no `CLAIMS` is not run. UsageError for one that fails, or whose `CLAIMS` are no claims.
    """
    suite = Path(suite_file.get("file") or "")
    file = code_beside(suite) if suite.name else suite
    if not (suite.is_file() and file.is_file() and _binds_claims(file)):
        return ()
    if disk.read_toml(suite).get("title") != title:
        return ()
    claims = getattr(import_source(str(file)), NAME, None)
    if not isinstance(claims, list | tuple):
        raise UsageError(f"{file}: {NAME} is no list of ctxbench_science.claims.findings.Claim")
    for number, claim in enumerate(claims, 1):
        if not (isinstance(claim, Claim) and isinstance(claim.text, str) and isinstance(claim.criterion, str)):
            raise UsageError(
                f"{file}: entry {number} of {NAME} is no ctxbench_science.claims.findings.Claim with a text and a "
                "criterion"
            )
    return [replace(claim, decide=_guarded(claim, file)) for claim in claims]


def _binds_claims(file: Path) -> bool:
    """True if the file, which may be that of the suite's module, binds the name; it is not run for that."""
    try:
        tree = ast.parse(disk.read_bytes(file), str(file))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no Python file: {error}") from None
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return NAME in names | {each.asname or each.name for each in ast.walk(tree) if isinstance(each, ast.alias)}


def _guarded(claim: Claim, file: Path) -> Callable[[Rows], Finding]:
    """Decision function of the claim. UsageError where that fails, or gives no finding."""

    def decide(rows: Rows) -> Finding:
        try:
            found = claim.decide(rows)
        except BaseException as error:
            if isinstance(error, Missing) or is_interrupt(error):
                raise
            raise ModuleCodeError(str(file), error, f"deciding the claim {claim.text!r} of") from error
        if not (isinstance(found, Finding) and isinstance(found.verdict, ClaimVerdict) and isinstance(found.text, str)):
            raise UsageError(
                f"{file}: deciding the claim {claim.text!r} gives {found!r}, not what `measured`, `decided`, "
                "`for_each` and `tally` of ctxbench_science.claims.findings give"
            )
        return found

    return decide
