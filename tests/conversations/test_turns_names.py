"""What is public of conversations."""

from __future__ import annotations

import promptkeel.conversations


def test_the_public_names_of_conversations_are_these():
    assert set(promptkeel.conversations.__all__) == {"BlockingConversation", "Conversation", "Reason", "TurnRequest"}
    for name in promptkeel.conversations.__all__:
        assert getattr(promptkeel.conversations, name) is not None


def test_both_forms_have_the_same_methods():
    from promptkeel.conversations import BlockingConversation, Conversation

    def public(kind):
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(Conversation) == public(BlockingConversation) == {"id", "scope", "turn"}
