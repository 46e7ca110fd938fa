"""From messages to token ids and from sampled ids to calls: once, in one direction, never by re-tokenising.

The chat template must be prefix-preserving. What a message adds to a conversation is the difference between two
renderings, and only that difference is tokenised; ids that the policy sampled stay as they were sampled. What a
message says never becomes a control token: a tool result that spells out the end of a turn, or a role, stays text.
Where the harness tells the tools, the template gets them, and writes logged calls as its model would.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ratchet.contracts.environment import Message, ToolCall
from ratchet.contracts.policy import Codec, Harness
from ratchet.contracts.training import TokenSample
from ratchet.contracts.trajectory import Step, Trajectory, text_of
from ratchet.errors import IntegrityError
from ratchet.policies.codec import definition, parse_call

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ASKED = {"role": "user", "content": "x"}


class Rendering:
    """Renders conversations for one tokenizer, and for one harness's way of calling tools."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, harness: Harness | None = None) -> None:
        """Use the tokenizer's own chat template; its end-of-turn token is the tokenizer's `eos_token`.

        Args:
            tokenizer: the checkpoint's tokenizer.
            harness: its `codec` and the tools that it tells; None for bare names of tools.
        """
        self.tokenizer = tokenizer
        self.end: int = tokenizer.eos_token_id
        self.codec: Codec = harness.codec if harness else "single_token"
        self._tools: list[Any] = [definition(tool) for tool in harness.told] if harness else []
        added = tokenizer.added_tokens_decoder.values()
        control = {str(token) for token in added if token.special} | set(tokenizer.all_special_tokens)
        self._control = re.compile("|".join(map(re.escape, sorted(control, key=len, reverse=True))))
        self._ids = lru_cache(maxsize=4096)(self._encode)
        self._result = lru_cache(maxsize=4096)(self._render_result)
        self._said = lru_cache(maxsize=4096)(self._decode)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _render(self, messages: list[dict[str, Any]], *, prompt: bool) -> str:
        from jinja2 import TemplateError

        try:
            return str(
                self.tokenizer.apply_chat_template(
                    messages, tools=self._tools or None, tokenize=False, add_generation_prompt=prompt
                )
            )
        except TemplateError as error:
            raise self._unfit(str(error), "it must render user, assistant and tool messages") from None

    def _plain(self, message: Message) -> dict[str, Any]:
        return {"role": message.role, "content": self._text(message.content)}

    def _text(self, content: str) -> str:
        return self._control.sub(lambda found: f"{found[0][:1]} {found[0][1:]}", content)

    def _texts(self, value: Any) -> Any:
        """Every string in a JSON value, keys included, so that none becomes a control token."""
        if isinstance(value, dict):
            return {self._text(key): self._texts(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._texts(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def prompt(self, messages: list[Message]) -> list[int]:
        """Ids of the opening messages, up to where the assistant starts to write."""
        return list(self._ids(self._render([self._plain(message) for message in messages], prompt=True)))

    def result(self, content: str) -> list[int]:
        """Ids that a tool result adds after a finished assistant turn, up to where the assistant writes again."""
        return list(self._result(content))

    def _render_result(self, content: str) -> tuple[int, ...]:
        return self._render_added([Message(role="tool", content=content)])

    def _render_added(self, messages: list[Message]) -> tuple[int, ...]:
        name = self._tools[0]["function"]["name"] if self._tools else "y"
        before = [ASKED, self._spoken("", ToolCall(name=name))]
        after = [*before, *(self._plain(message) for message in messages)]
        # What a template writes after the end of a turn, often a line break, was not sampled: it comes with the rest.
        written, rest = self._turn_of(before, self._render(before, prompt=False))
        whole = self._render(after, prompt=True)
        if not whole.startswith(written + rest):
            raise self._unfit("earlier messages change", "it must be prefix-preserving")
        return self._ids(whole[len(written) :])

    def _turn_of(self, messages: list[dict[str, Any]], rendered: str) -> tuple[str, str]:
        """Cut a rendered conversation behind the end of its last turn, the assistant's."""
        end = str(self.tokenizer.eos_token)
        at = rendered.rfind(end)
        if at < len(self._render(messages[:-1], prompt=True)):
            raise self._unfit("the assistant's turn has no end", f"it must end with {end!r}")
        return rendered[: at + len(end)], rendered[at + len(end) :]

    def _spoken(self, text: str, call: ToolCall | None) -> dict[str, Any]:
        """An assistant's message as the template takes it."""
        if call is None or self.codec == "single_token":
            return {"role": "assistant", "content": self._text(call.name if call else text)}
        function = {"name": self._text(call.name), "arguments": self._texts(call.arguments)}
        return {
            "role": "assistant", "content": self._text(text), "tool_calls": [{"type": "function", "function": function}]
        }  # fmt: skip

    def turn(self, text: str, call: ToolCall | None) -> list[int]:
        """Ids of an assistant's turn as the template writes it, its end token included.

        Args:
            text: what was said, beside the call.
            call: the call that was made, or None.
        """
        messages = [ASKED, self._spoken(text, call)]
        opened = self._render(messages[:1], prompt=True)
        written, _ = self._turn_of(messages, self._render(messages, prompt=False))
        if not written.startswith(opened):
            raise self._unfit("the assistant's turn opens differently once it is over", "it must be prefix-preserving")
        return list(self._ids(written[len(opened) :]))

    def call(self, sampled: list[int]) -> ToolCall:
        """Parse sampled ids (without the end token) as a call, by the harness's codec."""
        return parse_call(self._said(tuple(sampled)), self.codec)

    def _decode(self, ids: tuple[int, ...]) -> str:
        return str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

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
            turn = self.turn(text_of(step.message), _called(step))
            ids += [*context, *turn]
            mask += [False] * len(context) + [not step.is_copied_context] * len(turn)
            trained += [] if step.is_copied_context else [step.step_id]
            results = step.observation.results if step.observation else []
            read = [Message(role="tool", content=text_of(result.content)) for result in results[:1]]
        return TokenSample(input_ids=ids, sampled_mask=mask, logprobs=None, step_ids=tuple(trained))

    def _unfit(self, seen: str, rule: str) -> IntegrityError:
        return IntegrityError("chat template", seen=seen, rule=rule, remedy="use a template that appends")


def _called(step: Step) -> ToolCall | None:
    first = step.tool_calls[0] if step.tool_calls else None
    return ToolCall(name=first.function_name, arguments=first.arguments) if first else None
