"""What is particular to the store in memory, and how an address becomes a store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from promptkeel.errors import InvalidInputError, NotAStoreError
from promptkeel.store.base import Engine, LaneRequest
from promptkeel.store.facade import BlockingStore
from promptkeel.store.opening import open_engine, open_store
from promptkeel.store.operations import Put
from store.examples import ADA, SteppingClock, ids, node

FORKED = """
import os
from promptkeel.errors import StoreClosedError
from promptkeel.scope import DEPLOYMENT
from promptkeel.store.opening import open_engine

engine = open_engine("ram:")
child = os.fork()
if not child:
    try:
        engine.query_nodes(DEPLOYMENT, None, None)
    except StoreClosedError as error:
        os._exit(0 if "fork" in str(error) else 2)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), engine.query_nodes(DEPLOYMENT, None, None))
"""


def test_a_forked_process_does_not_use_its_parents_memory() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


def test_two_stores_in_memory_share_nothing(clock: SteppingClock) -> None:
    one, other = (BlockingStore(open_engine("ram:", clock=clock)) for _ in range(2))
    one.put(node())
    assert other.query_nodes(ADA) == []
    assert one.core.engine.secret() != other.core.engine.secret()
    assert one.core.engine.probe() != other.core.engine.probe()


def test_the_log_is_bounded_exactly(clock: SteppingClock) -> None:
    engine = open_engine("ram:", clock=clock, log_limit=3)
    heads = [engine.heads(ADA)]
    for number in range(6):
        engine.apply([Put(node(f"n{number}"))])
        heads.append(engine.heads(ADA))
    assert [engine.changes(ADA, since, None).changes is None for since in heads] == [True] * 4 + [False] * 3
    assert ids(engine.query_nodes(ADA, None, None)) == [f"n{number}" for number in range(6)]
    assert [engine.catch_up(ADA, [LaneRequest("", since)]).lanes[0].whole for since in heads] == [True] * 4 + [
        False
    ] * 3


def test_a_log_holds_at_least_one_change(open_backend: Callable[..., Engine]) -> None:
    with pytest.raises(InvalidInputError, match="log_limit"):
        open_backend(log_limit=0)


@pytest.mark.parametrize("url", ["", "ram", "ram://", "RAM:", "mysql://host/db", "memory.db", "sqlite:", None, 7])
def test_an_address_that_names_no_store_is_refused(url: Any) -> None:
    with pytest.raises(NotAStoreError):
        open_engine(url)


def test_a_store_is_opened_by_its_address() -> None:
    assert repr(open_store("ram:")) == "<Store ram:>"


def test_importing_the_package_does_not_import_the_graph_library() -> None:
    code = "import sys, promptkeel.store; print('networkx' in sys.modules, 'apsw' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
