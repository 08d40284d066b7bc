"""Against a real server on the loopback, with httpx as users have it; what a loopback cannot do is raised by hand."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from milepost.definitions import http
from milepost.errors import NotSent, Rejected

DATE = "Fri, 02 Jan 2026 10:00:00 GMT"


class Provider(BaseHTTPRequestHandler):
    """Answers as the path says: `/429?Retry-After=7`, `/hang`, `/reset`; a posted body comes back."""

    protocol_version = "HTTP/1.1"
    release: threading.Event

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        url = httpx.URL(self.path)
        if url.path == "/hang":
            self.release.wait(100)
        if url.path in {"/hang", "/reset"}:
            self.close_connection = True
            return
        self.send_response_only(int(url.path.strip("/")))
        headers = {"Date": DATE, **url.params}
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


class QuietServer(ThreadingHTTPServer):
    """A client that hangs up, or greets in TLS, is what these tests are about."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    Provider.release = threading.Event()
    server = QuietServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    Provider.release.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def client(provider: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=provider, timeout=60, trust_env=False) as opened:
        yield opened


def error_of(send: Callable[[], object]) -> Exception:
    with pytest.raises(httpx.HTTPError) as raised:
        send()
    return raised.value


def test_a_refused_connection_proves_that_nothing_was_sent(client: httpx.Client) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = error_of(lambda: client.post(f"http://127.0.0.1:{port}/"))

    found = http.classify(error)

    assert isinstance(error, httpx.ConnectError)
    assert isinstance(found, NotSent)
    assert found.why.startswith("ConnectError: ")
    assert found.retry_after is None


def test_a_failed_tls_handshake_proves_that_nothing_was_sent(client: httpx.Client, provider: str) -> None:
    error = error_of(lambda: client.post(provider.replace("http:", "https:")))

    assert isinstance(error, httpx.ConnectError)
    assert isinstance(http.classify(error), NotSent)


def test_a_full_connection_pool_proves_that_nothing_was_sent(provider: str) -> None:
    limits = httpx.Limits(max_connections=1)
    with (
        httpx.Client(limits=limits, timeout=httpx.Timeout(60, pool=0.01), trust_env=False) as client,
        client.stream("POST", f"{provider}/200", content=b"x"),
    ):
        error = error_of(lambda: client.post(f"{provider}/200"))

    assert isinstance(error, httpx.PoolTimeout)
    assert isinstance(http.classify(error), NotSent)


def test_a_connect_timeout_proves_that_nothing_was_sent() -> None:
    assert isinstance(http.classify(httpx.ConnectTimeout("no answer to the SYN")), NotSent)


def test_a_read_timeout_proves_nothing(client: httpx.Client) -> None:
    error = error_of(lambda: client.post("/hang", timeout=httpx.Timeout(60, read=0.05)))

    assert isinstance(error, httpx.ReadTimeout)
    assert http.classify(error) is None


def test_a_connection_that_dies_after_the_request_proves_nothing(client: httpx.Client) -> None:
    error = error_of(lambda: client.post("/reset"))

    assert isinstance(error, httpx.RemoteProtocolError)
    assert http.classify(error) is None


def test_a_kept_alive_connection_that_dies_proves_nothing(client: httpx.Client) -> None:
    assert client.post("/200", content=b"x").status_code == 200

    assert http.classify(error_of(lambda: client.post("/reset"))) is None


@pytest.mark.parametrize(
    "error",
    [
        httpx.WriteTimeout(""),
        httpx.WriteError(""),
        httpx.ReadError(""),
        httpx.CloseError(""),
        httpx.LocalProtocolError(""),
        httpx.ProxyError(""),
        httpx.TooManyRedirects(""),
        httpx.DecodingError(""),
        TimeoutError(),
        ConnectionRefusedError(),
        ValueError(),
        None,
        "ConnectError",
    ],
)
def test_every_other_failure_proves_nothing(error: object) -> None:
    assert http.classify(error) is None


