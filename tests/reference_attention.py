"""The attention and pyramid modules once more, pixel by pixel from their equations, as a yardstick for the tests.

Every function takes `p`, the module's parameters and buffers by name, the input [B, C, H, W] and whether batch
normalisation uses the statistics of the batch.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Named = Mapping[str, Tensor]


def project(p: Named, name: str, pixels: Tensor) -> Tensor:
    """A 1x1 convolution or linear layer on the columns of [C, n]."""
    weight = p[f"{name}.weight"]
    projected = weight.reshape(weight.shape[0], -1) @ pixels
    return projected + p[f"{name}.bias"][:, None] if f"{name}.bias" in p else projected


def soft(scores: Tensor) -> Tensor:
    """The softmax of a vector."""
    exponentials = torch.exp(scores - scores.detach().max())
    return exponentials / exponentials.sum()


def normalise(p: Named, name: str, images: list[Tensor], training: bool, eps: float = 1e-5) -> list[Tensor]:
    """Batch normalisation of the columns of several [C, n]."""
    columns = torch.cat(images, dim=1)
    mean, variance = p[f"{name}.running_mean"], p[f"{name}.running_var"]
    if training:
        mean = columns.sum(1) / columns.shape[1]
        variance = ((columns - mean[:, None]) ** 2).sum(1) / columns.shape[1]
    factor = p[f"{name}.weight"] / torch.sqrt(variance + eps)
    return [(image - mean[:, None]) * factor[:, None] + p[f"{name}.bias"][:, None] for image in images]


def shifted(image: Tensor, down: int, right: int) -> Tensor:
    """[C, H, W] whose pixel (i, j) is the image's (i + down, j + right), zero outside."""
    height, width = image.shape[1:]
    rows = [
        torch.stack(
            [
                image[:, i + down, j + right]
                if 0 <= i + down < height and 0 <= j + right < width
                else torch.zeros_like(image[:, 0, 0])
                for j in range(width)
            ],
            dim=1,
        )
        for i in range(height)
    ]
    return torch.stack(rows, dim=1)


