"""Every connection that cannot be worked on is refused with an error that says what to do, and nothing is written."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sqlite3
import threading
from pathlib import Path

import aiosqlite
import apsw
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

import promptkeel
from promptkeel import (
    InvalidInputError,
    NotAStoreError,
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TransactionError,
    TransactionRetryError,
    blocking,
)
from servers import Databases
from store.caller.worlds import BLOCKS, SCOPE
from store.stock_client import StockClient


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "memory.db")


@pytest.fixture
def keel(file):
    with blocking.open(f"sqlite:///{file}", blocks=BLOCKS, busy_timeout=0.1) as keel:
        yield keel
        assert keel.facts(SCOPE) == ()


@pytest.fixture
def standard(file):
    with blocking.open(f"sqlite:///{file}?driver=sqlite3", blocks=BLOCKS, busy_timeout=0.1) as keel:
        yield keel
        assert keel.facts(SCOPE) == ()


@pytest.fixture
def postgres(databases: Databases):
    url = databases.store()
    with blocking.open(url, blocks=BLOCKS) as keel:
        yield keel
        assert keel.facts(SCOPE) == ()
    databases.give_back(url)


def refused(keel, connection, words, kind=TransactionError):
    with pytest.raises(kind, match=words) as caught:
        keel.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - made here
    return caught.value


@pytest.mark.parametrize("thing", [None, 3, "sqlite:///memory.db", object(), threading.Lock()])
def test_what_is_no_connection_is_refused_at_once(keel, thing):
    with pytest.raises(TransactionError, match="no connection that a store can work on: give a connection of psycopg"):
        keel.on(thing)


def test_a_store_in_memory_takes_part_in_nothing(tmp_path):
    with (
        blocking.open("ram:", blocks=BLOCKS) as keel,
        contextlib.closing(apsw.Connection(str(tmp_path / "x.db"))) as connection,
    ):
        refused(keel, connection, "a store in memory cannot take part")


def test_a_closed_keel_is_said(file):
    with blocking.open(f"sqlite:///{file}", blocks=BLOCKS) as keel:
        pass
    with contextlib.closing(apsw.Connection(file)) as connection:
        refused(keel, connection, "is not open", promptkeel.StoreClosedError)


# SQLite


def test_apsw_without_a_transaction(keel, file):
    with contextlib.closing(apsw.Connection(file)) as connection:
        refused(keel, connection, "begin one first")
        with pytest.raises(TransactionError, match="begin one first"):
            keel.on(connection).facts(SCOPE)


def test_a_closed_connection(keel, file):
    connection = apsw.Connection(file)
    connection.close()
    refused(keel, connection, "is closed: give one that is open")


def test_a_closed_connection_of_python(standard, file):
    connection = sqlite3.connect(file)
    connection.close()
    refused(standard, connection, "is closed: give one that is open")


@pytest.mark.parametrize("name", ["other.db", ":memory:"])
def test_another_file(keel, tmp_path, name):
    path = name if name == ":memory:" else str(tmp_path / name)
    with contextlib.closing(apsw.Connection(path)) as connection:
        connection.execute("BEGIN")
        refused(keel, connection, "open the connection on the store's file")


def test_a_connection_to_a_server(keel, postgres):
    with psycopg.connect(postgres.url) as connection:
        refused(keel, connection, "is a SQLite file, and a connection to PostgreSQL does not lead there")


def test_the_other_copy_of_sqlite(keel, file):
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        error = refused(keel, connection, "two copies of SQLite in one process")
    assert "?driver=sqlite3" in str(error)


def test_the_other_copy_of_sqlite_the_other_way_round(standard):
    with contextlib.closing(apsw.Connection(":memory:")) as connection:
        connection.execute("BEGIN")
        refused(standard, connection, "open the keel without driver=sqlite3")


def test_sqlalchemy_on_the_other_copy_of_sqlite(keel):
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        refused(keel, connection, "driver=sqlite3")
    engine.dispose()


def test_a_file_is_opened_with_one_copy_only(keel, file):
    with pytest.raises(StoreUnavailableError, match="open it with the same driver"):
        blocking.open_store(f"sqlite:///{file}?driver=sqlite3")


def test_python_in_autocommit_without_a_transaction(standard, file):
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        refused(standard, connection, "begin one first")


def test_a_connection_of_another_thread(standard, file):
    made = []
    thread = threading.Thread(target=lambda: made.append(sqlite3.connect(file)))
    thread.start()
    thread.join()
    refused(standard, made[0], "another thread")
    del made[:]


def test_connections_that_cannot_write(keel, file):
    with contextlib.closing(apsw.Connection(file, flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.execute("BEGIN")
        refused(keel, connection, "read-only", StoreReadOnlyError)
    with contextlib.closing(apsw.Connection(file)) as connection:
        connection.execute("PRAGMA query_only = ON; BEGIN")
        refused(keel, connection, "query_only off", StoreReadOnlyError)


def test_a_read_only_connection_of_python(standard, file):
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        refused(standard, connection, "read-only", StoreReadOnlyError)


def test_triggers_that_are_switched_off(keel, file):
    with contextlib.closing(apsw.Connection(file)) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.execute("BEGIN")
        refused(keel, connection, "switch them on")


def test_a_trigger_that_was_dropped_inside_the_transaction(keel, file):
    with contextlib.closing(apsw.Connection(file)) as connection:
        connection.execute("BEGIN; DROP TRIGGER nodes_insert")
        refused(keel, connection, "nodes_insert", StoreDamagedError)
        connection.execute("ROLLBACK")


def test_a_temporary_table_in_the_way(keel, file):
    with contextlib.closing(apsw.Connection(file)) as connection:
        connection.execute("CREATE TEMP TABLE nodes(x); BEGIN")
        refused(keel, connection, "hides the store's")


def replace_under(file):
    """Another file at the store's path, as a restore by rename puts it there, without the old one's log."""
    for name in ("-wal", "-shm"):
        Path(file + name).rename(f"{file}{name}.old")
    Path(file + ".copy").replace(file)


@pytest.mark.parametrize("driver", ["apsw", "sqlite3"])
def test_a_file_that_was_replaced_since_takes_nothing_more(tmp_path, driver):
    """What a connection to the file before would commit, nobody would ever read."""
    file = str(tmp_path / "memory.db")
    url = f"sqlite:///{file}?driver={driver}"
    with blocking.open(url, blocks=BLOCKS) as keel:
        keel.remember(SCOPE, "was here before", block="PROFILE")
    Path(file + ".copy").write_bytes(Path(file).read_bytes())
    with blocking.open(url, blocks=BLOCKS) as keel, contextlib.closing(_begun(driver, file)) as connection:
        bound = keel.on(connection)
        assert len(bound.facts(SCOPE)) == 1
        connection.execute("COMMIT")
        replace_under(file)
        connection.execute("BEGIN")
        with pytest.raises(TransactionError, match="was replaced by another file: open a new connection"):
            bound.remember(SCOPE, "is read by nobody", block="PROFILE")
        with pytest.raises(TransactionError, match="was replaced by another file"):
            bound.facts(SCOPE)
        connection.execute("ROLLBACK")
        with contextlib.closing(_begun(driver, file)) as new:
            keel.on(new).remember(SCOPE, "is read", block="PROFILE")
            new.execute("COMMIT")
        assert sorted(fact.value for fact in keel.facts(SCOPE)) == ["is read", "was here before"]


def test_a_file_that_was_replaced_before_the_first_call_takes_nothing(tmp_path):
    file = str(tmp_path / "memory.db")
    with blocking.open(f"sqlite:///{file}", blocks=BLOCKS) as keel:
        keel.remember(SCOPE, "was here before", block="PROFILE")
    Path(file + ".copy").write_bytes(Path(file).read_bytes())
    with blocking.open(f"sqlite:///{file}", blocks=BLOCKS) as keel, contextlib.closing(_begun("apsw", file)) as old:
        replace_under(file)
        with pytest.raises(TransactionError, match="was replaced by another file: open a new connection"):
            keel.on(old).remember(SCOPE, "is read by nobody", block="PROFILE")


@pytest.mark.parametrize("driver", ["apsw", "sqlite3"])
@pytest.mark.parametrize("was", ["a store", "no store"])
def test_a_connection_to_what_was_there_before_the_store(tmp_path, driver, was):
    """Another store's file by the same name, or none of ours, that the connection still has open."""
    file = str(tmp_path / "memory.db")
    url = f"sqlite:///{file}?driver={driver}"
    if was == "a store":
        with blocking.open(url, blocks=BLOCKS) as keel:
            keel.remember(SCOPE, "of another store", block="PROFILE")
    with contextlib.closing(_begun(driver, file)) as old:
        for path in tmp_path.iterdir():
            path.rename(path.with_name(f"was-{path.name}"))
        with blocking.open(url, blocks=BLOCKS) as keel:
            refused(keel, old, "was replaced by another file: open a new connection")
            assert keel.facts(SCOPE) == ()


