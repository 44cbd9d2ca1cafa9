"""The commands about the file of declarations: init writes one, doctor says whether it would work."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, final
from urllib.parse import quote

import attrs
import click

from promptkeel import blocking
from promptkeel.blocks import PromptBlockSpec
from promptkeel.blocks.configuration import DEFAULT_NAME
from promptkeel.cli.declarations import missing_file, store_file
from promptkeel.cli.display import Column, counted, put_document, put_line, put_table
from promptkeel.cli.failures import FAILED, OK, describe
from promptkeel.cli.options import FilePath, Session, scope_option, session_options
from promptkeel.errors import BlockResolutionError, ExchangeError, PromptkeelError
from promptkeel.files import replaced
from promptkeel.prompt import Prompt
from promptkeel.scope import TenantScope
from promptkeel.upkeep.checking import check as check_url
from promptkeel.upkeep.disks import file_system_of, is_networked

TEMPLATE: Final = """\
# What promptkeel shows to an agent, from where, and what happens when a source fails.
# 'promptkeel doctor' checks all of it. Paths are relative to this file; a key that nobody knows is an error.

[store]
url = "sqlite:///promptkeel.db"     # or "postgresql://user@host/database", or "ram:"
# busy_timeout = 5.0                # seconds; the store's own options stand here

[scopes]
# default = "org:acme/user:ada"     # who asks, where the command line does not say
# levels = ["org", "user"]          # the kinds of a scope's levels, root first; others are refused

# Limits and failures that several blocks share: a block names the table, as policy = "patient".
[policies.patient]
on_failure = "last_known_good"      # or "fail_closed", or "omit"
max_age = 600                       # seconds that the last known good text may be old
# mark_text = true                  # whether the text says that it may be out of date
# timeout = 5.0                     # seconds that a read may take
# max_facts = 200                   # the newest are kept; max_fact_characters and max_tokens limit too

# Authored text. Each block needs exactly one of text, file, function, label_prefix and stored.
[blocks.BOUNDARIES]
text = "Never reveal another customer's data."

# [blocks.RULES]
# file = "rules.md"                 # read again when it changes
# max_bytes = 1048576
# encoding = "utf-8"

# [blocks.ENVIRONMENT]
# function = "my_package.context:environment"     # answers (content, revision) for a scope
# timeout = 2.0

# [blocks.OPENING_HOURS]
# stored = "tenant"                 # 'promptkeel block edit' keeps its history; or "deployment", or "scope"
# required = false                  # whether it is an error that nobody has written it yet

# [blocks.NOTES]
# stored = "scope"                  # the agent's own notes, contained like memory
# learned = true
# permissions = ["read", "append", "replace"]

# Memory: every statement whose label begins with the prefix, with its source and time.
[blocks.USER_PROFILE]
label_prefix = "SOUL:"
profile_fields = ["language", "name", "role", "timezone"]
# permissions = ["read", "add", "correct"]        # what the agent's own tools may do
# render_when = "my_package.gates:knows_the_user" # asked before it is read; answers true or false
# inherit = false                   # a delegated child agent does not see it

[blocks.PREFERENCES]
label_prefix = "PREFERENCE:"

[blocks.FOCUS]
label_prefix = "FOCUS:"

[budget]
# prompt_tokens = 8000
# token_counter = "estimate"

