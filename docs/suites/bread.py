"""What a run of the suite `bread` says of the breads and hams of Geng et al., ICLR 2021."""

from collections.abc import Iterator

import pandas as pd

PRINTED = {"nothing": "0.50", "ham": "0.50", "upper": "0.25", "lower": "0.25", "breads": "0.00"}
Claim = tuple[str, str, str | bool]


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """Claim, what was measured, whether it holds."""
    found = {row["hparams.without"]: f"{row['params'] / 2**20:.2f}" for row in frame.to_dict("records")}
    text = ", ".join(f"without {name}: +{value}M" for name, value in found.items())
    claim = "The block adds 0.50M parameters, 0.50M without the ham, 0.25M without either bread, none as ham alone"
    yield claim, text, found == PRINTED
    nmf = frame[frame["module"] == "ham_nmf"].set_index("hparams.without")["macs"]
    text = f"{1 - nmf['ham'] / nmf['nothing']:.0%} of the MACs of Ham (NMF) are the ham's at this input"
    yield "What share of the cost is the ham", text, "no claim"
