"""Gemini's generateContent, as google-genai spells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from promptkeel.prompt.adapters.arranging import TOOL_NAME, Message


@final
class GeminiSpelling:
    """The contents of generateContent."""

    alternates = False

    def user(self, texts: Sequence[str]) -> Message:
        """A message of the user's, a part for each text."""
        return {"role": "user", "parts": [{"text": text} for text in texts]}

    def assistant(self, text: str) -> Message:
        """A message of the model's."""
        return {"role": "model", "parts": [{"text": text}]}

    def call(self, call_id: str) -> Message:
        """A call of the tool in the model's name."""
        return {"role": "model", "parts": [{"function_call": {"id": call_id, "name": TOOL_NAME, "args": {}}}]}

    def results(self, call_id: str, results: Sequence[str], texts: Sequence[str]) -> list[Message]:
        """The message that holds the results of a call, and texts of the user's behind them."""
        response = {"id": call_id, "name": TOOL_NAME, "response": {"result": "\n\n".join(results)}}
        return [{"role": "user", "parts": [{"function_response": response}, *({"text": text} for text in texts)]}]

    def with_texts(self, message: Any, texts: Sequence[str]) -> Message | None:
        """A copy of a user's message with texts at its end."""
        return {**message, "parts": [*message["parts"], *({"text": text} for text in texts)]}

    def is_user(self, message: Any) -> bool:
        """Whether this is a message of the user's, or holds results of tools."""
        return bool(message["role"] == "user")

    def opens_turn(self, message: Any) -> bool:
        """Whether this is a message of the user's that is not only results of tools."""
        return self.is_user(message) and not any(
            "function_response" in part or "functionResponse" in part for part in message["parts"]
        )
