"""Decodes the payloads that handlers get, by the codecs of their node."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from headrace.errors import InvalidPayload
from headrace.model import Claimed
from headrace.model.codec import Codecs
from headrace.node.handler.payload import PayloadMismatch

_details_of = attrgetter("raw_details")


class NotDecoded(PayloadMismatch):
    """A payload that names a codec which its node does not have."""

    what = "Payload not decoded"


class Opener:
    """Makes a claim one whose payload is decoded."""

    def __init__(self, codecs: Codecs) -> None:
        self._codecs = codecs
        self.is_always_needed = bool(codecs)
        """Else only events that have details may name a codec."""

    def __call__(self, claimed: Claimed) -> Claimed:
        try:
            return self._codecs.opened(claimed)
        except InvalidPayload as error:
            raise NotDecoded(str(error)) from None

    def is_needed_for(self, claims: Sequence[Claimed]) -> bool:
        return self.is_always_needed or any(map(_details_of, claims))