def test_an_error_that_only_has_the_name_of_one_proves_nothing() -> None:
    class ConnectError(Exception):
        pass

    assert http.classify(ConnectError()) is None


def test_an_error_derived_from_a_connect_error_proves_as_much() -> None:
    class OurConnectError(httpx.ConnectError):
        pass

    assert isinstance(http.classify(OurConnectError("refused")), NotSent)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_credential_is_rejected_for_good(client: httpx.Client, status: int) -> None:
    response = client.post(f"/{status}")

    assert isinstance(http.classify(response), Rejected)
    assert str(status) in str(http.classify(response))


@pytest.mark.parametrize("status", [400, 404, 405, 413, 422])
def test_a_bad_request_is_rejected_only_where_the_provider_checks_first(client: httpx.Client, status: int) -> None:
    response = client.post(f"/{status}")

    assert http.classify(response) is None
    assert isinstance(http.classify(response, validated_first=True), Rejected)


@pytest.mark.parametrize("status", [200, 202, 302, 402, 408, 409, 410, 412, 423, 425, 500, 502, 503, 504, 529])
def test_any_other_answer_proves_nothing(client: httpx.Client, status: int) -> None:
    response = client.post(f"/{status}")

    assert http.classify(response) is None
    assert http.classify(response, validated_first=True) is None


def test_a_status_error_is_what_its_response_is(client: httpx.Client) -> None:
    refused = error_of(lambda: client.post("/403").raise_for_status())
    broken = error_of(lambda: client.post("/500").raise_for_status())
    bad = error_of(lambda: client.post("/422").raise_for_status())

    assert isinstance(http.classify(refused), Rejected)
    assert http.classify(broken) is None
    assert http.classify(bad) is None
    assert isinstance(http.classify(bad, validated_first=True), Rejected)


@pytest.mark.parametrize(
    ("said", "wait"),
    [
        ("7", timedelta(seconds=7)),
        ("0.5", timedelta(seconds=0.5)),
        ("Fri, 02 Jan 2026 10:00:30 GMT", timedelta(seconds=30)),
        ("Fri, 02 Jan 2026 09:00:00 GMT", timedelta(0)),
        ("Fri, 02 Jan 2026 10:00:30", timedelta(seconds=30)),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("9" * 400, None),
        ("²", None),
    ],
)
def test_too_many_requests_were_not_executed_and_may_be_repeated_after_a_while(
    client: httpx.Client, said: str, wait: timedelta | None
) -> None:
    if said == "²":
        response = httpx.Response(429, headers=[(b"retry-after", said.encode("latin-1"))])
    else:
        response = client.post("/429", params={"Retry-After": said})

    found = http.classify(response)

    assert isinstance(found, NotSent)
    assert found.retry_after == wait


def test_without_the_server_clock_a_date_says_nothing() -> None:
    response = httpx.Response(429, headers={"retry-after": DATE})

    found = http.classify(response)

    assert isinstance(found, NotSent)
    assert found.retry_after is None


@pytest.mark.parametrize(
    "error",
    [
        {"code": "insufficient_quota"},
        {"type": "insufficient_quota", "code": None},
        {"code": "project_spend_limit_exceeded"},
        {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}},
        "credit_balance_exhausted",
    ],
)
def test_money_that_is_spent_is_rejected_for_good(client: httpx.Client, error: Any) -> None:
    response = client.post("/429", content=json.dumps({"error": error}), params={"Retry-After": "1"})

    assert isinstance(http.classify(response), Rejected)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'{"error": 5}', b'{"error": {"code": 7}}', b'{"error": {"code": "rate_limit_exceeded"}}'],
)
def test_another_body_of_too_many_requests_changes_nothing(client: httpx.Client, body: bytes) -> None:
    assert isinstance(http.classify(client.post("/429", content=body)), NotSent)


def test_a_streamed_answer_that_nobody_read_is_classified_by_its_status(client: httpx.Client) -> None:
    with client.stream("POST", "/429", content=b'{"error": {"code": "insufficient_quota"}}') as response:
        assert isinstance(http.classify(response), NotSent)