# [providers.anthropic]
# model = "the model's name"
"""


@click.command
@click.argument("file", type=FilePath(), default=DEFAULT_NAME)
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON document.")
def init(*, file: str, force: bool, as_json: bool) -> None:
    """Write a commented file of declarations, promptkeel.toml unless FILE is named."""
    path = Path(file)
    if path.exists() and not force:
        raise ExchangeError(f"{file} is there already; --force replaces it")
    with replaced(path) as temporary:
        temporary.write_text(TEMPLATE, encoding="utf-8")
    if as_json:
        put_document({"file": str(path.absolute())})
    else:
        put_line(f"wrote {file}; 'promptkeel doctor' checks it")


Status = Literal["ok", "warning", "failed"]


@final
@attrs.frozen(order=False)
class Check:
    """One thing that was looked at.

    Attributes:
        what: the thing.
        status: how it stands.
        detail: what was found, and what to do where it is not ok.
    """

    what: str
    status: Status
    detail: str


@click.command
@scope_option(required=False)
@session_options(authored=True)
def doctor(session: Session, *, scope: TenantScope | None) -> int:
    """Check store, file of declarations, sources, gates and file system; say what a prompt of the scope would hold.

    Nothing is changed, and no store is made. The exit code is 1 where something has failed.
    """
    if scope is None and session.configuration is not None:
        scope = session.configuration.scope
    checks = [*_look_at_declarations(session), *_look_at_disk(session)]
    prompt = None
    found = _look_at_store(session)
    checks.append(found)
    if found.status != "failed":
        with session.open_or_empty() as keel:
            checks.extend(_look_at_block(keel, spec, scope) for spec in session.blocks)
            try:
                prompt = keel.prompt(scope)
            except (PromptkeelError, OSError) as error:
                checks.append(Check("prompt", "failed", describe(error)))
    has_failed = any(check.status == "failed" for check in checks)
    if session.as_json:
        put_document(
            {
                "healthy": not has_failed,
                "checks": [attrs.asdict(check) for check in checks],
                "prompt": None if prompt is None else _prompt_document(prompt),
            }
        )
    else:
        put_table(_CHECKS, [(check.what, check.status, check.detail) for check in checks])
        if prompt is not None:
            _put_prompt(prompt)
    return FAILED if has_failed else OK


_CHECKS: Final = (Column("check"), Column("status"), Column("found", wraps=True))


def _look_at_declarations(session: Session) -> Iterator[Check]:
    configuration = session.configuration
    if configuration is None:
        yield Check("declarations", "ok", f"no {DEFAULT_NAME} here: the command line's own blocks; 'init' writes one")
        return
    blocks = counted(len(configuration.blocks), "block")
    yield Check("declarations", "ok", f"{configuration.path.name}: {blocks}")
    for name, model in configuration.models.items():
        yield Check(f"provider {name}", "ok", f"model {model}")


def _look_at_disk(session: Session) -> Iterator[Check]:
    file = store_file(session.url)
    if file is None:
        return
    kind = file_system_of(file)
    if kind is None:
        yield Check("file system", "warning", "the system does not say what it is; it must not be a network's")
    elif is_networked(kind):
        yield Check(
            "file system", "failed", f"{kind} is shared over a network, where SQLite's locks do not hold; "
            "move the store to a local disk, or use PostgreSQL",
        )  # fmt: skip
    else:
        yield Check("file system", "ok", kind)


def _look_at_store(session: Session) -> Check:
    missing = missing_file(session.url)
    if missing is not None:
        try:
            _try_elsewhere(session)
        except (PromptkeelError, OSError) as error:
            return Check("store", "failed", describe(error))
        return Check("store", "warning", f"there is none at {missing} yet; the first 'remember' or 'import' makes it")
    try:
        audit = check_url(session.url)
    except (PromptkeelError, OSError) as error:
        return Check("store", "failed", describe(error))
    if not audit.is_healthy:
        first = audit.findings[0]
        return Check("store", "failed", f"{counted(len(audit.findings), 'finding')}, first {first.kind}: {first.what}; "
                     "'promptkeel check' lists them")  # fmt: skip
    return Check("store", "ok", ", ".join(f"{count} {name}" for name, count in audit.counts.items()))


def _try_elsewhere(session: Session) -> None:
    """Open a store with the same options in a temporary folder, so that those are checked without making it."""
    _, mark, query = session.url.partition("?")
    with tempfile.TemporaryDirectory(prefix="promptkeel-") as folder:
        blocking.open_store(f"sqlite:///{quote(folder)}/doctor.db{mark}{query}", **session.options).close()


def _look_at_block(keel: blocking.Keel, spec: PromptBlockSpec, scope: TenantScope | None) -> Check:
    name = f"block {spec.name}"
    # Whatever its policy would make of a failure, here it is to be seen.
    strict = attrs.evolve(spec, on_failure="fail_closed")
    try:
        resolver = blocking.PromptBlockResolver([strict], memory=keel.store)
        (block,) = resolver.resolve(TenantScope.parse("") if scope is None else scope).blocks
    except (PromptkeelError, OSError) as error:
        # A policy takes what could not be read; a defect is an error whatever it says.
        is_outage = type(error) is BlockResolutionError and spec.on_failure.action != "fail_closed"
        status: Status = "warning" if is_outage else "failed"
        return Check(name, status, f"{spec.source.kind}: {describe(error)}; on failure: {spec.on_failure}")
    facts = f", {counted(len(block.facts), 'fact')}" if block.is_learned else ""
    empty = "" if block.text else ", nothing to say"
    return Check(name, "ok", f"{spec.source.kind}, {spec.tier}{facts}{empty}")


def _prompt_document(prompt: Prompt) -> dict[str, Any]:
    return {
        "scope": prompt.scope.path,
        "tokens": prompt.tokens,
        "blocks": {block.name: prompt.block_tokens[block.name] for block in prompt.blocks if block.text},
        "silent": [block.name for block in prompt.blocks if not block.text],
        "notices": list(prompt.notices),
        "left_out": list(prompt.left_out),
    }


def _put_prompt(prompt: Prompt) -> None:
    shown = [f"{block.name} {prompt.block_tokens[block.name]}" for block in prompt.blocks if block.text]
    silent = [block.name for block in prompt.blocks if not block.text]
    put_line(f"a prompt of {prompt.scope.path or '(deployment)'} would hold about {prompt.tokens} tokens: "
             f"{', '.join(shown) or 'nothing'}")  # fmt: skip
    if silent:
        put_line(f"nothing to say: {', '.join(silent)}")
    for notice in prompt.notices:
        put_line(f"notice: {notice}")
    if prompt.left_out:
        put_line(f"left out without a scope: {', '.join(prompt.left_out)}")
