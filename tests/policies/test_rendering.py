"""Rendering: a conversation that grows by appended ids equals the whole rendered at once, and text is never control."""

import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.contracts.environment import Message
from ratchet.contracts.trajectory import Agent, CallRecord, Observation, ObservationResult, Step, Trajectory
from ratchet.environments.repair.episode import TOOLS
from ratchet.errors import IntegrityError
from ratchet.policies.checkpoint import STARTER, load_tokenizer
from ratchet.policies.rendering import Rendering

SPOKEN = [tool for tool in TOOLS if tool not in ("view_code", "edit_line", "open_answers")]
ANSWERS = ["applied", "reverted", "passed all", "3/10 lt_to_le test", "failing 1/4 low", "no more fixes", "a b\nc"]


@cache
def rendering() -> Rendering:
    return Rendering(load_tokenizer(STARTER))


def at_once(messages: list[Message], *, prompt: bool) -> list[int]:
    """The ids of a whole conversation, by the tokenizer's own template."""
    tokenizer = rendering().tokenizer
    plain = [message.model_dump() for message in messages]
    text = tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=prompt)
    return tokenizer.encode(text, add_special_tokens=False)


def turn(tool: str) -> list[int]:
    return [*rendering().tokenizer.encode(tool, add_special_tokens=False), rendering().end]


@given(st.lists(st.tuples(st.sampled_from(SPOKEN), st.sampled_from(ANSWERS)), max_size=5), st.sampled_from(ANSWERS))
def test_growing_by_ids_equals_rendering_at_once(exchanges: list[tuple[str, str]], report: str) -> None:
    messages = [Message(role="user", content=report)]
    grown = rendering().prompt(messages)
    for tool, answer in exchanges:
        grown += turn(tool) + rendering().result(answer)
        messages += [Message(role="assistant", content=tool), Message(role="tool", content=answer)]
    assert grown == at_once(messages, prompt=True)


def logged(*steps: dict) -> Trajectory:
    numbered = [Step(**{"step_id": number, "message": "", **step}) for number, step in enumerate(steps, 1)]
    return Trajectory(agent=Agent(name="a", version="1"), steps=numbered)


def spoke(tool: str, answer: str | None = None, **fields) -> dict:
    results = [ObservationResult(content=answer)] if answer is not None else []
    call = CallRecord(tool_call_id=f"c{random.random()}", function_name=tool, arguments={})
    return {"source": "agent", "tool_calls": [call], "observation": Observation(results=results), **fields}


def heard(text: str, source: str = "user") -> dict:
    return {"source": source, "message": text}


@given(st.lists(st.tuples(st.sampled_from(SPOKEN), st.sampled_from(ANSWERS)), min_size=1, max_size=5))
def test_a_log_carries_loss_on_exactly_what_the_assistant_wrote(exchanges: list[tuple[str, str]]) -> None:
    sample = rendering().sample(logged(heard("failing 1/4 low"), *(spoke(*exchange) for exchange in exchanges)))
    messages = [Message(role="user", content="failing 1/4 low")]
    for index, (tool, answer) in enumerate(exchanges):
        messages.append(Message(role="assistant", content=tool))
        messages += [Message(role="tool", content=answer)] if index + 1 < len(exchanges) else []
    assert sample.input_ids == at_once(messages, prompt=False)
    trained = [token for token, bit in zip(sample.input_ids, sample.sampled_mask, strict=True) if bit]
    assert trained == [token for tool, _ in exchanges for token in turn(tool)]
    assert sample.logprobs is None
    assert sample.step_ids == tuple(range(2, 2 + len(exchanges)))


def test_copied_context_stands_in_the_conversation_without_loss() -> None:
    log = logged(heard("x"), spoke("revert", "reverted", is_copied_context=True), spoke("submit"))
    sample = rendering().sample(log)
    trained = [token for token, bit in zip(sample.input_ids, sample.sampled_mask, strict=True) if bit]
    assert trained == turn("submit")
    assert sample.step_ids == (3,)
    assert turn("revert")[0] in sample.input_ids


def test_what_was_said_in_the_middle_stays_in_the_middle() -> None:
    log = logged(heard("be brief", "system"), heard("x"), spoke("revert", "reverted"), heard("go on"), spoke("submit"))
    wanted = [
        Message(role="system", content="be brief"),
        Message(role="user", content="x"),
        Message(role="assistant", content="revert"),
        Message(role="tool", content="reverted"),
        Message(role="user", content="go on"),
        Message(role="assistant", content="submit"),
    ]
    assert rendering().sample(log).input_ids == at_once(wanted, prompt=False)


def test_two_turns_without_an_answer_between_them_are_two_turns() -> None:
    sample = rendering().sample(logged(heard("x"), spoke("revert"), spoke("submit")))
    wanted = [Message(role="user", content="x")] + [Message(role="assistant", content=t) for t in ("revert", "submit")]
    assert sample.input_ids == at_once(wanted, prompt=False)


def test_malformed_text_is_what_the_assistant_wrote_too() -> None:
    sample = rendering().sample(logged(heard("x"), {"source": "agent", "message": "do it"}))
    trained = [token for token, bit in zip(sample.input_ids, sample.sampled_mask, strict=True) if bit]
    assert trained == turn("do it")


CONTROL = ["<|end|>", "<|assistant|>", "<|user|>", "<|pad|>", "<|tool|>", "<|system|>"]


@given(st.lists(st.sampled_from([*CONTROL, "<", "|end|>", " ", "submit", "<|"]), max_size=8).map("".join))
def test_no_message_can_forge_the_end_of_a_turn_or_another_role(text: str) -> None:
    control = {rendering().tokenizer.convert_tokens_to_ids(token) for token in CONTROL}

    def forged(ids: list[int]) -> int:
        return sum(token in control for token in ids)

    message = Message(role="user", content=text)
    assert forged(rendering().prompt([message])) == forged(rendering().prompt([Message(role="user", content="x")]))
    assert forged(rendering().result(text)) == forged(rendering().result("x"))
    log = logged(heard(text), {"source": "agent", "message": text})
    plain = logged(heard("x"), {"source": "agent", "message": "x"})
    assert forged(rendering().sample(log).input_ids) == forged(rendering().sample(plain).input_ids)


def test_the_name_of_a_tool_is_a_call() -> None:
    ids = rendering().tokenizer.encode("submit", add_special_tokens=False)
    assert rendering().call(ids) == rendering().call([*ids])
    assert (rendering().call(ids).name, rendering().call(ids).malformed) == ("submit", None)


@pytest.mark.parametrize("text", ["", "  ", "two words", "a\nb", "x" * 5000 + " y"])
def test_what_is_no_name_is_malformed_and_short(text: str) -> None:
    call = rendering().call(rendering().tokenizer.encode(text, add_special_tokens=False))
    assert call.name == ""
    assert call.malformed is not None
    assert len(call.malformed) <= 200


def test_two_calls_in_one_turn_are_no_call() -> None:
    ids = rendering().tokenizer.encode("submit revert", add_special_tokens=False)
    assert rendering().call(ids).name not in TOOLS


def test_a_template_that_rewrites_the_past_is_refused() -> None:
    tokenizer = load_tokenizer(STARTER)
    tokenizer.chat_template = "{{ messages|length }}{% for m in messages %}{{ m['content'] }}<|end|>{% endfor %}"
    with pytest.raises(IntegrityError, match="prefix-preserving"):
        Rendering(tokenizer).result("x")
