"""The tools as a model is told of them: names, descriptions and JSON Schemas, and the check of what it sends.

Source, trust, time and scope are in no schema: the host says them, and a model that sends them is refused.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import attrs

from promptkeel.blocks import MemoryLane, Permission, PromptBlockSpec, StoredSource
from promptkeel.errors import InvalidInputError

TOOL_NAMES: Final = (
    "memory_block_append",
    "memory_block_replace",
    "memory_fact_add",
    "memory_fact_correct",
    "memory_fact_retract",
)
"""Every tool there is; none of them removes anything for good."""

PERMISSION_OF: Final[Mapping[str, Permission]] = {
    "memory_block_append": "append",
    "memory_block_replace": "replace",
    "memory_fact_add": "add",
    "memory_fact_correct": "correct",
    "memory_fact_retract": "retract",
}
"""What a block must permit for a tool to touch it."""

_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "memory_block_append": "Add a paragraph to the end of one of your own notes blocks.",
    "memory_block_replace": "Replace one passage of your own notes block; it must occur there exactly once.",
    "memory_fact_add": "Remember one new statement in a memory block.",
    "memory_fact_correct": "Correct a remembered statement: give its id and its new text, or new values of its fields.",
    "memory_fact_retract": "Take a statement that is no longer true out of memory; its history is kept.",
}
_BITS: Final = 64
"""A whole number of a field has at most so many: a longer one is text in disguise."""
_Schema = dict[str, Any]


@final
@attrs.frozen(order=False)
class ToolSchema:
    """One tool.

    Attributes:
        name: its name.
        description: what a model is told that it does.
        parameters: the JSON Schema of its arguments, an object that allows no others.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = attrs.field(hash=False)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary of name, description and parameters."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": json.loads(json.dumps(self.parameters)),
        }


def permitting(specs: Sequence[PromptBlockSpec], tool: str) -> tuple[PromptBlockSpec, ...]:
    """The blocks that a tool may touch."""
    kind = StoredSource if tool.startswith("memory_block_") else MemoryLane
    return tuple(spec for spec in specs if PERMISSION_OF[tool] in spec.permissions and isinstance(spec.source, kind))


def schema_of(specs: Sequence[PromptBlockSpec], tool: str, *, text_characters: int) -> ToolSchema | None:
    """A tool's schema; None where no block permits it."""
    found = permitting(specs, tool)
    if not found:
        return None
    text = {"type": "string", "minLength": 1, "maxLength": text_characters}
    block = {"type": "string", "enum": [spec.name for spec in found]}
    node = {"type": "string", "minLength": 1, "description": "The statement's id."}
    properties: dict[str, _Schema]
    if tool == "memory_block_append":
        properties, required = {"block": block, "text": text}, ["block", "text"]
    elif tool == "memory_block_replace":
        old = {**text, "description": "The passage as it stands there now."}
        new = {"type": "string", "maxLength": text_characters, "description": "What stands there instead."}
        properties, required = {"block": block, "old": old, "new": new}, ["block", "old", "new"]
    elif tool == "memory_fact_add":
        properties, required = {"block": block, "text": text}, ["block", "text"]
    elif tool == "memory_fact_correct":
        properties, required = {"id": node, "text": text}, ["id"]
        names = sorted({name for spec in found for name in _fields(spec)})
        if names:
            value = {"type": ["string", "number", "boolean", "null"], "maxLength": text_characters}
            fields = {"type": "object", "properties": dict.fromkeys(names, value), "additionalProperties": False}
            properties["fields"] = fields
    else:
        properties, required = {"id": node}, ["id"]
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSchema(tool, _DESCRIPTIONS[tool], parameters)


def _fields(spec: PromptBlockSpec) -> frozenset[str]:
    return spec.source.profile_fields if isinstance(spec.source, MemoryLane) else frozenset()


def read_arguments(schema: ToolSchema, given: object) -> dict[str, Any]:
    """What a model sent to a tool, as a mapping or as JSON text, checked against its schema.

    Raises:
        InvalidInputError: it does not fit; names the argument.
    """
    if isinstance(given, str | bytes):
        try:
            given = json.loads(given)
        except RecursionError:
            raise InvalidInputError("is nested too deeply", field="arguments", where=schema.name) from None
        except ValueError as error:
            raise InvalidInputError(f"is no JSON: {error}", field="arguments", where=schema.name) from None
    if not isinstance(given, Mapping):
        raise InvalidInputError("must be a JSON object", field="arguments", where=schema.name)
    properties = schema.parameters["properties"]
    for name in given:
        if name not in properties:
            near = difflib.get_close_matches(str(name), properties, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(properties)}"
            raise InvalidInputError(f"is no argument of this tool{hint}", field=str(name), where=schema.name)
    for name in schema.parameters["required"]:
        if name not in given:
            raise InvalidInputError("is missing", field=name, where=schema.name)
    for name, value in given.items():
        _check_value(name, value, properties[name], schema.name)
    return dict(given)


def _check_value(name: str, value: object, schema: Mapping[str, Any], tool: str) -> None:
    problem = _problem_of_fields(value, schema) if schema["type"] == "object" else _problem_of_text(value, schema)
    if problem is not None:
        raise InvalidInputError(problem, field=name, where=tool)


def _problem_of_fields(value: object, schema: Mapping[str, Any]) -> str | None:
    if not isinstance(value, Mapping):
        return "must be an object of fields and their values"
    for field, inner in value.items():
        if field not in schema["properties"]:
            return f"{field!r} is no declared field; there are {', '.join(schema['properties'])}"
        if inner is not None and type(inner) not in (str, int, float, bool):
            return f"{field!r} must be text, a number, true, false or null"
        longest = schema["properties"][field]["maxLength"]
        if isinstance(inner, str) and len(inner) > longest:
            return f"{field!r} must be at most {longest} characters, not {len(inner)}; say it shorter"
        if type(inner) is int and inner.bit_length() > _BITS:
            return f"{field!r} is too large a number"
    return None


def _problem_of_text(value: object, schema: Mapping[str, Any]) -> str | None:
    if not isinstance(value, str):
        return f"must be text, not {type(value).__name__}"
    if len(value) < schema.get("minLength", 0):
        return "must not be empty"
    if len(value) > schema.get("maxLength", len(value)):
        return f"must be at most {schema['maxLength']} characters, not {len(value)}; say it shorter"
    if value not in schema.get("enum", (value,)):
        return f"{value!r} is no block that this tool may touch; there are {', '.join(schema['enum'])}"
    return None
