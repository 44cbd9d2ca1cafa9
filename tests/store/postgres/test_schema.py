"""A store's schema: made once whoever comes first, by hand where wanted, refused where it is something else."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from promptkeel.errors import (
    InvalidInputError,
    MissingExtraError,
    NewerSchemaError,
    NotAStoreError,
    StoreDamagedError,
    StoreUnavailableError,
)
from promptkeel.scope import TenantScope
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Put
from promptkeel.store.postgres import PostgresEngine, schema_sql
from servers import Databases
from store.examples import ADA, SteppingClock, ids, node

Opener = Callable[..., PostgresEngine]


@pytest.fixture
def open_at(clock: SteppingClock) -> Any:
    opened: list[PostgresEngine] = []

    def open_it(url: str, **options: Any) -> PostgresEngine:
        opened.append(PostgresEngine(url, clock=clock, **options))
        return opened[-1]

    yield open_it
    for engine in opened:
        engine.close()


def run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as client:
        client.execute(statement)


def test_a_store_is_made_where_there_is_none_and_opened_again(empty_url: str, open_at: Opener) -> None:
    engine = open_at(empty_url)
    engine.apply([Put(node())])
    again = open_at(empty_url)
    assert again.heads(ADA) == engine.heads(ADA)
    assert again.secret() == engine.secret()


def test_many_may_make_it_at_once(empty_url: str, open_at: Opener) -> None:
    errors: list[BaseException] = []

    def make() -> None:
        try:
            open_at(empty_url)
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_the_printed_schema_makes_the_same_store(empty_url: str, open_at: Opener) -> None:
    run(empty_url, schema_sql("by_hand"))
    engine = open_at(empty_url, schema="by_hand")
    engine.apply([Put(node())])
    assert ids(engine.query_nodes(ADA, None, None)) == ["n1"]


def test_a_role_that_may_not_make_schemas_can_use_one(empty_url: str, open_at: Opener) -> None:
    run(empty_url, schema_sql())
    run(empty_url, "DROP ROLE IF EXISTS keel_writer; CREATE ROLE keel_writer LOGIN")
    try:
        run(empty_url, """GRANT USAGE ON SCHEMA promptkeel TO keel_writer;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA promptkeel TO keel_writer;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA promptkeel TO keel_writer""")  # fmt: skip
        engine = open_at(empty_url.replace("postgres@", "keel_writer@", 1))
        engine.apply([Put(node())])
        assert ids(engine.query_nodes(ADA, None, None)) == ["n1"]
        engine.close()
    finally:
        run(empty_url, "DROP OWNED BY keel_writer; DROP ROLE keel_writer")


def test_two_schemas_are_two_stores(empty_url: str, open_at: Opener) -> None:
    first, second = open_at(empty_url), open_at(empty_url + "&schema=other")
    first.apply([Put(node())])
    assert second.query_nodes(ADA, None, None) == []
    assert first.secret() != second.secret()
    second.apply([Put(node())])
    assert [head.seq for head in second.heads(ADA).levels] == [0, 0, 1]


@pytest.mark.parametrize("schema", ["Upper", "with space", 'quote"', "1st", "pg_own", "x" * 49])
def test_a_schemas_name_is_plain(empty_url: str, open_at: Opener, schema: str) -> None:
    with pytest.raises(InvalidInputError, match="schema"):
        open_at(empty_url, schema=schema)


def test_a_newer_schema_is_refused(empty_url: str, open_at: Opener) -> None:
    open_at(empty_url)
    run(empty_url, "UPDATE promptkeel.meta SET value = '99' WHERE key = 'schema'")
    with pytest.raises(NewerSchemaError, match="schema 99"):
        open_at(empty_url)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE SCHEMA promptkeel; CREATE TABLE promptkeel.orders(id int)",
        "CREATE SCHEMA promptkeel; CREATE TABLE promptkeel.meta(id int)",
        "CREATE SCHEMA promptkeel; CREATE TABLE promptkeel.meta(key text, value text)",
    ],
)
def test_what_is_no_store_is_not_touched(empty_url: str, open_at: Opener, statement: str) -> None:
    run(empty_url, statement)
    with pytest.raises(NotAStoreError, match="not touched"):
        open_at(empty_url)


def test_a_database_that_is_not_in_utf8_is_refused(databases: Databases, open_at: Opener) -> None:
    databases.run("CREATE DATABASE keel_latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        with pytest.raises(NotAStoreError, match="LATIN1"):
            open_at(databases.address("keel_latin"))
    finally:
        databases.run("DROP DATABASE keel_latin")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE promptkeel.nodes DISABLE TRIGGER nodes_update",
        "ALTER TABLE promptkeel.nodes_3 DISABLE TRIGGER nodes_delete",
        "ALTER TABLE promptkeel.nodes ENABLE TRIGGER nodes_insert",
        "DROP TRIGGER transactions_move_heads ON promptkeel.transactions",
    ],
)
def test_a_store_without_its_triggers_is_refused(empty_url: str, open_at: Opener, statement: str) -> None:
    open_at(empty_url)
    run(empty_url, statement)
    with pytest.raises(StoreDamagedError, match="trigger"):
        open_at(empty_url)


def test_a_server_that_is_not_there(tmp_path: Any, open_at: Opener) -> None:
    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        open_at(f"postgresql://postgres@/x?host={tmp_path}")


@pytest.mark.parametrize("url", ["postgresql://host/db?no_such_option=1", "postgres://[half"])
def test_an_address_that_libpq_cannot_read(open_at: Opener, url: str) -> None:
    with pytest.raises(NotAStoreError, match="no address"):
        open_at(url)


def test_an_address_may_leave_out_the_host(empty_url: str, open_at: Opener) -> None:
    spelled = empty_url.replace("postgres@", "", 1) + "&user=postgres&application_name=a%20b"
    assert spelled.startswith("postgresql:///")
    assert open_at(spelled).query_nodes(ADA, None, None) == []


def test_a_password_is_not_shown(empty_url: str, open_at: Opener) -> None:
    engine = open_at(empty_url.replace("postgres@", "postgres:s3cret@", 1))
    assert "s3cret" not in engine.url
    assert engine.url == empty_url


def test_without_its_driver_the_install_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name == "psycopg" else find_spec(name))
    for scheme in ("postgresql", "postgres"):
        with pytest.raises(MissingExtraError, match=r"promptkeel\[postgres\]"):
            open_engine(f"{scheme}://localhost/memory")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"pool_size": 0}, "pool_size"), ({"busy_timeout": -1}, "busy_timeout"), ({"log_limit": 0}, "log_limit"),
        ({"statement_timeout": 0}, "statement_timeout"),
    ],
)  # fmt: skip
def test_options_that_cannot_mean_anything(empty_url: str, open_at: Opener, options: Any, field: str) -> None:
    with pytest.raises(InvalidInputError, match=field):
        open_at(empty_url, **options)


@pytest.mark.parametrize("id_", ["it's", "back\\slash", "\\'; DROP TABLE nodes; --", "日本語", "a/b:c%"])
def test_a_scope_is_data_in_the_heads_probe(empty_url: str, open_at: Opener, id_: str) -> None:
    run(empty_url, f"ALTER DATABASE {psycopg.conninfo.conninfo_to_dict(empty_url)['dbname']} SET backslash_quote = on")
    engine = open_at(empty_url)
    scope = TenantScope([("org", id_)])
    engine.apply([Put(node(scope=scope))])
    assert [head.seq for head in engine.heads(scope).levels] == [0, 1]
