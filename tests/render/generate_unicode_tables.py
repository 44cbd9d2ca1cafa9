"""Writes ``promptkeel/render/unicode_tables.py``. Run by hand when the renderer moves to another Unicode version.

    pip install unicodedata2 confusable-homoglyphs
    python tests/render/generate_unicode_tables.py > src/promptkeel/render/unicode_tables.py

``unicodedata2`` is the Unicode database at a version of its own, ``confusable-homoglyphs`` carries the consortium's
table of confusable characters. Every change of the tables changes rendered bytes: raise ``RENDER_VERSION`` with it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from importlib import resources
from typing import Any

import unicodedata2 as ucd

LAST = 0x10FFFF
NAME_LETTERS = "untrsda" + "e"
DEFAULT_IGNORABLE = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
BLANKS = {0x2800, 0x16FE4, 0x1D159}  # no ink, though the database calls them a symbol, a mark and a symbol
VISIBLE_FORMATS = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
JOINERS = {0x200C, 0x200D}
SELECTORS = {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *range(0x180B, 0x1810)}
BRACKET_NAMES = ("LESS-THAN", "GREATER-THAN", "ANGLE BRACKET", "ANGLE QUOTATION", "SQUARE BRACKET", "ARROWHEAD",
                 "CURVED ANGLE", "LENTICULAR BRACKET", "TORTOISE SHELL BRACKET", "AMPERSAND")  # fmt: skip
BRACKETS = "<>&[]‹›«»˂˃≺≻⊂⊃⊏⊐⋖⋗≪≫⟨⟩⟪⟫❬❭❮❯❰❱❲❳ᐸᐳᑉᐊᐅᚲᚱ〈〉〈〉《》⧼⧽⦑⦒⪡⪢⪻⪼◁▷◀▶◂▸◃▹◄►◅▻⊲⊳⋉⋊"
# Letters that read like a Latin one without being in the table of confusables.
MORE_LOOKALIKES = {
    "u": "υцᑌ",
    "n": "пηиռ",
    "t": "тτ7",
    "r": "гяɾ",
    "s": "ѕꙅ5",
    "e": "еєэεёҽ3",
    "d": "ԁժᑯðÐ",
    "a": "аαд4",
}
LATIN_NAME = re.compile(
    r"(?:.* )?(?:LATIN|REGIONAL INDICATOR SYMBOL|TAG LATIN)\b.*?(?:LETTER|CAPITAL)(?: TURNED| REVERSED| SMALL CAPITAL)*"
    r" ([UNTRSEDA])(?: WITH .*)?"
)


def confusables() -> dict[str, list[dict[str, str]]]:
    text = resources.files("confusable_homoglyphs").joinpath("confusables.json").read_text("utf-8")
    table: dict[str, list[dict[str, str]]] = json.loads(text)
    return table


def strip_marks(text: str) -> str:
    return "".join(character for character in text if ucd.category(character)[0] != "M")


def fold_table() -> dict[str, set[int]]:
    table = confusables()
    alike: dict[str, str] = {}
    for letter in NAME_LETTERS:
        for case in (letter, letter.upper()):
            for entry in table.get(case, []):
                if len(entry["c"]) == 1:
                    alike[entry["c"]] = letter
        for other in MORE_LOOKALIKES[letter]:
            alike[other] = letter
    for letter in NAME_LETTERS:
        alike[letter] = alike[letter.upper()] = letter
    folds: dict[str, set[int]] = {letter: set() for letter in NAME_LETTERS}
    for code in range(LAST + 1):
        character = chr(code)
        if 0xD800 <= code <= 0xDFFF:
            continue
        named = LATIN_NAME.fullmatch(ucd.name(character, ""))
        bare = strip_marks(ucd.normalize("NFKD", character))
        candidates = (character, bare, bare.casefold(), bare.upper().casefold(), character.casefold())
        found = named.group(1).lower() if named else None
        found = found or next((alike[form] for form in candidates if form in alike), None)
        if found is None and bare != character:
            # One character that spells several letters, as the ligature U+FB06, or one letter in brackets.
            letters = [alike.get(part) for part in bare.casefold() if part.isalnum()]
            spelled = "".join(part for part in letters if part)
            if letters and all(letters):
                folds.setdefault(spelled, set()).add(code)
                continue
        if found:
            folds[found].add(code)
    return folds


def brackets() -> set[int]:
    table = confusables()
    found = {ord(character) for character in BRACKETS}
    for angle in "<>[]&":
        found |= {ord(entry["c"]) for entry in table.get(angle, []) if len(entry["c"]) == 1}
    for code in range(0x80, LAST + 1):
        character = chr(code)
        if 0xD800 <= code <= 0xDFFF:
            continue
        name = ucd.name(character, "")
        if any(part in name for part in BRACKET_NAMES) or set(ucd.normalize("NFKD", character)) & set("<>[]&"):
            found.add(code)
    return found - {0x28, 0x29, 0x338}


def escaped() -> set[int]:
    found = {0x22, 0x5C, 0x7F, *range(0x20), *range(0x80, 0xA0), *BLANKS}
    for first, last in DEFAULT_IGNORABLE:
        found.update(range(first, last + 1))
    for code in range(LAST + 1):
        if ucd.category(chr(code)) in {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}:
            found.add(code)
    return found - VISIBLE_FORMATS - JOINERS - SELECTORS


def of_categories(*wanted: str) -> set[int]:
    return {code for code in range(LAST + 1) if ucd.category(chr(code)).startswith(wanted)}


def han() -> set[int]:
    found = {0x3005, 0x3006, 0x3007}
    for code in range(LAST + 1):
        if ucd.name(chr(code), "").startswith(("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH")):
            found.add(code)
    return found


def ranges(codes: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for code in sorted(codes):
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return found


def spell(codes: Iterable[int]) -> str:
    return " ".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in ranges(codes))


def wrapped(text: str, indent: str) -> str:
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        if line and len(line) + len(word) + len(indent) > 114:
            lines.append(line + " ")
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join(f'{indent}"{part}"' for part in [*lines, line])


def constant(name: str, codes: Iterable[int], says: str) -> str:
    return f'{name}: Final = (\n{wrapped(spell(codes), "    ")}\n)\n"""{says}"""\n'


def main() -> None:
    gone = escaped()
    folds = fold_table()
    bases = (of_categories("Lo", "N", "P", "S") | {0x2139}) - gone
    out: Any = sys.stdout
    out.write(
        '"""Facts about Unicode that rendered bytes depend on, frozen: an interpreter has newer ones.\n\n'
        "Generated by tests/render/generate_unicode_tables.py, not edited by hand. Each is a list of ranges of code "
        'points in\nhexadecimal.\n"""\n\nfrom __future__ import annotations\n\n'
        "from typing import Final\n\n"
        f'UNICODE_VERSION: Final = "{ucd.unidata_version}"\n\n'
    )
    parts = [
        constant("ESCAPED", gone, "Never shown as they are: quote, backslash, what has no ink, what breaks or turns a "
                 "line, the unassigned."),
        constant("SELECTORS", SELECTORS, "Variation selectors, shown only alone behind a base."),
        constant("SELECTOR_BASES", bases, "What may stand before one of the first sixteen variation selectors."),
        constant("HAN", han(), "What may stand before a supplementary variation selector."),
        constant("BRACKETS", brackets(), "What could be taken for the bracket of a fence."),
        constant("WORD_CHARACTERS", of_categories("L", "N") - gone, "Letters and numbers: what a fold does not drop."),
    ]  # fmt: skip
    out.write("\n".join(parts))
    out.write("\nFOLDS: Final = {\n")
    for spelled, codes in sorted(folds.items()):
        out.write(f'    "{spelled}": (\n{wrapped(spell(codes), "        ")}\n    ),\n')
    out.write('}\n"""What reads like the letters of the fence\'s name, by those letters."""\n')


if __name__ == "__main__":
    main()
