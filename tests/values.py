"""Any value of JSON, and when one that came back is the one that was sent."""

from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=15,
)


def acceptable(value: Any) -> bool:
    """Whether publish must accept a value of JSON: PostgreSQL's texts have no NUL."""
    match value:
        case str():
            return "\x00" not in value
        case list():
            return all(map(acceptable, value))
        case dict():
            return all(acceptable(key) and acceptable(inner) for key, inner in value.items())
    return True


def same(sent: Any, received: Any) -> bool:
    """Equal and of one kind. In JSON 1 and 1.0 are the same number, and 1e308 has as many digits."""
    match sent, received:
        case bool(), _:
            return sent is received
        case int() | float(), bool():
            return False
        case float(), int() | float():
            return sent == float(received)
        case list(), list():
            return len(sent) == len(received) and all(map(same, sent, received))
        case dict(), dict():
            return sent.keys() == received.keys() and all(same(sent[k], received[k]) for k in sent)
    return type(sent) is type(received) and sent == received
