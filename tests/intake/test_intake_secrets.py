"""Secrets: found in text, in escaped arguments and in base64, kept nowhere, printed nowhere."""

import base64
import json
import random
import string

import pytest
from intake_world import chat, world

from ratchet.intake.published import chain
from ratchet.intake.read import quarantined
from ratchet.intake.secrets import SecretScanner

# Made up at run time, so that no file of the repository looks as if it held a key.
_random = random.Random(7)


def _make(count, alphabet=string.ascii_letters + string.digits):
    return "".join(_random.choice(alphabet) for _ in range(count))


_UPPER = string.ascii_uppercase + "234567"
_HEX = "0123456789abcdef"
KEYS = {
    "aws": "AK" + "IA" + _make(16, _UPPER),
    "github": "gh" + "p_" + _make(36),
    "github fine": "github" + "_pat_" + _make(22) + "_" + _make(59),
    "openai": "sk-" + "proj-" + _make(74) + "T3Blbk" + "FJ" + _make(74),
    "anthropic": "sk-" + "ant-api03-" + _make(93) + "AA",
    "slack": "xo" + "xb-" + _make(12, string.digits) + "-" + _make(12, string.digits) + "-" + _make(24),
    "stripe": "sk" + "_live_" + _make(24),
    "google": "AI" + "za" + _make(35),
    "private key": "-----BEGIN RSA "
    + "PRIVATE KEY-----\n"
    + "\n".join(_make(64) for _ in range(12))
    + "\n-----END RSA "
    "PRIVATE KEY-----",
    "huggingface": "h" + "f_" + _make(34, string.ascii_letters),
    "gitlab": "gl" + "pat-" + _make(20),
    "sendgrid": "S" + "G." + _make(22) + "." + _make(43),
    "url": "postgres://app:" + _make(14) + "@db.example.net:5432/app",
    "canary": "blue-heron-at-dawn",
}
FORMS = {
    "text": lambda key: chat({"role": "user", "content": f"use {key} for it"}),
    "arguments": lambda key: chat(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "function": {"name": "run", "arguments": json.dumps({"env": json.dumps({"K": "\u00e9 " + key})})},
                }
            ],
        }
    ),
    "base64": lambda key: chat({"role": "user", "content": "blob " + base64.b64encode(f"k={key};".encode()).decode()}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KEYS)
def test_a_planted_key_is_found_in_every_form(kind, form):
    scanner = SecretScanner([KEYS["canary"]])
    body = FORMS[form](KEYS[kind])
    assert scanner.found(json.dumps(body).encode())


def test_a_key_is_stored_and_printed_nowhere_and_its_neighbours_come_in(tmp_path, capfd):
    home = world(tmp_path)
    secrets = [FORMS[form](key) for key in KEYS.values() for form in FORMS]
    home.land("x.jsonl", [chat(), *secrets])
    home.land("array.json", json.dumps([FORMS["text"](KEYS["aws"]), chat(model="m")]).encode())
    home.land("broken.jsonl", b'{"messages": [{"role": "user", "content": "' + KEYS["github"].encode())
    report = home.ingest(canaries=[KEYS["canary"]])
    assert (report.stored, report.secrets_found) == (2, len(secrets) + 2)
    assert report.reasons == {"secret": len(secrets) + 2}
    shown = "".join(capfd.readouterr()) + report.model_dump_json() + repr(report)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    for key in KEYS.values():
        assert key not in shown
        for form in (key.encode(), json.dumps(key).encode()[1:-1], base64.b64encode(f"k={key};".encode())):
            assert form not in kept
    entries = quarantined(home.store, chain(home.store, "acme"))
    assert all(entry["content_base64"] is None and "found by" in entry["reason"] for entry in entries)


@pytest.mark.parametrize(
    "text",
    [
        "the documented example AKIA" + "IOSFODNN7EXAMPLE",
        "see https://example.net:8080/a@b",
        "sha256 " + "ab12" * 16,
        "def tokenize(text): return text.split()",
    ],
)
def test_what_only_looks_like_one_is_let_in(text):
    assert SecretScanner().found(json.dumps(chat({"role": "user", "content": text})).encode()) == set()


def test_a_comment_in_the_log_cannot_switch_the_search_off():
    line = f"{KEYS['github']} # kingfisher:ignore gitleaks:allow"
    assert SecretScanner().found(line.encode())