def _begun(driver, file):
    connection = apsw.Connection(file) if driver == "apsw" else sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN")
    # The file is opened at the first read, and kept.
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    return connection


def test_a_schema_that_the_connection_distrusts(standard, file):
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("BEGIN")
        try:
            standard.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")
        except TransactionError as error:
            # Older libraries count JSON functions among what must be trusted.
            assert "PRAGMA trusted_schema = ON" in str(error)  # noqa: PT017 - not every library raises
        connection.execute("ROLLBACK")


@pytest.mark.parametrize("kind", ["TEXT", "INTEGER", "ANY"])
def test_converters_of_what_the_store_reads(standard, file, kind, monkeypatch):
    with contextlib.closing(sqlite3.connect(file, detect_types=sqlite3.PARSE_DECLTYPES)) as connection:
        connection.execute("CREATE TABLE orders(number)")
        standard.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")
        monkeypatch.setitem(sqlite3.converters, kind, lambda value: ("converted", value))
        refused(standard, connection, f"converts values of type {kind}: connect without detect_types")
        connection.rollback()
    # A connection that converts nothing has nothing to do with them.
    with contextlib.closing(sqlite3.connect(file)) as connection:
        standard.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")
        assert [fact.value for fact in standard.on(connection).facts(SCOPE)] == ["prefers tea"]
        connection.rollback()


