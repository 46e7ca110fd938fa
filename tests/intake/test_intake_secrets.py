"""Secrets: found in text, in escaped arguments and in base64, kept nowhere, printed nowhere."""

import base64
import json
import random
import string
import zipfile
from io import BytesIO

import pyarrow.parquet as pq
import pytest
from intake_world import chat, world

from ratchet.errors import IntakeError
from ratchet.intake import index, judging
from ratchet.intake.canaries import remember
from ratchet.intake.keys import Keys
from ratchet.intake.opened import opened
from ratchet.intake.published import chain
from ratchet.intake.read import quarantined
from ratchet.intake.records import Rejected
from ratchet.intake.secrets import SecretScanner
from ratchet.store import Store

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


def _call(arguments):
    call = {"id": "a", "function": {"name": "run", "arguments": arguments}}
    return chat({"role": "assistant", "content": None, "tool_calls": [call]})


def _coded(key):
    """Every third sign as a `\\u` escape."""
    return "".join(sign if at % 3 else f"\\u{ord(sign):04x}" for at, sign in enumerate(key))


def _base64(key, encode=base64.b64encode):
    # The tail makes signs that the two alphabets write differently.
    return encode(f"k={key};\u00ff\u00fe???>>>~~~".encode()).decode()


FORMS = {
    "text": lambda key: chat({"role": "user", "content": f"use {key} for it"}),
    "arguments": lambda key: _call(json.dumps({"K": "\u00e9 " + key})),
    "arguments in arguments": lambda key: _call(json.dumps({"env": json.dumps({"K": "\u00e9 " + key})})),
    "three times escaped": lambda key: _call(json.dumps({"a": json.dumps({"b": json.dumps({"c": key})})})),
    "result that is JSON": lambda key: chat({"role": "tool", "content": json.dumps({"rows": [{"token": key}]})}),
    "key of an object": lambda key: chat(metadata={key: 1}),
    "key in arguments": lambda key: _call(json.dumps({key: None})),
    "behind a line break": lambda key: chat({"role": "user", "content": f"x\n{key}\n"}),
    "base64": lambda key: chat({"role": "user", "content": "blob " + _base64(key)}),
    "base64, url-safe": lambda key: chat({"role": "user", "content": _base64(key, base64.urlsafe_b64encode)}),
    "base64 in arguments": lambda key: _call(json.dumps({"auth": json.dumps({"basic": _base64(key)})})),
    "base64 in base64": lambda key: chat({"role": "user", "content": _base64(_base64(key))}),
    "base64 over lines": lambda key: chat(
        {"role": "user", "content": base64.encodebytes(f"{'x' * 50}; k={key};".encode()).decode()}
    ),
}
RAW_FORMS = {
    "escaped": lambda key: '{"messages": [{"role": "user", "content": "KEY"}]}'.replace("KEY", _coded(key)),
    "escaped in arguments": lambda key: json.dumps(_call('{"K": "KEY"}'.replace("KEY", _coded(key)))),
    "slashes escaped": lambda key: json.dumps(FORMS["base64"](key)).replace("/", "\\/"),
    "cut off": lambda key: json.dumps(FORMS["text"](key))[:-6],
    "no JSON": lambda key: f"token: {key}",
}
"""Forms that `json.dumps` does not write."""


def encoded(form, key):
    """One line of a log in which the key stands in that form."""
    return (json.dumps(FORMS[form](key)) if form in FORMS else RAW_FORMS[form](json.dumps(key)[1:-1])).encode()


@pytest.mark.parametrize("form", [*FORMS, *RAW_FORMS])
@pytest.mark.parametrize("kind", KEYS)
def test_a_planted_key_is_found_in_every_form(kind, form):
    if form == "escaped" or form == "escaped in arguments":
        line = RAW_FORMS[form](KEYS[kind]).encode()
    else:
        line = encoded(form, KEYS[kind])
    assert SecretScanner([KEYS["canary"]]).found(line)


def test_among_many_honest_records_exactly_those_with_a_key_are_named():
    scanner = SecretScanner([KEYS["canary"]])
    lines = [json.dumps(chat({"role": "user", "content": f"number {at}"})).encode() for at in range(60)]
    planted = dict(zip(range(3, 60, 4), KEYS, strict=False))
    for at, kind in planted.items():
        lines[at] = encoded("text", KEYS[kind])
    assert scanner.among([opened(line) for line in lines]).keys() == planted.keys()


def test_what_two_records_would_say_together_is_no_finding():
    pieces = [b'the password: "', b'correct-horse-battery-9" it was']
    assert not SecretScanner().among(pieces)


