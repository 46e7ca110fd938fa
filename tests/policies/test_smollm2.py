"""SmolLM2 from its package: what a GGUF file says is what the checkpoint computes, kept once and checked each time."""

from pathlib import Path
from typing import Any

import pytest

from ratchet.errors import IntegrityError, ManifestError
from ratchet.policies import smollm2
from ratchet.policies.checkpoint import place_base
from ratchet.store import Store

WIDTH, HEADS, KEY_HEADS = 32, 4, 2


def small_llama() -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=260, hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS, max_position_embeddings=128, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def permuted(weight: Any, heads: int) -> Any:
    """The order of query and key rows in GGUF, as llama.cpp's converter makes it."""
    return (
        weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    )


def write_gguf(model: Any, path: Path) -> None:
    from gguf import GGUFWriter
    from tokenizers import pre_tokenizers

    writer = GGUFWriter(str(path), "llama")
    config = model.config
    writer.add_vocab_size(config.vocab_size)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(100000.0)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    writer.add_token_list(["<|endoftext|>", "<|im_start|>", "<|im_end|>", *alphabet, "12"])
    writer.add_token_types([3, 3, 3] + [1] * 257)
    writer.add_token_merges(["1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    weights = {name: weight.detach().numpy() for name, weight in model.state_dict().items() if name != "lm_head.weight"}
    known = {new: old for old, new in smollm2.GLOBAL.items()}
    known |= {
        f"model.layers.{layer}.{new}.weight": f"blk.{layer}.{old}.weight"
        for layer in range(config.num_hidden_layers)
        for old, new in smollm2.LAYER.items()
    }
    for name, weight in weights.items():
        heads = HEADS if "q_proj" in name else KEY_HEADS if "k_proj" in name else None
        writer.add_tensor(known[name], permuted(weight, heads).copy() if heads else weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_the_checkpoint_computes_what_the_files_model_computes(tmp_path: Path) -> None:
    import torch

    write_gguf(small_llama(), tmp_path / "small.gguf")
    model, tokenizer = smollm2.dequantised(tmp_path / "small.gguf")
    ids = torch.tensor([[5, 9, 77, 200, 31, 4]])
    with torch.inference_mode():
        assert torch.allclose(model(input_ids=ids).logits, small_llama()(input_ids=ids).logits, atol=1e-5)
    assert model.dtype == torch.float32
    assert (tokenizer.pad_token, tokenizer.eos_token) == ("<|endoftext|>", "<|im_end|>")


def test_every_digit_is_a_token_of_its_own_and_any_text_comes_back(tmp_path: Path) -> None:
    write_gguf(small_llama(), tmp_path / "small.gguf")
    _, tokenizer = smollm2.dequantised(tmp_path / "small.gguf")
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("12", add_special_tokens=False)) == ["1", "2"]
    text = "x = [1, 2]\n\tñ 你好"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_a_missing_package_is_refused_with_the_script_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None)
    with pytest.raises(ManifestError, match=r"scripts/smollm2\.sh"):
        smollm2.weights_file()


def test_other_weights_under_the_packages_name_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / smollm2.FILE).write_bytes(b"GGUF")
    found = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})
    monkeypatch.setattr(smollm2, "find_spec", lambda name: found)
    with pytest.raises(IntegrityError, match="digest"):
        smollm2.weights_file()


def test_it_is_made_once_per_store_and_a_changed_folder_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, read, reads = tmp_path / "small.gguf", smollm2.dequantised, []
    write_gguf(small_llama(), file)
    monkeypatch.setattr(smollm2, "weights_file", lambda: file)
    monkeypatch.setattr(smollm2, "dequantised", lambda path: reads.append(path) or read(path))
    store = Store(tmp_path / "store")
    first = place_base("package:smollm2", store, "one/base", seed=0)
    assert place_base("package:smollm2", store, "two/base", seed=1) == first
    assert reads == [file]
    config = store.path(first[0]) / "config.json"
    config.write_text(config.read_text().replace("100000.0", "10000.0"))
    with pytest.raises(IntegrityError, match="checkpoint"):
        place_base("package:smollm2", store, "three/base", seed=0)
