"""Random programs of writes, raw edits and prompts: what is answered warm is what a cold rebuild and a model say."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import promptkeel as pk
from promptkeel import blocking
from promptkeel.instants import parse_instant
from store.stock_client import StockClient

SCOPES = [pk.TenantScope.parse(path) for path in ("", "org:a", "org:a/user:x", "org:a/user:y", "org:b/user:x")]
BLOCKS = [
    pk.PromptBlockSpec(name="RULES", source=pk.StaticSource("Be brief.")),
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:", profile_fields={"role"})),
    pk.PromptBlockSpec(name="PREFERENCES", source=pk.MemoryLane("PREFERENCE:")),
]
PREFIXES = {"USER_PROFILE": "SOUL:", "PREFERENCES": "PREFERENCE:"}
scopes = st.sampled_from(SCOPES)
blocks = st.sampled_from(sorted(PREFIXES))
texts = st.sampled_from(["tea", "coffee", " tea ", "<b>", "a\nb", "日本語", "role: CTO", "%_"]) | st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=6
).filter(lambda text: text.strip())
sources = st.sampled_from([None, "crm", "user note"])
times = st.sampled_from([None, "2026-05-02", "2026-05-02T23:59:59.999999Z", "2026-05-03T00:00:00+02:00"])


class PromptMachine(RuleBasedStateMachine):
    """Two handles on one store, a model beside them."""

    url = "ram:"
    stock_client: StockClient

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "memory.db"
        url = self.url.format(path=self.path)
        self.now = parse_instant("2026-06-01T00:00:00Z")
        self.keel = blocking.open(url, blocks=BLOCKS, clock=self.tick).__enter__()
        self.other = self.keel if url == "ram:" else blocking.open(url, blocks=BLOCKS, clock=self.tick).__enter__()
        self.nodes: dict[tuple[str, str], dict] = {}
        self.counter = 0
        self.last: dict[str, pk.Prompt] = {}

    def tick(self) -> int:
        self.now += 1
        return self.now

    def teardown(self) -> None:
        if hasattr(self, "keel"):
            self.keel.__exit__()
            if self.other is not self.keel:
                self.other.__exit__()
            self.folder.cleanup()

    def live(self, data):
        live = sorted(key for key, node in self.nodes.items() if node["live"])
        return data.draw(st.sampled_from(live)) if live else None

    @rule(scope=scopes, block=blocks, text=texts, source=sources, recorded=times, elsewhere=st.booleans())
    def remember(self, scope, block, text, source, recorded, elsewhere) -> None:
        self.counter += 1
        node_id = f"n{self.counter}"
        label = PREFIXES[block] + text
        keel = self.other if elsewhere else self.keel
        node = keel.remember(scope, text, block=block, source=source, recorded_at=recorded, id=node_id)
        held = any(n["live"] and n["scope"] == scope and n["label"] == label for n in self.nodes.values())
        assert (node.id != node_id) == held
        if not held:
            self.nodes[scope.root, node_id] = {
                "scope": scope, "label": label, "source": source, "live": True, "role": None,
                "recorded": None if recorded is None else parse_instant(recorded), "id": node_id,
            }  # fmt: skip

    @rule(data=st.data(), role=st.sampled_from(["CTO", "cook", 7, True]), elsewhere=st.booleans())
    def correct(self, data, role, elsewhere) -> None:
        key = self.live(data)
        if key and self.nodes[key]["label"].startswith("SOUL:"):
            keel = self.other if elsewhere else self.keel
            keel.correct(self.nodes[key]["scope"], key[1], properties={"role": role}, source="fix")
            self.nodes[key]["role"] = (role, self.now)

    @rule(data=st.data())
    def retract(self, data) -> None:
        key = self.live(data)
        if key:
            self.other.retract(self.nodes[key]["scope"], key[1])
            self.nodes[key]["live"] = False

    @rule(data=st.data())
    def erase(self, data) -> None:
        key = self.live(data)
        if key:
            self.other.erase(self.nodes[key]["scope"], key[1])
            del self.nodes[key]

    @rule(data=st.data(), block=blocks, text=texts)
    def relabel_by_sql(self, data, block, text) -> None:
        key = self.live(data)
        if key and self.path.exists():
            self._sql("update nodes set label = ? where root = ? and id = ?", (PREFIXES[block] + text, *key))
            self.nodes[key]["label"] = PREFIXES[block] + text

    @rule(data=st.data(), scope=scopes)
    def move_by_sql(self, data, scope) -> None:
        key = self.live(data)
        if key and self.path.exists() and (scope.root, key[1]) not in {*self.nodes} - {key}:
            statement = "update nodes set scope = ? where root = ? and id = ?"
            self._sql(statement, (scope.path, *key))
            node = self.nodes.pop(key)
            node["scope"] = scope
            self.nodes[scope.root, key[1]] = node

    @rule(data=st.data())
    def delete_by_sql(self, data) -> None:
        key = self.live(data)
        if key and self.path.exists():
            self._sql("delete from nodes where root = ? and id = ?", key)
            del self.nodes[key]

    def _sql(self, statement, values) -> None:
        assert self.stock_client.run(self.path, statement, values) == 1

    def expected(self, scope, prefix) -> list[tuple]:
        lane = [
            n for n in self.nodes.values() if n["live"] and scope.sees(n["scope"]) and n["label"].startswith(prefix)
        ]
        lane.sort(key=lambda n: (n["label"], n["recorded"] is not None, n["recorded"] or 0, n["id"], n["scope"].path))
        facts = []
        for node in lane:
            text = node["label"].removeprefix(prefix).strip()
            facts.append((text, node["source"], node["recorded"]))
            if prefix == "SOUL:" and node["role"]:
                role, at = node["role"]
                shown = role if isinstance(role, str) else ("true" if role is True else str(role))
                facts.append((f"role: {shown}", "fix", at))
        return facts

    @rule(scope=scopes, warm=st.integers(0, 2))
    def prompt(self, scope, warm) -> None:
        prompt = self.keel.prompt(scope)
        for _ in range(warm):
            assert self.keel.prompt(scope) is prompt, "nothing moved in between"
        resolver = blocking.PromptBlockResolver(BLOCKS, memory=self.keel.store)
        cold = blocking.PromptBuilder(resolver).build(scope)
        assert prompt.text == cold.text
        assert prompt.heads == cold.heads
        assert [block.revision_id for block in prompt.blocks] == [block.revision_id for block in cold.blocks]
        for name, prefix in PREFIXES.items():
            facts = [(fact.value, fact.source, fact.recorded) for fact in prompt.block(name).facts]
            assert facts == self.expected(scope, prefix)
            assert prompt.block(name).facts == cold.block(name).facts, "node ids too"
        last = self.last.get(scope.path)
        if last is not None and last.heads == prompt.heads:
            assert last.text == prompt.text, "equal heads, equal prompt"
        self.last[scope.path] = prompt

    @invariant()
    def a_write_that_a_scope_cannot_see_moves_none_of_its_bytes(self) -> None:
        if not getattr(self, "last", None):
            return
        for path, last in self.last.items():
            scope = pk.TenantScope.parse(path)
            seen = [self.expected(scope, prefix) for prefix in PREFIXES.values()]
            then = [[(f.value, f.source, f.recorded) for f in last.block(name).facts] for name in PREFIXES]
            if seen == then:
                assert self.keel.prompt(scope).text == last.text


class SqlitePromptMachine(PromptMachine):
    """The same on a file, edited by plain SQL from another process too."""

    url = "sqlite:///{path}"


TestPromptsInMemory = PromptMachine.TestCase


class TestPromptsOnSqlite(SqlitePromptMachine.TestCase):
    """One stock client serves every example."""

    @classmethod
    def setUpClass(cls) -> None:
        PromptMachine.stock_client = StockClient()

    @classmethod
    def tearDownClass(cls) -> None:
        PromptMachine.stock_client.__exit__()
