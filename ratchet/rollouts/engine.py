"""The in-process engine: batched multi-turn sampling with transformers, keeping the KV cache across turns.

Every row of the batch is an episode. A block of new tokens is appended to all live rows at once; rows that have less
to say are padded, the padding is masked for good, and positions count real tokens only. So nothing is ever computed
twice and log-probabilities equal those of a plain forward pass. Rows whose episode is over are dropped from the
cache.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ratchet.contracts.policy import Decoding

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


class Turn(NamedTuple):
    """What the policy sampled in one turn, its end token included where it came."""

    ids: list[int]
    logprobs: list[float]
    finish_reason: str


class Conversations(Protocol):
    """A batch of conversations that grow turn by turn under one version."""

    def turn(self, added: dict[int, list[int]]) -> dict[int, Turn]:
        """Append tokens to rows and sample one turn of each. Rows that are not named are dropped for good."""

    def take_back(self, row: int, ids: list[int]) -> None:
        """Forget the last turn of a row, which sampled `ids`, and the token before it."""


@runtime_checkable
class PolicyEngine(Protocol):
    """One version of a policy that is sampled from elsewhere than in this process, by several threads at once."""

    def session(self, end: int, decoding: Decoding, seeds: list[str]) -> Conversations:
        """Open a batch of conversations; the arguments are those of `Session`."""


class Session:
    """A batch of conversations that grow turn by turn under one model in this process."""

    def __init__(self, model: PreTrainedModel, end: int, decoding: Decoding, seeds: list[str]) -> None:
        """Open a session.

        Args:
            model: a causal language model in eval mode.
            end: id of the end-of-turn token.
            decoding: sampling settings; log-probabilities are those of the distribution that was sampled from.
            seeds: one per row; what a row draws depends on nothing but its seed and its own tokens.
        """
        import torch
        from transformers import DynamicCache

        self.model, self.end, self.decoding = model, end, decoding
        # Every tensor is made where the model is: a default would be the CPU.
        self.device = model.device
        self.cache = DynamicCache(config=model.config)
        self.rows = list(range(len(seeds)))
        self.lengths = torch.zeros(len(seeds), dtype=torch.long, device=self.device)
        self.mask = torch.zeros((len(seeds), 0), dtype=torch.long, device=self.device)
        self.draws = [_generator(seed) for seed in seeds]
        self.unread: list[list[int]] = [[] for _ in seeds]

    def turn(self, added: dict[int, list[int]]) -> dict[int, Turn]:
        """Append tokens to rows and sample one turn of each. Rows that are not named are dropped for good.

        Args:
            added: new ids by row, at least one each.

        Returns:
            The sampled turn by row.
        """
        import torch

        self._keep([row for row in self.rows if row in added])
        if not self.rows:
            return {}
        blocks = {row: self.unread[row] + added[row] for row in self.rows}
        turns = {row: Turn([], [], "length") for row in self.rows}
        speaking = list(self.rows)
        with torch.inference_mode():
            for _ in range(self.decoding.max_tokens_per_turn):
                scores = self._append([blocks.get(row, []) for row in self.rows])
                blocks = {}
                for row, token, logprob in self._draw(scores, speaking):
                    turns[row].ids.append(token)
                    turns[row].logprobs.append(logprob)
                    self.unread[row] = [token]
                    if token == self.end:
                        turns[row] = turns[row]._replace(finish_reason="stop")
                    else:
                        blocks[row] = [token]
                speaking = list(blocks)
                if not speaking:
                    break
        return turns

    def take_back(self, row: int, ids: list[int]) -> None:
        """Forget the last turn of a row and the token before it: append that token again to sample another turn.

        Args:
            row: a live row.
            ids: what the turn sampled.
        """
        import torch

        index = self.rows.index(row)
        # Of the turn's tokens the last one was not read yet; with the token before them that makes as many.
        with torch.inference_mode():
            read = torch.nonzero(self.mask[index]).flatten()[-len(ids) :]
            self.mask[index, read] = 0
            self.lengths[index] -= len(ids)
        self.unread[row] = []

    def _keep(self, rows: list[int]) -> None:
        import torch

        if rows != self.rows:
            index = torch.tensor([self.rows.index(row) for row in rows], dtype=torch.long, device=self.device)
            if self.mask.shape[1]:
                self.cache.batch_select_indices(index)
            self.mask, self.lengths, self.rows = self.mask[index], self.lengths[index], rows

    def _append(self, blocks: list[list[int]]) -> torch.Tensor:
        """Feed one block per row; returns the scores after each row's last token, `(rows, vocabulary)`."""
        import torch

        width = max(map(len, blocks))
        ids = torch.tensor([block + [0] * (width - len(block)) for block in blocks], device=self.device)
        lengths = torch.tensor([[len(block)] for block in blocks], device=self.device)
        real = (torch.arange(width, device=self.device) < lengths).long()
        positions = self.lengths[:, None] + torch.clamp(real.cumsum(1) - 1, min=0)
        self.mask = torch.cat([self.mask, real], dim=1)
        self.lengths = self.lengths + real.sum(1)
        last = [max(len(block) - 1, 0) for block in blocks]
        wanted = sorted(set(last))
        output = self.model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=torch.tensor(wanted, device=self.device),
        )
        where = torch.tensor([wanted.index(one) for one in last], device=self.device)
        return output.logits[torch.arange(len(blocks), device=self.device), where]

    def _draw(self, scores: torch.Tensor, speaking: list[int]) -> list[tuple[int, int, float]]:
        """Sample one token for each speaking row by inverting its cumulative distribution."""
        import torch

        index = torch.tensor([self.rows.index(row) for row in speaking], dtype=torch.long, device=self.device)
        scores = scores[index].float()
        uniform = [self.draws[row].random() for row in speaking] if self.decoding.temperature else []
        tokens, chosen = self._sampled(scores, uniform)
        return list(zip(speaking, tokens.tolist(), chosen.tolist(), strict=True))

    def _sampled(self, scores: torch.Tensor, uniform: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
        """The token and its log-probability in each row of scores; `uniform` has a number in [0, 1) per row."""
        import torch

        if self.decoding.temperature == 0:
            tokens = scores.argmax(-1)
            logprobs = torch.log_softmax(scores, -1)
        else:
            logprobs = torch.log_softmax(scores / self.decoding.temperature, -1)
            if self.decoding.top_p < 1:
                logprobs = _nucleus(logprobs, self.decoding.top_p)
            drawn = torch.tensor(uniform, dtype=torch.float64, device=self.device)
            cumulative = logprobs.double().exp().cumsum(-1)
            tokens = torch.searchsorted(cumulative, (drawn * cumulative[:, -1])[:, None], right=True)[:, 0]
            tokens = tokens.clamp(max=scores.shape[-1] - 1)
        return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def _nucleus(logprobs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the smallest set of tokens whose probability reaches `top_p` (Holtzman et al. 2020, arXiv:1904.09751)."""
    import torch

    ordered, order = logprobs.sort(-1, descending=True)
    outside = ordered.exp().cumsum(-1) - ordered.exp() >= top_p
    ordered = ordered.masked_fill(outside, float("-inf"))
    return torch.log_softmax(torch.empty_like(logprobs).scatter(-1, order, ordered), -1)


def _generator(seed: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:16], "big")))
