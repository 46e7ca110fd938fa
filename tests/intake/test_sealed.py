"""Sealed originals: read back only whole, only with their own key, only under their own name."""

import os
import stat
from io import BytesIO

import pytest
from intake_world import NOW

from ratchet.contracts.canonical import digest_bytes
from ratchet.errors import IntegrityError, RightsError
from ratchet.intake.keys import MASTER, Keys, folder_of
from ratchet.intake.sealed import FRAME_BYTES, Key

FRAME = FRAME_BYTES + 16
HEADER = 28
LENGTHS = [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES, 3 * FRAME_BYTES + 7]


@pytest.fixture
def key():
    return Key("acme", "g", os.urandom(32))


def sealed(key, plain):
    return key.seal_bytes(plain, digest_bytes(plain))


@pytest.mark.parametrize("length", LENGTHS)
def test_what_was_sealed_reads_back_and_shows_nothing(key, length):
    plain = (b"the planted phrase " * (length // 19 + 1))[:length]
    stored = sealed(key, plain)
    assert b"planted" not in stored
    assert key.unseal_bytes(stored, digest_bytes(plain), "x") == plain
    assert len(stored) == HEADER + length + 16 * max(1, -(-length // FRAME_BYTES))


def test_the_same_sealed_twice_is_not_the_same(key):
    assert sealed(key, b"x") != sealed(key, b"x")


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[:-17],
        lambda data: data[: HEADER + 2 * FRAME],
        lambda data: data[: HEADER + FRAME],
        lambda data: data[:HEADER],
        lambda data: data[: HEADER - 1],
        lambda data: b"",
        lambda data: data + b"x",
        lambda data: data + data[HEADER : HEADER + FRAME],
        lambda data: data[:HEADER] + data[HEADER + FRAME : HEADER + 2 * FRAME] + data[HEADER : HEADER + FRAME],
        lambda data: data[:HEADER] + data[HEADER + FRAME :],
        lambda data: data[:12] + bytes(16) + data[HEADER:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    ],
    ids=[
        "cut by a byte", "last frame cut to nothing", "last frame dropped", "two frames dropped", "all frames dropped",
        "cut header", "nothing left", "byte added", "frame repeated", "frames swapped", "first frame dropped",
        "other salt", "bit flipped",
    ],
)  # fmt: skip
def test_a_changed_object_is_noticed(key, change):
    plain = os.urandom(2 * FRAME_BYTES + 100)
    with pytest.raises(IntegrityError, match=r"acme/raw/x: a sealed object must be whole"):
        key.unseal_bytes(change(sealed(key, plain)), digest_bytes(plain), "acme/raw/x")
    with pytest.raises(IntegrityError, match=r"acme/raw/x: a sealed object must be whole"):
        key.verify(BytesIO(change(sealed(key, plain))), digest_bytes(plain), "acme/raw/x")


def test_what_was_sealed_is_verified_under_its_own_digest_alone(key):
    stored = sealed(key, b"x")
    key.verify(BytesIO(stored), digest_bytes(b"x"), "x")
    with pytest.raises(IntegrityError, match="must be whole"):
        key.verify(BytesIO(stored), digest_bytes(b"y"), "x")


def test_no_frame_of_a_changed_object_is_handed_out_before_it_is_verified(key):
    plain = os.urandom(2 * FRAME_BYTES)
    stored = bytearray(sealed(key, plain))
    stored[HEADER + FRAME + 5] ^= 1
    found = key.unseal(BytesIO(bytes(stored)), digest_bytes(plain), "x")
    assert next(found) == plain[:FRAME_BYTES]
    with pytest.raises(IntegrityError, match="frame 1"):
        next(found)


def test_another_key_another_grant_and_another_digest_are_refused(key):
    stored = sealed(key, b"plain")
    digest = digest_bytes(b"plain")
    with pytest.raises(IntegrityError, match="another key than the one of grant 'g'"):
        Key("acme", "g", os.urandom(32)).unseal_bytes(stored, digest, "x")
    for other in (Key("acme", "h", key.secret), Key("other", "g", key.secret)):
        with pytest.raises(IntegrityError, match="not as it was sealed"):
            other.unseal_bytes(stored, digest, "x")
    with pytest.raises(IntegrityError, match="not as it was sealed"):
        key.unseal_bytes(stored, digest_bytes(b"other"), "x")


def test_content_that_never_had_its_digest_is_refused(key):
    wrong = digest_bytes(b"other")
    with pytest.raises(IntegrityError, match="must have the digest"):
        key.unseal_bytes(key.seal_bytes(b"plain", wrong), wrong, "x")


def test_a_key_is_made_once_for_its_owner_alone(tmp_path):
    keys = Keys(tmp_path)
    made = keys.get("acme", "g")
    assert keys.get("acme", "g") == Keys(tmp_path).existing("acme", "g") == made
    assert len({keys.get("acme", "h").secret, keys.get("other", "g").secret, made.secret}) == 3
    path = tmp_path / "keys/acme/g.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert made.secret.hex() not in repr(made)
    assert [found.name for found in path.parent.iterdir() if found.name.startswith(".")] == []


def test_a_destroyed_key_stays_destroyed(tmp_path):
    keys = Keys(tmp_path)
    made = keys.get("acme", "g")
    left_by_a_crash = tmp_path / "keys/acme/.g.key-abc"
    left_by_a_crash.write_bytes((tmp_path / "keys/acme/g.key").read_bytes())
    assert keys.destroy("acme", "g", NOW)
    assert not keys.destroy("acme", "g", NOW)
    assert not left_by_a_crash.exists()
    for use in (keys.get, keys.existing):
        with pytest.raises(RightsError, match="its key was destroyed on 2030-01-01"):
            use("acme", "g")
    assert keys.destroyed("acme", "g")["fingerprint"] == made.fingerprint
    assert keys.destroyed("acme", "h") is None


def test_a_missing_or_changed_key_is_a_clear_error(tmp_path):
    keys = Keys(tmp_path)
    with pytest.raises(IntegrityError, match=r"g\.key: the key of the grant must be there"):
        keys.existing("acme", "g")
    keys.get("acme", "g")
    path = tmp_path / "keys/acme/g.key"
    whole = path.read_text()
    for content in ("", "{}", whole.replace('"key":"', '"key":"A'), whole.replace('"key":"', '"key":"AAAA')):
        path.write_text(content)
        with pytest.raises(IntegrityError, match="must hold the key as it was written"):
            keys.get("acme", "g")


@pytest.mark.parametrize("content", [os.urandom(32), os.urandom(32).hex().encode() + b"\n"], ids=["raw", "hex"])
def test_a_master_key_wraps_the_keys(tmp_path, monkeypatch, content):
    place = tmp_path / "master"
    place.write_bytes(content)
    monkeypatch.setenv(MASTER, str(place))
    keys = Keys(tmp_path)
    made = keys.get("acme", "g")
    assert keys.existing("acme", "g") == made
    import base64

    assert base64.b64encode(made.secret) not in (tmp_path / "keys/acme/g.key").read_bytes()
    # A wrapped key is bound to its owner.
    (tmp_path / "keys/acme/h.key").write_bytes((tmp_path / "keys/acme/g.key").read_bytes())
    with pytest.raises(IntegrityError, match="another master key"):
        keys.existing("acme", "h")
    place.write_bytes(os.urandom(32))
    with pytest.raises(IntegrityError, match="another master key"):
        keys.existing("acme", "g")
    monkeypatch.delenv(MASTER)
    with pytest.raises(IntegrityError, match="wrapped by a master key"):
        keys.existing("acme", "g")


@pytest.mark.parametrize("content", [None, b"", b"short", b"z" * 64])
def test_a_master_key_that_is_none_is_refused(tmp_path, monkeypatch, content):
    place = tmp_path / "master"
    if content is not None:
        place.write_bytes(content)
    monkeypatch.setenv(MASTER, str(place))
    with pytest.raises(IntegrityError, match=MASTER):
        Keys(tmp_path).get("acme", "g")
    assert not (tmp_path / "keys/acme/g.key").exists()


def test_every_grant_has_a_folder_name_of_its_own():
    names = ["g", "g-1_2", "G", "a/b", "..", "_g", "", "g" * 64, "ü", "g.key"]
    folders = [folder_of(name) for name in names]
    assert folders[:2] == ["g", "g-1_2"]
    assert len(set(folders)) == len(names)
    assert all("/" not in folder and "." not in folder for folder in folders)
