"""A policy: a checkpoint together with the harness that turns its text into calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from ratchet.contracts.canonical import digest
from ratchet.contracts.environment import EnvironmentSpec, ToolSchema
from ratchet.contracts.model import Contract
from ratchet.errors import PermissionsError

Codec = Literal["single_token", "tool_call"]
AFTER = " after "
"""What stands between the two tools of a conditional approval rule."""


class Decoding(Contract):
    """How the policy samples in evaluation. Temperature 0 is greedy."""

    temperature: float = Field(default=1.0, ge=0, description="Softmax temperature.")
    top_p: float = Field(default=1.0, gt=0, le=1, description="Nucleus.")
    max_tokens_per_turn: int = Field(default=4, ge=1, description="Tokens of one turn.")


class Harness(Contract):
    """What surrounds the weights: prompt, tools, decoding, limits, approval rules."""

    system_prompt: str = Field(default="", description="System prompt; empty for none.")
    codec: Codec = Field(
        default="single_token",
        description="How text becomes a call: `single_token` names a tool without arguments, `tool_call` is JSON "
        "between `<tool_call>` marks.",
    )
    told: tuple[ToolSchema, ...] = Field(
        default=(), description="Tools as the chat template tells them to the model; none for `single_token`."
    )
    tools: tuple[str, ...] = Field(description="Tools the harness asks for, by name.")
    max_calls: int = Field(ge=1, description="Calls per episode that it asks for.")
    decoding: Decoding = Field(default_factory=Decoding, description="Sampling settings.")
    hosts: tuple[str, ...] = Field(default=(), description="Hosts it asks for.")
    paths: tuple[str, ...] = Field(default=(), description="Paths outside the episode that it asks for.")
    approval_rules: tuple[str, ...] = Field(
        default=(),
        description="Rules that ask a person before a call: `TOOL` always, `TOOL after OTHER` unless the call before "
        "it was `OTHER`. Where nobody is there to answer, the call is held back.",
    )
    retries: int = Field(
        default=0,
        ge=0,
        description="Times that a turn which is no call is taken back and sampled again. Each spends one of the calls.",
    )
    options: Mapping[str, str] = Field(
        default_factory=dict, description="What the environment lets a harness choose, by name, e.g. `observation`."
    )

    @property
    def digest(self) -> str:
        """SHA-256 of the harness."""
        return digest(self)

    def holds_back(self, tool: str, before: str | None) -> str | None:
        """The first approval rule that asks a person before a call, or None.

        Args:
            tool: the tool that is called.
            before: the tool of the call before it, or None.
        """
        for rule in self.approval_rules:
            asked, _, other = rule.partition(AFTER)
            if asked == tool and (not other or other != before):
                return rule
        return None


class Policy(Contract):
    """One version of a policy, identified by the digest of its weights and harness."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", description="Name within the experiment.")
    method: str = Field(description="`baseline` or the training method that made it.")
    checkpoint: str = Field(description="Place of the checkpoint folder, relative to the store.")
    weights_digest: str = Field(description="SHA-256 over the checkpoint's files.")
    harness: Harness = Field(description="Its harness.")
    parent: str | None = Field(default=None, description="Digest of the policy it was trained from.")
    adapter_of: str | None = Field(default=None, description="Base checkpoint, where this is an adapter.")
    training: dict[str, Any] = Field(default_factory=dict, description="Digests of dataset, certificate and settings.")

    @property
    def digest(self) -> str:
        """SHA-256 of weights and harness: what rows, registry and gate know the policy by."""
        return digest({"weights": self.weights_digest, "harness": self.harness.digest})


def widened(harness: Harness, allowed: EnvironmentSpec, incumbent: Harness | None = None) -> list[str]:
    """List every permission that `harness` asks for beyond the experiment's, or beyond the incumbent's.

    Returns:
        Sentences such as `tool 'shell'`; empty when nothing is widened.
    """
    names = {tool.name for tool in allowed.tools} & (
        set(incumbent.tools) if incumbent else {tool.name for tool in allowed.tools}
    )
    calls = min(allowed.limits.max_calls, incumbent.max_calls if incumbent else allowed.limits.max_calls)
    tokens = min(
        allowed.limits.max_tokens_per_turn,
        incumbent.decoding.max_tokens_per_turn if incumbent else allowed.limits.max_tokens_per_turn,
    )
    found = [f"tool {tool!r}" for tool in harness.tools if tool not in names]
    found += [f"host {host!r}" for host in harness.hosts if not incumbent or host not in incumbent.hosts]
    found += [f"path {path!r}" for path in harness.paths if not incumbent or path not in incumbent.paths]
    if harness.max_calls > calls:
        found.append(f"{harness.max_calls} calls per episode, over {calls}")
    if harness.decoding.max_tokens_per_turn > tokens:
        found.append(f"{harness.decoding.max_tokens_per_turn} tokens per turn, over {tokens}")
    if incumbent:
        found += [
            f"approval rule {rule!r} dropped" for rule in incumbent.approval_rules if rule not in harness.approval_rules
        ]
    return found


def unknown_rules(rules: Iterable[str], tools: Iterable[str]) -> list[str]:
    """Approval rules that name a tool which is none of `tools`: they would never ask."""
    known = set(tools)
    return [rule for rule in rules if not set(rule.split(AFTER, 1)) <= known]


def refuse_widened(policy: str, harness: Harness, allowed: EnvironmentSpec, incumbent: Harness | None = None) -> None:
    """Raise PermissionsError naming everything `harness` asks for beyond its permissions."""
    found = widened(harness, allowed, incumbent)
    if found:
        raise PermissionsError(
            f"harness of {policy!r} asks for {', '.join(found)}",
            rule="a candidate may not ask for a tool, host, path or limit that the incumbent did not have",
            remedy="remove the request, or have the owner change the permissions in the manifest (a new experiment)",
        )
