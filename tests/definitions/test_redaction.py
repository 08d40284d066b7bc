"""What is taken out of a text: known secrets however they are written, and credentials by their place."""

import base64
import json
import re
import time
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.definitions.redaction import Redactor

SECRET = 'sk_live/9aF+ü="quoted"\\and more'  # noqa: S105  a test's own
PLAIN = "plainly-9aF3Zx71Qm"


def knowing(value: str = SECRET, name: str = "stripe") -> Redactor:
    redactor = Redactor()
    redactor.learn(name, value)
    return redactor


WRITTEN = {
    "as it is": lambda s: s,
    "in a URL": lambda s: f"https://x/?a={quote(s, safe='')}",
    "in a path": quote,
    "in a form": lambda s: urlencode({"a": s}),
    "with plus signs": quote_plus,
    "in a URL in small letters": lambda s: re.sub("%..", lambda two: two[0].lower(), quote(s, safe="")),
    "in JSON": lambda s: json.dumps({"a": s}),
    "in JSON as UTF-8": lambda s: json.dumps({"a": s}, ensure_ascii=False),
    "in a repr": lambda s: repr({"a": s}),
    "as bytes": lambda s: repr(s.encode()),
    "in hex": lambda s: s.encode().hex(),
    "in base64": lambda s: base64.b64encode(s.encode()).decode(),
    "in base64 of a URL": lambda s: base64.urlsafe_b64encode(s.encode()).decode(),
    "as a password": lambda s: base64.b64encode(b"me:" + s.encode()).decode(),
    "as another password": lambda s: base64.b64encode(b"user:" + s.encode()).decode(),
    "as a third password": lambda s: base64.b64encode(b"ab:" + s.encode() + b":x").decode(),
    "as a fourth": lambda s: base64.b64encode(b"a:" + s.encode() + b"!!").decode(),
}


@pytest.mark.parametrize("secret", [SECRET, PLAIN], ids=["odd", "plain"])
@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN.keys())
def test_a_known_secret_is_taken_out_however_it_is_written(write: object, secret: str) -> None:
    assert callable(write)
    text = f"before {write(secret)} after"

    clean = knowing(secret).clean(text)

    assert "[secret stripe]" in clean or "[masked]" in clean
    for form in (
        secret,
        quote(secret, safe=""),
        secret.encode().hex(),
        base64.b64encode(secret.encode()).decode()[:-4],
    ):
        assert form not in clean
    assert clean.startswith("before ")


def test_a_line_of_a_secret_with_many_lines_is_taken_out() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqh\nkiG9w0BAQEFAASC\n-----END KEY-----"

    assert "kiG9w0BAQ" not in knowing(key, "key").clean("at line 3: kiG9w0BAQEFAASC is odd")


def test_each_secret_is_named_and_the_longer_one_is_found_first() -> None:
    redactor = knowing("abcd1234", "short")
    redactor.learn("long", "abcd1234efgh")
    redactor.learn("short", "abcd1234")

    assert redactor.clean("abcd1234efgh, abcd1234") == "[secret long], [secret short]"


def test_what_is_too_short_to_be_told_from_text_is_left() -> None:
    redactor = knowing("abc", "x")

    assert redactor.clean("abc") == "abc"
    assert redactor.clean("") == ""


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("GET https://user:pass@host/x", "GET https://[masked]@host/x"),
        ("postgresql://app:p%40ss@db:5432/x?sslmode=require", "postgresql://[masked]@db:5432/x?sslmode=require"),
        ("https://token@host", "https://[masked]@host"),
        ("//user:p@ss@host/", "//[masked]@host/"),
        ("https://x/?api_key=k1&page=2", "https://x/?api_key=[masked]&page=2"),
        ("https://x/?page=2&access_token=t#end", "https://x/?page=2&access_token=[masked]#end"),
        ("https://x/?X-Amz-Signature=ab12&b=1", "https://x/?X-Amz-Signature=[masked]&b=1"),
        ("https://x/?key=AIza", "https://x/?key=[masked]"),
        ("Authorization: Bearer abc.def", "Authorization: [masked]"),
        ("{'Authorization': 'Basic dXNlcg=='}", "{'Authorization': '[masked]'}"),
        (
            "Headers([(b'authorization', b'Bearer x'), (b'a', b'b')])",
            "Headers([(b'authorization', b'[masked]'), (b'a', b'b')])",
        ),
        ('{"x-api-key": "k", "a": 1}', '{"x-api-key": "[masked]", "a": 1}'),
        ("Cookie: a=b; c=d", "Cookie: [masked]"),
        ("sent Bearer eyJhbGciOiJIUzI1NiJ9.e30.x", "sent Bearer [masked]"),
    ],
)
def test_a_credential_is_masked_by_its_place(text: str, clean: str) -> None:
    assert Redactor().clean(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "the bearer of this letter is entitled to a refund",
        "basic arithmetic with 12 apples",
        "https://host/path?page=2&order=7#at@x",
        "mail ann@example.org // and bob@example.org",
        "ValueError: monkey=3, keyed=True",
        "a token was expected",
        "C://x",
    ],
)
def test_what_is_no_credential_stays_as_it_is(text: str) -> None:
    assert Redactor().clean(text) == text


@given(st.text(), st.text(min_size=4).map(lambda text: f"§{text}§"))
def test_cleaned_json_is_json_and_keeps_no_known_secret(text: str, secret: str) -> None:
    body = json.dumps({"a": text + secret, "b": [secret], "cookie": 5, "c": "Cookie: x"}, ensure_ascii=False)

    clean = knowing(secret, "x").clean_json(body.encode())

    json.loads(clean)
    assert secret not in clean.decode()


@pytest.mark.parametrize(
    "text", ["//" * 30_000, "a" * 60_000 + "=", "?" + "token" * 12_000, "x-" * 30_000, "cookie: " * 8_000]
)
def test_no_text_takes_long(text: str) -> None:
    started = time.thread_time()  # what the machine does meanwhile does not count

    knowing().clean(text)

    assert time.thread_time() - started < 2
