"""Hyper-parameters as a command line gives them: `--set [MODULE.]NAME=VALUE`, the same in every command.

The name of one that is a field of a config object is `cfg.heads`, of a config in that one `cfg.attn.heads`.
"""

import ast
import itertools
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ctxbench.base.errors import UsageError
from ctxbench.registry.entry import Entry
from ctxbench.registry.hyperparameter import as_lists, choices_of


def parse(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Hyper-parameters by module; those without a module stand under the empty name.

    A module is named by its key, by `path.py:Class`, by `package.module:Class` or by its class. A value is TOML, a
    tuple or None as Python has them, or a plain word; or several with commas between them, of which a setting gets the
    list. UsageError for a text of another form.
    """
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        target, equals, value = text.partition("=")
        module, dot, name = target.strip().rpartition(".")
        if not (equals and name) or (dot and not module):
            raise UsageError(f"--set {text!r} is not [module.]hyperparameter=value, such as steps=3 or ham_nmf.steps=3")
        _add(found.setdefault(module, {}), name, _value(value))
    return found


def of_configs(given: Mapping[str, Mapping[str, Any]], configs: Collection[str]) -> dict[str, dict[str, Any]]:
    """Settings by module, where `cfg.heads` of one of these configs is a setting, and its `cfg` is no module."""
    found: dict[str, dict[str, Any]] = {}
    for module, hparams in given.items():
        config = max((each for each in configs if f".{module}".endswith(f".{each}")), key=len, default="")
        own = found.setdefault(module.removesuffix(config).removesuffix("."), {})
        for name, value in hparams.items():
            _add(own, f"{config}.{name}" if config else name, value)
    return found


def flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a module, in which a table of a config's fields is a setting for each: `cfg.heads`."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        inner = flat(value) if isinstance(value, Mapping) else {}
        found |= {f"{name}.{each}": own for each, own in inner.items()} if inner else {name: value}
    return found


def of_one_module(texts: Sequence[str], *names: str, configs: Collection[str] = ()) -> dict[str, Any]:
    """The hyper-parameters of the one module that a command is about, which has these names. UsageError for others.

    `configs` are its arguments whose fields are hyper-parameters.
    """
    found: dict[str, Any] = {}
    for module, hparams in of_configs(parse(texts), configs).items():
        if module and module not in names:
            raise UsageError(f"--set {module}.{next(iter(hparams))}: this command is about {names[0]}, not {module}")
        for name, value in hparams.items():
            _add(found, name, value)
    named = Counter(text.partition("=")[0].strip().rpartition(".")[2] for text in texts)
    for name, value in found.items():
        if isinstance(value, list) and (several := named[name.rpartition(".")[2]]) > 1:
            raise UsageError(f"--set gives {name} {several} values; this command takes one")
        if isinstance(value, list):
            found[name] = value[0] if len(value) == 1 else tuple(value)
    return found


def combinations(hparams: Mapping[str, Any], entry: Entry | None = None) -> list[dict[str, Any]]:
    """Each choice of one value of every hyper-parameter that has a list of them, by what the module `entry` takes."""
    choices = [entry.choices(name, value) if entry else choices_of(value) for name, value in hparams.items()]
    return [dict(zip(hparams, chosen, strict=True)) for chosen in itertools.product(*choices)]


def as_suites(value: Any) -> Any:
    """A value as a suite has it, where a list is several values: a tuple, which is one, is a list in a list."""
    if isinstance(value, tuple):
        return [as_lists(value)]
    return [as_lists(each) for each in value] if isinstance(value, list) else value


def _add(hparams: dict[str, Any], name: str, value: Any) -> None:
    """Set a hyper-parameter, or add to the values that it has."""
    values = value if isinstance(value, list) else [value]
    if name in hparams:
        before = hparams[name] if isinstance(hparams[name], list) else [hparams[name]]
        values = [*before, *(each for each in values if each not in before)]
    hparams[name] = values if len(values) > 1 or isinstance(value, list) else values[0]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except RecursionError:
        raise UsageError(f"--set {text[:40]!r}... is nested too deeply") from None
    except ValueError:  # also for a number of thousands of digits, which is then refused as a word
        pass
    with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        values = ast.literal_eval(f"[{text}]")
        return values[0] if len(values) == 1 else values
    words = [word.strip() for word in text.split(",")]
    return words[0] if len(words) == 1 else [_value(word) for word in words]
