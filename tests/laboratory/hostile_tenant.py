"""A process that does to a server all that a tenant's token allows, as much of it as it can, until it is killed."""

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Awaitable, Callable

import httpx

LOOKS, BATCHES, PUBLISHES, CLAIMS, STREAMS = 12, 4, 20, 8, 200
PAUSE = 0.05  # seconds after a refusal: who is refused at once need not be answered at once


async def harass(url: str, token: str, namespace: str) -> None:
    numbers = itertools.count()
    patterns = ",".join(f"*{n}*" for n in range(100))
    batch = json.dumps(
        {"events": [{"type": f"type.{n}", "payload": {"n": n}} for n in range(10_000)]}
    )
    async with httpx.AsyncClient(
        base_url=url,
        headers={"Authorization": f"Bearer {token}"},
        params={"namespace": namespace},
        timeout=60,
        limits=httpx.Limits(max_connections=None),
    ) as client:

        async def look() -> httpx.Response:
            return await client.get("/events", params={"types": patterns})

        async def publish_many() -> httpx.Response:
            json_body = {"Content-Type": "application/json"}
            return await client.post("/events/batch", content=batch, headers=json_body)

        async def publish() -> httpx.Response:
            return await client.post("/events", json={"type": f"new.{next(numbers)}"})

        async def claim() -> httpx.Response:
            body = {"worker_id": "hostile", "limit": 100, "lease": 1, "wait": 1}
            return await client.post("/events/claim", json=body)

        async def follow() -> httpx.Response:
            async with client.stream("GET", "/events/stream", params={"after": "0"}) as stream:
                async for _ in stream.aiter_bytes():
                    pass
                return stream

        async with asyncio.TaskGroup() as group:
            for times, what in (
                *((LOOKS, look), (BATCHES, publish_many), (PUBLISHES, publish)),
                *((CLAIMS, claim), (STREAMS, follow)),
            ):
                for _ in range(times):
                    group.create_task(_again_and_again(what))


async def _again_and_again(what: Callable[[], Awaitable[httpx.Response]]) -> None:
    while True:
        try:
            answer = await what()
        except httpx.HTTPError as error:
            _tell(f"{what.__name__}: {type(error).__name__}")
            await asyncio.sleep(PAUSE)
        else:
            _tell(f"{what.__name__}: {answer.status_code}")
            if not answer.is_success:
                await asyncio.sleep(PAUSE)


def _tell(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.nice(5)  # it stands for other machines, which do not take the server's processor
    asyncio.run(harass(*(os.environ[f"HOSTILE_{name}"] for name in ("URL", "TOKEN", "NAMESPACE"))))
