"""From messages to token ids and from sampled ids to calls: once, in one direction, never by re-tokenising.

The chat template must be prefix-preserving. What a message adds to a conversation is the difference between two
renderings, and only that difference is tokenised; ids that the policy sampled stay as they were sampled. What a
message says never becomes a control token: a tool result that spells out the end of a turn, or a role, stays text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ratchet.contracts.environment import Message, ToolCall
from ratchet.contracts.training import TokenSample
from ratchet.contracts.trajectory import Trajectory, text_of
from ratchet.errors import IntegrityError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class Rendering:
    """Renders conversations for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Use the tokenizer's own chat template; its end-of-turn token is the tokenizer's `eos_token`."""
        self.tokenizer = tokenizer
        self.end: int = tokenizer.eos_token_id
        added = tokenizer.added_tokens_decoder.values()
        control = {str(token) for token in added if token.special} | set(tokenizer.all_special_tokens)
        self._control = re.compile("|".join(map(re.escape, sorted(control, key=len, reverse=True))))
        self._ids = lru_cache(maxsize=4096)(self._encode)
        self._result = lru_cache(maxsize=4096)(self._render_result)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _render(self, messages: list[Message], *, prompt: bool) -> str:
        plain = [{"role": message.role, "content": self._text(message.content)} for message in messages]
        return str(self.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=prompt))

    def _text(self, content: str) -> str:
        return self._control.sub(lambda found: f"{found[0][:1]} {found[0][1:]}", content)

    def prompt(self, messages: list[Message]) -> list[int]:
        """Ids of the opening messages, up to where the assistant starts to write."""
        return list(self._ids(self._render(messages, prompt=True)))

    def result(self, content: str) -> list[int]:
        """Ids that a tool result adds after a finished assistant turn, up to where the assistant writes again."""
        return list(self._result(content))

    def _render_result(self, content: str) -> tuple[int, ...]:
        return self._render_added([Message(role="tool", content=content)])

    def _render_added(self, messages: list[Message]) -> tuple[int, ...]:
        before = [Message(role="user", content="x"), Message(role="assistant", content="y")]
        start, whole = self._render(before, prompt=False), self._render([*before, *messages], prompt=True)
        if not whole.startswith(start):
            raise IntegrityError(
                "chat template", rule="it must be prefix-preserving", remedy="use a template that appends"
            )
        return self._ids(whole[len(start) :])

    def call(self, sampled: list[int]) -> ToolCall:
        """Parse sampled ids (without the end token) as the name of a tool."""
        text = str(self.tokenizer.decode(sampled)).strip()
        if not text or any(character.isspace() for character in text):
            return ToolCall(name="", malformed=text[:200])
        return ToolCall(name=text)

    def sample(self, trajectory: Trajectory) -> TokenSample:
        """Render a logged trajectory that has no token ids: only what the agent wrote carries loss.

        System and user steps before the first call form the prompt; later ones stand where they were said. Steps
        marked as copied context carry no loss. A step speaks its first call, and reads that call's result.
        """
        ids: list[int] = []
        mask: list[bool] = []
        trained: list[int] = []
        read: list[Message] = []
        for step in trajectory.steps:
            if step.source != "agent":
                read.append(Message(role=step.source, content=text_of(step.message)))
                continue
            context = self._render_added(read) if ids else self.prompt(read)
            spoken = step.tool_calls[0].function_name if step.tool_calls else text_of(step.message)
            turn = [*self._ids(self._text(spoken)), self.end]
            ids += [*context, *turn]
            mask += [False] * len(context) + [not step.is_copied_context] * len(turn)
            trained += [] if step.is_copied_context else [step.step_id]
            results = step.observation.results if step.observation else []
            read = [Message(role="tool", content=text_of(result.content)) for result in results[:1]]
        return TokenSample(input_ids=ids, sampled_mask=mask, logprobs=None, step_ids=tuple(trained))
