"""The attention and pyramid modules once more, pixel by pixel from their equations, as a yardstick for the tests.

Every function takes `p`, the module's parameters and buffers by name, the input [B, C, H, W], whether batch
normalisation uses the statistics of the batch, and hyper-parameters, of which `p` has those that are sizes.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Named = Mapping[str, Tensor]


def project(p: Named, name: str, pixels: Tensor) -> Tensor:
    """A 1x1 convolution or linear layer on the columns of [C, n]."""
    weight = p[f"{name}.weight"]
    projected = weight.reshape(weight.shape[0], -1) @ pixels
    return projected + p[f"{name}.bias"][:, None] if f"{name}.bias" in p else projected


def sigmoid(values: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-values))


def silu(values: Tensor) -> Tensor:
    return values * sigmoid(values)


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


def layer_norm(p: Named, name: str, tokens: Tensor, eps: float = 1e-5) -> Tensor:
    """Layer normalisation of the columns of [C, n]."""
    centred = tokens - tokens.mean(0)
    normal = centred / torch.sqrt((centred**2).mean(0) + eps)
    return normal * p[f"{name}.weight"].reshape(-1, 1) + p[f"{name}.bias"].reshape(-1, 1)


def cells(image: Tensor, size: int) -> Tensor:
    """The means of `size` x `size` adaptive windows of [C, H, W], as [C, size * size]."""
    height, width = image.shape[1:]

    def span(index: int, length: int) -> slice:
        return slice(index * length // size, -(-(index + 1) * length // size))

    means = [image[:, span(i, height), span(j, width)].mean((1, 2)) for i in range(size) for j in range(size)]
    return torch.stack(means, dim=1)


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float = 1.0) -> Tensor:
    """Softmax attention, one query column at a time: [d, n], [d, m], [v, m] to [v, n]."""
    return torch.stack([value @ soft(key.T @ query[:, i] * scale) for i in range(query.shape[1])], dim=1)


def window(image: Tensor, height: int, width: int, weight: Tensor, bias: Tensor | None, dilation: int = 1) -> Tensor:
    """A convolution [C', C or 1, k, k] of an image [C, n] with zeros outside; one input channel: depthwise."""
    size = weight.shape[2]
    reach = dilation * (size // 2)
    cells = torch.zeros(image.shape[0], height + 2 * reach, width + 2 * reach, dtype=image.dtype)
    cells[:, reach : reach + height, reach : reach + width] = image.reshape(-1, height, width)
    total = torch.zeros(weight.shape[0], height, width, dtype=image.dtype)
    for a in range(size):
        for b in range(size):
            part = cells[:, a * dilation : a * dilation + height, b * dilation : b * dilation + width]
            if weight.shape[1] == 1:
                total = total + weight[:, 0, a, b][:, None, None] * part
            else:
                total = total + torch.einsum("oc,chw->ohw", weight[:, :, a, b], part)
    total = total.reshape(weight.shape[0], -1)
    return total if bias is None else total + bias[:, None]


def self_attention(p: Named, x: Tensor, training: bool, **sizes: int) -> Tensor:
    outputs = []
    for image in x.flatten(2):
        context = attend(project(p, "query", image), project(p, "key", image), project(p, "value", image))
        outputs.append(image + project(p, "output", context))
    return torch.stack(outputs).reshape(x.shape)


def dual_attention(p: Named, x: Tensor, training: bool, **sizes: int) -> Tensor:
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
            attended = p[f"{branch}.scale"] * context + image
            convolved.append(window(attended, x.shape[2], x.shape[3], p[f"{branch}_head.0.weight"], None))
        normalised = torch.stack(normalise(p, f"{branch}_head.1", convolved, training))
        total = total + normalised.clamp(min=0).reshape(x.shape)
    return total


def double_attention(p: Named, x: Tensor, training: bool, **sizes: int) -> Tensor:
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


def adaptive_context(p: Named, x: Tensor, training: bool, **sizes: int) -> Tensor:
    outputs = []
    for image in x:
        for index, scale in enumerate((1, 2, 3, 6)):
            name = f"branches.{index}"
            features = project(p, f"{name}.features", image.flatten(1))
            features = (features + features.mean(1)[:, None]).clamp(min=0)
            affinity = sigmoid(project(p, f"{name}.affinity", features))
            regions = project(p, f"{name}.regions", cells(image, scale))
            context = sum(torch.outer(regions[:, r], affinity[r]) for r in range(scale * scale))
            outputs.append((context + features).clamp(min=0))
    return bottleneck(p, torch.cat(outputs).reshape(x.shape[0], -1, *x.shape[2:]), training)


def dynamic_multi_scale(p: Named, x: Tensor, training: bool, **sizes: int) -> Tensor:
    outputs = []
    for image in x:
        for index, size in enumerate((1, 3, 5, 7)):
            name = f"branches.{index}"
            filters = project(p, f"{name}.filters", cells(image, size)).reshape(-1, 1, size, size)
            features = project(p, f"{name}.features", image.flatten(1))
            context = window(features, x.shape[2], x.shape[3], filters, None)
            outputs.append(project(p, f"{name}.output", context).clamp(min=0))
    return bottleneck(p, torch.cat(outputs).reshape(x.shape[0], -1, *x.shape[2:]), training)


def co_occurrent_feature(p: Named, x: Tensor, training: bool, **sizes: int) -> Tensor:
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
        contexts.append(project(p, "output", attend(queries, keys, values, len(queries) ** -0.5)))
    if "norm.weight" in p:
        contexts = normalise(p, "norm", contexts, training)
    return x + torch.stack(contexts).reshape(x.shape)


def linear_attention(p: Named, x: Tensor, training: bool, **sizes: int) -> Tensor:
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


def focused_linear_attention(
    p: Named, x: Tensor, training: bool, heads: int = 8, focus: int = 3, **sizes: int
) -> Tensor:
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
            detail = window(value, x.shape[2], x.shape[3], p["detail.weight"], p["detail.bias"])
            mixed.append(torch.stack(columns, dim=1) + detail)
        outputs.append(project(p, "output", torch.cat(mixed)))
    return torch.stack(outputs).reshape(x.shape)


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
