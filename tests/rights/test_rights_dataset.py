"""Authorised datasets: all or nothing, asked again, and opened only unchanged."""

from datetime import UTC, datetime, timedelta

import pytest

from ratchet.contracts.manifest import Manifest
from ratchet.errors import IntegrityError, RightsError
from ratchet.rights import AuthorisedDataset, Event, Ledger, authorise, recheck, record_grants, reopen

START = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
A, B = "a" * 64, "b" * 64


def event(kind, name="g", tenant="acme", **fields):
    return Event(kind=kind, grant_id=name, tenant=tenant, **{"by": "owner", "at": START} | fields)


def grant(ledger, name, tenant="acme", purposes=("train_sft",), bases=("small",), days=90):
    until = START + timedelta(days=days)
    ledger.append(event("grant", name, tenant, purposes=purposes, base_models=bases, retention_until=until))


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger.at_home(tmp_path)
    grant(ledger, "g")
    return ledger


def ask(ledger, records=((B, "g"), (A, "g")), at=START + DAY, **over):
    use = {"purpose": "train_sft", "tenant": "acme", "base_model": "small", "manifest_digest": "0" * 64} | over
    return authorise(ledger, records, at=at, **use)


def test_it_lists_its_records_sorted_and_once(ledger):
    dataset = ask(ledger, [(B, "g"), (A, "g"), (B, "g")])
    assert dataset.records == ((A, "g"), (B, "g"))
    assert (dataset.grant_ids, dataset.ledger_head) == (("g",), ledger.head)


@pytest.mark.parametrize(
    ("name", "over", "rule"),
    [
        ("missing", {}, "knows no such grant"),
        ("expired", {}, "expired on 2030-01-02"),
        ("withdrawn", {}, "withdrawn on 2030-01-01"),
        ("foreign", {}, "another tenant"),
        ("g", {"purpose": "train_rl"}, "does not cover the purpose 'train_rl'"),
        ("g", {"base_model": "large"}, "does not cover the base model 'large'"),
    ],
)
def test_one_record_without_right_refuses_the_dataset_by_the_grant_s_name(ledger, name, over, rule):
    grant(ledger, "expired", days=1)
    grant(ledger, "withdrawn")
    grant(ledger, "foreign", tenant="other")
    ledger.append(event("withdraw", "withdrawn"))
    with pytest.raises(RightsError, match=f"grant '{name}'.*{rule}"):
        ask(ledger, [(A, "g"), (B, name)], **over)


def test_no_records_are_no_dataset(ledger):
    with pytest.raises(RightsError, match="at least one record"):
        ask(ledger, [])


def test_a_withdrawal_by_another_process_stops_the_next_epoch(ledger):
    dataset = ask(ledger)
    recheck(ledger, dataset, START + DAY)
    Ledger(ledger.path).append(event("withdraw", at=START + 2 * DAY))
    with pytest.raises(RightsError, match=r"grant 'g'.*withdrawn"):
        recheck(ledger, dataset, START + 2 * DAY)


def test_time_alone_ends_a_dataset(ledger):
    dataset = ask(ledger)
    with pytest.raises(RightsError, match="expired"):
        recheck(ledger, dataset, START + 90 * DAY)


def test_another_ledger_with_the_same_grants_does_not_vouch_for_it(ledger, tmp_path):
    dataset = ask(ledger)
    other = Ledger.at_home(tmp_path / "other")
    other.append(event("grant", purposes=("train_sft",), base_models=("*",), retention_until=START + 99 * DAY))
    with pytest.raises(IntegrityError, match="beginning of this one"):
        recheck(other, dataset, START + DAY)


def test_it_reads_back_unchanged_and_opens_nothing_when_changed(ledger):
    dataset = ask(ledger)
    assert reopen(dataset.to_bytes(), "stored") == dataset
    with pytest.raises(IntegrityError, match="digest"):
        reopen(dataset.to_bytes().replace(B.encode(), b"c" * 64), "stored")


def test_nobody_else_can_make_one(ledger):
    fields = {name: getattr(ask(ledger), name) for name in AuthorisedDataset.model_fields}
    with pytest.raises(IntegrityError, match=r"only by ratchet\.rights"):
        AuthorisedDataset(**fields)


def manifest(tenant="acme", **grant_fields):
    from ratchet.contracts.manifest import Grant

    asked = Grant(grant_id="logs", purposes=("train_sft",), retention_days=90, signed_by="owner", **grant_fields)
    return Manifest.model_construct(experiment="x", tenant=tenant, grants=(asked,))


def test_a_manifest_s_grants_are_recorded_once_so_that_a_withdrawal_stays(ledger):
    assert record_grants(ledger, manifest(), START) == ["logs"]
    ledger.append(event("withdraw", "logs", at=START + DAY))
    assert record_grants(ledger, manifest(), START + 2 * DAY) == []
    assert ledger.effective("logs", START + 2 * DAY).state == "withdrawn"


def test_a_manifest_cannot_take_another_tenant_s_grant(ledger):
    record_grants(ledger, manifest(), START)
    with pytest.raises(RightsError, match=r"grant 'logs'.*another tenant"):
        record_grants(ledger, manifest(tenant="other"), START)
