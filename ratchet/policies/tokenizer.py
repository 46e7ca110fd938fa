"""The embedded policy's own tokenizer: byte-level BPE, with the words of an environment as single tokens.

A call and a short observation are then a handful of tokens. Any text still encodes (byte fallback). The chat template
is prefix-preserving, so that a conversation grows by appending, and marks what the assistant wrote for SFT.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, END, ROLES = "<|pad|>", "<|end|>", ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}<|assistant|>"
    "{% generation %}{{ message['content'] }}<|end|>{% endgeneration %}"
    "{% else %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build_tokenizer(words: Iterable[str], corpus: Iterable[str], *, merges: int = 256) -> PreTrainedTokenizerFast:
    """Train the tokenizer.

    Args:
        words: words that become one token each and swallow the space before them.
        corpus: text to learn the byte pairs of everything else from.
        merges: how many byte pairs to learn.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + len(ROLES) + 2 + merges,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_tokens(
        [AddedToken(word, single_word=True, lstrip=True, normalized=False) for word in dict.fromkeys(words)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, clean_up_tokenization_spaces=False
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