def test_another_writer_is_waited_for_as_long_as_the_connection_says(keel, file):
    with (
        contextlib.closing(apsw.Connection(file)) as writer,
        contextlib.closing(apsw.Connection(file)) as connection,
    ):
        writer.execute("BEGIN IMMEDIATE")
        connection.execute("BEGIN")
        refused(keel, connection, "the connection's own timeout", StoreBusyError)
        writer.execute("ROLLBACK")


def test_a_transaction_that_others_overtook_must_be_run_again(keel, file):
    with (
        contextlib.closing(apsw.Connection(file)) as writer,
        contextlib.closing(apsw.Connection(file)) as connection,
    ):
        writer.execute("CREATE TABLE orders(number)")
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM orders").fetchall()
        writer.execute("INSERT INTO orders VALUES (1)")
        refused(keel, connection, "run the whole of it again", TransactionRetryError)


def test_nobody_writes_between_what_a_call_saw_and_what_it_writes(file):
    kept_out = []

    def clock() -> int:
        with contextlib.closing(apsw.Connection(file)) as other:
            try:
                other.execute("INSERT INTO orders VALUES (1)")
            except apsw.BusyError as error:
                kept_out.append(error)
        return 1_767_225_600_000_000

    with (
        contextlib.closing(apsw.Connection(file)) as connection,
        blocking.open(f"sqlite:///{file}", blocks=BLOCKS, clock=clock) as keel,
    ):
        connection.execute("CREATE TABLE orders(number); BEGIN")
        keel.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")
        assert kept_out
        connection.execute("COMMIT")


