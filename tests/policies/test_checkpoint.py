"""Checkpoints: the same seed and files give the same digest, and a changed file is refused before it is loaded."""

from functools import cache
from pathlib import Path

import pytest

from ratchet.errors import IntegrityError
from ratchet.policies.checkpoint import STARTER, fresh, load, load_tokenizer, place_base, save, verified
from ratchet.store import Store, folder_digest


@cache
def tokenizer():
    return load_tokenizer(STARTER)


def small(seed: int):
    return fresh(tokenizer(), seed=seed, width=16, layers=1, heads=2)


def test_saving_loading_and_saving_again_changes_no_byte(tmp_path: Path) -> None:
    first = save(small(1), tokenizer(), tmp_path / "a")
    second = save(*load(tmp_path / "a"), tmp_path / "b")
    assert first == second == folder_digest(tmp_path / "a")


def test_a_seed_is_its_weights(tmp_path: Path) -> None:
    digests = [save(small(seed), tokenizer(), tmp_path / f"{index}") for index, seed in enumerate((1, 1, 2))]
    assert digests[0] == digests[1] != digests[2]


def test_what_is_loaded_computes_what_was_saved(tmp_path: Path) -> None:
    import torch

    model = small(3).eval()
    save(model, tokenizer(), tmp_path)
    again, _ = load(tmp_path)
    ids = torch.tensor([[3, 70, 1, 4]])
    assert torch.equal(model(input_ids=ids).logits, again(input_ids=ids).logits)
    assert again.dtype == torch.float32
    assert not again.training


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_changed_file_is_refused_by_the_name_of_the_checkpoint(tmp_path: Path, file: str) -> None:
    store = Store(tmp_path)
    name, digest = place_base("package:starter", store, "base", seed=0)
    path = verified(store, name, digest) / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="checkpoint base"):
        verified(store, name, digest)


def test_a_file_that_came_or_went_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    name, digest = place_base("package:starter", store, "base", seed=0)
    (store.path(name) / "more.py").write_text("x = 1")
    with pytest.raises(IntegrityError):
        verified(store, name, digest)
    (store.path(name) / "more.py").unlink()
    assert verified(store, name, digest) == store.path(name)
    (store.path(name) / "config.json").unlink()
    with pytest.raises(IntegrityError):
        verified(store, name, digest)


def test_the_starter_is_placed_as_it_ships(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert place_base("package:starter", store, "base", seed=0) == ("base", folder_digest(STARTER))
    assert place_base("package:starter", store, "base", seed=1) == ("base", folder_digest(STARTER))


def test_a_random_base_is_the_starters_architecture_with_the_weights_of_its_seed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (_, one), (_, again), (_, other) = (
        place_base("random", store, name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert one == again != other
    starter, own = load(STARTER)[0], load(store.path("a"))[0]
    assert {name: tuple(p.shape) for name, p in own.named_parameters()} == {
        name: tuple(p.shape) for name, p in starter.named_parameters()
    }


def test_a_folder_is_placed_as_a_base_too(tmp_path: Path) -> None:
    save(small(5), tokenizer(), tmp_path / "own")
    store = Store(tmp_path / "store")
    assert place_base(str(tmp_path / "own"), store, "base", seed=0) == ("base", folder_digest(tmp_path / "own"))


def test_an_adapter_is_merged_into_its_base(tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model

    save(small(6), tokenizer(), tmp_path / "base")
    base, _ = load(tmp_path / "base")
    adapted = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.fill_(0.05)
    save(adapted, tokenizer(), tmp_path / "adapter")
    merged, _ = load(tmp_path / "adapter")
    ids = torch.tensor([[3, 70, 1, 4]])
    assert not hasattr(merged, "peft_config") or not any("lora_" in name for name, _ in merged.named_parameters())
    assert torch.allclose(merged(input_ids=ids).logits, adapted.eval()(input_ids=ids).logits, atol=1e-5)
    assert not torch.allclose(merged(input_ids=ids).logits, load(tmp_path / "base")[0](input_ids=ids).logits, atol=1e-5)
