"""Bedrock's Converse API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from promptkeel.prompt.adapters.arranging import TOOL_NAME, Message


@final
class BedrockSpelling:
    """The messages of Converse."""

    alternates = True

    def user(self, texts: Sequence[str]) -> Message:
        """A message of the user's, a part for each text."""
        return {"role": "user", "content": [{"text": text} for text in texts]}

    def assistant(self, text: str) -> Message:
        """A message of the model's."""
        return {"role": "assistant", "content": [{"text": text}]}

    def call(self, call_id: str) -> Message:
        """A call of the tool in the model's name."""
        return {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": call_id, "name": TOOL_NAME, "input": {}}}],
        }

    def results(self, call_id: str, results: Sequence[str], texts: Sequence[str]) -> list[Message]:
        """The message that holds the results of a call, and texts of the user's behind them."""
        result = {"toolResult": {"toolUseId": call_id, "content": [{"text": text} for text in results]}}
        return [{"role": "user", "content": [result, *({"text": text} for text in texts)]}]

    def with_texts(self, message: Any, texts: Sequence[str]) -> Message | None:
        """A copy of a user's message with texts at its end."""
        return {**message, "content": [*message["content"], *({"text": text} for text in texts)]}

    def is_user(self, message: Any) -> bool:
        """Whether this is a message of the user's, or holds results of tools."""
        return bool(message["role"] == "user")

    def opens_turn(self, message: Any) -> bool:
        """Whether this is a message of the user's that is not only results of tools."""
        return self.is_user(message) and not any("toolResult" in block for block in message["content"])