def cells(image: Tensor, size: int) -> Tensor:
    """The means of `size` x `size` adaptive windows of [C, H, W], as [C, size * size]."""
    height, width = image.shape[1:]

    def span(index: int, length: int) -> slice:
        return slice(index * length // size, -(-(index + 1) * length // size))

    means = [image[:, span(i, height), span(j, width)].mean((1, 2)) for i in range(size) for j in range(size)]
    return torch.stack(means, dim=1)


def attend(queries: Tensor, keys: Tensor, values: Tensor, temperature: float = 1.0) -> Tensor:
    """Softmax attention, one query column at a time: [d, n], [d, m], [c, m] to [c, n]."""
    columns = [
        values @ soft(torch.stack([q @ keys[:, j] for j in range(keys.shape[1])]) / temperature) for q in queries.T
    ]
    return torch.stack(columns, dim=1)


def self_attention(p: Named, x: Tensor, training: bool) -> Tensor:
    outputs = []
    for image in x.flatten(2):
        context = attend(project(p, "query", image), project(p, "key", image), project(p, "value", image))
        outputs.append(image + project(p, "output", context))
    return torch.stack(outputs).reshape(x.shape)


def dual_attention(p: Named, x: Tensor, training: bool) -> Tensor:
    total = torch.zeros_like(x)
    for branch in ("position", "channel"):
        convolved = []
        for image in x.flatten(2):
            if branch == "position":
                queries, keys = project(p, "position.query", image), project(p, "position.key", image)
                context = attend(queries, keys, project(p, "position.value", image))
            else:
                # softmax(max - similarity) = softmax(-similarity)
                weights = [soft(-torch.stack([row @ other for other in image])) for row in image]
                context = torch.stack([sum(w[c] * image[c] for c in range(len(image))) for w in weights])
            attended = (p[f"{branch}.scale"] * context + image).reshape(x.shape[1:])
            weight = p[f"{branch}_head.0.weight"]
            taps = [weight[:, :, i, j] @ shifted(attended, i - 1, j - 1).flatten(1) for i in range(3) for j in range(3)]
            convolved.append(torch.stack(taps).sum(0))
        normalised = torch.stack(normalise(p, f"{branch}_head.1", convolved, training))
        total = total + normalised.clamp(min=0).reshape(x.shape)
    return total


def double_attention(p: Named, x: Tensor, training: bool) -> Tensor:
    images = list(x.flatten(2))

    def projection(name: str, inputs: list[Tensor]) -> list[Tensor]:
        return normalise(p, f"{name}.1", [project(p, f"{name}.0", image) for image in inputs], training)

    contexts = []
    parts = (projection(name, images) for name in ("features", "gathering", "distribution"))
    for features, gathering, distribution in zip(*parts, strict=True):
        descriptors = torch.stack([features @ soft(row) for row in gathering], dim=1)
        contexts.append(torch.stack([descriptors @ soft(column) for column in distribution.T], dim=1))
    return x + torch.stack(projection("output", contexts)).reshape(x.shape)


def bottleneck(p: Named, concatenated: Tensor, training: bool) -> Tensor:
    """The optional last stage of both pyramid modules; nothing without its weights."""
    if "bottleneck.0.weight" not in p:
        return concatenated
    images = [project(p, "bottleneck.0", image) for image in concatenated.flatten(2)]
    normalised = torch.stack(normalise(p, "bottleneck.1", images, training)).clamp(min=0)
    return torch.unflatten(normalised, 2, concatenated.shape[2:])


def adaptive_context(p: Named, x: Tensor, training: bool) -> Tensor:
    outputs = []
    for image in x:
        for index, scale in enumerate((1, 2, 3, 6)):
            name = f"branches.{index}"
            features = project(p, f"{name}.features", image.flatten(1))
            features = (features + features.mean(1)[:, None]).clamp(min=0)
            affinity = 1 / (1 + torch.exp(-project(p, f"{name}.affinity", features)))
            regions = project(p, f"{name}.regions", cells(image, scale))
            context = sum(torch.outer(regions[:, r], affinity[r]) for r in range(scale * scale))
            outputs.append((context + features).clamp(min=0))
    return bottleneck(p, torch.cat(outputs).reshape(x.shape[0], -1, *x.shape[2:]), training)


def dynamic_multi_scale(p: Named, x: Tensor, training: bool) -> Tensor:
    outputs = []
    for image in x:
        for index, size in enumerate((1, 3, 5, 7)):
            name = f"branches.{index}"
            filters = project(p, f"{name}.filters", cells(image, size))  # [d, k * k]
            features = project(p, f"{name}.features", image.flatten(1)).reshape(-1, *x.shape[2:])
            taps = [
                filters[:, i * size + j, None] * shifted(features, i - size // 2, j - size // 2).flatten(1)
                for i in range(size)
                for j in range(size)
            ]
            outputs.append(project(p, f"{name}.output", torch.stack(taps).sum(0)).clamp(min=0))
    return bottleneck(p, torch.cat(outputs).reshape(x.shape[0], -1, *x.shape[2:]), training)


def co_occurrent_feature(p: Named, x: Tensor, training: bool) -> Tensor:
    height, width = x.shape[2:]
    contexts = []
    for image in x:
        means = [
            image[:, max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2].mean((1, 2))
            for i in range(0, height, 2)
            for j in range(0, width, 2)
        ]
        pooled = torch.stack(means, dim=1)
        queries = project(p, "query_key", image.flatten(1))
        keys, values = project(p, "query_key", pooled), project(p, "value", pooled)
        contexts.append(project(p, "output", attend(queries, keys, values, math.sqrt(len(queries)))))
    if "norm.weight" in p:
        contexts = normalise(p, "norm", contexts, training)
    return x + torch.stack(contexts).reshape(x.shape)


def linear_attention(p: Named, x: Tensor, training: bool) -> Tensor:
    def unit(vector: Tensor) -> Tensor:
        return vector / vector.norm() if bool(vector.any()) else vector

    outputs = []
    for image in x.flatten(2):
        queries = [unit(column) for column in project(p, "query", image).T]
        keys = [unit(column) for column in project(p, "key", image).T]
        values = project(p, "value", image)
        columns = []
        for query in queries:
            # the weight of position j is the first-order expansion 1 + q . k_j of exp(q . k_j)
            weights = torch.stack([1 + query @ key for key in keys])
            columns.append(values @ weights / (weights.sum() + 1e-6 * query.sum()))
        outputs.append(image + p["scale"] * torch.stack(columns, dim=1))
    return torch.stack(outputs).reshape(x.shape)


def focused_linear_attention(p: Named, x: Tensor, training: bool, *, heads: int, focus: int) -> Tensor:
    channels = x.shape[1]
    width = channels // heads
    scale = torch.log1p(torch.exp(p["scale"].reshape(channels)))

    def focused(column: Tensor) -> Tensor:
        u = (column.clamp(min=0) + 1e-6) / scale
        return u**focus * torch.sqrt((u**2).sum() / ((u**focus) ** 2).sum())

    outputs = []
    for image in x.flatten(2):
        key_value = project(p, "key_value", image)
        keys, values = key_value[:channels], key_value[channels:]
        if "table" in p:
            keys = keys + p["table"][0].T
        queries = torch.stack([focused(column) for column in project(p, "query", image).T], dim=1)
        keys = torch.stack([focused(column) for column in keys.T], dim=1)
        mixed = []
        for head in range(heads):
            rows = slice(head * width, (head + 1) * width)
            value = values[rows]
            columns = []
            for query in queries[rows].T:
                weights = (keys[rows].T @ query) / keys.shape[1]
                columns.append(value @ weights / (weights.sum() + 1e-6))
            mixed.append(torch.stack(columns, dim=1) + depthwise(p, value.reshape(width, *x.shape[2:])))
        outputs.append(project(p, "output", torch.cat(mixed)))
    return torch.stack(outputs).reshape(x.shape)


def depthwise(p: Named, value: Tensor) -> Tensor:
    """The detail path on the values of one head, [c, H, W] to [c, n]."""
    weight = p["detail.weight"]  # [c, 1, k, k]
    size = weight.shape[-1]
    taps = [
        weight[:, 0, i, j, None] * shifted(value, i - size // 2, j - size // 2).flatten(1)
        for i in range(size)
        for j in range(size)
    ]
    return torch.stack(taps).sum(0) + p["detail.bias"][:, None]


REFERENCES: dict[str, Callable[..., Tensor]] = {
    "sa": self_attention,
    "da": dual_attention,
    "a2": double_attention,
    "apc": adaptive_context,
    "dm": dynamic_multi_scale,
    "acf": co_occurrent_feature,
    "linear": linear_attention,
    "focused_linear": focused_linear_attention,
}
