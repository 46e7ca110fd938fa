"""Checkpoints and adapters in the form in which vLLM serves them, with the same answers.

vLLM's attention knows few head sizes; on a CPU none below 32. A checkpoint with others is widened: every head gets
zeros at the end of each of its two rotary halves, which no score and no value ever sees. What the wider size changes by
itself is undone: scores are divided by the root of the head size (Vaswani et al. 2017, arXiv:1706.03762), so queries
are multiplied by the root of the sizes' ratio; and the rotary frequencies, theta^(-2i/d) (Su et al. 2021,
arXiv:2104.09864), stay what they were with theta^(D/d) in place of theta.

Output weights are written beside the embeddings that they are tied to: vLLM 0.31 does not reload in place what is
tied.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.errors import EngineError
from ratchet.policies.checkpoint import load, save
from ratchet.store import folder_digest

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig

HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""What vLLM's attention serves on a CPU; on GPUs it is a superset."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as the largest rank of adapters."""
_HEADS_OUT = ("q_proj", "k_proj", "v_proj")


def head_size(config: PreTrainedConfig) -> int:
    """Dimensions of one attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def served_head_size(config: PreTrainedConfig) -> int:
    """The smallest head size that is served and holds the model's heads.

    Raises:
        EngineError: there is none, or the model's heads cannot be widened without changing its answers.
    """
    size = head_size(config)
    if size in HEAD_SIZES:
        return size
    rope = getattr(config, "rope_parameters", None) or {}
    wider = [known for known in HEAD_SIZES if known > size]
    if config.model_type != "llama" or rope.get("rope_type", "default") != "default" or not wider:
        raise EngineError(
            f"a {config.model_type} checkpoint with heads of {size}",
            rule=f"vLLM serves heads of {', '.join(map(str, HEAD_SIZES))}; only those of a Llama with plain rotary "
            "positions can be widened",
            remedy="use `engine: transformers`",
        )
    return wider[0]


def export_checkpoint(folder: Path, target: Path) -> Path:
    """Return a folder that vLLM serves with the answers of the checkpoint in `folder`, adapters merged.

    It is `folder` itself where that is served as it is; else `target`, which appears whole or not at all.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    if not (folder / "adapter_config.json").exists():
        config = AutoConfig.from_pretrained(str(folder))
        if served_head_size(config) == head_size(config) and not config.tie_word_embeddings:
            return folder
    if target.exists():
        return target
    model, tokenizer = load(folder, dtype="float32")
    config = model.config
    before, after = head_size(config), served_head_size(config)
    wide = type(config).from_dict(config.to_dict())
    wide.tie_word_embeddings = False
    if after != before:
        wide.head_dim = after
        theta = float(config.rope_parameters["rope_theta"])
        wide.rope_parameters = {**config.rope_parameters, "rope_theta": theta ** (after / before)}
    exported = AutoModelForCausalLM.from_config(wide, dtype=model.dtype)
    state = {name: _widened(name, value, before, after) for name, value in model.state_dict().items()}
    exported.load_state_dict(state)
    scratch = _scratch(target)
    save(exported, tokenizer, scratch)
    os.rename(scratch, target)
    return target


def export_adapter(folder: Path, target: Path) -> Path:
    """Write the LoRA adapter in `folder` as vLLM serves it on top of the exported base; `target` appears whole.

    Args:
        folder: an adapter in PEFT's format; its settings name the folder of its base.
        target: where it goes; what is there already is returned.

    Raises:
        EngineError: vLLM cannot serve this adapter by itself; its merged checkpoint it can.
    """
    from safetensors.torch import load_file, save_file
    from transformers import AutoConfig

    settings = json.loads((folder / "adapter_config.json").read_bytes())
    refuse_unserved(settings)
    if target.exists():
        return target
    base = AutoConfig.from_pretrained(str(base_of(settings)))
    before, after = head_size(base), served_head_size(base)
    state = load_file(folder / "adapter_model.safetensors")
    if after != before:
        state = {name: _widened_adapter(name, value, before, after) for name, value in state.items()}
    scratch = _scratch(target)
    save_file(state, scratch / "adapter_model.safetensors")
    (scratch / "adapter_config.json").write_text(json.dumps(settings, indent=1))
    os.rename(scratch, target)
    return target


