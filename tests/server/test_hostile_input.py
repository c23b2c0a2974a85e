"""What is thrown at the server, each with the answer it gets: a status, a code, never a 5xx."""

import json
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest
from hypothesis import Phase, example, given, settings

from tests.requirements import requirement
from tests.server.running import Running
from tests.values import JSON, acceptable, same

JSON_TYPE = {"Content-Type": "application/json"}
SQL = "'; drop table headrace.events; --"
WORKER = {"worker_id": "w:1"}


def body(raw: bytes | str, **headers: str) -> dict[str, Any]:
    content = raw.encode() if isinstance(raw, str) else raw
    return {
        "method": "POST",
        "url": "/events",
        "content": content,
        "headers": {**JSON_TYPE, **headers},
    }


def event(**fields: Any) -> dict[str, Any]:
    return body(json.dumps(fields))


def payload(raw: str) -> dict[str, Any]:
    return body(f'{{"payload": {raw}}}')


def get(url: str, **params: Any) -> dict[str, Any]:
    return {"method": "GET", "url": url, "params": params}


def subscribe(**params: Any) -> dict[str, Any]:
    return get("/events/subscribe", **{"tags": "a", **WORKER, **params})


def post(url: str, **fields: Any) -> dict[str, Any]:
    return {"method": "POST", "url": url, "json": fields}


def complete(id: str = "1", **fields: Any) -> dict[str, Any]:
    return post(f"/events/{id}/complete", **{**WORKER, **fields})


def fail(**fields: Any) -> dict[str, Any]:
    return post("/events/1/fail", **{**WORKER, **fields})


