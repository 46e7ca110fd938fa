"""The manifest: every mistake in one message, overrides that reach what they name, and a digest of all of it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ratchet.contracts.manifest import Manifest
from ratchet.contracts.manifest_file import load_manifest, read_overrides
from ratchet.errors import ManifestError

REFERENCE = Path(__file__).resolve().parents[2] / "experiments" / "repair.yaml"
BODY: dict[str, Any] = yaml.safe_load(REFERENCE.read_text())


def written(folder: Path, body: Any) -> Path:
    path = folder / "manifest.yaml"
    path.write_text(body if isinstance(body, str) else yaml.safe_dump(body))
    return path


def test_the_reference_manifest_is_valid_in_both_lengths() -> None:
    whole, fast = load_manifest(REFERENCE), load_manifest(REFERENCE, fast=True)
    assert whole.digest != fast.digest
    assert whole.run_id.startswith("repair-")
    assert whole.run_id != fast.run_id
    assert (whole.splits.train, whole.splits.validation, whole.splits.heldout) == (600, 160, 400)


def test_every_mistake_stands_in_one_message_with_path_value_and_rule(tmp_path: Path) -> None:
    body = BODY | {"seed": -1, "tenant": "No Slug", "surprise": 3}
    body["splits"] = {**BODY["splits"], "train": 0}
    body["environment"] = {**BODY["environment"], "limits": {"max_calls": "many"}}
    del body["job"]
    path = written(tmp_path, body)
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    text = str(caught.value)
    for part in ("seed is -1", "tenant is 'No Slug'", "surprise is 3", "splits.train is 0", "max_calls is 'many'",
                 "limits.max_tokens_per_turn", "job is", "Field required", "correct every field"):  # fmt: skip
        assert part in text
    assert caught.value.culprit == str(path)


@pytest.mark.parametrize("body", ["- 1\n", "3\n", "", "a: [\n", "\tx: 1\n"])
def test_what_is_no_mapping_is_one_plain_sentence(tmp_path: Path, body: str) -> None:
    with pytest.raises(ManifestError, match=r"manifest\.yaml"):
        load_manifest(written(tmp_path, body))


def test_a_missing_and_a_binary_file_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"absent\.yaml"):
        load_manifest(tmp_path / "absent.yaml")
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match=r"binary\.yaml"):
        load_manifest(path)


def test_fast_overrides_reach_named_methods_and_leave_the_rest() -> None:
    whole, fast = load_manifest(REFERENCE), load_manifest(REFERENCE, fast=True)
    before = {section.name: section for section in whole.methods}
    after = {section.name: section for section in fast.methods}
    assert list(before) == list(after)
    assert after["sft"].settings["epochs"] == 2
    assert after["sft"].settings["lr"] == before["sft"].settings["lr"]
    assert after["sft"].data == before["sft"].data
    assert after["grpo"].settings["steps"] == BODY["fast"]["methods"]["grpo"]["settings"]["steps"]
    assert after["grpo"].settings["lr"] == before["grpo"].settings["lr"]
    assert fast.environment.settings["catalogue"]["fixes"] == whole.environment.settings["catalogue"]["fixes"]


def test_an_override_by_dotted_path_reaches_into_a_named_method() -> None:
    changed = load_manifest(REFERENCE, overrides={"methods.sft.settings.lr": 0.5, "seed": 7})
    assert {section.name: section.settings.get("lr") for section in changed.methods}["sft"] == 0.5
    assert changed.seed == 7
    rest = {section.name: section for section in load_manifest(REFERENCE).methods}
    assert [section for section in changed.methods if section.name != "sft"] == [
        section for name, section in rest.items() if name != "sft"
    ]


@pytest.mark.parametrize("overrides", [{"methods.stf.settings.lr": 0.5}, {"methods": {"sft": {}, "ppo": {}}}])
def test_an_override_of_a_method_that_is_not_there_is_refused_not_dropped(overrides: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match=r"override of methods.*(stf|ppo).*'sft'"):
        load_manifest(REFERENCE, overrides=overrides)


def test_a_fast_section_that_is_no_mapping_is_refused_whether_it_is_asked_for_or_not(tmp_path: Path) -> None:
    path = written(tmp_path, BODY | {"fast": 3})
    for fast in (False, True):
        with pytest.raises(ManifestError, match="fast is 3"):
            load_manifest(path, fast=fast)


def test_all_mistakes_among_the_methods_are_told_at_once(tmp_path: Path) -> None:
    section = {"method": "sft", "start": "base"}
    body = BODY | {
        "methods": [
            {"name": "sft", **section},
            {"name": "sft", **section},
            {"name": "baseline", **section},
            {"name": "base", **section},
            {"name": "late", "method": "grpo", "start": "later"},
            {"name": "later", **section},
        ]
    }
    with pytest.raises(ManifestError) as caught:
        load_manifest(written(tmp_path, {key: value for key, value in body.items() if key != "fast"}))
    for part in ("'sft' is taken", "'baseline' is taken", "'base' is taken", "methods.late.start is 'later'"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("dotted", "value", "named"),
    [
        ("evaluation.seeds", [0, 1, 0], "evaluation.seeds: 0 occurs twice"),
        ("environment.tools", ["submit", "submit"], "environment.tools: 'submit' occurs twice"),
        ("grants", [BODY["grants"][0]] * 2, "grants: 'workshop-logs' occurs twice"),
    ],
)
def test_what_must_be_told_apart_is_named_once(dotted: str, value: Any, named: str) -> None:
    with pytest.raises(ManifestError, match=named):
        load_manifest(REFERENCE, overrides={dotted: value})


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list) and value:
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [path]


def changed(value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        if isinstance(value, bool):
            return not value
        return value + 1 if isinstance(value, int | float) else f"{value or ''}x"
    key, rest = path[0], path[1:]
    if isinstance(value, list):
        return [changed(item, rest) if index == key else item for index, item in enumerate(value)]
    return {**value, key: changed(value[key], rest)}


def test_the_digest_moves_with_every_single_field() -> None:
    manifest = load_manifest(REFERENCE)
    body = manifest.model_dump(mode="json")
    places = leaves(body)
    seen = {manifest.digest}
    valid = 0
    for path in places:
        try:
            other = Manifest.model_validate(changed(body, path))
        except ValueError:
            continue  # the change is no valid manifest: it has no digest to compare
        valid += 1
        assert other.digest not in seen, path
        seen.add(other.digest)
    assert valid > len(places) / 2


def test_the_digest_does_not_move_with_the_spelling_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, dict(reversed(list(BODY.items()))))
    assert load_manifest(path).digest == load_manifest(REFERENCE).digest


def test_settings_of_a_command_line_are_yaml() -> None:
    assert read_overrides(["seed=7", "release.four_eyes=true", "a.b=x=y", "c="]) == {
        "seed": 7,
        "release.four_eyes": True,
        "a.b": "x=y",
        "c": None,
    }


@pytest.mark.parametrize("setting", ["seed", "=7", "", "a=[1"])
def test_a_setting_that_is_no_pair_is_refused(setting: str) -> None:
    with pytest.raises(ManifestError, match="KEY=VALUE"):
        read_overrides([setting])
