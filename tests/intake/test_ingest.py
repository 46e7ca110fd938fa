"""Ingest: rights first, everything once, nothing half, and only manifests open the store."""

import json
import multiprocessing
import time
from datetime import timedelta

import pytest
from intake_world import NOW, chat, document, trajectory, world

from ratchet.errors import IntakeError, IntegrityError, RightsError
from ratchet.intake import index, records, trajectories, write_atif, write_openai_chat
from ratchet.intake.published import chain
from ratchet.intake.read import quarantined
from ratchet.rights import Event, authorise

BROKEN = b'{"messages": [{"role": "user", "content": NaN}]}\n'


@pytest.fixture
def home(tmp_path):
    return world(tmp_path)


def authorised(home, chosen=None):
    chosen = records(home.store, "acme") if chosen is None else chosen
    use = {"purpose": "train_sft", "tenant": "acme", "base_model": "m", "manifest_digest": "0" * 64}
    return authorise(home.ledger, chosen, at=NOW, **use)


def content(home):
    """Every file of the store by name, without locks."""
    return {name: home.store.read(name) for name in home.store.names(".")}


def test_both_formats_come_in_and_are_read_back_by_digest(home):
    logs = [trajectory(number) for number in range(6)]
    write_atif(logs[:2], home.landing / "a.jsonl")
    write_atif(logs[2:4], home.landing / "documents")
    write_openai_chat(logs[4:], home.landing / "chat.jsonl")
    report = home.ingest()
    assert (report.read, report.stored, report.duplicates, report.quarantined) == (6, 6, 0, 0)
    assert report.formats == {"atif": 3, "openai_chat": 1}
    found = list(trajectories(home.store, authorised(home)))
    assert [item.digest for item in found] == sorted(records_of(home))
    assert {item.digest for item in logs[:4]} < {item.digest for item in found}
    assert {item.ratchet.task_id for item in found} == {f"task-{number}" for number in range(6)}


def records_of(home):
    return [digest for digest, _ in records(home.store, "acme")]


def test_the_same_again_adds_nothing_under_any_name(home):
    home.land("a.jsonl", [document(0), document(1)])
    home.land("bad.jsonl", BROKEN + json.dumps(chat()).encode())
    home.ingest()
    before = content(home)
    home.land("renamed copy.jsonl", [document(1), document(0)])
    again = home.ingest(at=NOW + timedelta(days=1))
    assert (again.read, again.stored, again.duplicates, again.quarantined, again.batch) == (6, 0, 5, 1, None)
    assert content(home) == before


def test_a_bad_record_is_set_aside_with_its_place_and_costs_no_good_one(home):
    good = (json.dumps(chat()) + "\n").encode()
    home.land("x.jsonl", good + BROKEN + good.replace(b"hello", b"bye"))
    report = home.ingest()
    assert (report.read, report.stored, report.quarantined, report.reasons) == (3, 2, 1, {"not_finite": 1})
    (entry,) = quarantined(home.store, chain(home.store, "acme"))
    assert (entry["source"], entry["number"], entry["offset"]) == ("x.jsonl", 1, len(good))
    assert entry["reason"].startswith("it holds NaN")


def test_an_unknown_format_is_refused_and_the_rest_goes_on(home):
    home.land("readme.md", b"# notes")
    home.land(".hidden", b"x")
    home.land("x.json", chat())
    report = home.ingest()
    assert (report.stored, report.reasons) == (1, {"unrecognised_format": 1})


def test_a_format_can_be_named(home):
    path = home.land("x.json", chat(resourceSpans=[]))
    assert home.ingest().reasons == {"unrecognised_format": 1}
    assert home.ingest(path, format="openai_chat").stored == 1
    with pytest.raises(IntakeError, match=r"must be one of atif, .*openai_chat"):
        home.ingest(path, format="tarot")


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"grant_id": "none"}, "no such grant"),
        ({"grant_id": "theirs"}, "another tenant"),
        ({"at": NOW + timedelta(days=90)}, "expired"),
    ],
)
def test_without_a_right_nothing_is_stored(home, options, rule):
    home.land("x.json", chat())
    with pytest.raises(RightsError, match=rule):
        home.ingest(**options)
    assert content(home) == {}


def test_a_withdrawn_grant_takes_in_nothing_more(home):
    home.ledger.append(Event(kind="withdraw", grant_id="g", tenant="acme", by="owner", at=NOW))
    home.land("x.json", chat())
    with pytest.raises(RightsError, match="withdrawn"):
        home.ingest()
    assert content(home) == {}


def test_a_withdrawal_while_the_files_are_being_read_still_counts(home):
    home.land("x.jsonl", [document(0), document(1)])

    def withdraw(_):
        if len(home.ledger.history("g")) == 1:
            withdrawal = Event(
                kind="withdraw", grant_id="g", tenant="acme", by="owner", at=NOW + timedelta(milliseconds=1)
            )
            home.ledger.append(withdrawal)
            time.sleep(0.002)

    with pytest.raises(RightsError, match="withdrawn"):
        home.ingest(progress=withdraw)
    assert content(home) == {}


@pytest.mark.parametrize("claim", [{"tenant": "other"}, {"grant_id": "theirs"}])
def test_a_record_that_claims_another_tenant_or_grant_is_kept_nowhere(home, claim):
    stranger = chat({"role": "user", "content": "their words"}, metadata={"ratchet": claim})
    home.land("x.jsonl", [chat(), stranger])
    report = home.ingest()
    assert (report.stored, report.quarantined) == (1, 1)
    assert not any(b"their words" in data for data in content(home).values())
    (entry,) = quarantined(home.store, chain(home.store, "acme"))
    assert entry["code"].startswith("foreign_")
    assert entry["content_base64"] is None


