"""Plain text for whatever takes no messages."""

from __future__ import annotations

import promptkeel as pk
from conversing import ADA, prompt_of, specs
from promptkeel import blocking
from promptkeel.render.region import REGION_HEADING

PROMPT = prompt_of()


def test_without_a_tail_of_the_callers_it_is_the_text_of_the_prompt():
    assert PROMPT.plain() == PROMPT.text
    assert prompt_of([], specs()[2:]).plain() == ""


def test_what_changes_from_turn_to_turn_is_at_the_end_and_the_question_last():
    text = PROMPT.plain(tail={"time": "a Tuesday", "recall": ["found"], "query": "Which one?"})
    assert text.startswith(PROMPT.text + "\n\n")
    rest = text.removeprefix(PROMPT.text)
    assert rest.index('- "found"') < rest.index("[now: a Tuesday]") < rest.index("Which one?")
    assert text.endswith("\n\nWhich one?")
    assert text.count(REGION_HEADING) == 1


def test_recalled_text_alone_says_itself_what_its_fence_means():
    text = prompt_of([], specs()[2:]).plain(tail={"recall": ["found"]})
    assert text.startswith(REGION_HEADING)
    assert text.count("untrusted-data-") == 2


def test_the_volatile_blocks_of_another_prompt_can_stand_in_place_of_ones_own():
    later = prompt_of([("SOUL:likes coffee now", "user"), ("FOCUS:packs a bag", "user")])
    text = PROMPT.plain(current=later)
    assert text == f"{PROMPT.prefix}\n\n{later.tail}"


def test_an_outage_is_told_once():
    with blocking.open("ram:", blocks=specs()) as keel:

        def away():
            raise pk.StoreUnavailableError("gone")

        keel.core.store.engine.probe = away
        prompt = keel.prompt(ADA)
        assert prompt.plain() == prompt.text
        assert prompt.plain().count("USER_PROFILE could not be read now") == 1
