"""The keys of `run.json` that readers rely on, and their types; a run that lacks one can be read, as far as it goes."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ctxbench.base.errors import UsageError
from ctxbench.model.published import Published
from ctxbench.model.suite_file import KEYS


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Gpu(_Part):
    name: str


class _Environment(_Part):
    """Facts that decide if two machines' measurements may be compared."""

    packages: dict[str, str | None] = {}
    gpus: list[_Gpu] = []
    driver: str | None = None
    cpu: str | None = None
    cpu_usable: int | None = None
    torch_threads: int | None = None
    time: str = ""
    malloc: dict[str, Any] | str | None = None


class _Sheet(_Part):
    title: str


_Keys: Any = create_model("_Keys", __base__=_Part, **KEYS)


class _Definition(_Keys, _Part):  # type: ignore[misc]  # plugins bring keys
    title: str = ""
    measure: dict[str, Any] = {}
    published: Published | None = None
    figures: list[dict[str, Any]] = []


class _Source(_Part):
    file: str
    sha256: str


class _Table(_Part):
    sha256: str
    rows: int


class _Counted(_Part):
    """The code that counted, where it is not the code that measured (`research/recount.py`)."""

    commit: str


class _Reused(_Part):
    cases: list[str]


class StoredClaim(_Part):
    """A claim of a suite with what the run says of it."""

    claim: str
    criterion: str
    verdict: str
    found: str
    proxy: bool = False


class _Meta(_Part):
    suite: str = ""
    state: str = ""
    command: str = ""
    static: bool = False
    counter: str = ""
    metrics: list[str] = []
    force: bool = False
    definition: _Definition | None = None
    suite_file: _Source | dict[str, None] | None = None
    sources: dict[str, _Source] | None = None
    imports: dict[str, dict[str, str]] = {}
    built: dict[str, str] = {}
    environment: _Environment | None = None
    continued_by: str = ""
    sheets: dict[str, _Sheet] | None = None
    candidates: list[str] = []
    broken: list[str] = []
    counted: _Counted | None = None
    reused: _Reused | None = None
    tables: dict[str, _Table] = {}
    claims: list[StoredClaim] = []


# What a run must tell to be compared with this machine, continued, or reused.
_FACTS = ("cpu", "cpu_usable", "driver", "gpus", "packages.torch", "torch_threads")
MACHINE = tuple(f"environment.{key}" for key in _FACTS)
CONTINUED = (*MACHINE, "suite", "definition.measure", "metrics", "counter", "static", "force")
REUSED = (*MACHINE, "state", "definition.measure", "metrics", "static")


def check_meta(meta: Mapping[str, Any], path: Path) -> None:
    """UsageError names the first key of `run.json` that has a value of another type, or lacks a part."""
    try:
        _Meta.model_validate(meta)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        wanted = problem["msg"].removeprefix("Input should be ").partition(" or instance")[0]
        what = "is missing" if problem["type"] == "missing" else f"is {repr(problem['input'])[:80]}, not {wanted}"
        if problem["type"] == "value_error":
            what = f"is wrong: {problem['msg'].removeprefix('Value error, ')}"
        raise UsageError(f"{path} is damaged: {key} {what}") from None


def require(meta: Mapping[str, Any], path: Path, keys: Iterable[str]) -> None:
    """UsageError names the first of these keys, with a dot before each part of one, that `run.json` lacks."""
    for key in keys:
        part: Any = meta
        for name in key.split("."):
            if not isinstance(part, Mapping) or name not in part:
                raise UsageError(f"{path} is damaged: {key} is missing")
            part = part[name]