def claim(**fields: Any) -> dict[str, Any]:
    return post("/events/claim", **{**WORKER, **fields})


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    # bodies that are no JSON
    "nothing where JSON belongs": (body(" "), 400, "invalid_json"),
    "nothing at all": (body(""), 400, "invalid_body"),
    "nothing where all is meant": ({"method": "POST", "url": "/dead-letters/redrive"}, 400, "invalid_body"),
    "half an object": (body('{"title": "x"'), 400, "invalid_json"),
    "two values": (body("{} {}"), 400, "invalid_json"),
    "a comment": (body("{} // really"), 400, "invalid_json"),
    "single quotes": (body("{'title': 'x'}"), 400, "invalid_json"),
    "a form": (body("title=x"), 400, "invalid_json"),
    "XML": (body("<event/>"), 400, "invalid_json"),
    "UTF-16": (body('{"title": "x"}'.encode("utf-16")), 400, "invalid_json"),
    "a byte order mark": (body(b"\xef\xbb\xbf{}"), 400, "invalid_json"),
    "bytes that are not UTF-8": (body(b'{"title": "\xff\xfe"}'), 400, "invalid_json"),
    "an overlong encoding": (body(b'{"title": "\xc0\xaf"}'), 400, "invalid_json"),
    "an encoded surrogate": (body(b'{"title": "\xed\xa0\x80"}'), 400, "invalid_json"),
    "a lone surrogate": (body(rb'{"title": "\ud800"}'), 400, "invalid_json"),
    "a NUL byte": (body(b'{"title": "a\x00b"}'), 400, "invalid_json"),
    "a control character": (body(b'{"title": "a\nb"}'), 400, "invalid_json"),
    "NaN": (payload("NaN"), 400, "invalid_json"),
    "100,000 brackets": (payload("[" * 100_000 + "]" * 100_000), 400, "invalid_json"),
    "100,000 brackets that never close": (body("[" * 100_000), 400, "invalid_body"),
    # JSON that is no event
    "a list": (body("[]"), 400, "invalid_body"),
    "null": (body("null"), 400, "invalid_body"),
    "a number": (body("42"), 400, "invalid_body"),
    "a field that nobody knows": (event(titel="x"), 400, "invalid_body"),
    "a namespace in the body": (event(namespace="other"), 400, "invalid_body"),
    "a title that is a number": (event(title=7), 400, "invalid_body"),
    "tags that are a number": (event(tags=7), 400, "invalid_body"),
    "tags that are numbers": (event(tags=[7]), 400, "invalid_body"),
    "a type that is null": (event(type=None), 400, "invalid_body"),
    "a priority that is a string": (event(priority="1"), 400, "invalid_body"),
    "a time without a zone": (event(at="2030-01-01T00:00:00"), 400, "invalid_body"),
    "a time that is none": (event(at="tomorrow"), 400, "invalid_body"),
    # events that the engine refuses
    "an empty type": (event(type=""), 400, "invalid_input"),
    "a type of 201 characters": (event(type="x" * 201), 400, "invalid_input"),
    "a type with an asterisk": (event(type="a.*"), 400, "invalid_input"),
    "an empty tag": (event(tags="a,,b"), 400, "invalid_input"),
    "a comma in a tag": (event(tags=["a,b"]), 400, "invalid_input"),
    "51 tags": (event(tags=[str(n) for n in range(51)]), 400, "invalid_input"),
    "a tag of 101 characters": (event(tags="x" * 101), 400, "invalid_input"),
    "a priority of ten": (event(priority=10), 400, "invalid_input"),
    "a delay below nothing": (event(delay=-1), 400, "invalid_input"),
    "a delay of 1e300 seconds": (event(delay=1e300), 400, "invalid_input"),
    "a delay and a time": (event(delay=1, at="2030-01-01T00:00:00Z"), 400, "invalid_input"),
    "an empty unique key": (event(unique=""), 400, "invalid_input"),
    "a debounce without a settle": (event(debounce="k"), 400, "invalid_input"),
    "a settle of nothing": (event(debounce="k", settle=0), 400, "invalid_input"),
    "a settle of 1e300 seconds": (event(debounce="k", settle=1e300), 400, "invalid_input"),
    "a settle without a debounce": (event(settle=1), 400, "invalid_input"),
    "2^70 retries": (event(max_retries=2**70), 400, "invalid_input"),
    "a backoff that is none": (event(backoff={"kind": "never"}), 400, "invalid_input"),
    "NUL in the title": (event(title="a\0b"), 400, "invalid_input"),
    "NUL in an idempotency key": (event(idempotency_key="a\0b"), 400, "invalid_input"),
    "an idempotency key of a megabyte": (event(idempotency_key="x" * 1_000_000), 400, "invalid_input"),
    # payloads that could not be read back by everybody
    "NUL in the payload": (payload(r'"\u0000"'), 400, "invalid_payload"),
    "NUL in a key of the payload": (payload(r'{"\u0000": 1}'), 400, "invalid_payload"),
    "a lone surrogate in the payload": (payload(r'"\ud800"'), 400, "invalid_json"),
    "a number of 4,400 digits": (payload("1e4400"), 400, "invalid_payload"),
    "a bomb of digits": (payload("[" + ",".join(["1e131071"] * 9000) + "]"), 400, "invalid_payload"),
    "151 brackets": (payload("[" * 151 + "]" * 151), 400, "invalid_payload"),
    "a payload above a mebibyte": (payload(f'"{"x" * 1_048_577}"'), 413, "payload_too_large"),
    "a body above the limit": (payload(f'"{"x" * 1_200_000}"'), 413, "body_too_large"),
    # content types and methods
    "no content type": ({**body("{}"), "headers": {}}, 415, "unsupported_media_type"),
    "a form's content type": (
        body("{}", **{"Content-Type": "application/x-www-form-urlencoded"}),
        415,
        "unsupported_media_type",
    ),
    "plain text": (body("{}", **{"Content-Type": "text/plain"}), 415, "unsupported_media_type"),
    "PUT": ({**body("{}"), "method": "PUT"}, 405, "method_not_allowed"),
    "a method that is none": ({**body("{}"), "method": "EXPLODE"}, 400, "invalid_request"),
    "GET where only POST is": (get("/events/1/complete"), 405, "method_not_allowed"),
    "HEAD for a claim": ({**subscribe(), "method": "HEAD"}, 405, ""),
    # queries
    "a parameter that nobody knows": (get("/events", stauts="PENDING"), 400, "invalid_query"),
    "a parameter twice": ({"method": "GET", "url": "/events?limit=1&limit=2", "bare": True}, 400, "invalid_query"),
    "a thousand parameters": (get("/events", **{f"p{n}": 1 for n in range(1000)}), 400, "invalid_query"),
    "a query that is not UTF-8": ({"method": "GET", "url": "/events?status=%ff", "bare": True}, 400, "invalid_query"),
    "a status that is none": (get("/events", status="LOST"), 400, "invalid_query"),
    "a limit of nothing": (get("/events", limit=0), 400, "invalid_query"),
    "a limit of a million": (get("/events", limit=1_000_000), 400, "invalid_query"),
    "a limit in words": (get("/events", limit="ten"), 400, "invalid_query"),
    "an offset below nothing": (get("/events", offset=-1), 400, "invalid_query"),
    "an offset above the limit": (get("/events", offset=10_001), 400, "invalid_input"),
    "an offset of 2^70": (get("/events", offset=2**70), 400, "invalid_query"),
    "a truth that is none": (get("/events", payload="maybe"), 400, "invalid_query"),
    "a time that is none in the query": (get("/events", since="yesterday"), 400, "invalid_query"),
    "NUL in a tag": (get("/events", tags="a\0b"), 400, "invalid_input"),
    "101 tags to look for": (get("/events", tags=",".join(map(str, range(101)))), 400, "invalid_query"),
    "a worker without a name": (subscribe(worker_id=""), 400, "invalid_query"),
    "a worker of 201 characters": (subscribe(worker_id="x" * 201), 400, "invalid_query"),
    "NUL in a worker's name": (subscribe(worker_id="w\0"), 400, "invalid_input"),
    "a lease of nothing": (subscribe(lease=0), 400, "invalid_query"),
    "a lease of a year": (subscribe(lease=31536000), 400, "invalid_query"),
    "a lease that is no number": (subscribe(lease="nan"), 400, "invalid_query"),
    "no tag at all": (subscribe(tags=""), 400, "invalid_query"),
    # names that are data
    "SQL for a namespace": (get("/events", namespace=SQL), 404, "namespace_not_found"),
    "NUL in a namespace": (get("/events", namespace="a\0b"), 400, "invalid_input"),
    "a namespace of 50,000 characters": (get("/events", namespace="x" * 50_000), 404, "namespace_not_found"),
    "SQL for a queue": (get("/events", queue=SQL), 404, "queue_not_found"),
    "no namespace": (get("/events", namespace=""), 404, "namespace_not_found"),
    "to publish into a queue that is not there": (
        {**event(), "params": {"queue": "none"}}, 404, "queue_not_found"),
    # ids and paths
    "an event that is not there": (get("/events/999999999999"), 404, "event_not_found"),
    "an id beyond bigint": (get(f"/events/{2**63}"), 404, "event_not_found"),
    "an id of 5,000 digits": (get("/events/" + "9" * 5000), 404, "event_not_found"),
    "an id below nothing": (get("/events/-1"), 404, "event_not_found"),
    "an id with a fraction": (get("/events/1.0"), 404, "event_not_found"),
    "an id in Arabic digits": (get("/events/١"), 404, "event_not_found"),
    "an id with a zero in front": (get("/events/01"), 404, "event_not_found"),
    "SQL for an id": (get("/events/1%20or%201=1"), 404, "event_not_found"),
    "a path upwards": ({"method": "GET", "url": "/events/../../etc/passwd", "bare": True}, 404, "not_found"),
    "an encoded path upwards": (get("/events/%2e%2e%2fetc%2fpasswd"), 404, "not_found"),
    "a slash too many": (get("/events/"), 404, "not_found"),
    "two slashes": ({"method": "GET", "url": "//events", "bare": True}, 404, "not_found"),
    "another case": (get("/Events"), 404, "not_found"),
    "a NUL in the path": (get("/events/%00"), 404, "event_not_found"),
    "a path that is not UTF-8": (get("/events/%ff"), 404, "event_not_found"),
    # ends
    "an end without a name": (post("/events/1/complete"), 400, "invalid_body"),
    "an end of an event that is not there": (complete("999999999"), 404, "event_not_found"),
    "a time that ran backwards": (complete(execution_time_ms=-1), 400, "invalid_body"),
    "a time beyond all bounds": (complete(execution_time_ms=2**31), 400, "invalid_body"),
    "a time with a fraction": (complete(execution_time_ms=1.5), 400, "invalid_body"),
    "a code beyond all bounds": (complete(status_code=2**40), 400, "invalid_body"),
    "a code that is a string": (complete(status_code="200"), 400, "invalid_body"),
    "attempt nothing": (complete(attempt=0), 400, "invalid_body"),
    "attempt 2^40": (complete(attempt=2**40), 400, "invalid_body"),
    "an error that is an object": (fail(error_message={}), 400, "invalid_body"),
    "a retry in the past": (fail(retry_in=-1), 400, "invalid_body"),
    "a retry in eleven years": (fail(retry_in=347_000_000), 400, "invalid_body"),
    "an error of two megabytes": (fail(error_message="x" * 2_000_000), 413, "body_too_large"),
    "a claim of nothing": (claim(limit=0), 400, "invalid_body"),
    "a claim of 1,001": (claim(limit=1001), 400, "invalid_body"),
    "a claim of an empty type": (claim(types=[""]), 400, "invalid_body"),
    "a claim of no types, which are not all": (claim(types=[]), 400, "invalid_body"),
    "a claim of no tags, which are not all": (claim(tags=[]), 400, "invalid_body"),
    "a claim of no tag, which is not any": (claim(tags=""), 400, "invalid_body"),
    "a heartbeat of eight days": (post("/events/1/heartbeat", lease=691200, **WORKER), 400, "invalid_body"),
    "a reason in a body that is not read": (post("/events/1/reset", reason="stuck"), 400, "invalid_body"),
    "a body that is not read, in chunks": (
        {"method": "POST", "url": "/events/1/cancel", "content": iter([b"why ", b"not"])}, 400, "invalid_body"),
    "a body of a removal": ({"method": "DELETE", "url": "/schedules/a", "json": {"at": "once"}}, 400, "invalid_body"),
    "an action that no log has": (get("/events/stream", actions="EMITTED,SLEPT"), 400, "invalid_query"),
    "a batch that is a list": ({"method": "POST", "url": "/events/batch", "json": []}, 400, "invalid_body"),
    "a batch with one bad event": (
        post("/events/batch", events=[{}, {"type": ""}]), 400, "invalid_input"),
    "a batch above the limit": (
        {**body("x" * (16 * 1024 * 1024 + 1)), "url": "/events/batch"}, 413, "body_too_large"),
}  # fmt: skip


