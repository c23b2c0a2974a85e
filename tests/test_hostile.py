"""What is said to be thrown at Headrace is what the tests throw."""

from tests.hostile import PAGE, page, ways


def test_there_are_enough_of_them_through_every_way_in() -> None:
    counts = {way.title: len(way.inputs) for way in ways()}
    assert sum(counts.values()) >= 100
    assert all(count >= 30 for count in counts.values()), counts
    for way in ways():
        assert len({one.what for one in way.inputs}) == len(way.inputs), "one is there twice"
        assert all(one.answer for one in way.inputs)


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make requirements"
