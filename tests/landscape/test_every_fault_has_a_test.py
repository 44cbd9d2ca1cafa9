"""Of each fault that users of other systems report: which test shows that it goes right here.

The faults are those of the list that this project was given (order, volatile bytes, marks, limits, counting). A test of
this folder carries its fault's letter; the others stand beside what they test, and are listed here:

=====  =================================================================================================================
fault  what went wrong elsewhere, and where it is shown to go right here
=====  =================================================================================================================
B11    equal ranks without a last key: ``test_order``
B13    tools of equal names in an unstable order: ``test_order``
B14    tools in the order of a hash map: ``providers/test_canonical``, ``prompt/test_adapters``
B15    sections that swap places: ``test_order``, ``blocks/test_spec``
B17    keys sorted before they became text: ``test_order``, ``providers/test_canonical``
B18    files in the order of their folder: ``test_order``
B19    a clock in front: ``test_volatile_bytes``
B21    ages: ``test_volatile_bytes``, ``prompt/test_prompt_bytes``
B22    ids and counters of sessions: ``test_volatile_bytes``, ``prompt/test_request_bytes``
B23    a minute beside equal recall: ``test_volatile_bytes``, ``prompt/test_adapters``
B25    a fifth mark: ``prompt/test_breakpoints``, ``prompt/test_adapters_anthropic``
B26    a mark on empty text: ``prompt/test_breakpoints``, ``prompt/test_adapters_anthropic``
B27    a longer TTL after a shorter one: ``prompt/test_breakpoints``
B29    a cache point after reasoning: ``prompt/test_breakpoints``, ``prompt/test_adapters_bedrock``
B30    Anthropic's marks sent to Converse: ``prompt/test_adapters_bedrock``
B31    a prefix below the minimum: ``prompt/test_breakpoints``, ``prompt/test_adapters_anthropic``
B33    empty contents of a handle: ``prompt/test_adapters_gemini``
B34    a handle found by too little: ``prompt/test_adapters_gemini``
B35    one mark behind static and dynamic text: ``prompt/test_breakpoints``, ``prompt/test_adapters_anthropic``
B55    the most important block cut first: ``prompt/test_budget``
B57    a body cut in the middle: ``test_limits``
B58    a default limit on reading: ``test_limits``
B59    a default limit on erasing: ``test_limits``, ``erasure/test_what_goes``
B61    a closing fence cut off: ``test_limits``, ``render/test_limits``
B62    four characters a token in every script: ``test_limits``, ``test_tokens``
B63    calls, thinking and citations counted as nothing: ``test_limits``, ``providers/test_counting``
=====  =================================================================================================================
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FAULTS = (
    *("B11", "B13", "B14", "B15", "B17", "B18", "B19", "B21", "B22", "B23", "B25", "B26", "B27", "B29", "B30", "B31"),
    *("B33", "B34", "B35", "B55", "B57", "B58", "B59", "B61", "B62", "B63"),
)
ELSEWHERE = {
    "B14": [
        ("providers/test_canonical.py", "test_processes_of_every_hash_seed_write_the_same_bytes"),
        ("prompt/test_adapters.py", "test_tools_have_the_same_bytes_in_whatever_order_they_and_their_keys_were_given"),
    ],
    "B15": [
        (
            "blocks/test_spec.py",
            "test_prompt_order_is_authority_then_order_then_name_whatever_the_order_of_declaration",
        )
    ],
    "B17": [("providers/test_canonical.py", "test_what_is_no_json_is_refused_with_its_place")],
    "B21": [("prompt/test_prompt_bytes.py", "test_midnight_and_a_clock_set_back_change_no_byte")],
    "B23": [
        (
            "prompt/test_adapters.py",
            "test_two_turns_with_nothing_changed_share_every_byte_before_the_last_mark",
        )
    ],
    "B25": [
        ("prompt/test_breakpoints.py", "test_a_fifth_mark_of_the_callers_is_taken_away_and_the_newest_stay"),
        (
            "prompt/test_adapters_anthropic.py",
            "test_the_callers_own_marks_are_counted_and_never_more_than_four_are_sent",
        ),
    ],
    "B26": [
        ("prompt/test_breakpoints.py", "test_a_mark_on_an_empty_block_moves_to_the_one_before_it"),
        ("prompt/test_adapters_anthropic.py", "test_no_mark_stands_on_empty_text"),
    ],
    "B27": [("prompt/test_breakpoints.py", "test_an_earlier_mark_is_raised_to_the_longest_of_the_later_ones")],
    "B29": [
        ("prompt/test_breakpoints.py", "test_no_mark_stands_after_reasoning"),
        ("prompt/test_adapters_bedrock.py", "test_no_point_stands_behind_reasoning_or_behind_documents_alone"),
    ],
    "B30": [
        (
            "prompt/test_adapters_bedrock.py",
            "test_points_stand_behind_what_they_keep_and_no_mark_of_anthropics_is_anywhere",
        )
    ],
    "B31": [
        ("prompt/test_breakpoints.py", "test_a_base_below_the_models_minimum_gets_no_mark_and_says_so"),
        (
            "prompt/test_adapters_anthropic.py",
            "test_a_prefix_shorter_than_the_least_that_is_kept_gets_no_mark_and_that_is_said",
        ),
    ],
    "B33": [("prompt/test_adapters_gemini.py", "test_a_prefix_without_contents_says_none_and_no_empty_list")],
    "B34": [("prompt/test_adapters_gemini.py", "test_everything_that_a_handle_stands_for_is_in_its_key")],
    "B35": [
        ("prompt/test_breakpoints.py", "test_a_line_of_one_user_does_not_defeat_the_part_that_all_share"),
        (
            "prompt/test_adapters_anthropic.py",
            "test_marks_stand_at_the_end_of_what_all_share_of_the_base_and_of_the_history",
        ),
    ],
    "B55": [("prompt/test_budget.py", "test_a_lower_priority_gives_way_before_the_order_of_blocks")],
    "B59": [("erasure/test_what_goes.py", "test_every_node_goes_however_many")],
    "B61": [("render/test_limits.py", "test_a_token_limit_holds_for_the_whole_text_and_never_cuts")],
    "B62": [("test_tokens.py", "test_the_estimate_is_at_most_a_tenth_under_the_dearer_tokenizer")],
    "B63": [
        (
            "providers/test_counting.py",
            "test_calls_results_reasoning_citations_and_unknown_blocks_count_their_words",
        )
    ],
}


def names_in(path: Path) -> set[str]:
    return {each.name for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.FunctionDef)}


@pytest.mark.parametrize("fault", FAULTS)
def test_of_every_fault_there_is_a_test_that_it_goes_right(fault):
    letter = fault.lower()
    here = {name for path in Path(__file__).parent.glob("test_*.py") for name in names_in(path)}
    own = [name for name in here if letter in name.split("_")]
    listed = ELSEWHERE.get(fault, [])
    assert own or listed
    for path, name in listed:
        assert name in names_in(TESTS / path)
    assert f"\n{fault} " in str(__doc__)
