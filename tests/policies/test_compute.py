"""Device and number type follow the configuration: nothing of sampling is made on the CPU but where the model is.

There need be no GPU: torch's `meta` device is another one than the default, and an operation over two devices is
refused as it is between a CPU and a GPU. So a session on a model that is there shows every tensor made elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.contracts.policy import Decoding
from ratchet.errors import ManifestError
from ratchet.policies.checkpoint import STARTER, fresh, load, load_tokenizer, save
from ratchet.policies.compute import ACCELERATE, DEVICE, DTYPE, Compute, compute, device, is_first, processes
from ratchet.rollouts.engine import Session


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (DEVICE, DTYPE, ACCELERATE, "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def test_where_nothing_is_set_it_is_one_process_on_the_cpu_in_float32() -> None:
    assert compute() == Compute("cpu", "float32", None)
    assert (str(device()), processes(), is_first()) == ("cpu", 1, True)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        (DEVICE, "cuda:1", "one of"),
        (DTYPE, "int8", "one of"),
        (ACCELERATE, "no/such/file.yaml", "configuration file"),
    ],
)
def test_a_value_that_is_none_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, rule: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ManifestError, match=rule) as refused:
        compute()
    assert refused.value.culprit == name
    assert refused.value.remedy


def test_a_device_that_is_not_there_is_refused_before_a_model_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has such a device")
    monkeypatch.setenv(DEVICE, "cuda")
    with pytest.raises(ManifestError, match=r"RATCHET_DEVICE is 'cuda': torch .* must see such a device"):
        load(STARTER)


def test_weights_have_the_configured_type_and_those_that_are_named_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv(DTYPE, "bfloat16")
    assert load(STARTER)[0].dtype == torch.bfloat16
    assert load(STARTER, dtype="float32")[0].dtype == torch.float32


def test_a_base_in_half_precision_is_kept_as_it_came(tmp_path: Path) -> None:
    import torch

    from ratchet.policies.checkpoint import place_base
    from ratchet.store import Store

    tokenizer = load_tokenizer(STARTER)
    save(fresh(tokenizer, seed=0).to(torch.bfloat16), tokenizer, tmp_path / "half")
    store = Store(tmp_path / "store")
    name, _ = place_base(str(tmp_path / "half"), store, "base", seed=0)
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (tmp_path / "half", store.folder(name))]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.01)
    assert load(store.folder(name))[0].dtype == torch.float32


def elsewhere(decoding: Decoding) -> Session:
    """A session on a model that is on another device than tensors are by default, and whose tensors have no values."""
    import torch

    with torch.device("meta"):
        model = fresh(load_tokenizer(STARTER), seed=0, layers=1).eval()
    # The other implementation looks into the mask, to go a shorter way.
    model.set_attn_implementation("eager")
    return Session(model, 2, decoding, ["a", "b", "c"])


@pytest.mark.parametrize("decoding", [Decoding(temperature=0), Decoding(temperature=1.0, top_p=0.9)])
def test_a_session_makes_every_tensor_where_the_model_is(decoding: Decoding) -> None:
    import torch

    with torch.inference_mode():
        session = elsewhere(decoding)
        session._append([[5, 6, 7], [8], [9, 10]])
        session._keep([0, 2])
        scores = session._append([[5], []])
        tokens, logprobs = session._sampled(scores.float(), [0.25, 0.5])
        assert {one.device.type for one in (scores, tokens, logprobs, session.mask, session.lengths)} == {"meta"}
        assert (tuple(scores.shape), tuple(session.mask.shape)) == ((2, 711), (2, 4))


def test_a_tensor_on_another_device_would_show() -> None:
    """What the test above rests on."""
    import torch

    session = elsewhere(Decoding())
    session.mask = torch.zeros((3, 0), dtype=torch.long)
    with pytest.raises(RuntimeError, match="not on the expected device"):
        session._append([[5], [6], [7]])
