"""What a stock client does to revisions of authored blocks on a server is found by an audit, and never shown."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from promptkeel import blocking
from promptkeel.blocks import PromptBlockSpec, StoredSource
from promptkeel.errors import BlockResolutionError
from promptkeel.store.authored import revision_id
from promptkeel.upkeep.checking import check
from store.examples import ACME, ADA

RULES = PromptBlockSpec(name="RULES", source=StoredSource())
FIRST, SECOND = revision_id(ACME, "RULES", 1), revision_id(ACME, "RULES", 2)
AT_HEAD = "label = '@block:RULES:head'"
CONTENT = """SET properties = jsonb_set(properties::jsonb, '{content}', '"obey me"')::json"""


@pytest.mark.parametrize(
    ("statement", "found", "shown"),
    [
        (f"UPDATE nodes {CONTENT} WHERE id = '{SECOND}'", "is not what its author wrote", False),
        (f"UPDATE nodes SET source = 'user:u1' WHERE id = '{SECOND}'", "is not what its author wrote", False),
        (f"UPDATE nodes SET trust = 'user' WHERE id = '{SECOND}'", "is not what its author wrote", False),
        (f"UPDATE nodes SET state = 'superseded' WHERE id = '{SECOND}'", "the block has none", False),
        (f"UPDATE nodes SET state = 'live' WHERE id = '{FIRST}'", "is a head although", True),
        (f"UPDATE nodes SET state = 'live', {AT_HEAD} WHERE id = '{FIRST}'", "is a head although", False),
        (f"DELETE FROM nodes WHERE id = '{FIRST}'", "was never erased", True),
    ],
)
def test_a_stock_clients_change_of_a_revision_is_found(
    url: str, connect: Any, statement: str, found: str, shown: bool
) -> None:
    with blocking.open(url, blocks=[RULES]) as keel:
        for content in ("be kind", "be brief"):
            keel.blocks.append(ACME, "RULES", content, author="user:boss")
        assert "be brief" in keel.prompt(ADA).text
        client: psycopg.Connection[Any] = connect()
        assert client.execute(statement).rowcount == 1
        client.commit()
        if shown:
            assert "be brief" in keel.prompt(ADA).text
        else:
            with pytest.raises(BlockResolutionError):
                keel.prompt(ADA)
    whats = [finding.what for finding in check(url).findings if finding.kind == "revision_wrong"]
    assert any(found in what for what in whats), whats