@pytest.mark.parametrize("query", ["mode=ro", "driver=", "driver=pysqlite", "driver=sqlite3&timeout=3"])
def test_an_address_says_what_it_may_hold(file, query):
    with pytest.raises((NotAStoreError, InvalidInputError), match="driver"):
        blocking.open_store(f"sqlite:///{file}?{query}")


def test_a_library_that_is_too_old_is_said(file, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 1))
    with pytest.raises(StoreUnavailableError, match="or later: leave driver=sqlite3 out"):
        blocking.open_store(f"sqlite:///{file}?driver=sqlite3")


def test_a_full_disk_leaves_nothing_half_written(keel, file):
    with contextlib.closing(apsw.Connection(file)) as connection:
        connection.execute("CREATE TABLE orders(number)")
        pages = connection.pragma("page_count")
        connection.pragma("max_page_count", pages)
        connection.execute("BEGIN; INSERT INTO orders VALUES (1)")
        with pytest.raises(StoreFullError):
            keel.on(connection).remember(SCOPE, "a long text " * 10_000, block="PROFILE")
        assert connection.in_transaction
        connection.execute("INSERT INTO orders VALUES (2); COMMIT")
        assert connection.execute("SELECT count(*) FROM orders").get == 2


def test_row_traces_of_the_caller_are_neither_used_nor_lost(file):
    with (
        blocking.open(f"sqlite:///{file}", blocks=BLOCKS) as keel,
        contextlib.closing(apsw.Connection(file)) as connection,
    ):
        connection.row_trace = mine = lambda _, row: dict(enumerate(row))
        connection.execute("BEGIN")
        keel.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")
        assert [fact.value for fact in keel.on(connection).facts(SCOPE)] == ["prefers tea"]
        assert connection.row_trace is mine
        connection.execute("COMMIT")
        assert len(keel.facts(SCOPE)) == 1


class Dictionaries(apsw.Cursor):
    """A caller's own cursors."""

    def __next__(self):
        return dict(enumerate(super().__next__()))

    def fetchone(self):
        return None if (row := super().fetchone()) is None else dict(enumerate(row))

    def fetchall(self):
        return [dict(enumerate(row)) for row in super().fetchall()]


def test_cursors_of_the_caller_are_neither_used_nor_lost(file):
    with (
        blocking.open(f"sqlite:///{file}", blocks=BLOCKS) as keel,
        contextlib.closing(apsw.Connection(file)) as connection,
    ):
        connection.cursor_factory = Dictionaries
        connection.execute("BEGIN")
        keel.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")
        assert [fact.value for fact in keel.on(connection).facts(SCOPE)] == ["prefers tea"]
        assert connection.cursor_factory is Dictionaries
        connection.execute("COMMIT")
        assert len(keel.facts(SCOPE)) == 1


def test_a_log_that_a_caller_fills_is_trimmed(file):
    with (
        blocking.open(f"sqlite:///{file}", blocks=BLOCKS, log_limit=20) as keel,
        contextlib.closing(apsw.Connection(file)) as connection,
    ):
        for number in range(60):
            connection.execute("BEGIN")
            keel.on(connection).remember(SCOPE, f"fact {number}", block="PROFILE")
            connection.execute("COMMIT")
        first, last = keel.core.store.engine.log_span()
        assert last - first < 25
        assert len(keel.facts(SCOPE)) == 60


# PostgreSQL


def test_autocommit_without_a_transaction(postgres):
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        refused(postgres, connection, "begin one first")
        with connection.transaction(force_rollback=True):
            postgres.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")
            assert len(postgres.on(connection).facts(SCOPE)) == 1


