"""Personal data: every kind by its shape and check digit, counted once per value, and flagged or set aside."""

import json

import pytest
from intake_world import chat, world

from ratchet.errors import IntakeError
from ratchet.intake import index, personal
from ratchet.intake.opened import opened
from ratchet.intake.personal import among, iban, luhn
from ratchet.intake.published import chain
from ratchet.intake.read import quarantined

FOUND = {
    "email": ["write to jane.doe+x@mail.acme.co.uk.", "<a@b.io>", '"J.D@ACME.COM"'],
    "phone": ["+49 170 1234567", "+1 (415) 555-2671", "(415) 555-2671", "415-555-2671", "tel +442071838750"],
    "card": ["4012 8888 8888 1881", "4012888888881881", "3782-822463-10005", "5555555555554444", "6011111111111117"],
    "iban": ["DE89 3704 0044 0532 0130 00", "GB29NWBK60161331926819", "NO9386011117947"],
    "ip": ["from 8.8.8.8:53", "2001:4860:4860::8888", "2001:4860:4860:0:0:0:0:8844"],
    "us_ssn": ["536-90-4399"],
    "br_cpf": ["529.982.247-25"],
    "es_dni": ["12345678Z", "12345678-Z"],
    "fr_nir": ["1 85 05 78 006 084 91", "185057800608491"],
    "it_codice": ["RSSMRA85T10A562S"],
}
NOT_FOUND = [
    "foo@example.com", "git@github.com:a/b", "@app.route('/x')", "user@localhost", "a@b", "x@y.example",
    "4012 8888 8888 1882", "1234567890123456", "0.4012888888881881", "call_4012888888881881",
    "logprob -1.2345678901234", "DE89 3704 0044 0532 0130 01", "XX89370400440532013000",
    "10.0.0.1 192.168.1.2 127.0.0.1", "version 1.2.3", "1.2.3.4.5", "::1 fe80::1",
    "at 12:30:45 and 2024-01-01T00:00:00+01:00", "000-12-3456", "529.982.247-26", "12345678A", "1+2345",
    "RSSMRA85T10A562T", "+1", "1700000000", "0123456789abcdef0123456789abcdef", "999-99-99999",
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in FOUND.items() for text in texts])
@pytest.mark.parametrize("around", ["{}", "x {} y", '{{"a": "{}"}}', "\n{}\n", "({})"])
def test_each_kind_is_found_wherever_it_stands(kind, text, around):
    assert among([around.format(text).encode()]) == {0: {kind: 1}}


@pytest.mark.parametrize("text", NOT_FOUND)
def test_what_only_looks_like_it_is_let_pass(text):
    assert among([f"a {text} b".encode()]) == {}


def test_values_are_counted_once_in_each_of_many_texts():
    texts = [b"nothing", b"a@b.io a@b.io c@b.io 8.8.8.8", b"", b"a@b.io"]
    assert among(texts) == {1: {"email": 2, "ip": 1}, 3: {"email": 1}}


def test_many_findings_take_little_time_each():
    text = b" ".join(b"user%d@acme.io" % at for at in range(20_000))
    assert among([text]) == {0: {"email": 20_000}}


def test_an_escaped_address_is_no_second_one():
    line = json.dumps(chat({"role": "tool", "content": json.dumps({"to": "x\nann@acme.io"})})).encode()
    assert among([opened(line)]) == {0: {"email": 1}}


def test_check_digits():
    assert luhn("79927398713")
    assert not any(luhn(f"7992739871{digit}") for digit in "012456789")
    assert not iban("DE8937040044053201300")


RECORDS = [
    chat(),
    chat({"role": "user", "content": "ann@acme.io and bob@acme.io"}),
    chat({"role": "user", "content": "call +49 170 1234567, ann@acme.io"}),
]


def test_records_are_kept_and_flagged_and_counted(tmp_path, capfd):
    home = world(tmp_path)
    home.land("x.jsonl", RECORDS)
    report = home.ingest()
    assert (report.stored, report.personal_found, report.personal) == (3, 2, {"email": 3, "phone": 1})
    assert list(index(home.store, "acme")["personal"]) == ["", "email", "email phone"]
    assert len(home.store.names("acme/raw")) == 1
    assert "acme.io" not in "".join(capfd.readouterr()) + report.model_dump_json()


def test_records_can_be_set_aside_and_kept_nowhere(tmp_path):
    home = world(tmp_path)
    home.land("x.jsonl", RECORDS)
    report = home.ingest(personal="quarantine")
    assert (report.stored, report.reasons) == (1, {"personal_data": 2})
    reasons = [entry["reason"] for entry in quarantined(home.store, chain(home.store, "acme"))]
    assert reasons == ["personal data was found: email", "personal data was found: email, phone"]
    assert home.store.names("acme/raw") == []
    assert not any(b"acme.io" in path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())


def test_presidio_is_refused_where_it_is_not_installed(tmp_path):
    try:
        import presidio_analyzer  # noqa: F401
    except ImportError:
        home = world(tmp_path)
        home.land("x.jsonl", RECORDS)
        with pytest.raises(IntakeError, match="presidio-analyzer is not installed"):
            home.ingest(personal_engine="presidio")
    else:
        pytest.skip("Presidio is installed")


def test_presidio_finds_names_on_top(tmp_path):
    pytest.importorskip("presidio_analyzer")
    spacy = pytest.importorskip("spacy.util")
    if not spacy.is_package("en_core_web_sm"):
        pytest.skip("needs the model en_core_web_sm")
    home = world(tmp_path)
    home.land("x.jsonl", [chat({"role": "user", "content": "My name is John Smith, mail ann@acme.io"})])
    report = home.ingest(personal_engine="presidio")
    assert report.personal["person"] >= 1
    assert report.personal["email"] == 1


def test_every_kind_has_a_case():
    assert set(FOUND) == {shape.kind for shape in personal._SHAPES}
