"""A writing command says what it did, and what no prompt will show of it."""

from __future__ import annotations

import pytest

SCOPE = "org:acme/user:u1"
NEW = ("--recorded-at", "2026-06-01")
OLD = ("--recorded-at", "2026-05-01")


@pytest.fixture
def tea(remembered):
    return remembered("prefers tea", "--id", "n1", "--source", "chat", *NEW)


def test_a_new_statement_and_a_confirmation_have_words_of_their_own(at):
    again = ("remember", "prefers tea", "--block", "USER_PROFILE", "--id", "n1", *NEW)
    said = [
        at(*again, "--source", "chat"),
        at(*again, "--source", "mail"),
        at(*again, "--source", "mail"),
    ]
    assert [(found.code, found.out, found.err) for found in said] == [
        (0, f"{action} n1: SOUL:prefers tea\n", "") for action in ("inserted", "confirmed", "unchanged")
    ]
    assert at(*again, "--source", "fax", "--json").document["action"] == "confirmed"


@pytest.mark.parametrize(
    ("text", "when", "action"),
    [
        ("prefers coffee", "2026-07-01", "updated"),
        ("prefers coffee", "2026-05-01", "outdated"),
        ("prefers tea", "2026-06-01", "unchanged"),
    ],
)
@pytest.mark.usefixtures("tea")
def test_a_correction_says_what_became_of_it(at, text, when, action):
    correct = ("correct", "n1", "--text", text, "--source", "chat", "--recorded-at", when)
    document = at(*correct, "--json").document
    stands = "SOUL:prefers coffee" if action == "updated" else "SOUL:prefers tea"
    assert (document["action"], document["node"]["label"]) == (action, stands)
    found = at(*correct)
    assert found.out == f"{'unchanged' if action == 'updated' else action} n1: {stands}\n"
    if action == "outdated":
        assert document["not_taken"] == {"label": "SOUL:prefers coffee"}
        assert len(document["warnings"]) == found.err.count("\n") == 1
        assert "what stands was recorded later" in found.err
    else:
        assert (document["warnings"], found.err) == ([], "")


def test_a_correction_that_is_late_for_one_field_says_which(at, remembered):
    remembered("profile", "--id", "n1", *OLD)
    at("correct", "n1", "--set", "role=CTO", *NEW)
    document = at("correct", "n1", "--set", "role=CEO", "--set", "name=Ada", *OLD, "--json").document
    assert (document["action"], document["not_taken"]) == ("updated", {"role": "CEO"})
    assert document["node"]["properties"]["role"] == "CTO"


@pytest.mark.usefixtures("tea")
def test_a_correction_of_what_is_retracted_says_that_it_stays_so(at):
    assert at("retract", "n1").out.startswith("retracted n1")
    assert at("retract", "n1").out.startswith("unchanged n1")
    found = at("correct", "n1", "--text", "prefers coffee")
    assert found.out == "updated n1: SOUL:prefers coffee\n"
    assert found.err == "promptkeel: n1 is retracted and stays so: no prompt shows it\n"


@pytest.mark.usefixtures("tea")
def test_properties_of_a_known_statement_that_were_not_taken_are_named(at, remembered):
    remembered("is a person", "--id", "n2", "--set", "role=CTO")
    again = ("remember", "is a person", "--block", "USER_PROFILE", "--set", "role=CEO", "--set", "name=Ada")
    document = at(*again, "--json").document
    assert (document["action"], document["not_taken"]) == ("updated", {"role": "CEO"})
    assert {"role": "CTO", "name": "Ada"}.items() <= document["node"]["properties"].items()
    assert document["warnings"] == [
        "the statement was there; it has name now",
        "not taken: role; other values stand, 'promptkeel correct n2' changes them",
    ]
    assert at(*again).err == f"promptkeel: {document['warnings'][1]}\n"


