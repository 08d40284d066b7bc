"""How deeply JSON may be nested.

Every reader of a record follows its nesting with a stack of its own, the interpreter's included, and how much of that
is left differs from caller to caller. So the bound is fixed, far below what any of them can follow: what is written
today can be read in every process, on every Python.

The depth is found without parsing. Only the brackets are kept, and innermost pairs are removed until none is left: each
pass is one C-speed replacement and removes one level. Brackets inside texts can only make it look deeper or unpaired;
then the texts are taken out, which costs more, and it is counted again.
"""

from __future__ import annotations

import re

LEVELS_MAX = 128

_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def too_deep(data: bytes, levels: int = LEVELS_MAX) -> bool:
    """Tell whether well-formed JSON is nested more than `levels` deep."""
    if len(data) <= 2 * levels or data.count(b"[") + data.count(b"{") <= levels:
        return False  # too short for two brackets a level, or too few that open
    if _within(data, levels):
        return False
    return not _within(_TEXT.sub(b"", data), levels)


def _within(data: bytes, levels: int) -> bool:
    """Tell whether all brackets pair off in `levels` passes."""
    brackets = data.translate(_TO_SQUARE, _NO_BRACKETS)
    for _ in range(levels):
        if not brackets:
            return True
        shorter = brackets.replace(b"[]", b"")
        if len(shorter) == len(brackets):
            return False
        brackets = shorter
    return not brackets
