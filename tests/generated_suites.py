"""Suite files made from the schema of their keys: values of the declared type, of another one, and hostile ones."""

import json
from random import Random
from typing import Any

from world import TEXTS

from ctxbench.model.suite_file import SuiteFile

# Valid and tiny: what a generated suite differs from.
GOOD: dict[str, Any] = {
    "title": "generated",
    "modules": ["linear"],
    "metrics": ["params"],
    "axes": {"shape": [1, 8, 6, 5], "device": ["meta"]},
}
# What texts of a suite name; a declared type says only that they are texts.
NAMES = (
    "linear", "se", "*", "params", "latency", "macs", "t4", "cpu", "eager", "compile", "float32", "contiguous", "train",
    "", "linear:se", "M = 10^6", "positions", "reduction", "linear(reduction=2)", "1.5", "latency_infer",
)  # fmt: skip
NUMBERS = (0, 1, 2, 8, -1, 0.5, 1e-300, 1e300, float("inf"), float("nan"), 2**31, 2**63, 10**30, True)
PUBLISHED = {
    "title": "t",
    "authors": "a",
    "venue": "v",
    "year": 2021,
    "seen": "read",
    "rows": {"linear": {"printed": {"macs": "1.5"}}},
}
SCHEMA = SuiteFile.model_json_schema()


def text(chance: Random) -> str:
    """A suite file, with up to four keys besides, or in place of, those of a valid one."""
    suite = json.loads(json.dumps(GOOD))
    for _ in range(chance.randint(1, 4)):
        table, schema = suite, SCHEMA
        if chance.random() < 0.7:
            name = chance.choice(["axes", "measure", "gate", "published"])
            table, schema = (
                suite.setdefault(name, dict(PUBLISHED) if name == "published" else {}),
                resolved(SCHEMA["properties"][name]),
            )
        if not isinstance(table, dict):
            continue
        key = chance.choice([*schema["properties"]]) if chance.random() < 0.95 else chance.choice(TEXTS)
        if chance.random() < 0.1:
            table.pop(key, None)
        else:
            table[key] = drawn(schema["properties"].get(key, {}), chance)
    content = "".join(f"{quoted(key)} = {toml(value)}\n" for key, value in suite.items())
    return content if chance.random() < 0.9 else mutated(content, chance)


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema, looked up where it is a reference, or a reference or nothing."""
    schema = next((each for each in schema.get("anyOf", []) if "$ref" in each), schema)
    return SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def drawn(schema: dict[str, Any], chance: Random) -> Any:
    """A value as the schema declares it; now and then of any other kind."""
    schema = resolved(schema)
    if chance.random() < 0.1:
        schema = {"type": chance.choice(["array", "object", "string", "number", "boolean"])}
    if "anyOf" in schema:
        return drawn(chance.choice([each for each in schema["anyOf"] if each != {"type": "null"}]), chance)
    if "enum" in schema:
        return chance.choice(schema["enum"])
    match schema.get("type"):
        case "array":
            items = schema.get("items") or (schema.get("prefixItems") or [{}])[0]
            length = chance.choice([0, 1, 1, 2, 4, schema.get("minItems", 4)])
            return [drawn(items, chance) for _ in range(length)]
        case "object" if "properties" in schema:
            known = schema["properties"]
            chosen = {key for key in known if key in schema.get("required", ()) or chance.random() < 0.3}
            return {key: drawn(known[key], chance) for key in known if key in chosen}
        case "object":
            others = schema.get("additionalProperties")
            others = others if isinstance(others, dict) else {}
            return {chance.choice(NAMES): drawn(others, chance) for _ in range(chance.randint(0, 2))}
        case "integer" | "number":
            return chance.choice(NUMBERS)
        case "boolean":
            return chance.random() < 0.5
    return chance.choice(NAMES if chance.random() < 0.8 else TEXTS)


def toml(value: Any) -> str:
    """A value as TOML writes it in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return quoted(value) if isinstance(value, str) else str(value).lower()


def quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def mutated(content: str, chance: Random) -> str:
    """The file with some characters gone, doubled or others."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(content))
        content = content[:at] + chance.choice(["", '"', "[", "]", "{", "=", "\n", "\0", "é", "."]) + content[at + 1 :]
    return content
