"""A harness cannot widen what the experiment permits or what the incumbent had, whatever it asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.contracts.environment import ActionLimits, EnvironmentSpec, ToolSchema
from ratchet.contracts.policy import Decoding, Harness, Policy, refuse_widened, widened
from ratchet.errors import PermissionsError

TOOLS = ("read", "run", "submit")
SPEC = EnvironmentSpec(
    name="e",
    version="1",
    tools=tuple(ToolSchema(name=name, description="") for name in TOOLS),
    limits=ActionLimits(max_calls=10, max_tokens_per_turn=8, episode_timeout_s=1),
    segments=("s",),
)
INCUMBENT = Harness(
    tools=("read", "submit"),
    max_calls=6,
    decoding=Decoding(max_tokens_per_turn=4),
    hosts=("mirror",),
    paths=("/data",),
    approval_rules=("payments",),
)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tools": ("read", "submit", "shell")}, "tool 'shell'"),
        ({"tools": ("read", "submit", "run")}, "tool 'run'"),
        ({"max_calls": 7}, "7 calls per episode, over 6"),
        ({"decoding": Decoding(max_tokens_per_turn=5)}, "5 tokens per turn, over 4"),
        ({"decoding": Decoding(max_tokens_per_turn=9)}, "9 tokens per turn, over 4"),
        ({"hosts": ("mirror", "example.org")}, "host 'example.org'"),
        ({"paths": ("/data", "/etc")}, "path '/etc'"),
        ({"approval_rules": ()}, "approval rule 'payments' dropped"),
    ],
)
def test_each_thing_beyond_the_incumbent_is_named(change: dict, named: str) -> None:
    asked = INCUMBENT.model_copy(update=change)
    assert widened(asked, SPEC, INCUMBENT) == [named]
    with pytest.raises(PermissionsError, match="may not ask") as caught:
        refuse_widened("cand", asked, SPEC, INCUMBENT)
    assert named in caught.value.culprit
    assert "'cand'" in caught.value.culprit


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tools": ("shell",)}, "tool 'shell'"),
        ({"max_calls": 11}, "11 calls per episode, over 10"),
        ({"decoding": Decoding(max_tokens_per_turn=9)}, "9 tokens per turn, over 8"),
        ({"hosts": ("a",)}, "host 'a'"),
        ({"paths": ("/a",)}, "path '/a'"),
    ],
)
def test_the_first_policy_is_held_to_the_experiment(change: dict, named: str) -> None:
    plain = Harness(tools=TOOLS, max_calls=10, decoding=Decoding(max_tokens_per_turn=8))
    assert widened(plain, SPEC) == []
    assert widened(plain.model_copy(update=change), SPEC) == [named]


def test_an_incumbent_beyond_the_experiment_lends_nothing() -> None:
    wide = Harness(tools=("read", "shell"), max_calls=99, decoding=Decoding(max_tokens_per_turn=99))
    assert widened(wide, SPEC, wide) == [
        "tool 'shell'",
        "99 calls per episode, over 10",
        "99 tokens per turn, over 8",
    ]


def test_every_request_stands_in_the_one_message() -> None:
    asked = INCUMBENT.model_copy(update={"tools": ("a", "b"), "max_calls": 99, "hosts": ("h",), "approval_rules": ()})
    with pytest.raises(PermissionsError) as caught:
        refuse_widened("cand", asked, SPEC, INCUMBENT)
    assert all(part in str(caught.value) for part in ("'a'", "'b'", "99 calls", "'h'", "'payments' dropped"))


@given(
    st.sets(st.sampled_from(INCUMBENT.tools)),
    st.integers(1, INCUMBENT.max_calls),
    st.integers(1, 4),
    st.floats(0, 2),
    st.sets(st.sampled_from(["payments", "refunds"])),
)
def test_narrowing_is_always_allowed(tools, calls, tokens, temperature, rules) -> None:
    asked = Harness(
        tools=tuple(sorted(tools)),
        max_calls=calls,
        decoding=Decoding(max_tokens_per_turn=tokens, temperature=temperature),
        approval_rules=("payments", *sorted(rules)),
    )
    assert widened(asked, SPEC, INCUMBENT) == []


def test_a_policy_is_known_by_weights_and_harness_and_by_nothing_else() -> None:
    policy = Policy(name="p", method="sft", checkpoint="c", weights_digest="w", harness=INCUMBENT)
    same = policy.model_copy(update={"name": "q", "checkpoint": "elsewhere", "training": {"step": 3}})
    assert same.digest == policy.digest
    assert policy.model_copy(update={"weights_digest": "v"}).digest != policy.digest
    hotter = INCUMBENT.model_copy(update={"decoding": Decoding(temperature=0.5, max_tokens_per_turn=4)})
    assert policy.model_copy(update={"harness": hotter}).digest != policy.digest