def test_an_aborted_transaction(postgres):
    with psycopg.connect(postgres.url) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT nothing")
        refused(postgres, connection, "roll it back, and run the whole of it again")
        connection.rollback()


def test_a_closed_connection_to_a_server(postgres):
    with psycopg.connect(postgres.url) as connection:
        pass
    refused(postgres, connection, "is closed")


def test_a_connection_in_pipeline_mode(postgres):
    with psycopg.connect(postgres.url) as connection, connection.pipeline():
        refused(postgres, connection, "outside of the pipeline")


def test_another_encoding(postgres):
    with psycopg.connect(postgres.url, client_encoding="latin1") as connection:
        refused(postgres, connection, "client_encoding=UTF8")


def test_a_read_only_transaction(postgres):
    with psycopg.connect(postgres.url) as connection:
        connection.read_only = True
        refused(postgres, connection, "the transaction is read-only", StoreReadOnlyError)
        connection.rollback()


def test_another_database(postgres, databases: Databases):
    other = databases.empty()
    with psycopg.connect(other) as connection:
        refused(postgres, connection, "another database of the server")
        # Nothing was broken by looking.
        assert connection.execute("SELECT 1").fetchone() == (1,)
    databases.drop(other)


def test_a_file_is_no_server(postgres, tmp_path):
    with contextlib.closing(apsw.Connection(str(tmp_path / "x.db"))) as connection:
        refused(postgres, connection, "is a PostgreSQL database")


def test_an_asynchronous_connection_in_a_blocking_keel(postgres):
    async def body() -> None:
        async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
            with pytest.raises(TransactionError, match=r"has to be awaited: use promptkeel\.open"):
                postgres.on(connection)
        engine = create_async_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:", 1))
        with pytest.raises(TransactionError, match="has to be awaited"):
            postgres.on(engine.connect())
        await engine.dispose()

    asyncio.run(body())


def test_connections_of_aiosqlite_that_cannot_be_worked_on(file):
    url = f"sqlite:///{file}"

    async def remember(keel, connection, words):
        with pytest.raises(TransactionError, match=words):
            await keel.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")

    async def body() -> None:
        async with promptkeel.open(url, blocks=BLOCKS) as keel, aiosqlite.connect(":memory:") as connection:
            await remember(keel, connection, "two copies of SQLite in one process")
        async with promptkeel.open(f"{url}?driver=sqlite3", blocks=BLOCKS) as keel:
            async with aiosqlite.connect(":memory:") as connection:
                await remember(keel, connection, "open the connection on the store's file")
            async with aiosqlite.connect(file, isolation_level=None) as connection:
                await remember(keel, connection, "begin one first")
            async with aiosqlite.connect(file) as connection:
                bound = keel.on(connection)
                await bound.facts(SCOPE)
            await remember(keel, connection, "is closed, or was not awaited")
            with pytest.raises(TransactionError, match="is closed"):
                await bound.facts(SCOPE)
            await remember(keel, aiosqlite.connect(file), "is closed, or was not awaited")
            engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
            async with engine.connect() as connection:
                pass
            await remember(keel, connection, "is closed")
            await engine.dispose()
            assert await keel.facts(SCOPE) == ()
        with blocking.open(f"{url}?driver=sqlite3", blocks=BLOCKS) as keel:
            async with aiosqlite.connect(file) as connection:
                with pytest.raises(TransactionError, match="has to be awaited"):
                    keel.on(connection)

    asyncio.run(body())


