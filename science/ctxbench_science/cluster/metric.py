"""Slot: the place of a cluster that measured a case, whose environment `run.json` has."""

from ctxbench.model.metric import Column, Metric

METRIC = Metric(
    name="cluster",
    order=900,
    about="which slot of a cluster measured a case",
    columns=[Column("slot", str)],
    quantities=[],
    asked_for=False,
    default=False,
)
