"""Hyper-parameters as a command line gives them: `--set [MODULE.]NAME=VALUE`, the same in every command."""

import tomllib
from collections.abc import Sequence
from typing import Any

from ctxbench.errors import UsageError


def parse(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Hyper-parameters by module; those without a module stand under the empty name.

    A module is named by its key, by `path.py:Class`, by `package.module:Class` or by its class. A value is TOML, or a
    plain word. UsageError for a text of another form.
    """
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        target, equals, value = text.partition("=")
        module, dot, name = target.strip().rpartition(".")
        if not (equals and name) or (dot and not module):
            raise UsageError(f"--set {text!r} is not [module.]hyperparameter=value, such as steps=3 or ham_nmf.steps=3")
        found.setdefault(module, {})[name] = _value(value)
    return found


def of_one_module(texts: Sequence[str], *names: str) -> dict[str, Any]:
    """The hyper-parameters of the one module that a command is about, which has these names. UsageError for others."""
    found: dict[str, Any] = {}
    for module, hparams in parse(texts).items():
        if module and module not in names:
            raise UsageError(f"--set {module}.{next(iter(hparams))}: this command is about {names[0]}, not {module}")
        found |= hparams
    return found


def class_name(reference: str) -> str:
    """The class that a reference such as `path.py:Class` ends with."""
    return reference.rpartition(":")[2]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()
