"""What must not be recorded or logged is taken out of texts: errors, tracebacks, events, URLs.

Two kinds of text are taken out. A value that was read through `call.secret` is known: wherever it stands, as it is or
as programs usually carry it (in a URL, in JSON, in a repr, in base64 at any offset, in hex), `[secret NAME]` stands
instead. And what looks like a credential by its place is masked without being known: the user in front of an `@` in a
URL, the value of a query field such as `api_key`, an Authorization header, a bearer token, a cookie.

What may go wrong. A value that a program changed otherwise (encrypted, split, upper case) is not found. One shorter
than four characters is not looked for: it would be found everywhere. Results and arguments are data and are left as
they are: what a tool returns, it means to be kept.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

SHORTEST = 4
SHORTEST_FORM = 8
SHORTEST_LINE = 12
MASKED = "[masked]"

# A credential by its place. Every repetition is bounded or stops at a character that it cannot cross, so that no text
# takes long.
_NAMES = "api[_-]?key|access[_-]?key|token|secret|passw(?:or)?d|passwd|pwd|signature|credential|session|auth"
_USER = re.compile(r"(//)[^\s/?#\"'<>\\]{1,400}@")
_QUERY = re.compile(rf"(?i)([?&;](?:[\w.-]{{0,40}}(?:{_NAMES})[\w.-]{{0,40}}|key|sig)=)[^&#\s\"'<>\\]+")
_HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization|x-[\w-]{0,40}(?:key|token|secret)|api-key|(?:set-)?cookie)"
    r"(['\"]?\s{0,4}[:=,]\s{0,4}(?:b(?=['\"]))?['\"]?)(?:(bearer|basic|digest|token|negotiate)\s+)?[^'\"\r\n\\]{1,4000}"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+(?=[\w.~+/=-]{0,400}\d)[\w.~+/=-]{12,}")


class Redactor:
    """Knows the secrets that were read in this process, and takes them out of texts. Safe to use from any thread."""

    def __init__(self) -> None:
        self._forms: dict[str, str] = {}
        self._seen: set[tuple[str, str]] = set()
        self._pattern: re.Pattern[str] | None = None
        self._lock = threading.Lock()

    def learn(self, name: str, value: str) -> None:
        """Remember a secret that was read."""
        if (name, value) in self._seen:
            return
        with self._lock:
            forms = {**self._forms}
            for form in _forms(value):
                forms.setdefault(form, name)
            longest = sorted(forms, key=len, reverse=True)
            pattern = re.compile("|".join(map(re.escape, longest))) if longest else None
            self._forms, self._pattern = forms, pattern
            self._seen.add((name, value))

    def clean(self, text: str) -> str:
        """Return a text without known secrets, and without what looks like a credential."""
        text = self._without_known(text)
        text = _USER.sub(rf"\1{MASKED}@", text)
        text = _QUERY.sub(rf"\1{MASKED}", text)
        text = _HEADER.sub(rf"\1\2{MASKED}", text)
        return _BEARER.sub(rf"\1 {MASKED}", text)

    def clean_json(self, body: bytes) -> bytes:
        """Return JSON bytes without what `clean` takes out; where they would be no JSON any more, as one text."""
        text = body.decode()
        clean = self.clean(text)
        if clean == text:
            return body
        try:
            json.loads(clean)
        except ValueError:
            clean = json.dumps({"text": clean})
        return clean.encode()

    def _without_known(self, text: str) -> str:
        pattern, forms = self._pattern, self._forms
        if pattern is None:
            return text
        return pattern.sub(lambda found: f"[secret {forms.get(found[0], '?')}]", text)


def _forms(value: str) -> Iterator[str]:
    """Yield how programs usually write a value down."""
    if len(value) < SHORTEST:
        return
    yield value
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:  # a key in several lines: a traceback may show one of them
        yield from (line for line in lines if len(line) >= SHORTEST_LINE)
    for form in _written(value):
        if form != value and len(form) >= SHORTEST_FORM:
            yield form


def _written(value: str) -> Iterator[str]:
    for quoted in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield quoted
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quoted)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    raw = value.encode("utf-8", "surrogatepass")
    yield raw.hex()
    yield raw.hex().upper()
    yield repr(raw)[2:-1]
    for before in range(3):
        yield from _base64(raw, before)


def _base64(raw: bytes, before: int) -> Iterator[str]:
    """Yield the part of a base64 text that only the value decides, where so many bytes stand before it."""
    whole = base64.b64encode(bytes(before) + raw).decode()
    first = -(-8 * before // 6)
    last = 8 * (before + len(raw)) // 6
    inner = whole[first:last]
    yield inner
    yield inner.replace("+", "-").replace("/", "_")
