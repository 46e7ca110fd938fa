"""The fold of rights: denied by default, expiry at the instant, and events that can only take away."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.errors import RightsError
from ratchet.rights import Event, fold

START = datetime(2030, 1, 1, tzinfo=UTC)
PURPOSES = ("execute", "evaluate", "train_sft", "train_preference", "train_rl", "calibrate")


def event(kind, days=0.0, **fields):
    return Event(kind=kind, grant_id="g", tenant="acme", by="owner", at=START + timedelta(days=days), **fields)


def granted(**fields):
    return event(
        "grant",
        **{"purposes": PURPOSES, "base_models": ("*",), "retention_until": START + timedelta(days=90)} | fields,
    )


later = st.floats(0, 100, allow_nan=False)
takes_away = st.one_of(
    st.builds(lambda d: event("withdraw", d), later),
    st.builds(lambda d: event("expire", d), later),
    st.builds(
        lambda d, p, b, r: event(
            "narrow", d, purposes=p, base_models=b, retention_until=START + timedelta(days=r) if r else None
        ),
        later,
        st.none() | st.lists(st.sampled_from(PURPOSES), unique=True).map(tuple),
        st.none() | st.lists(st.sampled_from(["small", "large", "*"]), unique=True).map(tuple),
        st.none() | st.floats(1, 90),
    ),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(takes_away, max_size=4), st.floats(0, 120, allow_nan=False))
def test_the_order_of_what_follows_a_grant_does_not_matter(events, days):
    at = START + timedelta(days=days)
    rights = {fold("g", [granted(), *order], at).model_dump_json() for order in permutations(events)}
    assert len(rights) == 1


@settings(max_examples=80, deadline=None)
@given(st.lists(takes_away, max_size=6), st.floats(0, 120, allow_nan=False), st.sampled_from(PURPOSES))
def test_no_event_ever_widens_a_right(events, days, purpose):
    at = START + timedelta(days=days)
    for count in range(len(events)):
        before, after = (fold("g", [granted(), *events[:end]], at) for end in (count, count + 1))
        for base in ("small", "large"):
            use = {"purpose": purpose, "tenant": "acme", "base_model": base}
            assert before.refusal(**use) is None or after.refusal(**use) is not None


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 10**12))
def test_a_right_ends_exactly_at_its_end(microseconds):
    end = START + timedelta(microseconds=microseconds)
    grant = granted(retention_until=end)
    assert fold("g", [grant], end - timedelta(microseconds=1)).state == "active"
    assert fold("g", [grant], end).state == "expired"


def test_the_same_instant_in_another_zone_is_the_same_right():
    from datetime import timezone

    end = granted().retention_until
    assert fold("g", [granted()], end.astimezone(timezone(timedelta(hours=-8)))).state == "expired"


def test_what_is_not_granted_is_denied():
    right = fold("g", [event("legal_hold", hold=True)], START)
    with pytest.raises(RightsError, match=r"grant 'g'.*not granted is denied"):
        right.require(purpose="execute", tenant="acme")


def test_before_its_grant_nothing_is_permitted():
    assert fold("g", [granted()], START - timedelta(seconds=1)).state == "missing"


def test_a_legal_hold_prolongs_nothing_and_can_be_lifted():
    events = [granted(), event("legal_hold", 1, hold=True), event("legal_hold", 100, hold=False)]
    held = fold("g", events, START + timedelta(days=95))
    assert (held.state, held.held) == ("expired", True)
    assert not fold("g", events, START + timedelta(days=100)).held


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(RightsError, match="time zone"):
        fold("g", [granted()], datetime(2030, 1, 2))
    with pytest.raises(ValueError, match="time zone"):
        Event(kind="withdraw", grant_id="g", tenant="acme", by="x", at=datetime(2030, 1, 2))
