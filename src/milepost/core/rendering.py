"""Recorded values as lines that a person can read, compare and trust: nothing in them acts, hides or pretends.

Each leaf of a value is a line, `place = value`, in the order in which it is recorded; a text of several lines has one
line for each. What would be invisible, would turn the direction of the text around or would act on a terminal stands as
⟨U+202E⟩. The rendering says what the bytes say and no less: two values that differ have different lines, for whatever
the rendering itself uses as a mark is marked where a value contains it.

Text that only *looks* like other text cannot be made visible so. It is noted beside: words that mix scripts, and
letters that stand for plainer ones.
"""

from __future__ import annotations

import json
import re
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seen as nothing though Unicode calls them letters, marks or symbols.
_BLANK = frozenset({0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0})
# Variation selectors and tags: they carry bits that nobody sees.
_SELECTORS = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0000, 0xE1000))
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_OPEN, _CLOSE = "⟨", "⟩"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[^\W\d_]+")
_ALIKE = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "DESERET"})
NOTES_MOST = 20


class _Number(str):
    """A number as its digits stand in the bytes."""

    __slots__ = ()


def visible(text: str) -> str:
    """Return a text on one line in which everything that cannot be seen stands as its code point."""
    return "".join(f"{_OPEN}U+{ord(letter):04X}{_CLOSE}" if _hides(letter) else letter for letter in text)


def rendered(data: bytes) -> list[str]:
    """Return recorded JSON as lines. Bytes that are no JSON are shown as the text that they are."""
    try:
        value = json.loads(
            data, object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number, parse_constant=_Number
        )
        return list(_lines("", value))
    except (ValueError, RecursionError):
        return [f"no JSON: {line}" for line in visible(data.decode("utf-8", "backslashreplace")).split("⟨U+000A⟩")]


def look_alikes(data: bytes) -> list[str]:
    """Return notes about words of recorded JSON that may be taken for others, at most NOTES_MOST."""
    text = data.decode("utf-8", "replace")
    with suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(data), ensure_ascii=False)
    notes = dict.fromkeys(note for word in _WORD.findall(text) for note in _notes(word))
    return list(notes)[:NOTES_MOST]


class _Pairs(list[tuple[str, Any]]):
    """An object with every name that stands in it, also one that stands there twice."""


def _lines(place: str, value: Any) -> Iterator[str]:
    if isinstance(value, _Pairs) and value:
        for name, inner in value:
            step = name if _PLAIN_NAME.fullmatch(name) else f"[{_quoted(name)}]"
            yield from _lines(f"{place}.{step}" if place and not step.startswith("[") else f"{place}{step}", inner)
    elif isinstance(value, list) and value and not isinstance(value, _Pairs):
        for index, inner in enumerate(value):
            yield from _lines(f"{place}[{index}]", inner)
    elif isinstance(value, str) and not isinstance(value, _Number) and "\n" in value:
        yield f"{place or 'value'} ="
        for line in value.split("\n"):
            yield f"  | {_edges(visible(line))}"
    else:
        yield f"{place or 'value'} = {_leaf(value)}"


def _leaf(value: Any) -> str:
    match value:
        case _Number():
            return str(value)
        case str():
            return _quoted(value)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _Pairs():
            return "{}"
        case _:
            return "[]"


def _quoted(text: str) -> str:
    return '"' + visible(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _edges(line: str) -> str:
    """Mark a blank that stands at the end of a line, where it would not be seen."""
    kept = line.rstrip(" ")
    return kept + "⟨U+0020⟩" * (len(line) - len(kept))


def _hides(letter: str) -> bool:
    if " " <= letter <= "~":
        return False
    code, category = ord(letter), unicodedata.category(letter)
    return (
        category in _HIDDEN
        or category == "Zs"
        or code in _BLANK
        or any(code in block for block in _SELECTORS)
        or letter in {_OPEN, _CLOSE}
    )


def _notes(word: str) -> Iterator[str]:
    if word.isascii():
        return
    scripts: dict[str, str] = {}
    for letter in word:
        script = unicodedata.name(letter, "").partition(" ")[0]
        if script in _ALIKE:
            scripts.setdefault(script, letter)
    if len(scripts) > 1:
        told = ", ".join(f"{script.capitalize()} U+{ord(letter):04X}" for script, letter in scripts.items())
        yield f"{visible(word)} mixes scripts: {told}"
    plainer = unicodedata.normalize("NFKC", word)
    if plainer != unicodedata.normalize("NFC", word):
        yield f"{visible(word)} stands for {visible(plainer)}"
