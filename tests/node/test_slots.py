"""How many run at once, and who comes next."""

from headrace.node.claim.slots import Slots


class One:
    """Who takes a slot when he is called."""

    def __init__(self, slots: Slots, *, wants: int = 1) -> None:
        self._slots = slots
        self.wants = wants
        self.has = 0

    def start(self) -> None:
        while self.has < self.wants and self._slots.take(self):
            self.has += 1

    def end(self) -> None:
        self.has -= 1
        self.wants -= 1
        self._slots.give()
        self.start()


def test_no_more_are_taken_than_there_are_and_who_waited_is_next() -> None:
    slots = Slots(2)
    some, other = One(slots, wants=4), One(slots)
    some.start()
    other.start()
    assert (some.has, other.has, slots.free, slots.are_wanted) == (2, 0, 0, True)
    some.end()
    assert (some.has, other.has) == (2, 0), (
        "it was the first to wait, and waits again behind the other"
    )
    some.end()
    assert (some.has, other.has) == (1, 1)
    other.end()
    assert (some.has, other.has, slots.free) == (2, 0, 0)


def test_who_waits_for_what_others_have_is_called_by_them() -> None:
    all_of_them = Slots(1)
    transactional = Slots(1, within=all_of_them)
    limited = Slots(1, within=transactional)
    busy, waits = One(all_of_them), One(limited)
    busy.start()
    limited.wait(waits)
    assert limited.free == 0
    busy.end()
    assert waits.has == 1
    assert (limited.free, transactional.free, all_of_them.free) == (0, 0, 0)
    waits.end()
    assert (limited.free, transactional.free, all_of_them.free) == (1, 1, 1)


def test_a_limit_of_its_own_holds_though_there_are_others_free() -> None:
    all_of_them = Slots(5)
    limited = Slots(2, within=all_of_them)
    one = One(limited, wants=4)
    one.start()
    assert (one.has, all_of_them.free) == (2, 3)
    assert not all_of_them.are_wanted
    one.end()
    one.end()
    assert (one.has, limited.free, all_of_them.free) == (2, 0, 3)
