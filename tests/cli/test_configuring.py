"""A file of declarations is written by init, checked by doctor, and used by every command."""

from __future__ import annotations

import re
import tomllib

import pytest

from promptkeel.blocks.configuration import load_configuration
from promptkeel.cli.configuring import TEMPLATE

SCOPE = "org:acme/user:u1"
FILE = """
[store]
url = "sqlite:///declared.db"

[scopes]
default = "org:acme/user:u1"
levels = ["org", "user"]

[blocks.BOUNDARIES]
text = "Never guess."

[blocks.RULES]
file = "rules.md"

[blocks.HABITS]
label_prefix = "HABIT:"
profile_fields = ["role"]
"""


@pytest.fixture
def declared(folder):
    (folder / "promptkeel.toml").write_text(FILE)
    (folder / "rules.md").write_text("Be brief.")
    return folder


def uncommented(text):
    """The template with every line that is commented out put in force."""
    return re.sub(r"^# (?=\[[\w.]+\]|\w+ = )", "", text, flags=re.MULTILINE)


def test_init_writes_a_file_that_means_what_the_command_line_knows(call, folder):
    assert call("init").out == "wrote promptkeel.toml; 'promptkeel doctor' checks it\n"
    found = load_configuration(folder / "promptkeel.toml")
    assert [spec.name for spec in found.blocks] == ["BOUNDARIES", "USER_PROFILE", "PREFERENCES", "FOCUS"]
    assert found.url == f"sqlite:///{folder}/promptkeel.db"


def test_every_line_of_the_template_that_is_commented_out_is_a_legal_one(folder, monkeypatch):
    package = folder / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "context.py").write_text("def environment(scope):\n    return 'Linux', 'e1'\n")
    (package / "gates.py").write_text("def knows_the_user(scope):\n    return True\n")
    monkeypatch.syspath_prepend(folder)
    text = uncommented(TEMPLATE)
    assert text.count("\n# ") < TEMPLATE.count("\n# ") - 15
    (folder / "promptkeel.toml").write_text(text)
    found = load_configuration(folder / "promptkeel.toml")
    assert {"RULES", "ENVIRONMENT", "OPENING_HOURS"} <= {spec.name for spec in found.blocks}
    assert (found.budget.prompt_tokens, list(found.models), found.levels) == (8000, ["anthropic"], ("org", "user"))


def test_init_leaves_a_file_that_is_there(call, folder):
    (folder / "promptkeel.toml").write_text("[store]")
    found = call("init")
    assert (found.code, found.err) == (1, "promptkeel: promptkeel.toml is there already; --force replaces it\n")
    assert (folder / "promptkeel.toml").read_text() == "[store]"
    assert call("init", "--force").code == 0
    assert tomllib.loads((folder / "promptkeel.toml").read_text())["blocks"]


def test_every_command_uses_the_file_in_this_folder(call, declared):
    assert call("remember", "--block", "HABITS", "walks", "--set", "role=CTO").code == 0
    assert (declared / "declared.db").exists()
    text = call("prompt").out
    assert "### PLATFORM / BOUNDARIES\nNever guess." in text
    assert "### OPERATING / RULES\nBe brief." in text
    assert '- role: "CTO"' in text
    assert "USER_PROFILE" not in text
    assert call("facts", "--scope", SCOPE, "--block", "HABITS", "--json").document["blocks"][0]["facts"]


def test_the_command_line_goes_before_the_file(call, declared):
    call("remember", "--store", "other.db", "--lane", "HABITS=CUSTOM:", "--block", "HABITS", "runs")
    assert not (declared / "declared.db").exists()
    text = call("prompt", "--store", "other.db", "--lane", "HABITS=CUSTOM:", "--static", "RULES=Be long.").out
    assert '"runs"' in text
    assert "Be long." in text
    assert "Be brief." not in text
    assert "Never guess." in text


