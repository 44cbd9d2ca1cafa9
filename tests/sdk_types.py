"""The request types of the providers' own SDKs, which what adapters make must be."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import botocore
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from pydantic import TypeAdapter


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    if kind == "anthropic":
        from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as Params
    elif kind == "openai-responses":
        from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as Params
    else:
        from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as Params
    return TypeAdapter(Params)


def _check_typed(kind: str) -> Callable[[Mapping[str, Any]], None]:
    def check(arguments: Mapping[str, Any]) -> None:
        known = {name: value for name, value in arguments.items() if name != "extra_body"}
        # Iterables are validated as they are walked.
        built = _adapter(kind).validate_python(known)
        for value in built.values():
            if not isinstance(value, str | bytes | Mapping) and hasattr(value, "__next__"):
                list(value)

    return check


def _check_gemini(arguments: Mapping[str, Any]) -> None:
    from google.genai import types

    assert set(arguments) <= {"model", "contents", "config"}
    types.GenerateContentConfig.model_validate(arguments.get("config") or {})
    for content in arguments["contents"]:
        types.Content.model_validate(content)


def check_cached_content(arguments: Mapping[str, Any]) -> None:
    """Build what ``client.caches.create`` takes."""
    from google.genai import types

    assert set(arguments) == {"model", "config"}
    types.CreateCachedContentConfig.model_validate(arguments["config"])


@cache
def _converse() -> Any:
    path = Path(botocore.__file__).parent / "data/bedrock-runtime/2023-09-30/service-2.json.gz"
    return ServiceModel(json.loads(gzip.decompress(path.read_bytes()))).operation_model("Converse")


def converse_usage_problems(usage: Mapping[str, Any]) -> str:
    """What the service's own model finds wrong with the usage of an answer; empty where it is right."""
    shape = _converse().output_shape.members["usage"]
    unknown = sorted(set(usage) - set(shape.members))
    report: str = ParamValidator().validate(dict(usage), shape).generate_report()
    return report + ", ".join(unknown)


def _check_bedrock(arguments: Mapping[str, Any]) -> None:
    report = ParamValidator().validate(dict(arguments), _converse().input_shape)
    assert not report.has_errors(), report.generate_report()


CHECKS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "anthropic": _check_typed("anthropic"),
    "openai-responses": _check_typed("openai-responses"),
    "openai-chat": _check_typed("openai-chat"),
    "gemini": _check_gemini,
    "bedrock": _check_bedrock,
}
"""By the format: builds the real request type, and fails where it cannot."""
