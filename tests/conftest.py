"""Hypothesis profiles and what every test shares."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from servers import Databases, postgres_databases

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=_SLOW)
# The same programs at every run, so that a change is judged by what it changed; "dev" and "deep" look for new ones.
settings.register_profile(
    "ci",
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=_SLOW,
    print_blob=True,
    derandomize=True,
)
settings.register_profile(
    "deep", max_examples=3000, stateful_step_count=80, deadline=None, suppress_health_check=_SLOW, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """Fresh databases on a PostgreSQL server that is there for the session."""
    with postgres_databases() as found:
        yield found