def test_tenants_do_not_see_each_other(home):
    home.land("x.json", chat())
    home.ingest()
    home.ingest(tenant="other", grant_id="theirs")
    assert all(name.startswith(("acme/", "other/")) for name in content(home))
    (mine,), (other,) = records(home.store, "acme"), records(home.store, "other")
    with pytest.raises(IntegrityError, match="must be in the store of 'acme'"):
        list(trajectories(home.store, authorised(home, [(other[0], "g")])))
    assert mine != other


def test_the_index_says_what_was_logged_and_filters_find_it(home):
    home.land("a.jsonl", [document(0), document(1)])
    home.ingest()
    home.land("b.jsonl", [trajectory(2, segment="rare").model_dump(mode="json", exclude_none=True)])
    home.ingest(at=NOW + timedelta(days=1))
    frame = index(home.store, "acme")
    assert list(frame["task_id"]) == ["task-0", "task-1", "task-2"]
    row = frame.iloc[2]
    assert (row["calls"], row["steps"], row["score_kind"], row["score"], row["source"]) == (
        1,
        3,
        "scored",
        0.5,
        "b.jsonl#0",
    )
    assert row["retention_until"] == NOW + timedelta(days=90)
    assert (frame["ingested_at"].iloc[2] - frame["ingested_at"].iloc[0]).days == 1
    assert [digest for digest, _ in records(home.store, "acme", segment="rare")] == [row["digest"]]
    assert len(records(home.store, "acme", seed=[0, 2], grant_id="g")) == 2
    with pytest.raises(IntakeError, match="no such column"):
        records(home.store, "acme", colour="red")


def test_an_empty_store_has_an_empty_index(home):
    assert len(index(home.store, "acme")) == 0
    assert records(home.store, "acme", segment="s") == []


def test_copied_context_is_not_counted(home):
    body = document()
    body["steps"][1]["is_copied_context"] = True
    home.land("x.json", body)
    home.ingest()
    row = index(home.store, "acme").iloc[0]
    assert (row["calls"], row["steps"], row["copied_steps"]) == (0, 2, 1)


@pytest.mark.parametrize("kind", ["trajectories", "index", "manifests"])
def test_a_changed_file_is_noticed_before_anything_is_read_from_it(home, kind):
    home.land("x.json", document())
    home.ingest()
    dataset = authorised(home)
    (name,) = home.store.names(f"acme/{kind}")
    path = home.store.path(name)
    path.write_bytes(path.read_bytes().replace(b"g", b"h", 1))

    def look() -> None:
        list(trajectories(home.store, dataset))
        index(home.store, "acme")

    with pytest.raises(IntegrityError, match=kind):
        look()


def test_files_that_no_manifest_names_do_not_exist(home):
    home.land("x.json", document())
    home.ingest()
    (name,) = home.store.names("acme/index")
    home.store.create("acme/index/stray.parquet", home.store.read(name))
    home.store.create("acme/manifests/stray.json", b"{}")
    assert len(index(home.store, "acme")) == 1


def _ingest(home_path, name):
    home = world(home_path)
    home.ingest(home.landing / name)


def test_racing_ingests_both_come_in_and_share_what_they_share(home):
    home.land("a.jsonl", [document(number) for number in range(20)])
    home.land("b.jsonl", [document(number) for number in range(10, 30)])
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_ingest, args=(home.home, name)) for name in ("a.jsonl", "b.jsonl")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    frame = index(home.store, "acme")
    assert sorted(frame["seed"].astype(int)) == list(range(30))


def test_a_source_that_does_not_exist_is_an_error(home):
    with pytest.raises(IntakeError, match="file or a folder"):
        home.ingest(home.landing / "nothing")


def test_a_link_in_a_landing_folder_leads_nowhere(home, tmp_path):
    (tmp_path / "elsewhere.json").write_text(json.dumps(chat()))
    (home.landing / "x.json").symlink_to(tmp_path / "elsewhere.json")
    assert home.ingest().sources == 0


def test_a_grant_that_was_narrowed_to_nothing_takes_nothing_in(home):
    home.ledger.append(Event(kind="narrow", grant_id="g", tenant="acme", purposes=(), by="owner", at=NOW))
    home.land("x.json", chat())
    with pytest.raises(RightsError, match="no purpose remained"):
        home.ingest()


def test_a_reader_that_fails_costs_its_source_and_not_the_others(home, monkeypatch):
    from ratchet.intake.formats import atif

    def failing(data, source):
        raise RuntimeError("the words of the log")
        yield

    home.land("a.json", document())
    home.land("b.json", chat())
    monkeypatch.setattr(atif, "read", failing)
    report = home.ingest()
    assert (report.stored, report.reasons) == (1, {"reader_failed": 1})
    (entry,) = quarantined(home.store, chain(home.store, "acme"))
    assert "the words" not in entry["reason"]


def test_a_tenant_cannot_be_a_path(home):
    with pytest.raises(IntakeError, match="slug"):
        home.ingest(tenant="../acme")


def test_counts_beyond_64_bits_are_rejected_and_a_seed_is_kept(home):
    bodies = [document(0), document(1)]
    bodies[0]["extra"]["ratchet"]["calls"] = 2**64
    bodies[1]["extra"]["ratchet"]["seed"] = 2**70
    home.land("x.jsonl", bodies)
    assert home.ingest().reasons == {"bad_metadata": 1}
    assert index(home.store, "acme")["seed"][0] == str(2**70)
