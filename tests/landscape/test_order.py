"""What others lost to an order that was not total: equal ranks, equal names, hash maps, folders, and sorted numbers.

The letters are those of the list of reported faults that this project was given.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import module_from_spec, spec_from_file_location
from itertools import permutations
from pathlib import Path

import pytest

import promptkeel as pk
from conversing import ADA, FORMATS, prompt_of, specs
from promptkeel import blocking
from promptkeel.errors import InvalidInputError

ALL = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
AT = "2026-05-02T10:00:00Z"
PROFILE = pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"))


@pytest.fixture
def shell():
    """A stock SQLite client in a process of its own: two SQLite libraries in one process damage a file."""
    path = Path(__file__).parents[1] / "store" / "stock_client.py"
    spec = spec_from_file_location("stock_client", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.StockClient() as client:
        yield client


def test_b11_of_facts_of_one_rank_a_limit_keeps_the_same_ones_after_the_file_was_rebuilt(tmp_path, shell):
    path = tmp_path / "memory.db"
    seen, prompts = [], []
    for statement in (None, "REINDEX", "VACUUM"):
        if statement is not None:
            shell.run(path, statement)
        with blocking.open(f"sqlite:///{path}", blocks=[PROFILE]) as keel:
            if statement is None:
                for node_id in ("c", "a", "b"):
                    keel.store.put(pk.MemoryNode(id=node_id, scope=ADA, label="SOUL:one", recorded_at=AT))
            seen.append([node.id for node in keel.store.query_nodes(ADA, label_prefix="SOUL:", limit=2)])
            prompts.append(keel.prompt(ADA).text)
    assert seen == [["a", "b"]] * 3
    assert len(set(prompts)) == 1


def test_b11_a_limit_of_a_block_keeps_the_same_facts_of_one_instant_whatever_their_arrival():
    policy = pk.RenderPolicy(max_facts=2, fence="7f3a9c")
    limited = pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), policy=policy)
    texts = set()
    for order in permutations(("x", "y", "z")):
        with blocking.open("ram:", blocks=[limited]) as keel:
            for word in order:
                keel.store.put(pk.MemoryNode(id=word, scope=ADA, label=f"SOUL:{word}", recorded_at=AT, created_at=AT))
            texts.add(keel.prompt(ADA).text)
    assert len(texts) == 1
    assert "1 fact left out" in texts.pop()


@ALL
def test_b13_tools_of_one_name_stand_in_one_order(form):
    one, two = form.tool(1), form.tool(2)
    text = json.dumps(two).replace("tool_2", "tool_1")
    twins = [one, json.loads(text), form.tool(0)]
    requests = {
        json.dumps(dict(form.request(prompt_of(), [form.user("hi")], tools=list(order))))
        for order in permutations(twins)
    }
    assert len(requests) == 1
    assert requests.pop().count('"tool_1"') == 2


def test_b15_sections_stand_in_one_order_whatever_the_order_of_declaration_and_the_turn():
    texts = set()
    for order in permutations(specs()[1:]):
        with blocking.open("ram:", blocks=list(order)) as keel:
            for label in ("SOUL:a", "PREF:b", "FOCUS:c"):
                keel.store.put(pk.MemoryNode(id=label, scope=ADA, label=label, recorded_at=AT))
            for _ in range(3):
                blocks = keel.prompt(ADA).blocks
                texts.add(tuple(block.name for block in blocks))
    assert texts == {("RULES", "USER_PROFILE", "PREFERENCES", "FOCUS")}


@ALL
def test_b17_keys_that_would_change_when_they_are_read_again_are_refused(form):
    tool = {**form.tool(0), "examples": {10: "ten", 9: "nine"}}
    with pytest.raises(InvalidInputError, match="must be text") as caught:
        form.request(prompt_of(), [form.user("hi")], tools=[tool])
    assert caught.value.field == "tools[0].examples"


def test_b18_files_copied_into_a_folder_in_another_order_give_the_same_prompt(tmp_path):
    names = ["zebra", "middle", "alpha"]
    texts = set()
    for number, order in enumerate(permutations(names)):
        folder, copied = tmp_path / f"{number}", tmp_path / f"copy of {number}"
        folder.mkdir()
        for name in order:
            (folder / name).write_text(f"What {name} says.\n")
        shutil.copytree(folder, copied)
        for place in (folder, copied):
            files = [(path.name, pk.FileSource(str(path))) for path in place.iterdir()]
            blocks = [pk.PromptBlockSpec(name=name.upper(), source=source, tier="operating") for name, source in files]
            with blocking.open("ram:", blocks=blocks) as keel:
                texts.add(keel.prompt(ADA).text)
    assert len(texts) == 1
    (text,) = texts
    places = [text.index(f"What {name}") for name in sorted(names)]
    assert places == sorted(places)
