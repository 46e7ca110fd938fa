"""The tokenizer: a call is one token, any text still encodes, and no text becomes a control token."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.environments.repair.edits import PLACES, RULES
from ratchet.environments.repair.episode import TOOLS
from ratchet.environments.repair.symptoms import SYMPTOMS
from ratchet.policies.checkpoint import STARTER, load_tokenizer
from ratchet.policies.tokenizer import END, PAD, ROLES, build_tokenizer

SPOKEN = [tool for tool in TOOLS if tool not in ("view_code", "edit_line", "open_answers")]
"""Tools that the embedded policy knows."""
WORDS = ("submit", "run_tests", "failing", "1/4", "low_by_1")


@cache
def built():
    return build_tokenizer(WORDS, ["def f(x):\n    return x + 1", "for i in range(10): pass"] * 5, merges=40)


@cache
def starter():
    return load_tokenizer(STARTER)


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_one_token_alone_and_after_a_space(word: str) -> None:
    assert len(ids(built(), word)) == len(ids(built(), f" {word}")) == 1
    assert built().decode(ids(built(), word)) == word


def test_a_word_inside_a_word_is_text() -> None:
    assert len(ids(built(), "submitted")) > 1
    assert built().decode(ids(built(), "submitted")) == "submitted"


@pytest.mark.parametrize("word", [*SPOKEN, *RULES, *PLACES, *SYMPTOMS])
def test_the_starter_reads_every_word_of_the_environment_as_one_token(word: str) -> None:
    (token,) = ids(starter(), word)
    assert starter().decode([token]).strip() == word


@pytest.mark.parametrize("tool", SPOKEN)
def test_a_tool_is_told_from_all_others_by_its_token(tool: str) -> None:
    assert sum(starter().decode(ids(starter(), other)).strip() == tool for other in TOOLS) == 1


@given(st.text(max_size=80))
def test_any_text_of_plain_bytes_reads_back(text: str) -> None:
    # Words of the environment swallow the space before them: that loss is theirs alone.
    if any(word in text for word in (*WORDS, PAD, END, *ROLES)):
        return
    assert built().decode(ids(built(), text)) == text


@pytest.mark.parametrize("text", ["é😀 \0\t\r\n", "  two  spaces  ", "def f(x):\n    pass", "\u2028\ufeff"])
def test_odd_text_reads_back_byte_by_byte(text: str) -> None:
    for tokenizer in (built(), starter()):
        assert tokenizer.decode(ids(tokenizer, text)) == text


@pytest.mark.parametrize("text", ["def f(x):\n    return x", "failing 1/4 low_by_1", "x  submit\n"])
def test_a_word_loses_the_white_space_before_it_and_nothing_else(text: str) -> None:
    for tokenizer in (built(), starter()):
        assert "".join(tokenizer.decode(ids(tokenizer, text)).split()) == "".join(text.split())


messages = st.lists(
    st.builds(dict, role=st.sampled_from(["system", "user", "assistant", "tool"]), content=st.text(max_size=12)),
    min_size=1,
    max_size=5,
)


@given(messages, st.integers(0, 5))
def test_the_template_only_appends(conversation: list[dict[str, str]], cut: int) -> None:
    def rendered(part: list[dict[str, str]]) -> str:
        return built().apply_chat_template(part, tokenize=False)

    assert rendered(conversation).startswith(rendered(conversation[:cut]) if conversation[:cut] else "")


def test_the_template_asks_the_assistant_to_speak() -> None:
    text = built().apply_chat_template([{"role": "user", "content": "x"}], tokenize=False, add_generation_prompt=True)
    assert text == "<|user|>x<|end|><|assistant|>"


def test_the_template_marks_what_the_assistant_wrote() -> None:
    conversation = [{"role": "user", "content": "failing"}, {"role": "assistant", "content": "submit"}]
    made = built().apply_chat_template(conversation, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    marked = [token for token, bit in zip(made["input_ids"], made["assistant_masks"], strict=True) if bit]
    assert marked == [*ids(built(), "submit"), built().eos_token_id]


def test_padding_and_end_are_different_tokens() -> None:
    assert built().pad_token_id != built().eos_token_id
    assert starter().pad_token_id != starter().eos_token_id
