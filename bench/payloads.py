"""What is published: dicts that are 200 bytes as JSON, each different."""

import random
from typing import Any

import msgspec

SIZE = 200
BATCH = 1_000
TYPE = "order.created"

Payload = dict[str, Any]

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


def payloads(count: int) -> list[Payload]:
    source = random.Random(count)
    return [_payload(number, source) for number in range(count)]


def in_batches(given: list[Payload]) -> list[list[Payload]]:
    return [given[at : at + BATCH] for at in range(0, len(given), BATCH)]


def _payload(number: int, source: random.Random) -> Payload:
    made: Payload = {
        "order": 1_000_000 + number,
        "customer": f"customer-{source.randrange(10**6):06}",
        "total": source.randrange(100, 100_000) / 100,
        "note": "",
    }
    missing = SIZE - len(encode(made))
    return {**made, "note": f"{source.getrandbits(4 * missing):0{missing}x}"}
