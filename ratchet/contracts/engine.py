"""What samples held-out runs and rollouts, as the manifest says it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ratchet.contracts.model import Contract


class EngineSection(Contract):
    """An inference engine: `transformers` in this process, or a vLLM server."""

    name: Literal["transformers", "vllm"] = Field(
        default="transformers", description="`transformers` in this process, or a `vllm` server over HTTP."
    )
    venv: str = Field(
        default=".venv-serve",
        description="Environment that a vLLM server is started from, as a child, as `make serve-env` makes it.",
    )
    url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="Address of a running vLLM server, which sees the same files; None: a child is started.",
    )
    token_env: str | None = Field(default=None, description="Environment variable with the running server's token.")
