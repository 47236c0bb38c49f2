"""Deployment of a module: what converters that run on this CPU make of it (asked for by name)."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import Field

from ctxbench.base import extras
from ctxbench.base.errors import unknown
from ctxbench.base.texts import listed
from ctxbench.model.case import Measure, Seconds
from ctxbench.model.messages import Doing
from ctxbench.model.metric import Column, Measurement, Metric, Quantity, RecordRow, Settings, Unit
from ctxbench.plugins.portable.found import Found, found_of
from ctxbench.plugins.portable.targets import TARGETS, try_target

NOT_ASKED = "not asked for"
# About how many seconds a conversion takes, with the start of its process, once its converter is imported.
EACH_S = 3.2


class Portable(Settings):
    """The targets that are tried, and the seconds that each may take."""

    portable_targets: list[str] = Field([*TARGETS], min_length=1)
    portable_timeout_s: Seconds = 120.0


def count(measurement: Measurement) -> None:
    """Report what each target makes of the module in float32, converted in a process of its own."""
    from ctxbench.plugins.portable.isolated import NoAnswer, isolated

    settings = Portable.of(measurement.settings)
    if wrong := [name for name in settings.portable_targets if name not in TARGETS]:
        raise unknown("target", wrong[0], TARGETS)
    found: dict[str, Found] = {}
    for name in [name for name in TARGETS if name in settings.portable_targets]:
        target = TARGETS[name]
        measurement.emit(Doing(f"portable: {target.title}"))
        if sentence := extras.lacking(target.title, target.extra):
            found[name] = Found("absent", reason=sentence)
            continue
        try:
            asked = (name, measurement.case, measurement.settings.seed)
            found[name] = isolated(try_target, *asked, limit_s=settings.portable_timeout_s)
        except NoAnswer as error:
            found[name] = Found("failed", reason=str(error))
    measurement.report(columns_of(found))


def columns_of(found: Mapping[str, Found]) -> dict[str, Any]:
    tried = [each for name, each in found.items() if each.status != "absent" and not TARGETS[name].rule]
    values: dict[str, Any] = {
        "portable": sum(each.status == "whole" for each in tried),
        "portable_tried": len(tried),
        "portable_versions": ", ".join(each.versions for each in tried if each.versions),
        "portable_found": json.dumps({name: each.plain for name, each in found.items()}),
    }
    for name in TARGETS:
        each = found.get(name, Found("absent", reason=NOT_ASKED))
        known = each.converted
        values |= {f"portable_{name}": len(each.outside)} if known else {f"portable_{name}_reason": each.sentence}
    return values


def imports(measure: Measure) -> list[str]:
    """The modules that the targets of a suite import, as far as their packages are there."""
    targets = [TARGETS[name] for name in Portable.of(measure).portable_targets if name in TARGETS]
    return [name for target in targets if not extras.lacking("", target.extra) for name in target.imports]


def beside_of(name: str) -> Callable[[RecordRow], str]:
    """Reader of a target's status, as `(4 parts)`."""
    return lambda row: f"({found_of(row)[name].short})"


def sentence(row: RecordRow) -> str:
    """Sentence on where a row's module runs whole, and on what keeps it from the other targets; "" if not asked for."""
    found = found_of(row)
    whole = [TARGETS[name].title for name, each in found.items() if each.status == "whole"]
    free = [TARGETS[name].title for name, each in found.items() if each.status == "rule" and not each.outside]
    parts = [f"whole in {listed(whole)}"] * bool(whole) + [f"no rule refuses it in {listed(free)}"] * bool(free)
    parts += [f"{TARGETS[name].title}: {each.sentence}" for name, each in found.items() if each.sentence]
    return f"can be deployed: {'; '.join(parts)}." if found else ""


METRIC = Metric(
    name="portable",
    order=87,
    about="where a module can be deployed: whole, in parts or refused, by converters that run on this CPU and rules",
    columns=[
        Column("portable", int),
        Column("portable_tried", int),
        Column("portable_versions", str),
        Column("portable_found", str, json=dict),
        *(Column(f"portable_{name}", int) for name in TARGETS),
        *(Column(f"portable_{name}_reason", str) for name in TARGETS),
    ],
    quantities=[
        Quantity(
            key="portable",
            column="portable",
            title="Whole in targets",
            unit=Unit(""),
            origin="measured",
            part="portable",
            noun="targets that take it whole",
            comparative="more",
            better="larger",
            method_column="portable_versions",
            beside=lambda row: f"of {row['portable_tried']}",
        ),
        *(
            Quantity(
                key=f"portable_{name}",
                column=f"portable_{name}",
                title=target.title,
                unit=Unit(""),
                origin="predicted" if target.rule else "measured",
                part="portable",
                noun=f"operators {'that rules refuse in' if target.rule else 'outside of'} {target.title}",
                better=None,
                exact=True,
                reason_column=f"portable_{name}_reason",
                beside=beside_of(name),
            )
            for name, target in TARGETS.items()
        ),
    ],
    convention=(
        "Whole in targets: how many of the targets tried take the module whole, in float32 and for this input; a "
        "target's column: operators that stay outside of its accelerator; Core ML is converted and not run; for "
        "LiteRT's GPU: operators that published rules refuse, not tried"
    ),
    default=False,
    count=count,
    settings=Portable,
    limit_s=lambda measure: len(Portable.of(measure).portable_targets) * Portable.of(measure).portable_timeout_s,
    takes_s=lambda measure: EACH_S * len(Portable.of(measure).portable_targets),
    imports=imports,
    sentence=sentence,
)
