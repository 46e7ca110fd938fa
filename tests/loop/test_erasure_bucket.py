"""An erasure with the store on a real S3 server: a search over the bucket, every version of it, and the home."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rights_world import PARTNER, WORD, RightsWorld, now
from searching import found, found_in, needles

from ratchet.loop.erasing import certificates, erase, plan
from ratchet.loop.tracing import trace_grant


def objects(place: str) -> Iterator[tuple[str, bytes]]:
    """Every object under a place with its content, all versions, and the names of unfinished uploads."""
    import botocore.session

    client = botocore.session.get_session().create_client("s3")
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    listed = client.list_object_versions(Bucket=bucket, Prefix=prefix).get("Versions", [])
    names = {(one["Key"], one.get("VersionId")) for one in listed}
    names |= {(one["Key"], None) for one in client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])}
    for key, version in sorted(names, key=str):
        which = {"VersionId": version} if version and version != "null" else {}
        yield key, client.get_object(Bucket=bucket, Key=key, **which)["Body"].read()
    for upload in client.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
        if upload["Key"].startswith(prefix):
            yield upload["Key"], WORD.encode()


def in_bucket(place: str) -> list[str]:
    wanted = needles(WORD)
    return [key for key, content in objects(place) if found_in(key.encode(), wanted) or found_in(content, wanted)]


def test_a_search_over_bucket_and_home_finds_nothing_afterwards(
    tmp_path: Path, s3_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_STORE", s3_place)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home = tmp_path / "home"
    world = RightsWorld(home)
    assert world.store.place == s3_place
    assert [key for key in in_bucket(s3_place) if "/trajectories/" in key]
    assert found(home, WORD)
    world.event("withdraw")
    planned = plan(home, PARTNER, now())
    done = erase(home, PARTNER, by="steward", reason="asked for", at=now())
    assert in_bucket(s3_place) == []
    assert found(home, WORD) == []
    assert len(done.certificate.objects) == len(planned.items)
    assert done.certificate.affected == (world.learned.digest,)
    assert [one.digest for one in certificates(world.store, planned.right)] == [done.certificate.digest]
    assert trace_grant(home, PARTNER, now())["batches"] == []
    assert erase(home, PARTNER, by="steward", reason="asked for", at=now()).removed == 0