@requirement("G18")
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_a_sentence(house: Running, api: httpx.Client, name: str) -> None:
    request, status, code = REFUSED[name]
    request = dict(request)
    if request.pop(
        "bare", False
    ):  # as it is, without the parameters that every request of `api` has
        answer = httpx.request(request["method"], house.url + request["url"])
    else:
        answer = api.request(**request)
    assert answer.status_code == status, answer.text
    if request["method"] == "HEAD":
        assert answer.content == b""
        return
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["code"] == code, answer.text
    sentence = answer.json()["error"]
    assert sentence[0].isupper() or not sentence[0].isalpha()
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(sentence) < 1000
    assert api.get("/events").json()["total"] == 0, "nothing was published"


def test_there_are_enough_of_them() -> None:
    assert len(REFUSED) >= 100


TAKEN: dict[str, tuple[Any, Any]] = {
    "SQL": (SQL, SQL),
    "HTML": ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    "format strings": ("%s%n{0}${jndi:ldap://x}", "%s%n{0}${jndi:ldap://x}"),
    "every plane": ("é ß 漢字 🐘 \u202e \ufeff", "é ß 漢字 🐘 \u202e \ufeff"),
    "control characters": ("\u0001\u001f\u007f", "\u0001\u001f\u007f"),
    "a long text": ("x" * 15_000, "x" * 15_000),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_only_strange_comes_back_as_it_was(api: httpx.Client, name: str) -> None:
    text, expected = TAKEN[name]
    fields = {"title": text, "description": text, "correlation_id": text, "payload": {text: [text]}}
    answer = api.post("/events", json=fields)
    assert answer.status_code == 201, answer.text
    shown = api.get(f"/events/{answer.json()['id']}", params={"details": "true"}).json()
    assert shown["title"] == shown["description"] == shown["correlation_id"] == expected
    assert shown["payload"] == {expected: [expected]}


@pytest.mark.parametrize(
    "raw", ["0", "null", "[]", '""', "false", "-0.0", "1e15", "12345678901234567890"]
)
def test_any_json_is_a_payload(api: httpx.Client, raw: str) -> None:
    answer = api.post("/events", content=f'{{"payload": {raw}}}', headers=JSON_TYPE)
    assert answer.status_code == 201
    assert api.get(f"/events/{answer.json()['id']}").json()["payload"] == json.loads(raw)


@pytest.fixture(scope="module")
def client(house: Running) -> Iterator[httpx.Client]:
    """One for all the examples, in a namespace where nobody else is."""
    with house.client(house.new_namespace()) as client:
        yield client


@requirement("G18")
@settings(max_examples=30, phases=(Phase.explicit, Phase.generate))
@given(payload=JSON)
@example(payload=[1e308, -1e308, 5e-324, 1e22, 0.1, -0.0, 10**300, 2**64, -(2**63) - 1])
@example(payload={"": {"": [""]}, "\uffff\U0010ffff": "\u202e\u2028"})
def test_every_json_comes_back_or_is_refused(client: httpx.Client, payload: Any) -> None:
    ids = []
    for path, fields in (
        ("/events", {"payload": payload}),
        ("/events/batch", {"events": [{"payload": payload}]}),
    ):
        answer = client.post(path, content=json.dumps(fields), headers=JSON_TYPE)
        told = answer.json()
        if acceptable(payload):
            assert answer.status_code == 201, told
            ids += told["ids"] if "ids" in told else [told["id"]]
        else:
            assert (answer.status_code, told["code"]) == (400, "invalid_payload")
    claimed = client.post("/events/claim", json={**WORKER, "limit": 9}).json()["events"]
    assert [one["id"] for one in claimed] == ids
    for one in claimed:
        assert same(payload, one["payload"])
        assert same(payload, client.get(f"/events/{one['id']}").json()["payload"])
        assert client.post(f"/events/{one['id']}/complete", json=WORKER).is_success


def send(house: Running, raw: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", house.port), timeout=20) as line:
        line.sendall(raw)
        answer = b""
        while chunk := line.recv(65536):
            answer += chunk
        return answer


END = b"Host: localhost\r\nConnection: close\r\n\r\n"
CHUNKED = (
    b"POST /events HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    + END
)
RAW: dict[str, tuple[bytes, int]] = {
    "nonsense": (b"hello\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/9.9": (b"GET / HTTP/9.9\r\n" + END, 400),
    "no path": (b"GET HTTP/1.1\r\n" + END, 400),
    "an asterisk": (b"OPTIONS * HTTP/1.1\r\n" + END, 404),
    "a path of bytes": (b"GET /events/\xff\xfe HTTP/1.1\r\n" + END, 400),
    "two lengths": (b"POST /events HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n" + END, 400),
    "a length below nothing": (b"POST /events HTTP/1.1\r\nContent-Length: -1\r\n" + END, 400),
    "a length and chunks": (
        b"POST /events HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n" + END, 400),
    "a chunk that is none": (CHUNKED + b"zz\r\n", 400),
    "a header with a NUL": (b"GET /events HTTP/1.1\r\nX: a\x00b\r\n" + END, 400),
    "a header without a name": (b"GET /events HTTP/1.1\r\n: a\r\n" + END, 400),
    "a header of 100,000 bytes": (b"GET /events HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n", 431),
    "20,000 headers": (b"GET /events HTTP/1.1\r\n" + b"X: a\r\n" * 20_000, 431),
    "a trailer of 1,000,000 bytes": (CHUNKED + b"0\r\nX: " + b"a" * 1_000_000, 431),
    "200,000 trailers": (CHUNKED + b"0\r\n" + b"X: a\r\n" * 200_000, 431),
    "a chunk's extension of 1,000,000 bytes": (CHUNKED + b"1;" + b"a" * 1_000_000, 431),
    "a path of 100,000 bytes": (b"GET /" + b"a" * 100_000, 431),
    "a body longer than announced": (
        b"POST /events HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n" + END,
        413),
}  # fmt: skip


@requirement("G18")
@pytest.mark.parametrize("name", RAW)
def test_what_is_not_http_is_refused_and_the_connection_closed(house: Running, name: str) -> None:
    raw, status = RAW[name]
    head, _, said = send(house, raw).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), head
    assert b"application/json" in head
    assert json.loads(said)["error"]


ASKED = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"


@pytest.mark.parametrize("is_whole", [True, False])
def test_who_is_answered_before_his_request_was_read_is_told_that_it_is_the_last(
    house: Running, is_whole: bool
) -> None:
    """Otherwise his next one would go into a connection that is about to be closed."""
    with socket.create_connection(("127.0.0.1", house.port), timeout=60) as line:
        line.sendall(ASKED + b"{}" * is_whole)
        answer = HTTPResponse(line)
        answer.begin()
        answer.read()
        assert answer.status == 404
        assert (answer.headers.get("connection") == "close") is not is_whole
        if is_whole:
            line.sendall(ASKED + b"{}")
            assert line.recv(9) == b"HTTP/1.1 "
        else:
            assert line.recv(1) == b""
