"""The words that rules of providers are written in; what they come to for a model is left to ``rules``."""

from __future__ import annotations

from typing import Final, Literal

from promptkeel.model import TRUST_LEVELS

ProviderName = Literal["anthropic", "openai", "gemini", "bedrock"]
PROVIDERS: Final[tuple[ProviderName, ...]] = ("anthropic", "openai", "gemini", "bedrock")
Scheme = Literal["marks", "automatic", "handle", "none"]
"""How a provider keeps prefixes: up to marks, the longest one by itself, under a handle, or not at all."""
SystemTurns = Literal["refused", "after-user", "anywhere"]
"""Where a system or developer message may stand among the messages."""
TRUSTS: Final = (*TRUST_LEVELS, "unrecorded")
"""The trusts of learned text, and "unrecorded" where none is recorded."""
CHANNELS: Final = ("system", "user", "tool_result")
"""Where learned text can stand."""