def everything(folder):
    """Names and bytes of all files under a folder, beside the landing files."""
    files = [path for path in folder.rglob("*") if path.is_file() and "landing" not in path.parts]
    return b"".join(str(path).encode() + path.read_bytes() for path in files)


def test_a_key_is_stored_and_printed_nowhere_and_its_neighbours_come_in(tmp_path, capfd):
    home = world(tmp_path)
    lines = [encoded(form, key) for key in KEYS.values() for form in (*FORMS, "cut off", "no JSON")]
    home.land("x.jsonl", b"\n".join([json.dumps(chat()).encode(), *lines]))
    home.land("array.json", json.dumps([FORMS["text"](KEYS["aws"]), chat(model="m")]).encode())
    home.land("broken.jsonl", b'{"messages": [{"role": "user", "content": "' + KEYS["github"].encode())
    report = home.ingest(canaries=[KEYS["canary"]])
    assert (report.stored, report.secrets_found) == (2, len(lines) + 2)
    assert report.reasons == {"secret": len(lines) + 2}
    shown = "".join(capfd.readouterr()) + report.model_dump_json() + repr(report)
    store = Store(tmp_path / "store")
    tables = [name for name in store.names("acme") if name.endswith(".parquet")]
    kept = (
        everything(tmp_path) + repr([pq.read_table(BytesIO(store.read(name))).to_pylist() for name in tables]).encode()
    )
    for key in KEYS.values():
        assert key not in shown
        for form in (key.encode(), json.dumps(key).encode()[1:-1], base64.b64encode(f"k={key};".encode())[:-4]):
            assert form not in kept
    assert store.names("acme/raw") == []
    entries = quarantined(home.store, chain(home.store, "acme"), Keys(tmp_path))
    assert all(entry["content_base64"] is None and "found by" in entry["reason"] for entry in entries)


def test_a_key_in_the_name_of_a_file_is_withheld(tmp_path, capfd):
    home = world(tmp_path)
    home.land(f"{KEYS['github']}.jsonl", [chat(), {"messages": 1}])
    home.land(f"{KEYS['stripe']}.txt", b"no log")
    report = home.ingest()
    assert (report.stored, report.quarantined, report.anomalies["secret_in_name"]) == (1, 2, 2)
    assert index(home.store, "acme")["source"].str.startswith("withheld-").all()
    shown = (
        "".join(capfd.readouterr())
        + report.model_dump_json()
        + repr(quarantined(home.store, chain(home.store, "acme")))
    )
    for kind in ("github", "stripe"):
        assert KEYS[kind] not in shown
        assert KEYS[kind].encode() not in everything(tmp_path)


def test_a_key_that_only_an_unread_member_of_an_archive_holds_keeps_the_archive_out(tmp_path):
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.txt", f"use {KEYS['gitlab']}")
    assert SecretScanner().packed(data.getvalue())
    assert SecretScanner().packed(data.getvalue()[:-30]) == {"unread"}
    assert not SecretScanner().found(data.getvalue())


def test_a_reason_that_quotes_a_key_is_withheld(tmp_path, monkeypatch):
    class Talkative:
        LINES = True

        def sniff(self, head, name):
            return True

        def read(self, data, source):
            yield Rejected(0, 0, b"short", "odd", f"it says {KEYS['slack']}")

    monkeypatch.setattr(judging, "named", lambda name: Talkative())
    home = world(tmp_path)
    home.land("x.jsonl", [chat()])
    home.ingest(format="openai_chat")
    (entry,) = quarantined(home.store, chain(home.store, "acme"))
    assert (entry["code"], entry["reason"]) == ("odd", "withheld: a secret is in it")
    assert KEYS["slack"].encode() not in everything(tmp_path)


def test_canaries_that_were_given_once_stay_in_force(tmp_path):
    home = world(tmp_path)
    home.land("x.jsonl", [chat({"role": "user", "content": f"the {KEYS['canary']} sings"})])
    assert remember(tmp_path, "acme", [KEYS["canary"], KEYS["canary"]]) == 1
    assert remember(tmp_path, "acme", ["another-canary"]) == 2
    assert home.ingest().reasons == {"secret": 1}
    assert home.ingest(tenant="other", grant_id="theirs").stored == 1
    assert (tmp_path / "canaries" / "acme.txt").stat().st_mode & 0o777 == 0o600


def test_a_canary_that_is_too_short_is_refused():
    with pytest.raises(IntakeError, match="at least 6") as refused:
        SecretScanner(["good-canary", "bad"])
    assert "bad" not in str(refused.value).replace("canary 2", "")


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
