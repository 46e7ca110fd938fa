"""From messages to token ids and from sampled ids to calls: once, in one direction, never by re-tokenising.

The chat template must be prefix-preserving. What a message adds to a conversation is the difference between two renderings,
and only that difference is tokenised; ids that the policy sampled stay as they were sampled.
"""

from __future__ import annotations

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
        self._ids = lru_cache(maxsize=4096)(self._encode)
        self._result = lru_cache(maxsize=4096)(self._render_result)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _render(self, messages: list[Message], *, prompt: bool) -> str:
        plain = [message.model_dump() for message in messages]
        return str(self.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=prompt))

    def prompt(self, messages: list[Message]) -> list[int]:
        """Ids of the opening messages, up to where the assistant starts to write."""
        return list(self._ids(self._render(messages, prompt=True)))

    def result(self, content: str) -> list[int]:
        """Ids that a tool result adds after a finished assistant turn, up to where the assistant writes again."""
        return list(self._result(content))

    def _render_result(self, content: str) -> tuple[int, ...]:
        before = [Message(role="user", content="x"), Message(role="assistant", content="y")]
        after = [*before, Message(role="tool", content=content)]
        start, whole = self._render(before, prompt=False), self._render(after, prompt=True)
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

        System and user steps before the first call form the prompt; steps marked as copied context carry no loss.
        """
        opening = [
            Message(role=step.source if step.source != "agent" else "assistant", content=text_of(step.message))
            for step in trajectory.steps
            if step.source != "agent"
        ]
        ids = self.prompt(opening)
        mask = [False] * len(ids)
        turns = [step for step in trajectory.steps if step.source == "agent"]
        for index, step in enumerate(turns):
            spoken = step.tool_calls[0].function_name if step.tool_calls else text_of(step.message)
            turn = [*self._ids(spoken), self.end]
            ids += turn
            mask += [not step.is_copied_context] * len(turn)
            results = step.observation.results if step.observation else []
            if results and index + 1 < len(turns):
                answer = self.result(text_of(results[0].content))
                ids += answer
                mask += [False] * len(answer)
        trained = tuple(step.step_id for step in turns if not step.is_copied_context)
        return TokenSample(input_ids=ids, sampled_mask=mask, logprobs=None, step_ids=trained)
