"""Sessions that sleep until a queue has work: who is notified, when, and at whose expense."""

from collections.abc import Callable

import psycopg
import pytest

from tests.database import Database
from tests.engine.functions_helpers import SLEEPERS, Engine, refused
from tests.requirements import requirement


class Sleeper(Engine):
    def sleep(self, **arguments: str) -> str:
        [(channel,)] = self.call("fall_asleep", namespace=self.namespace, **arguments)
        return channel

    def wake_up(self, channel: str) -> bool:
        [(was_asleep,)] = self.call("wake_up", channel=channel)
        return was_asleep

    def heard(self) -> list[str]:
        self.connection.execute("select 1")  # brings what was committed before
        return [notify.channel for notify in self.connection.notifies(timeout=0)]


def asleep(db: Database) -> int:
    [(count,)] = db.sql(
        "select count(*) from pg_locks where locktype = 'advisory' and classid = %s", [SLEEPERS]
    )
    return count


class TestSleeping:
    @pytest.fixture
    def sleeper(self, db: Database) -> Sleeper:
        return Sleeper(db)

    @pytest.fixture
    def engine(self, db: Database) -> Engine:
        return Engine(db)

    @requirement("G19")
    def test_who_sleeps_hears_of_a_publish_and_who_woke_up_does_not(
        self, sleeper: Sleeper, engine: Engine, db: Database
    ) -> None:
        channel = sleeper.sleep()
        engine.publish({})
        assert sleeper.heard() == [channel]
        assert sleeper.wake_up(channel) is True
        assert asleep(db) == 0
        engine.publish({})
        engine.connection.execute("select pg_notify(%s, '')", [channel])
        assert sleeper.heard() == []

    def test_publishers_who_meet_while_they_notify_say_so(
        self, sleeper: Sleeper, engine: Engine, db: Database
    ) -> None:
        sleeper.sleep()
        other = Engine(db)
        with engine.connection.transaction():
            engine.publish({})
            other.publish({})
        engine.publish({})
        sleeper.connection.execute("select 1")
        said = [notify.payload for notify in sleeper.connection.notifies(timeout=0)]
        assert said == ["crowd", "", ""]

    def test_several_sleep_on_one_queue(
        self, sleeper: Sleeper, engine: Engine, db: Database
    ) -> None:
        other = Sleeper(db)
        channel = sleeper.sleep()
        assert other.sleep() == channel
        sleeper.wake_up(channel)
        engine.publish({})
        assert (sleeper.heard(), other.heard()) == ([], [channel])

    def test_each_queue_has_sleepers_of_its_own(self, sleeper: Sleeper, db: Database) -> None:
        sleeper.call("create_queue", namespace="default", queue="bills", types=["bill"])
        channel = sleeper.sleep(queue="bills")
        engine = Engine(db)
        engine.publish({"type": "order"})
        assert sleeper.heard() == []
        engine.publish({"type": "bill"})
        assert sleeper.heard() == [channel]
        sleeper.wake_up(channel)
        engine.call("delete_queue", namespace="default", queue="bills", with_deliveries=True)

    def test_a_queue_may_be_gone_when_somebody_wakes_up(
        self, sleeper: Sleeper, db: Database
    ) -> None:
        sleeper.call("create_queue", namespace="default", queue="short")
        channel = sleeper.sleep(queue="short")
        Engine(db).call("delete_queue", namespace="default", queue="short")
        assert sleeper.wake_up(channel) is True
        assert asleep(db) == 0

    def test_who_was_not_asleep_is_told_so(self, sleeper: Sleeper) -> None:
        assert sleeper.wake_up("headrace_1") is False

    @pytest.mark.parametrize(
        "channel", [None, "", "headrace_", "headrace_x", "other", 'headrace_1"; select 1']
    )
    def test_what_is_no_channel_of_ours_is_refused(self, sleeper: Sleeper, channel: str) -> None:
        with refused("QU001", match="channel"):
            sleeper.wake_up(channel)

    def test_nobody_sleeps_on_what_is_not_there(self, sleeper: Sleeper, db: Database) -> None:
        with refused("QU011"):
            sleeper.sleep(queue="nowhere")
        sleeper.namespace = "nowhere"
        with refused("QU010"):
            sleeper.sleep()
        assert asleep(db) == 0


@pytest.mark.parametrize(
    "delay", [lambda c: None, lambda c: c.execute("select pg_sleep(0.006)")], ids=["fresh", "old"]
)
def test_what_is_prepared_for_a_commit_in_two_phases_notifies_nobody_if_told_so(
    db: Database, delay: Callable[[psycopg.Connection], object]
) -> None:
    """PostgreSQL refuses to prepare what has notified."""
    sleeper = Sleeper(db)
    sleeper.sleep()
    with db.connect(autocommit=False) as connection:
        delay(connection)
        connection.execute("set local headrace.notify = off")
        connection.execute("select headrace.publish('default', '{}')")
        connection.execute("prepare transaction 'both'")
    db.sql("commit prepared 'both'")
    assert sleeper.heard() == []
    assert len(sleeper.poll()) == 1