def test_a_connection_of_aiosqlite_that_is_closed_in_the_middle_of_a_call(file):
    """Another task closes it between the read and the write of one call."""

    async def body() -> None:
        async with promptkeel.open(f"sqlite:///{file}?driver=sqlite3", blocks=BLOCKS) as keel:
            node = await keel.remember(SCOPE, "likes coffee", block="PROFILE")
            refusals = 0
            for turns in range(40):
                connection = await aiosqlite.connect(file)
                task = asyncio.ensure_future(keel.on(connection).correct(SCOPE, node.id, text=f"likes tea {turns}"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                await connection.close()
                try:
                    await task
                except TransactionError as error:
                    assert "is closed" in str(error)  # noqa: PT017 - how far it comes differs
                    refusals += 1
            assert refusals
            assert [fact.value for fact in await keel.facts(SCOPE)] == ["likes coffee"]

    asyncio.run(body())


def test_sqlalchemy_in_autocommit_and_closed(postgres):
    engine = create_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:", 1))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        refused(postgres, connection, "begin one first")
    refused(postgres, connection, "is closed")
    with Session(engine) as session:
        session.begin()
        postgres.on(session).remember(SCOPE, "prefers tea", block="PROFILE")
    engine.dispose()


def test_a_lock_that_is_held_for_longer_than_the_connection_waits(postgres):
    with psycopg.connect(postgres.url) as holder, psycopg.connect(postgres.url) as connection:
        postgres.on(holder).remember(SCOPE, "prefers tea", block="PROFILE")
        connection.execute("SET LOCAL lock_timeout = 50")
        refused(postgres, connection, "lock_timeout", TransactionRetryError)
        assert connection.execute("SHOW lock_timeout").fetchone() == ("50ms",)
        holder.rollback()
        connection.rollback()


def test_a_serialization_failure_must_be_run_again(postgres):
    node = postgres.remember(SCOPE, "prefers tea", block="PROFILE")
    with psycopg.connect(postgres.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1")
        assert len(postgres.on(connection).facts(SCOPE)) == 1
        postgres.correct(SCOPE, node.id, text="prefers coffee")
        with pytest.raises(TransactionRetryError, match="run the whole of it again"):
            postgres.on(connection).correct(SCOPE, node.id, text="prefers water")
        assert connection.isolation_level == psycopg.IsolationLevel.REPEATABLE_READ
        connection.rollback()
    postgres.erase(SCOPE, node.id)


def test_a_deadlock_must_be_run_again(postgres):
    nodes = [postgres.remember(SCOPE, text, block="PROFILE") for text in ("tea", "coffee")]
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        errors = []

        def correct(connection, node, text) -> None:
            try:
                postgres.on(connection).correct(SCOPE, node.id, text=text)
            except TransactionRetryError as error:
                errors.append(error)
                # Its earlier locks are in the other's way until all of it is rolled back.
                connection.rollback()

        correct(one, nodes[0], "a")
        correct(two, nodes[1], "b")
        thread = threading.Thread(target=correct, args=(one, nodes[1], "c"))
        thread.start()
        correct(two, nodes[0], "d")
        thread.join()
        assert len(errors) == 1
        one.rollback()
        two.rollback()
    for each in nodes:
        postgres.erase(SCOPE, each.id)


def test_nothing_is_prepared_on_a_callers_connection(postgres):
    with psycopg.connect(postgres.url, prepare_threshold=0) as connection:
        for number in range(3):
            postgres.on(connection).remember(SCOPE, f"fact {number}", block="PROFILE")
        assert connection.execute("SELECT count(*) FROM pg_prepared_statements", prepare=False).fetchone() == (0,)
        connection.rollback()


def test_what_another_process_reads_meanwhile(file):
    with (
        StockClient() as client,
        blocking.open(f"sqlite:///{file}?driver=sqlite3", blocks=BLOCKS) as keel,
        contextlib.closing(sqlite3.connect(file)) as connection,
    ):
        keel.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")
        other = client.connect(file)
        assert other.execute("SELECT count(*) FROM nodes").fetchone() == (0,)
        connection.commit()
        assert other.execute("SELECT count(*) FROM nodes").fetchone() == (1,)
        other.close()
