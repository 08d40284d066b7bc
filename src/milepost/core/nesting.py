"""How deeply JSON may be nested.

Every reader of a record follows its nesting with a stack of its own, the interpreter's included, and how much of that
is left differs from caller to caller. So the bound is fixed, far below what any of them can follow: what is written
today can be read in every process, on every Python.

The depth is found without parsing, by replacements that run at the speed of memory. Escapes go first, so that each
quote that is left begins or ends a text; then all but brackets and quotes goes, then the texts, since a bracket inside
one is no nesting. Of what remains, innermost pairs are removed until none is left: each pass removes one level.
"""

from __future__ import annotations

import re

LEVELS_MAX = 128

_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_KEPT = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_TEXT = re.compile(rb'"[^"]*"')


def too_deep(data: bytes, levels: int = LEVELS_MAX) -> bool:
    """Tell whether well-formed JSON is nested more than `levels` deep."""
    if len(data) <= 2 * levels or data.count(b"[") + data.count(b"{") <= levels:
        return False  # too short for two brackets a level, or too few that open
    brackets = _brackets(data)
    for _ in range(levels):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _brackets(data: bytes) -> bytes:
    """Return the brackets that are outside texts, all of them square."""
    if b"\\" in data:
        data = data.replace(rb"\\", b"").replace(rb"\"", b"")
    kept = data.translate(_TO_SQUARE, _NOT_KEPT).replace(b'""', b"")  # most texts have no bracket inside
    return _TEXT.sub(b"", kept) if b'"' in kept else kept
