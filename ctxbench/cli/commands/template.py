"""`ctxbench new`: a small working context module to start from."""

import keyword
import os
import re
from pathlib import Path

from ctxbench import registry
from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.registry.reference import Reference

# What the file's own lines call something else.
TAKEN = ("torch", "nn", "Tensor", "register")
SOURCE = '''"""One sentence: what the module does.

Source: authors, title, venue, year. State what differs from the paper.
"""

import torch
from torch import Tensor, nn

from ctxbench import register


@register(
    "{key}",
    title="{title}",
    paper="",
    year=None,
    family="attention",
    # Closed forms over B, C, H, W, n = H*W, N = B*n and the hyper-parameters; None means C.
    params="2*C*d + 2*d + C**2 + C",
    macs="N*(2*C*d + C**2) + 2*N*C*d",
)
class {class_name}(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; queries and keys have `d` channels (None: C)."""

    def __init__(self, channels: int, *, d: int | None = None) -> None:
        super().__init__()
        width = channels if d is None else d
        self.query = nn.Conv2d(channels, width, 1)
        self.key = nn.Conv2d(channels, width, 1)
        self.value = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x).flatten(2).softmax(dim=1)  # [B, d, n], over the channels
        key = self.key(x).flatten(2).softmax(dim=2)  # [B, d, n], over the positions
        value = self.value(x).flatten(2)  # [B, C, n]
        descriptors = torch.bmm(value, key.transpose(1, 2))  # [B, C, d]: d weighted averages over all positions
        context = torch.bmm(descriptors, query)  # [B, C, n]: for every position, another mixture of them
        return x + context.unflatten(2, x.shape[2:])
'''


AROUND = '''"""{class_name} as a module of maps [B, C, H, W]."""

from torch import Tensor, nn

{imported}


class {class_name}OfMaps(nn.Module):
    """[B, C, H, W] to [B, C, H, W]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block = {class_name}(channels)  # and what else its constructor takes

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        tokens = x.flatten(2).transpose(1, 2)  # [B, N, C], a view; channels last: x.permute(0, 2, 3, 1)
        y = self.block(tokens)  # and what else its forward takes, such as height and width
        return y.transpose(1, 2).reshape(batch, channels, height, width)  # channels last: y.permute(0, 3, 1, 2)
'''


def around(reference: str) -> str:
    """The source of a module of maps around a block, to lie in a file beside the block's. It runs nothing.

    UsageError for a reference that names no class.
    """
    named = Reference.parse(reference)
    source, class_name = named.source, named.name
    if named.is_key or not class_name.isidentifier():
        raise UsageError(f"--around {reference} is not path.py:Class or package.module:Class")
    in_package = named.is_file and (Path(source).parent / "__init__.py").is_file()
    module = f"{'.' * in_package}{Path(source).stem}" if named.is_file else source
    imported = f"from {module} import {class_name}"
    return AROUND.replace("{class_name}", class_name).replace("{imported}", imported)


def write(path: Path, class_name: str | None = None) -> str:
    """Write a working module to a new file `path`; the class's reference, `path:Class`.

    The class's name is made from the file's, unless given. Raises UsageError if the file exists, cannot be written, or
    a name is not valid.
    """
    if path.suffix != ".py":
        raise UsageError(f"{path} is not a Python file: its name must end in .py")
    key = path.stem
    if not re.fullmatch(r"[\w-]+", key):
        raise UsageError(f"{key!r} is not a valid name for a module; use letters, digits, _ and -")
    class_name = class_name or "".join(part.capitalize() for part in re.split(r"[_\W]+", key))
    if not class_name.isidentifier() or keyword.iskeyword(class_name) or class_name in TAKEN:
        raise UsageError(f"{class_name!r} is not a valid name for a class; give one with --class")
    if key in registry.names() and not os.path.lexists(path):
        raise UsageError(f"the registry already has a module {key!r}; choose another file name")
    text = SOURCE.replace("{key}", key).replace("{title}", class_name).replace("{class_name}", class_name)
    disk.write(path, text, "x")
    return f"{path}:{class_name}"
