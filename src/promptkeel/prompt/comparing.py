"""Where two prompts, or two requests, part: the first byte, whose it is, and what it costs. Pure.

A provider's cache keeps a prefix up to its first changed byte; everything behind that is paid for again. What moved the
byte is named by block and by fact; who wrote the fact is the store's to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, final

import attrs

from promptkeel.model import BlockFact
from promptkeel.providers.canonical import tool_name
from promptkeel.providers.counting import tokens_of
from promptkeel.providers.rules import ModelRules
from promptkeel.providers.segments import Segment, WireRequest
from promptkeel.providers.wire.blocks import parsed
from promptkeel.tokens import TokenCounter

Kind = Literal["changed", "new", "gone", "moved"]
_EXCERPT = 160


@final
@attrs.frozen(order=False)
class Part:
    """A part of a prompt or of a request that has a name.

    Attributes:
        name: as a block's name, or ``tools: get_weather``.
        text: its text.
        tokens: how many it has.
        facts: what it states, of a block of memory.
        lasts: whether a cache is to keep it: it is no part of the tail.
    """

    name: str
    text: str
    tokens: int
    facts: tuple[BlockFact, ...] = ()
    lasts: bool = True


@final
@attrs.frozen(order=False)
class FactChange:
    """A fact that is in one of two prompts only.

    Attributes:
        fact: which fact.
        is_new: whether the later prompt has it.
    """

    fact: BlockFact
    is_new: bool


@final
@attrs.frozen(order=False)
class Divergence:
    """Where a later text parts from an earlier one.

    Attributes:
        offset: how many bytes of UTF-8 the texts share.
        part: the part that the first different byte belongs to.
        kind: what became of that part.
        before: the earlier text from the line on that differs, cut short; empty at its end.
        after: the later text from there on.
        facts: the facts of that part that came or went.
        lost_tokens: tokens of what was kept and is behind the byte.
        lost_dollars: what writing them once more costs beyond reading them; None where no price is known.
    """

    offset: int
    part: str
    kind: Kind
    before: str
    after: str
    facts: tuple[FactChange, ...]
    lost_tokens: int
    lost_dollars: float | None = None

    def __str__(self) -> str:
        changes = [f"{'+' if change.is_new else '-'} {change.fact.value}" for change in self.facts[:3]]
        more = f" and {len(self.facts) - 3} more" if len(self.facts) > len(changes) else ""
        facts = f" ({'; '.join(changes)}{more})" if changes else ""
        return f"byte {self.offset}: {self.part} is {self.kind}{facts}; about {self.lost_tokens} cached tokens lost"


def compare(
    before: Sequence[Part], after: Sequence[Part], *, rules: ModelRules | None = None, kept_behind: int = 0
) -> Divergence | None:
    """The first difference of two texts, given as their parts in order; None where they are equal.

    Args:
        before: the earlier one.
        after: the later one.
        rules: of the model, for prices.
        kept_behind: tokens that a cache kept behind the earlier text, as the history of a conversation.
    """
    place = _first_difference(before, after)
    if place is None:
        return None
    offset = sum(len(part.text.encode()) for part in before[:place])
    old = before[place] if place < len(before) else None
    new = after[place] if place < len(after) else None
    part, kind = _what_happened(before, after, place)
    inside = 0
    if old is not None and new is not None and old.name == new.name:
        inside = shared_bytes(old.text, new.text)
    lost = _lost(before, place, inside, kept_behind)
    return Divergence(
        offset + inside,
        part,
        kind,
        _line_at(old, inside),
        _line_at(new, inside),
        _changed_facts(part, before, after),
        lost,
        _dollars(lost, rules),
    )


def _first_difference(before: Sequence[Part], after: Sequence[Part]) -> int | None:
    for place in range(max(len(before), len(after))):
        if place >= len(before) or place >= len(after):
            return place
        if (before[place].name, before[place].text) != (after[place].name, after[place].text):
            return place
    return None


def _what_happened(before: Sequence[Part], after: Sequence[Part], place: int) -> tuple[str, Kind]:
    old = before[place].name if place < len(before) else None
    new = after[place].name if place < len(after) else None
    if old == new and old is not None:
        return old, "changed"
    if old is None or (new is not None and new not in [part.name for part in before[place:]]):
        assert new is not None  # noqa: S101 - one of them goes on
        return new, "new"
    if old not in [part.name for part in after[place:]]:
        return old, "gone"
    return old, "moved"


def _lost(before: Sequence[Part], place: int, inside: int, kept_behind: int) -> int:
    kept = [part for part in before[place:] if part.lasts]
    if place < len(before) and not before[place].lasts:
        return 0
    lost = sum(part.tokens for part in kept) + kept_behind
    if inside and place < len(before):
        part = before[place]
        # Tokens are taken to be spread evenly over the text.
        lost -= part.tokens * inside // max(1, len(part.text.encode()))
    return lost


def _dollars(tokens: int, rules: ModelRules | None) -> float | None:
    if rules is None or rules.input_price is None:
        return None
    write = rules.write_factors[0] if rules.write_factors else 1.0
    return tokens * (write - rules.read_factor) * rules.input_price / 1_000_000


def shared_bytes(before: str, after: str) -> int:
    """How many bytes of UTF-8 two texts share from the beginning on."""
    one, other = before.encode(errors="surrogatepass"), after.encode(errors="surrogatepass")
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _line_at(part: Part | None, offset: int) -> str:
    if part is None:
        return ""
    encoded = part.text.encode(errors="surrogatepass")
    start = encoded.rfind(b"\n", 0, offset) + 1
    # A line may be the whole of a long text: then a stretch around the byte says more.
    start = max(start, offset - _EXCERPT // 2)
    return encoded[start : start + _EXCERPT].decode(errors="ignore").lstrip("\n").partition("\n")[0]


def _changed_facts(name: str, before: Sequence[Part], after: Sequence[Part]) -> tuple[FactChange, ...]:
    def facts(parts: Sequence[Part]) -> Counter[BlockFact]:
        return Counter(fact for part in parts if part.name == name for fact in part.facts)

    old, new = facts(before), facts(after)
    gone = [FactChange(fact, is_new=False) for fact in (old - new).elements()]
    return (*gone, *(FactChange(fact, is_new=True) for fact in (new - old).elements()))


def parts_of_request(request: WireRequest, counter: TokenCounter) -> list[Part]:
    """A request as parts, named by where they stand."""
    return [
        Part(_name_of(segment, place, request.segments), segment.content, tokens_of(segment, counter))
        for place, segment in enumerate(request.segments)
    ]


def _name_of(segment: Segment, place: int, segments: Sequence[Segment]) -> str:
    if segment.section == "tools":
        return f"tools: {tool_name(parsed(segment.content))}"
    if segment.section == "system":
        first = next(index for index, each in enumerate(segments) if each.section == "system")
        return f"system[{place - first}]"
    return f"messages[{segment.message}]: {segment.role} {segment.kind}"
