"""Checkpoints: folders in Hugging Face format, known by the digest of their files.

`package:starter` is the embedded policy that ships with Ratchet (`data/starter`, with its model card); `random` is
the same architecture with fresh weights; `package:smollm2` is a real model from a package (`ratchet.policies.smollm2`);
anything else is a folder or a model id that transformers loads. A folder
with an adapter (PEFT) is loaded on top of its base and merged for sampling.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from ratchet.errors import IntegrityError
from ratchet.policies.compute import compute, device
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


def load(folder: Path | str, *, dtype: str | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Load a checkpoint for sampling or training; an adapter is merged into its base.

    Args:
        folder: the checkpoint.
        dtype: number type of the weights; None for that of this machine's configuration.

    Returns:
        The model on the device of this machine's configuration (`ratchet.policies.compute`), and its tokenizer.

    Raises:
        ManifestError: that device is not there.
    """
    place, tokenizer = device(), load_tokenizer(folder)
    model = _model(folder, dtype or compute().dtype)
    model.to(place)  # type: ignore[arg-type]
    return model.eval(), tokenizer


def _model(folder: Path | str, dtype: str) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    if (Path(folder) / "adapter_config.json").exists():
        from peft import AutoPeftModelForCausalLM

        return cast(
            "PreTrainedModel", AutoPeftModelForCausalLM.from_pretrained(str(folder), dtype=dtype).merge_and_unload()
        )
    return cast("PreTrainedModel", AutoModelForCausalLM.from_pretrained(str(folder), dtype=dtype))


def place_base(reference: str, store: Store, name: str, *, seed: int) -> tuple[str, str]:
    """Put the base checkpoint into the store as `name`; returns its name and the digest of its files.

    Args:
        reference: `package:starter`, `package:smollm2`, `random`, or a folder or model id in Hugging Face format.
        store: where it is kept.
        name: its name in the store.
        seed: seed of fresh weights.
    """
    import tempfile

    if store.exists(name):
        return name, folder_digest(store.folder(name))
    if reference == "package:starter":
        return name, store.publish_folder(STARTER, name)
    if reference == "package:smollm2":
        return _kept_smollm2(store)
    with tempfile.TemporaryDirectory() as scratch:
        if reference == "random":
            tokenizer = load_tokenizer(STARTER)
            save(fresh(tokenizer, seed=seed), tokenizer, Path(scratch))
        else:
            # As it came: a large one in float32 would be twice its size.
            save(_model(reference, "auto"), load_tokenizer(reference), Path(scratch))
        return name, store.publish_folder(Path(scratch), name)


def refuse_missing(reference: str, store: Store) -> None:
    """Raise ManifestError where a base checkpoint would have to be made of a package that is not installed."""
    from ratchet.policies import smollm2

    if reference == "package:smollm2" and not store.exists(f"{_smollm2_name()}.sha256"):
        smollm2.weights_file()


def _smollm2_name() -> str:
    from ratchet.policies import smollm2

    return f"checkpoints/smollm2-{smollm2.identity()}"


def _kept_smollm2(store: Store) -> tuple[str, str]:
    """Make SmolLM2's checkpoint once per store: every experiment shares the folder, which is checked each time."""
    import tempfile

    from ratchet.policies import smollm2

    name = _smollm2_name()
    if not store.exists(f"{name}.sha256"):
        with tempfile.TemporaryDirectory() as scratch:
            made = save(*smollm2.dequantised(smollm2.weights_file()), Path(scratch))
            store.publish_folder(Path(scratch), name)
        store.create(f"{name}.sha256", made.encode())
    weights = store.read(f"{name}.sha256").decode()
    verified(store, name, weights)
    return name, weights


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
