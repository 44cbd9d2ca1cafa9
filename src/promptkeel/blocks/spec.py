"""What an operator declares about a block, checked when it is declared.

What is left out comes from the block's name, where that is canonical, and from its source.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, final

import attrs

from promptkeel.blocks.failures import FailureAction, FailurePolicy, check_seconds, failure_policy
from promptkeel.blocks.source import SHARINGS, BlockSource, Sharing, StoreBacked, takes_a_scope
from promptkeel.blocks.static import StaticSource
from promptkeel.blocks.stored import StoredSource
from promptkeel.blocks.taxonomy import (
    CANONICAL,
    CHANNELS,
    DEFAULT_ORDER,
    LAYERS,
    LEARNED_TIERS,
    PERMISSIONS,
    TIERS,
    Canonical,
    Channel,
    Layer,
    Permission,
    Tier,
)
from promptkeel.errors import InvalidDeclarationError
from promptkeel.render import RenderPolicy
from promptkeel.scope import TenantScope

Gate = Callable[[TenantScope], bool | Awaitable[bool]]
"""Answers whether a block is shown to a scope."""

_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)
_TIMEOUT: Final = 5.0
_GATE_TIMEOUT: Final = 0.5


def _as_given_failure(given: FailurePolicy | FailureAction | None) -> FailurePolicy:
    # Checked and completed with all the others, where the block can be named.
    return given  # type: ignore[return-value]


def _as_given_permissions(given: Iterable[Permission] | None) -> frozenset[Permission]:
    return given  # type: ignore[return-value]


@final
@attrs.frozen(order=False, kw_only=True)
class PromptBlockSpec:
    """One declared block.

    Attributes:
        name: capitals, digits and underscores, at most 64.
        source: where its content comes from.
        tier: its authority; left out, the canonical one, else ``operating`` for authored text and ``profile`` for
            memory.
        shared: how widely its text is shared; left out, what the source says: ``deployment`` for static text and
            files, ``scope`` for computed text and memory.
        layer: ``stable`` or ``volatile``; only FOCUS is volatile unless declared.
        priority: where a prompt has more tokens than it may, blocks of a lower priority give way first; 0 unless
            declared. Authored text never gives way.
        order: its place among blocks of its tier that are shared as widely; smaller comes first.
        channel: how the model gets it; authored text always ``system``; of learned text None leaves it to the
            provider and the trust.
        policy: how it is rendered.
        render_when: asked with the scope before the block is read: whether it is shown; may be ``async``, otherwise
            it is called in a helper thread.
        gate_timeout: how long that may take, in seconds.
        on_failure: what happens when the source cannot be read: a ``FailurePolicy`` or its name; left out,
            ``fail_closed`` for authored text and ``omit`` for learned.
        timeout: how long a read may take, in seconds; 5 unless declared. Static text and what a store holds have
            none: a store bounds its own reads.
        inherit: whether a delegated child agent sees it.
        permissions: what the agent's own tools may do with it; authored text is read only, learned text may be
            given any; left out, ``read``.

    Raises:
        InvalidDeclarationError: says what to write instead.
    """

    name: str
    source: BlockSource
    tier: Tier = attrs.field(default=None)
    shared: Sharing = attrs.field(default=None)
    layer: Layer = attrs.field(default=None)
    order: int = attrs.field(default=None)
    priority: int = 0
    channel: Channel | None = None
    policy: RenderPolicy = attrs.field(factory=RenderPolicy)
    render_when: Gate | None = None
    gate_timeout: float = _GATE_TIMEOUT
    on_failure: FailurePolicy = attrs.field(default=None, converter=_as_given_failure)
    timeout: float | None = None
    inherit: bool = attrs.field(default=None)
    permissions: frozenset[Permission] = attrs.field(default=None, converter=_as_given_permissions)

    def __attrs_post_init__(self) -> None:
        if type(self.name) is not str or not _NAME.fullmatch(self.name):
            raise InvalidDeclarationError(
                f"{self.name!r} must be capitals, digits and underscores, the first a letter, at most 64", field="name"
            )
        try:
            self._check_source()
            self._complete()
            self._check_canonical()
            self._check_fields()
        except InvalidDeclarationError as error:
            raise InvalidDeclarationError(error.reason, field=error.field, where=f"block {self.name}") from None

    def _check_source(self) -> None:
        source: Any = self.source
        if not isinstance(source, BlockSource) or isinstance(source, type):
            raise _wrong(
                "source",
                "must be a StaticSource, FileSource, ComputedSource or MemoryLane, or an object with the attributes "
                "of promptkeel.blocks.BlockSource and a method load(scope)",
            )
        if not isinstance(source, StoreBacked) and not takes_a_scope(getattr(source, "load", None)):
            raise _wrong("source", f"{type(source).__name__} needs a method load(scope)")
        if not _describes_itself(source):
            raise _wrong(
                "source",
                f"{type(source).__name__} must have kind as text, is_learned as True or False, sharing as a tuple of "
                f"{', '.join(SHARINGS)}, and declared as a tuple",
            )

    def _complete(self) -> None:
        """Put defaults where nothing was declared."""
        canonical = self._canonical
        self._default("tier", canonical.tier)
        self._default("order", canonical.order)
        self._default("layer", canonical.layer)
        self._default("inherit", canonical.inherit)
        self._default("shared", self.source.sharing[0])
        self._default("on_failure", "omit" if self.is_learned else "fail_closed")
        self._default("permissions", ("read",))
        object.__setattr__(self, "on_failure", failure_policy(self.on_failure))
        object.__setattr__(self, "permissions", _permissions(self.permissions))
        if self.channel is None and not self.is_learned:
            object.__setattr__(self, "channel", "system")
        if self.timeout is None and not self._is_unbounded:
            object.__setattr__(self, "timeout", _TIMEOUT)

    def _default(self, field: str, value: object) -> None:
        if getattr(self, field) is None:
            object.__setattr__(self, field, value)

    @property
    def _canonical(self) -> Canonical:
        return CANONICAL.get(self.name) or Canonical("profile" if self.is_learned else "operating", DEFAULT_ORDER)

    @property
    def _is_unbounded(self) -> bool:
        return isinstance(self.source, StaticSource | StoreBacked)

    def _check_canonical(self) -> None:
        if self.tier not in TIERS:
            raise _wrong("tier", f"must be one of {', '.join(TIERS)}")
        canonical = CANONICAL.get(self.name)
        if canonical is None:
            return
        if self.tier != canonical.tier:
            raise _wrong("tier", f"is always {canonical.tier!r} for this block; choose another name for another tier")
        for field, (value, why) in canonical.fixed.items():
            found = getattr(self, field)
            if (found.action if isinstance(found, FailurePolicy) else found) != value:
                raise _wrong(field, f"is always {value!r} for this block, since {why}; leave it out")
        if "on_failure" in canonical.fixed and isinstance(self.source, StoredSource) and not self.source.required:
            raise _wrong("source", "must be required for this block: it is always there; leave required=False out")

    def _check_fields(self) -> None:
        if self.is_learned != (self.tier in LEARNED_TIERS):
            kind = (
                "learned text belongs in profile or session"
                if self.is_learned
                else "authored text belongs in platform or operating"
            )
            raise _wrong("tier", f"{self.tier!r} does not fit {type(self.source).__name__}: {kind}")
        if self.shared not in self.source.sharing:
            raise _wrong(
                "shared",
                f"{type(self.source).__name__} can only be shared as {' or '.join(self.source.sharing)}, "
                f"not {self.shared!r}",
            )
        if self.layer not in LAYERS:
            raise _wrong("layer", f"must be one of {', '.join(LAYERS)}")
        for field in ("order", "priority"):
            if type(getattr(self, field)) is not int:
                raise _wrong(field, "must be a whole number")
        if self.priority and not self.is_learned:
            raise _wrong("priority", "is for memory: authored text never gives way; leave it out")
        if not isinstance(self.policy, RenderPolicy):
            raise _wrong("policy", "must be a RenderPolicy")
        self._check_reach()
        self._check_waiting()

    def _check_reach(self) -> None:
        """Who gets it, and who may change it."""
        if self.channel is not None and self.channel not in CHANNELS:
            raise _wrong("channel", f"must be None or one of {', '.join(CHANNELS)}")
        if not self.is_learned and self.channel != "system":
            raise _wrong("channel", "is always 'system' for authored text; leave it out")
        if type(self.inherit) is not bool:
            raise _wrong("inherit", "must be True or False")
        if not self.is_learned and self.permissions != {"read"}:
            raise _wrong("permissions", "of authored text are always {'read'}: its operator edits it; leave them out")

    def _check_waiting(self) -> None:
        """What is waited for, and for how long."""
        if self.render_when is not None and not takes_a_scope(self.render_when):
            raise _wrong("render_when", "must be callable with one argument, the scope, and answer True or False")
        check_seconds(self.gate_timeout, "gate_timeout")
        if self.timeout is None:
            return
        if self._is_unbounded:
            raise _wrong(
                "timeout",
                "is not for what a store holds, which bounds its own reads; leave it out"
                if self.is_stored
                else "is not for static text, which is never waited for; leave it out",
            )
        check_seconds(self.timeout, "timeout")

    @property
    def is_learned(self) -> bool:
        """Whether the block holds learned text, which is contained when rendered."""
        return self.source.is_learned

    @property
    def is_stored(self) -> bool:
        """Whether the resolver's store holds its text."""
        return isinstance(self.source, StoreBacked)

    @property
    def is_volatile(self) -> bool:
        """Whether it belongs to the volatile tail."""
        return self.layer == "volatile"

    @property
    def fingerprint(self) -> str:
        """A hash of everything declared that changes bytes, except for the content of files and computed text."""
        parts = (
            self.name,
            self.tier,
            self.shared,
            self.layer,
            self.order,
            self.priority,
            self.channel,
            type(self.source).__name__,
            self.source.kind,
            self.source.declared,
            (self.on_failure.action, self.on_failure.mark_text),
            self.policy.fingerprint,
        )
        return hashlib.sha256(repr(parts).encode(errors="backslashreplace")).hexdigest()[:32]


