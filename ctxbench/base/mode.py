"""The two modes of a pass: inference, and a training step."""

from typing import Literal

Mode = Literal["infer", "train"]
MODES: tuple[Mode, Mode] = ("infer", "train")
# How a sentence names them.
NOUNS: dict[Mode, str] = {"infer": "inference", "train": "training"}
