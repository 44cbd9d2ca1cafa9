"""A store of either kind, and an import that takes text."""

from __future__ import annotations

import pytest

from promptkeel.blocking import open_store


@pytest.fixture(params=["ram", "sqlite"])
def store(request, tmp_path):
    url = "ram:" if request.param == "ram" else f"sqlite:///{tmp_path}/memory.db"
    with open_store(url) as opened:
        yield opened