def _describes_itself(source: Any) -> bool:
    sharing: Any = source.sharing
    return (
        type(source.kind) is str
        and type(source.is_learned) is bool
        and isinstance(sharing, tuple)
        and bool(sharing)
        and all(each in SHARINGS for each in sharing)
        and isinstance(source.declared, tuple)
    )


def _wrong(field: str, reason: str) -> InvalidDeclarationError:
    return InvalidDeclarationError(reason, field=field)


def _permissions(given: object) -> frozenset[Permission]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _wrong("permissions", "must be a set of names, as {'read', 'add'}")
    names = tuple(given)
    for name in names:
        if type(name) is not str or name not in PERMISSIONS:
            raise _wrong("permissions", f"{name!r} is none of {', '.join(PERMISSIONS)}")
    if "read" not in names:
        raise _wrong("permissions", "must hold 'read': what is in the prompt is read")
    return frozenset(names)


def in_prompt_order(specs: Sequence[PromptBlockSpec]) -> tuple[PromptBlockSpec, ...]:
    """The blocks in the order of the prompt: layer, authority, how widely shared, order, name.

    Raises:
        InvalidDeclarationError: two blocks have one name, or something is no block.
    """
    seen: set[str] = set()
    for spec in specs:
        if not isinstance(spec, PromptBlockSpec):
            raise InvalidDeclarationError(f"must be PromptBlockSpec values, not {type(spec).__name__}", field="blocks")
        if spec.name in seen:
            raise InvalidDeclarationError("is declared twice", field="blocks", where=f"block {spec.name}")
        seen.add(spec.name)
    return tuple(sorted(specs, key=_place))


def _place(spec: PromptBlockSpec) -> tuple[Any, ...]:
    return (
        LAYERS.index(spec.layer),
        TIERS.index(spec.tier),
        SHARINGS.index(spec.shared),
        spec.order,
        spec.name,
    )
