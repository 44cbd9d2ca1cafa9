"""The errors are the tree that their module draws, survive pickling, and say which thing is wrong."""

from __future__ import annotations

import builtins
import inspect
import pickle
import re

import pytest

from promptkeel import errors
from strategies import pickled

LINE = re.compile(r"(?P<indent>[ │├└─]*)(?P<name>[A-Z]\w+)(?: \((?P<also>\w+)\))?")


def drawn() -> dict[str, set[str]]:
    """The direct bases of every error, as the docstring draws them."""
    tree: dict[str, set[str]] = {}
    above: list[tuple[int, str]] = []
    assert errors.__doc__ is not None
    for line in errors.__doc__.split("::", 1)[1].splitlines():
        found = LINE.match(line.removeprefix("    "))
        if not line.strip() or found is None:
            continue
        depth = len(found["indent"])
        while above and above[-1][0] >= depth:
            above.pop()
        parent = above[-1][1] if above else "Exception"
        tree[found["name"]] = {parent} | ({found["also"]} if found["also"] else set())
        above.append((depth, found["name"]))
    return tree


DEFINED = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ == errors.__name__
}


def test_the_tree_draws_every_error_and_no_other() -> None:
    assert set(drawn()) == set(DEFINED)
    assert len(DEFINED) > 30


@pytest.mark.parametrize("name", DEFINED)
def test_the_classes_have_the_bases_that_are_drawn(name: str) -> None:
    assert {base.__name__ for base in DEFINED[name].__bases__} == drawn()[name]
    for base in drawn()[name]:
        assert issubclass(DEFINED[name], DEFINED.get(base) or getattr(builtins, base))


def example(kind: type[BaseException]) -> BaseException:
    if issubclass(kind, errors.InvalidInputError):
        return kind("is wrong; mend it", field="label", where="node 'n'")
    if issubclass(kind, errors.BlockResolutionError):
        return kind("the file is gone", block="RULES", scope="org:acme")
    if issubclass(kind, errors.RevisionConflictError):
        return kind("has another head", block="RULES", scope="org:acme", expected="a", actual=None)
    if kind is errors.PromptBudgetError:
        return errors.PromptBudgetError(9, 5)
    if kind is errors.ToolRateError:
        return errors.ToolRateError(1.5)
    if kind is errors.MissingExtraError:
        return errors.MissingExtraError("cli")
    return kind("what is wrong; what to do")


@pytest.mark.parametrize("kind", DEFINED.values(), ids=DEFINED)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling(kind: type[BaseException], protocol: int) -> None:
    error = example(kind)
    copy = pickled(error, protocol)
    assert type(copy) is kind
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize("kind", DEFINED.values(), ids=DEFINED)
def test_every_error_says_what_it_means(kind: type[BaseException]) -> None:
    assert kind.__doc__
    assert len(str(example(kind))) > 10
    assert not str(example(kind)).startswith("[Errno")


def test_bad_input_names_the_node_then_the_field_then_the_reason() -> None:
    error = errors.InvalidInputError("is wrong", field="properties.role", where="node 'n'")
    assert str(error) == "node 'n': properties.role: is wrong"
    assert str(errors.InvalidInputError("is wrong")) == "is wrong"


def test_a_missing_extra_is_its_install_line() -> None:
    assert "pip install 'promptkeel[cli]'" in str(errors.MissingExtraError("cli"))


def test_a_failed_block_names_the_block_and_the_scope() -> None:
    error = errors.BlockResolutionError("the file is gone", block="RULES", scope="")
    assert str(error) == "block RULES at scope (deployment): the file is gone"
