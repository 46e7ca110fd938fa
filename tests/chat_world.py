"""A tiny chat model that calls tools in JSON: SmolLM2's chat template, on a vocabulary of bytes."""

from __future__ import annotations

from typing import Any

from ratchet.contracts.policy import Decoding, Harness
from ratchet.environments.repair.episode import TOOLS
from ratchet.policies.smollm2 import PAD, TEMPLATE

START, END = "<|im_start|>", "<|im_end|>"
NAMES = ("next_fix", "apply_fix", "run_tests", "submit", "edit_line")


def chat_tokenizer() -> Any:
    """A byte-level tokenizer with SmolLM2's control tokens and template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={word: index for index, word in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in (PAD, START, END)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=START, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False
    )
    fast.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return fast


def chat_harness(**changes: Any) -> Harness:
    """A harness that tells the tools of `repair`."""
    told = tuple(TOOLS[name] for name in NAMES)
    decoding = Decoding(temperature=1.0, max_tokens_per_turn=64)
    return Harness(codec="tool_call", told=told, tools=NAMES, max_calls=3, decoding=decoding).model_copy(update=changes)
