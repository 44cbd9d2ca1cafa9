"""Random stores in which every text of a node carries a token of that node alone, and a plain model of them."""

from __future__ import annotations

import random
from typing import Any

import attrs

from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.base import Engine, NodeKey
from promptkeel.store.operations import Correct, Link, Operation, Put, Remember, Retract
from promptkeel.upkeep.erasure import EraseAll, ErasureRequest

PATHS = ("", "org:a", "org:ab", "org:a/user:x", "org:a/user:xy", "org:a/user:x/run:1", "org:ab/user:x")
SCOPES = tuple(TenantScope.parse(path) for path in PATHS)
PREFIXES = ("SOUL:", "SOUL_X:", "HEALTH:")
PEOPLE = ("ada@example.org", "bob@example.org")


@attrs.define
class Kept:
    """What the model knows of one node: everything that it said in any version, and its tokens."""

    scope: TenantScope
    labels: list[str]
    emails: list[str]
    token: str


@attrs.define
class World:
    """What was written."""

    nodes: dict[NodeKey, Kept] = attrs.field(factory=dict)
    edges: list[tuple[NodeKey, str, NodeKey]] = attrs.field(factory=list)

    def expected(self, request: ErasureRequest) -> set[NodeKey]:
        """Which nodes a request takes, decided by brute force."""
        below = not isinstance(request, EraseAll) or request.below
        scope = request.scope
        inside = {
            key
            for key, node in self.nodes.items()
            if node.scope == scope or (below and node.scope.levels[: len(scope.levels)] == scope.levels)
        }
        if isinstance(request, EraseAll):
            prefix = request.label_prefix or ""
            return {key for key in inside if any(label.startswith(prefix) for label in self.nodes[key].labels)}
        taken = {key for key in inside if request.properties.get("email") in self.nodes[key].emails}
        named = {key for key in self.nodes if key[1] == request.about}
        taken |= {start for start, kind, end in self.edges if kind == "about" and end in taken | named} & inside
        reached = taken | named
        while more := {s for s, kind, e in self.edges if kind == "derived_from" and e in reached} & inside - reached:
            reached |= more
        return (taken | reached) & inside

    def tokens(self, keys: Any) -> list[str]:
        """The tokens of these nodes."""
        return [self.nodes[key].token for key in keys]


def build(engine: Engine, chance: random.Random, *, size: int = 14, longest: int = 3) -> World:
    """Fill a store: nodes, corrections, changed prefixes, confirmations, retractions and edges."""
    world = World()
    for number in range(size):
        scope = chance.choice(SCOPES)
        token = f"tok{number:03d}x{chance.getrandbits(40):010x}"
        label = chance.choice(PREFIXES) + _text(chance, token, longest)
        email = chance.choice(PEOPLE)
        properties = {"email": email, "note": _text(chance, token, longest), "deep": {"list": [token + '\n"é']}}
        node = MemoryNode(id=f"n{number}", scope=scope, label=label, properties=properties, source=f"said by {token}")
        operations: list[Operation] = [Put(node)]
        kept = world.nodes[scope.root, node.id] = Kept(scope, [label], [email], token)
        engine.apply(operations)
        for _ in range(chance.randrange(3)):
            engine.apply([_change(engine, chance, kept, node.id, longest)])
    keys = list(world.nodes)
    for _ in range(size):
        start, end = chance.sample(keys, 2)
        scope = world.nodes[start].scope
        kind = chance.choice(("about", "derived_from"))
        is_cycle = kind == "derived_from" and int(start[1][1:]) < int(end[1][1:])
        if is_cycle or not scope.sees(world.nodes[end].scope):
            continue
        why = world.nodes[start].token + " because of " + world.nodes[end].token
        engine.apply([Link(MemoryEdge(scope=scope, start=start[1], type=kind, end=end[1], properties={"why": why}))])
        if (start, kind, end) not in world.edges:
            world.edges.append((start, kind, end))
    return world


def _text(chance: random.Random, token: str, longest: int) -> str:
    return " ".join([token] * chance.choice((1, 2, longest)))


def _change(engine: Engine, chance: random.Random, kept: Kept, node_id: str, longest: int) -> Operation:
    now = engine.get(kept.scope, node_id)
    match chance.randrange(5):
        case 0:
            email = chance.choice(PEOPLE)
            kept.emails.append(email)
            return Correct(scope=kept.scope, node_id=node_id, properties={"email": email}, source=kept.token)
        case 1:
            return Correct(
                scope=kept.scope,
                node_id=node_id,
                properties={"note": f"too late {kept.token}"},
                recorded=1,
                source=f"outdated {kept.token}",
            )
        case 2:
            label = chance.choice(PREFIXES) + _text(chance, kept.token, longest) + " again"
            kept.labels.append(label)
            return Put(attrs.evolve(now, label=label), now)
        case 3 if now.state == "live":
            return Remember(MemoryNode(id="unused", scope=kept.scope, label=now.label, source=f"too: {kept.token}"))
        case _:
            return Retract(kept.scope, node_id)


def everything(engine: Engine) -> dict[str, Any]:
    """All that can be read of a store, by what it is about."""
    stored = engine.stored(DEPLOYMENT)
    return {
        "nodes": {(node.scope.root, node.id): node for node in stored.nodes},
        "histories": {(node.scope.root, node.id): engine.history(node.scope, node.id) for node in stored.nodes},
        "edges": {(edge.scope.root, edge.start, edge.type, edge.end): edge for edge in stored.edges},
        "lanes": {scope.path: engine.query_nodes(scope, None, None) for scope in SCOPES},
    }