def test_what_no_block_will_show_is_kept_with_a_warning(at):
    found = at("remember", "--label", "PLAN:sails", "--id", "n1")
    assert (found.code, found.out) == (0, "inserted n1: PLAN:sails\n")
    assert found.err == (
        "promptkeel: no block will show it: its label begins with none of SOUL:, PREFERENCE:, FOCUS:\n"
    )
    found = at("remember", "--label", "SOUL:sails", "--set", "shoe=41", "--set", "role=CTO", "--json")
    assert found.document["warnings"] == ["no block will show shoe: it is no field of USER_PROFILE"]
    assert at("remember", "--label", "PLAN:walks", "--lane", "PLANS=PLAN:").err == ""


def test_a_text_of_a_dash_is_standard_input(process, at):
    said = process("remember", "-", "--block", "FOCUS", "--scope", SCOPE, "--id", "n1", stdin="first\nsecond\n")
    assert (said.code, at("why", "n1", "--json").document["node"]["label"]) == (0, "FOCUS:first\nsecond")
    bad = process("remember", "-", "--block", "FOCUS", "--scope", SCOPE, stdin=b"\xff")
    assert (bad.code, bad.err.count("\n")) == (2, 1)


def test_a_text_that_begins_with_a_dash_is_told_where_to_stand(at):
    found = at("remember", "-5 is cold", "--block", "FOCUS")
    assert found.code == 2
    assert "after --" in found.err
    assert at("remember", "--block", "FOCUS", "--id", "n1", "--", "-5 is cold").out == "inserted n1: FOCUS:-5 is cold\n"


@pytest.mark.parametrize("name", ["remember", "facts", "prompt"])
def test_the_help_says_the_environment_and_the_default_blocks(call, name):
    shown = call(name, "--help").out
    for word in ("PROMPTKEEL_STORE", "PROMPTKEEL_SCOPE", "USER_PROFILE", "PREFERENCE:", "language, name, role"):
        assert word in shown


@pytest.mark.usefixtures("tea")
def test_nothing_is_erased_where_nobody_can_be_asked(process, at, folder):
    for arguments in (("n1",), ("--below", "--export", "out.jsonl")):
        found = process("erase", *arguments, "--scope", SCOPE)
        assert (found.code, found.out, found.err.count("\n")) == (2, "", 1)
        assert "--yes" in found.err
    assert not (folder / "out.jsonl").exists()
    assert process("erase", "n1", "--scope", SCOPE, "--dry-run").code == 0
    assert at("history", "n1").code == 0
    assert process("erase", "n1", "--scope", SCOPE, "--yes").code == 0


def test_one_thing_is_counted_as_one(at, call, remembered):
    remembered("prefers tea", "--id", "n1")
    at("correct", "n1", "--text", "prefers coffee")
    assert "wrote 1 statement and 0 edges" in call("export", "--output", "out.jsonl").err
    assert "with 1 old version and 0 edges" in at("erase", "n1", "--yes").out


@pytest.mark.parametrize("name", ["file:x.db", "file:///x.db", "notes:x"])
def test_an_address_of_no_kind_of_store_is_no_file_name(at, folder, name):
    found = at("remember", "--label", "SOUL:a", "--store", name)
    assert (found.code, found.err.count("\n")) == (1, 1)
    assert "sqlite:///" in found.err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["/", ".", "sqlite:///a%00b", f"{'x' * 300}.db"])
def test_what_can_be_no_file_is_one_line(at, name):
    for command in (("facts",), ("remember", "--label", "SOUL:a")):
        found = at(*command, "--store", name)
        assert (found.code, found.err.count("\n")) == (1, 1)


def test_a_file_whose_name_has_a_colon_is_named_with_its_folder(at, folder):
    assert at("remember", "--label", "SOUL:a", "--store", "./notes:x.db").code == 0
    assert (folder / "notes:x.db").exists()


def test_reading_an_empty_file_makes_no_store_of_it(at, call, folder):
    (folder / "promptkeel.db").touch()
    for found in (at("facts"), at("prompt"), call("export"), at("why", "n1")):
        assert found.code == 4
        assert "there is no store at" in found.err
    assert (folder / "promptkeel.db").stat().st_size == 0
    assert [path.name for path in folder.iterdir()] == ["promptkeel.db"]
