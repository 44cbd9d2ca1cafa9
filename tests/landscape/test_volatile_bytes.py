"""What others let into the prefix: clocks, ages, ids of sessions, counters. Here none of them is before the last mark.

The letters are those of the list of reported faults that this project was given.
"""

from __future__ import annotations

import datetime as dt
import json
import re

import pytest

from conversing import ADA, FORMATS, builder_of, specs
from promptkeel import blocking
from promptkeel.instants import parse_instant
from promptkeel.providers.wire import read_request

ALL = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
START = parse_instant("2026-06-01T23:59:59Z")
SECOND = 1_000_000
FACTS = ("SOUL:prefers tea", "PREF:window seats", "FOCUS:plans a journey")


def remembered(keel):
    for label in FACTS:
        keel.remember(ADA, label=label, trust="user", source="onboarding", recorded_at="2026-05-02")
    return keel


def before_the_tail(form, request):
    """The segments of a request up to its last marked one; all but the last message where the format has no marks."""
    body = {name: value for name, value in request.items() if name != "extra_body"}
    segments = read_request(form.name, body).segments
    marked = [index for index, each in enumerate(segments) if each.mark is not None]
    last = max(each.message for each in segments)
    return segments[: marked[-1] + 1] if marked else tuple(each for each in segments if each.message < last)


@ALL
@pytest.mark.parametrize("later", [SECOND, 60 * SECOND, 86_400 * SECOND], ids=["second", "minute", "day"])
def test_b19_b21_nothing_before_the_last_mark_depends_on_the_clock(form, later):
    now = [START]
    with blocking.open("ram:", blocks=specs(), clock=lambda: now[0]) as keel:
        builder = builder_of(remembered(keel).store)
        messages = form.conversation(3)
        first = form.request(builder.build(ADA), messages)
        now[0] = START + later
        second = form.request(builder.build(ADA), messages)
    assert json.dumps(dict(second)) == json.dumps(dict(first))
    assert not re.search(r"\bago\b|\bold\b|23:59", json.dumps(dict(first)).replace("tool_0", ""))


@ALL
def test_b22_two_sessions_of_one_memory_send_the_same_bytes(form, tmp_path):
    bodies = set()
    for session in range(3):
        clock = START + session * 3600 * SECOND
        with blocking.open(f"sqlite:///{tmp_path}/memory.db", blocks=specs(), clock=lambda at=clock: at) as keel:
            if session == 0:
                remembered(keel)
            request = form.request(keel.prompt(ADA), form.conversation(2))
            bodies.add(json.dumps(dict(request)))
    assert len(bodies) == 1


@ALL
def test_b22_conversations_of_one_memory_begin_with_the_same_bytes_whatever_their_ids(form):
    more = {"max_tokens": 100} if form.name == "anthropic" else {}
    bodies = set()
    with blocking.open("ram:", blocks=specs()) as keel:
        remembered(keel)
        for name in ("session-1", "0d9f7c1e-6f0e-4f0a-9a52-8a8f7a5f1d10"):
            conversation = keel.conversation(ADA, name)
            turn = conversation.turn([form.user("hi")], format=form.name, model=form.model, **more)
            bodies.add(json.dumps(dict(turn.arguments)))
    assert len(bodies) == 1
    assert "session-1" not in bodies.pop()


@ALL
def test_b23_equal_recall_at_another_minute_changes_nothing_before_the_last_mark(form):
    with blocking.open("ram:", blocks=specs()) as keel:
        prompt = builder_of(remembered(keel).store).build(ADA)
    times = [dt.datetime(2026, 12, 1, 10, minute, tzinfo=dt.UTC) for minute in (0, 1)]
    requests = [
        form.request(prompt, form.conversation(3), tail={"time": time, "recall": ["found somewhere"]}) for time in times
    ]
    assert json.dumps(dict(requests[0])) != json.dumps(dict(requests[1]))
    first, second = (before_the_tail(form, request) for request in requests)
    assert first == second
    assert first
    assert not any("10:0" in each.content for each in first)
