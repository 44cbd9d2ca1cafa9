"""Conversations that keep their prefix: a pinned base, and what has changed since as deltas in the messages."""

from promptkeel.conversations.conversation import BlockingConversation, Conversation
from promptkeel.conversations.leaving import Reason
from promptkeel.conversations.turns import TurnRequest

__all__ = ["BlockingConversation", "Conversation", "Reason", "TurnRequest"]
