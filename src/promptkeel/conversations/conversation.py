"""The two public forms of a conversation, and how one is begun."""

from __future__ import annotations

from typing import final

from promptkeel.conversations.turns import ConversationCore
from promptkeel.core import KeelCore
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Steps, as_async, as_blocking
from promptkeel.store.arguments import check_scope
from promptkeel.text import check_text


def conversation_steps(keel: KeelCore, scope: TenantScope, conversation_id: str) -> Steps[ConversationCore]:
    """A conversation of a scope; nothing is written before its first turn.

    Raises:
        InvalidInputError: this is no scope, or no text that can be an id.
        StoreClosedError: the keel is not open.
    """
    check_scope(scope)
    checked = check_text(conversation_id, field="id")
    secret: bytes = yield Call(keel.store.engine.secret)
    return ConversationCore(keel, scope, checked, secret)


class _Facade:
    def __init__(self, core: ConversationCore) -> None:
        self.core = core

    @property
    def scope(self) -> TenantScope:
        """For whom the conversation is."""
        return self.core.scope

    @property
    def id(self) -> str:
        """Which of the scope's conversations."""
        return self.core.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} for {self.scope.path or '(deployment)'}>"


@final
class Conversation(_Facade):
    """A conversation that keeps its prefix; made by ``Keel.conversation``. Any number of workers may hold it."""

    turn = as_async(ConversationCore.turn)


@final
class BlockingConversation(_Facade):
    """The blocking twin of ``Conversation``."""

    turn = as_blocking(ConversationCore.turn)
