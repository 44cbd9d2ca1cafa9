"""OpenAI's Responses and Chat Completions, and servers that speak the latter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from promptkeel.prompt.adapters.arranging import TOOL_NAME, Message


@final
class ResponsesSpelling:
    """The input items of Responses."""

    alternates = False

    def user(self, texts: Sequence[str]) -> Message:
        """A message of the user's, a part for each text."""
        return {"type": "message", "role": "user", "content": [_input_text(text) for text in texts]}

    def developer(self, texts: Sequence[str]) -> Message:
        """A message of the operator's."""
        return {"type": "message", "role": "developer", "content": [_input_text(text) for text in texts]}

    def assistant(self, text: str) -> Message:
        """A message of the model's."""
        return {"role": "assistant", "content": text}

    def call(self, call_id: str) -> Message:
        """A call of the tool in the model's name."""
        return {"type": "function_call", "call_id": call_id, "name": TOOL_NAME, "arguments": "{}"}

    def results(self, call_id: str, results: Sequence[str], texts: Sequence[str]) -> list[Message]:
        """The items that hold the results of a call, and texts of the user's behind them."""
        output = {"type": "function_call_output", "call_id": call_id, "output": "\n\n".join(results)}
        return [output, *([self.user(texts)] if texts else [])]

    def with_texts(self, message: Any, texts: Sequence[str]) -> Message | None:  # noqa: ARG002 - of the protocol
        """None: a message of their own costs nothing here."""
        return None

    def is_user(self, message: Any) -> bool:
        """Whether this is a message of the user's, or holds results of tools."""
        return message.get("role") == "user" or str(message.get("type", "")).endswith("_output")

    def opens_turn(self, message: Any) -> bool:
        """Whether this is a message of the user's."""
        return bool(message.get("role") == "user")


@final
class ChatSpelling:
    """The messages of Chat Completions."""

    alternates = False

    def user(self, texts: Sequence[str]) -> Message:
        """A message of the user's, a part for each text."""
        return {"role": "user", "content": [_text(text) for text in texts]}

    def assistant(self, text: str) -> Message:
        """A message of the model's."""
        return {"role": "assistant", "content": text}

    def call(self, call_id: str) -> Message:
        """A call of the tool in the model's name."""
        function = {"name": TOOL_NAME, "arguments": "{}"}
        return {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]}

    def results(self, call_id: str, results: Sequence[str], texts: Sequence[str]) -> list[Message]:
        """The messages that hold the results of a call, and texts of the user's behind them."""
        result = {"role": "tool", "tool_call_id": call_id, "content": "\n\n".join(results)}
        return [result, *([self.user(texts)] if texts else [])]

    def with_texts(self, message: Any, texts: Sequence[str]) -> Message | None:  # noqa: ARG002 - of the protocol
        """None: a message of their own costs nothing here."""
        return None

    def is_user(self, message: Any) -> bool:
        """Whether this is a message of the user's, or holds results of tools."""
        return message["role"] in ("user", "tool", "function")

    def opens_turn(self, message: Any) -> bool:
        """Whether this is a message of the user's."""
        return bool(message["role"] == "user")


def _input_text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