def adapter_settings(folder: Path) -> dict[str, Any] | None:
    """PEFT settings of the adapter in `folder`, where vLLM serves it by itself; None: it is merged first."""
    file = folder / "adapter_config.json"
    settings: dict[str, Any] | None = json.loads(file.read_bytes()) if file.exists() else None
    return settings if settings is not None and not unserved(settings) else None


def is_export(read: Path, folder: Path) -> bool:
    """Whether the files in `read` are those that `folder` is exported to, byte for byte.

    Args:
        read: what the server was told to load.
        folder: a checkpoint, or an adapter that is served by itself.
    """
    if read == folder:
        return True
    with tempfile.TemporaryDirectory() as scratch:
        return folder_digest(export(folder, Path(scratch) / "again")) == folder_digest(read)


def export(folder: Path, target: Path) -> Path:
    """Export an adapter that vLLM serves by itself as that, everything else as full weights; see the two functions."""
    settings = adapter_settings(folder)
    if settings is None:
        return export_checkpoint(folder, target)
    return export_adapter(folder, target)


def base_of(settings: dict[str, Any]) -> Path:
    """Folder of the base that an adapter's settings name."""
    return Path(settings["base_model_name_or_path"]).absolute()


def unserved(settings: dict[str, Any]) -> list[str]:
    """What keeps vLLM from serving an adapter with these PEFT settings by itself; empty where nothing does."""
    return [
        told
        for told, present in {
            "DoRA": settings.get("use_dora"),
            f"bias {settings.get('bias')!r}": settings.get("bias", "none") != "none",
            f"whole modules ({settings.get('modules_to_save')})": settings.get("modules_to_save"),
            "token embeddings": settings.get("trainable_token_indices"),
            f"rank {settings.get('r')}": not 0 < int(settings.get("r", 0)) <= RANKS[-1],
            "ranks of single modules": settings.get("rank_pattern"),
        }.items()
        if present
    ]


def refuse_unserved(settings: dict[str, Any]) -> None:
    """Raise EngineError where vLLM does not serve adapters with these PEFT settings."""
    reasons = unserved(settings)
    if reasons:
        raise EngineError(
            f"an adapter with {', '.join(reasons)}",
            rule="vLLM serves plain LoRA adapters",
            remedy="serve the merged checkpoint",
        )


def _scratch(target: Path) -> Path:
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    return scratch


def _widened(name: str, value: torch.Tensor, before: int, after: int) -> torch.Tensor:
    """One weight of a checkpoint, `(outputs, inputs)` or `(outputs,)`, for heads of `after` dimensions."""
    module = name.split(".")[-2]
    if module in _HEADS_OUT:
        return _rows(value, module, before, after)
    if module == "o_proj" and name.endswith("weight"):
        return _rows(value.T, module, before, after).T.contiguous()
    return value


def _widened_adapter(name: str, value: torch.Tensor, before: int, after: int) -> torch.Tensor:
    """One half of an adapted weight: `lora_A` reads the inputs, `lora_B` writes the outputs."""
    module, half = name.split(".")[-3:-1]
    if module in _HEADS_OUT and half == "lora_B":
        return _rows(value, module, before, after)
    if module == "o_proj" and half == "lora_A":
        return _rows(value.T, module, before, after).T.contiguous()
    return value


def _rows(value: torch.Tensor, module: str, before: int, after: int) -> torch.Tensor:
    """Put the rows of each head where its rotary halves start, with zeros behind them."""
    heads = value.reshape(-1, 2, before // 2, *value.shape[1:])
    wide = value.new_zeros((heads.shape[0], 2, after // 2, *value.shape[1:]))
    wide[:, :, : before // 2] = heads * (math.sqrt(after / before) if module == "q_proj" else 1.0)
    return wide.reshape(-1, *value.shape[1:])