def test_a_file_elsewhere_is_named_and_finds_what_is_beside_it(call, declared, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    path = str(declared / "promptkeel.toml")
    assert call("remember", "--config", path, "--block", "HABITS", "walks").code == 0
    assert (declared / "declared.db").exists()
    monkeypatch.setenv("PROMPTKEEL_CONFIG", path)
    assert "Be brief." in call("prompt").out


def test_a_scope_of_other_levels_is_refused(call, declared):
    found = call("remember", "--scope", "org:acme/team:t", "--block", "HABITS", "walks")
    assert (found.code, found.out) == (2, "")
    assert "org/user" in found.err


def test_without_a_scope_anywhere_the_option_is_missing(call):
    found = call("prompt")
    assert found.code == 2
    assert "Missing option '--scope'" in found.err


def test_a_wrong_file_is_one_line_for_every_command(call, declared):
    (declared / "promptkeel.toml").write_text('[blocks.RULES]\ntxt = "a"')
    for command in ("prompt", "doctor", "export"):
        found = call(command)
        assert (found.code, found.out, found.err.count("\n")) == (2, "", 1)
        assert "did you mean 'text'" in found.err


def test_doctor_says_what_a_prompt_would_hold(call, declared):
    call("remember", "--block", "HABITS", "walks")
    found = call("doctor", "--json")
    assert found.code == 0, found.out
    assert found.document["healthy"] is True
    checks = {check["what"]: check for check in found.document["checks"]}
    assert checks["store"]["status"] == "ok"
    assert checks["block HABITS"]["detail"] == "lane, profile, 1 fact"
    assert {"declarations", "file system", "block BOUNDARIES", "block RULES"} <= set(checks)
    assert list(found.document["prompt"]["blocks"]) == ["BOUNDARIES", "RULES", "HABITS"]
    shown = call("doctor").out
    assert "would hold about" in shown


def test_doctor_makes_no_store(call, declared):
    found = call("doctor", "--json")
    assert found.code == 0
    assert not (declared / "declared.db").exists()
    assert {check["status"] for check in found.document["checks"] if check["what"] == "store"} == {"warning"}


def test_doctor_fails_where_a_source_does(call, declared):
    (declared / "rules.md").unlink()
    found = call("doctor", "--json")
    assert (found.code, found.document["healthy"]) == (1, False)
    (failed,) = [check for check in found.document["checks"] if check["what"] == "block RULES"]
    assert failed["status"] == "failed"
    assert "rules.md" in failed["detail"]


def test_doctor_only_warns_where_a_policy_takes_the_failure(call, declared):
    (declared / "rules.md").unlink()
    (declared / "promptkeel.toml").write_text(FILE.replace('"rules.md"', '"rules.md"\non_failure = "omit"'))
    found = call("doctor", "--json")
    assert found.code == 0, found.out
    (warned,) = [
        check for check in found.document["checks"] if check["status"] == "warning" and "RULES" in check["what"]
    ]
    assert "on failure: omit" in warned["detail"]
    assert len(found.document["prompt"]["notices"]) == 1


def test_doctor_shows_a_gate_that_breaks_its_word(call, declared):
    (declared / "doctored_gates.py").write_text("def answer(scope):\n    return 'yes'\n")
    (declared / "promptkeel.toml").write_text(FILE + 'render_when = "doctored_gates:answer"\n')
    found = call("doctor", "--json")
    assert found.code == 1
    (failed,) = [check for check in found.document["checks"] if check["what"] == "block HABITS"]
    assert failed["status"] == "failed"


def test_doctor_fails_over_a_damaged_store(call, declared):
    call("remember", "--block", "HABITS", "walks")
    (declared / "declared.db").write_bytes(b"not a database at all" * 300)
    found = call("doctor", "--json")
    assert (found.code, found.document["healthy"]) == (1, False)
    assert [check["status"] for check in found.document["checks"] if check["what"] == "store"] == ["failed"]


def test_doctor_refuses_a_network_file_system(call, declared, monkeypatch):
    monkeypatch.setattr("promptkeel.cli.configuring.file_system_of", lambda _: "nfs4")
    found = call("doctor", "--json")
    assert found.code == 1
    (failed,) = [check for check in found.document["checks"] if check["what"] == "file system"]
    assert "nfs4" in failed["detail"]


@pytest.mark.parametrize("store", ['url = "sqlite:///a.db?driver=foo"', 'url = "sqlite:///a.db"\nbusy_timout = 3'])
def test_doctor_checks_the_options_of_a_store_that_is_not_there_yet(call, folder, store):
    (folder / "promptkeel.toml").write_text(f"[store]\n{store}\n")
    found = call("doctor", "--json")
    assert found.code == 1, found.out
    assert [check["status"] for check in found.document["checks"] if check["what"] == "store"] == ["failed"]
    assert list(folder.glob("a.db*")) == []
