"""A bounded cache never holds more than its limit and forgets what was not used."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from promptkeel.resolver.cache import BoundedCache


@given(
    st.integers(1, 30),
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 12), st.booleans()), max_size=60),
)
def test_the_weights_never_exceed_the_limit_and_what_is_kept_is_the_newest_value(limit, program):
    cache: BoundedCache[str, int] = BoundedCache(limit, lambda value: value)
    newest: dict[str, int] = {}
    for key, value, write in program:
        if write:
            cache.put(key, value)
            newest[key] = value
            assert cache.get(key) == (value if value <= limit else None)
        else:
            assert cache.get(key) in (newest.get(key), None)
        kept = {key: cache.get(key) for key in cache}
        assert cache.weight == sum(kept.values()) <= limit
        assert all(newest[key] == value for key, value in kept.items())


def test_what_was_used_since_the_last_round_outlives_what_was_not():
    cache: BoundedCache[str, int] = BoundedCache(3, lambda _: 1)
    for key in "abc":
        cache.put(key, 1)
    cache.put("d", 1)  # a round of eviction: everything loses its mark, one goes
    survivors = [key for key in cache if key != "d"]
    cache.get(survivors[0])
    cache.put("e", 1)
    assert cache.get(survivors[0]) == 1


def test_settle_chooses_between_the_kept_and_the_offered_value():
    cache: BoundedCache[str, int] = BoundedCache(10, lambda _: 1)
    assert cache.settle("a", lambda present: 5 if present is None else max(present, 5)) == 5
    assert cache.settle("a", lambda present: max(present or 0, 3)) == 5
    assert cache.get("a") == 5
    cache.clear()
    assert cache.get("a") is None
    assert cache.weight == 0
