"""Declared sources are checked when they are made; a file is never shown stale, half or wrong."""

from __future__ import annotations

import os
import pickle

import pytest

from promptkeel.blocks import ComputedSource, FileSource, MemoryLane, StaticSource
from promptkeel.blocks.computed import check_computed
from promptkeel.blocks.files import FileReader
from promptkeel.blocks.source import authored
from promptkeel.errors import InvalidDeclarationError, SourceUnavailableError

LATER = 4_000_000_000.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: StaticSource(""),
        lambda: StaticSource(" \n"),
        lambda: StaticSource("a\x00b"),
        lambda: StaticSource("\ud800"),
        lambda: StaticSource(7),
        lambda: FileSource("x", max_bytes=0),
        lambda: FileSource("x", max_bytes="many"),
        lambda: FileSource("x", encoding="no-such"),
        lambda: FileSource("x", encoding="undefined"),
        lambda: FileSource("x", encoding="rot13"),
        lambda: FileSource("x", encoding="a\0b"),
        lambda: FileSource("x", encoding=None),
        lambda: FileSource("a\0b"),
        lambda: FileSource(""),
        lambda: FileSource(7),
        lambda: MemoryLane("SOUL:", 7),
        lambda: ComputedSource("not callable"),
        lambda: MemoryLane(""),
        lambda: MemoryLane("SOUL:", profile_fields="role"),
        lambda: MemoryLane("SOUL:", profile_fields={""}),
    ],
)
def test_a_declaration_that_cannot_mean_anything_does_not_construct(make):
    with pytest.raises(InvalidDeclarationError):
        make()


def test_a_memory_lane_pickles_and_compares_by_value():
    lane = MemoryLane("SOUL:", profile_fields={"role"})
    assert pickle.loads(pickle.dumps(lane)) == lane == MemoryLane("SOUL:", profile_fields=["role"])  # noqa: S301


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.md"
    path.write_text("Be brief.\n")
    return path


def test_a_settled_file_costs_one_look_and_no_read(rules):
    reader = FileReader(FileSource(rules), now=lambda: LATER)
    first = reader.read()
    assert reader.current() is first


def test_a_rewrite_with_equal_size_and_equal_time_is_seen(rules):
    now = rules.stat().st_mtime
    reader = FileReader(FileSource(rules), now=lambda: now)
    reader.read()
    before = rules.stat()
    rules.write_text("Be quick.\n")
    os.utime(rules, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert reader.current() is None, "a file written just now may be written again within one tick of its clock"
    assert reader.read().content == "Be quick.\n"


def test_a_rewrite_of_a_settled_file_is_seen_even_with_its_old_modification_time(rules):
    reader = FileReader(FileSource(rules), now=lambda: LATER)
    reader.read()
    before = rules.stat()
    rules.write_text("Be quick.\n")
    os.utime(rules, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert reader.current() is None


def test_a_replacement_by_rename_is_seen(rules, tmp_path):
    reader = FileReader(FileSource(rules), now=lambda: LATER)
    reader.read()
    other = tmp_path / "other"
    other.write_text("Be polite.\n")
    other.replace(rules)
    assert reader.current() is None
    assert reader.read().content == "Be polite.\n"


def test_equal_content_read_again_is_the_same_revision_object(rules):
    reader = FileReader(FileSource(rules), now=lambda: 0.0)
    assert reader.read() is reader.read()


def test_a_file_that_is_written_in_place_is_never_shown_half(rules):
    rules.write_text("Be bri")

    def write_the_rest(_):
        if rules.read_text() == "Be bri":
            rules.write_text("Be brief, and be kind.\n")

    reader = FileReader(FileSource(rules), now=lambda: rules.stat().st_mtime, pause=write_the_rest)
    assert reader.read().content == "Be brief, and be kind.\n"


def test_a_file_that_is_emptied_and_then_written_is_never_an_error_in_between(rules):
    reader = FileReader(FileSource(rules), now=lambda: LATER)
    reader.read()
    rules.write_text("")
    reader._now = lambda: rules.stat().st_mtime
    reader._pause = lambda _: rules.read_text() or rules.write_text("Be kind.\n")
    assert reader.read().content == "Be kind.\n"


def test_a_file_that_is_written_all_the_time_is_a_named_error(rules):
    counter = iter(range(100))
    reader = FileReader(
        FileSource(rules),
        now=lambda: rules.stat().st_mtime,
        pause=lambda _: rules.write_text("x" * next(counter)),
    )
    with pytest.raises(SourceUnavailableError, match="is being written; replace files by rename"):
        reader.read()


def test_a_file_that_was_written_just_now_and_says_what_it_said_is_not_waited_for(rules):
    pauses = []
    reader = FileReader(FileSource(rules), now=lambda: rules.stat().st_mtime, pause=pauses.append)
    first = reader.read()
    assert pauses == [0.05]
    assert reader.read() is first
    assert pauses == [0.05]


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="this system has no symbolic links")
def test_a_swapped_symlink_is_seen_and_what_it_pointed_at_is_read_whole(rules, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(rules)
    reader = FileReader(FileSource(link), now=lambda: LATER)
    first = reader.read()
    assert reader.current() is first
    other = tmp_path / "other"
    other.write_text("Be polite.\n")
    swapped = tmp_path / "swapped"
    swapped.symlink_to(other)
    swapped.replace(link)
    assert reader.current() is None
    assert reader.read().content == "Be polite.\n"


def test_a_byte_order_mark_is_left_out(rules):
    rules.write_bytes(b"\xef\xbb\xbfBe brief.")
    assert FileReader(FileSource(rules)).read().content == "Be brief."


def test_a_codec_that_fails_in_its_own_way_is_an_error_of_the_source(rules):
    rules.write_text("ordinary text \u00e9")
    with pytest.raises(SourceUnavailableError, match="is not punycode"):
        FileReader(FileSource(rules, encoding="punycode")).read()


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: path.unlink(), "cannot read"),
        (lambda path: path.write_bytes(b"\xff\xfe\xfa"), "is not utf-8 at byte 0"),
        (lambda path: path.write_bytes(b" \n"), "is blank"),
        (lambda path: path.write_bytes(b"x" * 101), "larger than 100 bytes"),
        (lambda path: path.write_bytes(b"a\x00b"), "control character"),
        (lambda path: (path.unlink(), path.mkdir()), "regular file|cannot read"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "regular file"),
    ],
)
def test_what_cannot_be_shown_is_a_named_error_and_never_an_empty_block(rules, prepare, message):
    prepare(rules)
    with pytest.raises(SourceUnavailableError, match=message):
        FileReader(FileSource(rules, max_bytes=100)).read()


@pytest.mark.parametrize("answer", [None, "text", ("a",), ("a", 1), ("a", " "), (1, "r"), ("\ud800", "r"), ["a", "r"]])
def test_a_computed_answer_of_the_wrong_shape_is_refused(answer):
    with pytest.raises(InvalidDeclarationError, match="answer"):
        check_computed(answer)


def test_authored_text_has_the_revision_of_its_bytes():
    assert authored("a").revision == authored("a").revision != authored("b").revision
    assert authored("a").facts is None
