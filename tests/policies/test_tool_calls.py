"""A chat template with tools: it tells them, writes logged calls as its model would, and grows by appended ids."""

from functools import cache
from typing import Any

import pytest
from chat_world import END, NAMES, START, chat_harness, chat_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from ratchet.contracts.environment import Message, ToolCall
from ratchet.contracts.policy import Harness
from ratchet.contracts.trajectory import Agent, CallRecord, Observation, ObservationResult, Step, Trajectory
from ratchet.errors import IntegrityError
from ratchet.policies.codec import definition
from ratchet.policies.rendering import Rendering
from ratchet.policies.smollm2 import PAD

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
CALLS = st.one_of(
    st.builds(ToolCall, name=st.sampled_from(NAMES[:4])),
    st.builds(
        lambda line, text: ToolCall(name="edit_line", arguments={"line": line, "text": text}), st.integers(1, 99), TEXTS
    ),
)


@cache
def rendering() -> Rendering:
    return Rendering(chat_tokenizer(), chat_harness())


def encoded(text: str) -> list[int]:
    return rendering().tokenizer.encode(text, add_special_tokens=False)


def at_once(messages: list[dict[str, Any]], *, prompt: bool) -> str:
    """A whole conversation by the tokenizer's own template, with the harness's tools."""
    tools = [definition(tool) for tool in chat_harness().told]
    return rendering().tokenizer.apply_chat_template(
        messages, tools=tools, tokenize=False, add_generation_prompt=prompt
    )


def made(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def logged(first: str, exchanges: list[tuple[ToolCall, str]]) -> Trajectory:
    steps = [Step(step_id=1, source="user", message=first)]
    for number, (call, answer) in enumerate(exchanges, 2):
        record = CallRecord(tool_call_id=f"c{number}", function_name=call.name, arguments=call.arguments)
        seen = Observation(results=[ObservationResult(content=answer)])
        steps.append(Step(step_id=number, source="agent", message="", tool_calls=[record], observation=seen))
    return Trajectory(agent=Agent(name="a", version="1"), steps=steps)


def test_every_tool_that_the_harness_tells_is_in_the_prompt_with_its_arguments() -> None:
    told = rendering().tokenizer.decode(rendering().prompt([Message(role="user", content="fix it")]))
    assert all(f'"name": "{name}"' in told for name in NAMES)
    assert '"line": {"type": "integer"' in told
    assert told.endswith(f"fix it{END}\n{START}assistant\n")


def test_a_harness_that_tells_no_tool_leaves_the_template_without_any() -> None:
    plain = Rendering(chat_tokenizer(), Harness(tools=NAMES, max_calls=3))
    told = plain.tokenizer.decode(plain.prompt([Message(role="user", content="fix it")]))
    assert "<tools>" not in told
    assert "named SmolLM" in told


@given(st.lists(st.tuples(CALLS, TEXTS), min_size=1, max_size=3), TEXTS)
def test_growing_by_ids_equals_rendering_at_once(exchanges: list[tuple[ToolCall, str]], first: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": first}]
    grown = rendering().prompt([Message(role="user", content=first)])
    for call, answer in exchanges:
        grown += rendering().turn("", call) + rendering().result(answer)
        messages += [made(call), {"role": "tool", "content": answer}]
    assert grown == encoded(at_once(messages, prompt=True))


@given(st.lists(st.tuples(CALLS, TEXTS), min_size=1, max_size=3))
def test_a_log_carries_loss_on_exactly_the_calls_and_their_ends(exchanges: list[tuple[ToolCall, str]]) -> None:
    sample = rendering().sample(logged("fix it", exchanges))
    trained = [token for token, bit in zip(sample.input_ids, sample.sampled_mask, strict=True) if bit]
    assert trained == [token for call, _ in exchanges for token in rendering().turn("", call)]
    assert sum(token == rendering().end for token in trained) == len(exchanges)


@given(CALLS)
def test_a_call_as_the_template_writes_it_is_read_as_that_call(call: ToolCall) -> None:
    turn = rendering().turn("", call)
    assert turn[-1] == rendering().end
    assert rendering().call(turn[:-1]) == call


def test_a_thought_is_written_before_its_call() -> None:
    call = ToolCall(name="submit")
    turn = rendering().turn("done", call)
    assert rendering().tokenizer.decode(turn).startswith("done<tool_call>")
    assert rendering().call(turn[:-1]) == call


@given(st.lists(st.sampled_from([START, END, PAD, "<", "|im_end|>", "x"]), max_size=6).map("".join))
def test_no_text_argument_or_result_forges_a_turn(text: str) -> None:
    control = {rendering().tokenizer.convert_tokens_to_ids(token) for token in (START, END, PAD)}

    def forged(ids: list[int]) -> int:
        return sum(token in control for token in ids)

    hostile = ToolCall(name="edit_line", arguments={"line": 1, "text": text, text or "k": [text]})
    harmless = ToolCall(name="edit_line", arguments={"line": 1, "text": "x"})
    assert forged(rendering().turn(text, hostile)) == forged(rendering().turn("x", harmless)) == 1
    assert forged(rendering().result(text)) == forged(rendering().result("x"))


def test_a_template_whose_turns_have_no_end_is_refused() -> None:
    tokenizer = chat_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    with pytest.raises(IntegrityError, match="no end"):
        Rendering(tokenizer, chat_harness()).result("x")


def test_a_template_that_knows_no_tool_messages_is_refused_with_its_own_words() -> None:
    tokenizer = chat_tokenizer()
    tokenizer.chat_template = "{% if messages|length > 1 %}{{ raise_exception('only one message') }}{% endif %}x"
    with pytest.raises(IntegrityError, match="only one message"):
        Rendering(tokenizer, chat_harness()).result("x")
