"""The place at which a block stands, and the FLOPs that versions of ultralytics until 2026 print for it there."""

from contextlib import suppress

from pydantic import Field

from ctxbench.model.conditions import SHAPE
from ctxbench.model.metric import Column, Measurement, Metric, Quantity, Settings, Unit


class AtPlaces(Settings):
    """The side of the image in pixels, without which no row has a place, and the names of inputs, as of 1x256x20x20."""

    place_side: int | None = Field(None, ge=1)
    place_names: dict[str, str] = Field({})


def count(measurement: Measurement) -> None:
    """Report a row's place, and what ultralytics adds for the block there, if the run is of places."""
    settings, case = AtPlaces.of(measurement.settings), measurement.case
    if settings.place_side is None or case.network:
        return
    from ctxbench.plugins.macs.tools.calls import Calls
    from ctxbench.plugins.macs.tools.reading import reading
    from ctxbench.plugins.macs.watch import UncountableError

    measurement.report({"place": settings.place_names.get(SHAPE.id_text(case.shape), "")})
    calls = Calls(measurement.on_meta[0], case.shape)
    with suppress(UncountableError):  # the count of MACs says why
        measurement.report({"place_flops": reading("thop-at-32@0.1.1").count_in(calls, settings.place_side)})


METRIC = Metric(
    name="place",
    order=37,
    about="FLOPs that ultralytics prints for a block at a place of a network",
    asked_for=False,
    default=False,
    columns=[Column("place", str), Column("place_flops", int)],
    quantities=[
        Quantity(
            key="place_flops",
            column="place_flops",
            title="FLOPs by ultralytics",
            unit=Unit("G", 10, 9),
            origin="counted",
            part="counts",
            noun="FLOPs by ultralytics",
            comparative="fewer",
            exact=True,
        )
    ],
    convention=(
        "FLOPs by ultralytics: as it added them up until 2026, twice thop's count at an image of 32 x 32 pixels times "
        "the ratio of the areas; thop sees layers alone, no products of two tensors, and no fused attention"
    ),
    count=count,
    settings=AtPlaces,
)
