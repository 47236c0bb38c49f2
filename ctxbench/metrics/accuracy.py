"""Accuracy of networks that hold a module, as papers print it: it needs data sets, so ctxbench does not measure it."""

from ctxbench.model.metric import Column, Metric, Quantity, Unit

METRIC = Metric(
    name="accuracy",
    order=90,
    about="mIoU of trained networks, as published; never measured here",
    columns=[Column(key, float) for key in ("miou", "miou_mean")],
    quantities=[
        Quantity(
            key=key,
            column=key,
            title=title,
            unit=Unit("%"),
            origin="published",
            part="accuracy",
            noun=f"{title}, as published",
            better=None,
        )
        for key, title in (("miou", "mIoU, best run"), ("miou_mean", "mIoU, mean of runs"))
    ],
    convention="mIoU: of a trained network with the module, as published; not measured here",
    asked_for=False,
    default=False,
)
