"""Limits and turns on the command line: as they are written, and as they are shown."""

import json

import pytest

from headrace import Limit
from headrace.cli.terminal.limits import limit, limit_text
from tests.cli.running import CommandLine
from tests.database import Database

WRITTEN = [
    ("queue at-once=50", Limit("queue", at_once=50)),
    ("tag tenant: at-once=5", Limit("tag", prefix="tenant:", at_once=5)),
    ("tag tenant:acme at-once=20", Limit("tag", match="tenant:acme", at_once=20)),
    ("tag match=tenant: at-once=20", Limit("tag", match="tenant:", at_once=20)),
    ("tag match=a=b at-once=20", Limit("tag", match="a=b", at_once=20)),
    ("type prefix=mail. rate=1/0.5s", Limit("type", prefix="mail.", rate=1, per=0.5)),
    (
        "type mail.* at-once=3 rate=100/60s burst=20",
        Limit("type", match="mail.*", at_once=3, rate=100, per=60, burst=20),
    ),
    ("queue rate=1/2678400s", Limit("queue", rate=1, per=31 * 86400)),
    ("key rate=1/10s", Limit("key", rate=1, per=10)),
    (
        '{"scope": "tag", "match": "two words", "at_once": 1}',
        Limit("tag", match="two words", at_once=1),
    ),
]


@pytest.mark.parametrize(("text", "meant"), WRITTEN)
def test_a_limit_is_shown_as_it_is_written(text: str, meant: Limit) -> None:
    assert Limit(**limit(text)) == meant
    assert limit_text(meant) == text


def test_limits_are_set_shown_and_taken_away(db: Database, cli: CommandLine) -> None:
    cli(
        *("queues", "create", "mails", "--type", "mail.*", "--fair-by", "tenant:"),
        *("--limit", "tag tenant: at-once=1", "--limit", "queue rate=100/1m burst=20"),
        *("--aging", "10m", "--max-snoozes", "3"),
    )
    mails = db.queue(queue="mails")
    settings = db.queue().queue("mails")
    assert settings.limits == (
        Limit("tag", prefix="tenant:", at_once=1),
        Limit("queue", rate=100, per=60, burst=20),
    )
    assert (settings.fair_by, settings.max_snoozes) == ({"tag": "tenant:"}, 3)
    for n in range(3):
        mails.publish("mail.a", n, tags=["tenant:big"])
    assert len(mails.poll(max_events=5)) == 1
    said = cli("queues", "show", "mails").out
    for line in (
        "limit      tag tenant: at-once=1",
        "limit      queue rate=100/60s burst=20",
        "fair by    tag tenant:",
        "aging      10m",
    ):
        assert line in said.splitlines()
    [group] = [line.split() for line in said.splitlines() if line.startswith("tag tenant:big")]
    assert group[2:7] == ["1", "of", "1", "0", "2"]  # in progress, room, waiting
    cli("queues", "set", "mails", "--default", "limits", "--default", "fair-by")
    changed = db.queue().queue("mails")
    assert (changed.limits, changed.fair_by) == (None, None)
    assert len(mails.poll(max_events=5)) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["--limit", wrong]
            for wrong in (
                "",
                "frog at-once=1",
                "queue",
                "queue at-once=0",
                "queue at-once=-1",
                "queue at-once=1e9",
                "queue at-once=99999999999999999999",
                "queue at-once=1 at-once=2",
                "queue rate=10",
                "queue rate=10/",
                "queue rate=10/0s",
                "queue rate=10/-1s",
                "queue tenant: at-once=1",
                "queue slots=1",
                "tag at-once=1",
                "tag tenant: tenant:acme at-once=1",
                "tag one two at-once=1",
                "key at-once=1",
                '{"scope": "queue"',
                '{"scope": "queue", "at_once": 1.5}',
            )
        ),
        ["--limit", "queue at-once=1", "--limit", "queue rate=1/1s"],
        ["--limit", "tag a at-once=1", "--limit", "tag a at-once=2"],
        ["--limit", "tag t: at-once=1", "--limit", "tag prefix=t:a at-once=2"],
        ["--fair-by", ""],
        ["--fair-by", '{"tag": 1}'],
        ["--aging", "0s"],
        ["--aging", "soon"],
        ["--max-snoozes", "-1"],
        ["--order", "oldest", "--aging", "1m"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_refused_in_one_sentence_and_changes_nothing(
    db: Database, cli: CommandLine, arguments: list[str]
) -> None:
    before = db.sql("select * from headrace.queues")
    refused = cli.tried("queues", "set", "main", *arguments)
    assert refused.code != 0
    assert refused.err.startswith("headrace: ")
    assert refused.err.count("\n") == 1
    assert db.sql("select * from headrace.queues") == before


def test_limits_are_in_the_json_of_a_queue(cli: CommandLine) -> None:
    cli("queues", "set", "main", "--limit", "key rate=1/10s")
    [said] = cli("queues", "show", "main", "--json").records
    assert said["limits"] == [{"scope": "key", "rate": 1, "per": 10.0}]
    assert json.dumps(said)
