"""Checkpoints: folders in Hugging Face format, known by the digest of their files.

`package:starter` is the embedded policy that ships with Ratchet (`data/starter`, with its model card); `random` is
the same architecture with fresh weights; anything else is a folder or a model id that transformers loads. A folder
with an adapter (PEFT) is loaded on top of its base and merged for sampling.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from ratchet.errors import IntegrityError
from ratchet.store import Store, folder_digest

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

STARTER = Path(__file__).parent / "data" / "starter"


def fresh(
    tokenizer: PreTrainedTokenizerFast, *, seed: int, width: int = 96, layers: int = 3, heads: int = 4
) -> PreTrainedModel:
    """Return a randomly initialised Llama (Touvron et al. 2023, arXiv:2302.13971) for the tokenizer: about 0.4M
    parameters."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> str:
    """Write weights (safetensors) and tokenizer to `folder`; returns the digest of its files."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder_digest(folder)


def load_tokenizer(folder: Path | str) -> PreTrainedTokenizerFast:
    """Load the tokenizer of a checkpoint."""
    from transformers import AutoTokenizer

    return cast("PreTrainedTokenizerFast", AutoTokenizer.from_pretrained(str(folder)))


def load(folder: Path | str) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Load a checkpoint for sampling or training, in float32; an adapter is merged into its base."""
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(folder)
    if (Path(folder) / "adapter_config.json").exists():
        from peft import AutoPeftModelForCausalLM

        model = AutoPeftModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).merge_and_unload()
    else:
        model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    return model.eval(), tokenizer


def place_base(reference: str, store: Store, name: str, *, seed: int) -> tuple[str, str]:
    """Put the base checkpoint into the store as `name`; returns its name and the digest of its files.

    Args:
        reference: `package:starter`, `random`, or a folder or model id in Hugging Face format.
        store: where it is kept.
        name: its name in the store.
        seed: seed of fresh weights.
    """
    import tempfile

    if store.exists(name):
        return name, folder_digest(store.folder(name))
    if reference == "package:starter":
        return name, store.publish_folder(STARTER, name)
    with tempfile.TemporaryDirectory() as scratch:
        if reference == "random":
            tokenizer = load_tokenizer(STARTER)
            save(fresh(tokenizer, seed=seed), tokenizer, Path(scratch))
        else:
            save(*load(reference), Path(scratch))
        return name, store.publish_folder(Path(scratch), name)


def verified(store: Store, name: str, weights_digest: str) -> Path:
    """Return the folder of a checkpoint after checking its digest. Raises IntegrityError where it changed."""
    folder = store.folder(name)
    seen = folder_digest(folder)
    if seen != weights_digest:
        raise IntegrityError(
            f"checkpoint {name}",
            seen=seen,
            rule=f"its files must have the digest {weights_digest}",
            remedy="train or fetch it again",
        )
    return folder
