"""`ratchet keys`: make a key pair, say whose keys count, retire or revoke them, and sign a version by hand."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ratchet.cli.options import HOME, Home

app = typer.Typer(help="Keys that releases are signed with, and whose signatures count.", no_args_is_help=True)

KeyName = Annotated[str, typer.Argument(metavar="KEY", help="Name of a trusted key, or the start of its id.")]


@app.command()
def new(
    file: Annotated[Path, typer.Argument(help="Where the private key goes; the public one is beside it, in .pub.")],
) -> None:
    """Make an Ed25519 key pair; RATCHET_SIGNING_PASSPHRASE encrypts the private key where it is set."""
    from ratchet.release.keys import KEY, PASSPHRASE, new_key

    made = new_key(file, passphrase=os.environ.get(PASSPHRASE) or None)
    typer.echo(f"{made.pem.strip()}\nid: {made.key_id}")
    closed = f"encrypted by {PASSPHRASE}" if os.environ.get(PASSPHRASE) else "not encrypted, readable by you alone"
    typer.echo(f"private key: {made.private} ({closed})")
    typer.echo(f"Let a home trust it with `ratchet keys trust NAME {made.public}`, and sign with {KEY}={made.private}.")


@app.command()
def trust(
    name: Annotated[str, typer.Argument(help="Whose key it is, as reports and `ratchet verify` say it.")],
    file: Annotated[Path, typer.Argument(help="PEM of the public key.", exists=True, dir_okay=False)],
    uri: Annotated[str | None, typer.Option("--uri", help="Where the private key is, if in a KMS or HSM.")] = None,
    scheme: Annotated[str | None, typer.Option("--scheme", help="Signature scheme, if not the usual one.")] = None,
    home: Home = HOME,
) -> None:
    """Let the signatures of a key count from now on."""
    from ratchet.release.trust import Trust, TrustedKey, place, read_public

    pem = file.read_bytes()
    key = TrustedKey(
        name=name,
        key_id=read_public(pem, str(file), scheme).keyid,
        public_key=pem.decode(),
        scheme=scheme,
        uri=uri,
        since=datetime.now(UTC),
    )
    Trust.of(home).adding(key).write(place(home))
    typer.echo(f"{key.label} is trusted in {place(home)}.")


@app.command()
def show(home: Home = HOME) -> None:
    """List the trusted keys, and the key that this machine signs with."""
    from ratchet.release.keys import KEY, configured_signer
    from ratchet.release.trust import Trust, place

    keys = Trust.of(home).keys
    for one in keys:
        ended = f"revoked {one.revoked:%Y-%m-%d}: {one.reason}" if one.revoked else ""
        ended = ended or (f"retired {one.until:%Y-%m-%d}" if one.until else "good")
        typer.echo(f"{one.key_id}  {one.name}  since {one.since:%Y-%m-%d}, {ended}{f', {one.uri}' if one.uri else ''}")
    if not keys:
        typer.echo(f"No key is trusted: {place(home)} has none.")
    signer = configured_signer(home)
    typer.echo(f"This machine signs with {signer.public_key.keyid[:12]}." if signer else f"{KEY} is not set.")


@app.command()
def retire(key: KeyName, home: Home = HOME) -> None:
    """End a key in good order: what it signed until now counts, later signatures do not."""
    from ratchet.release.trust import Trust, place

    known = Trust.of(home)
    found = known.find(key)
    known.replacing(found.model_copy(update={"until": datetime.now(UTC)})).write(place(home))
    typer.echo(f"{found.label} is retired: what it signed until now still counts.")


@app.command()
def revoke(
    key: KeyName, reason: Annotated[str, typer.Option("--reason", help="Why; it stays in the file.")], home: Home = HOME
) -> None:
    """End a key that others may have: nothing that it ever signed counts any more. It cannot be taken back."""
    from ratchet.release.ledger import Ledger
    from ratchet.release.states import PROMOTIONS
    from ratchet.release.trust import Trust, place

    known = Trust.of(home)
    found = known.find(key)
    at = datetime.now(UTC)
    known.replacing(found.model_copy(update={"revoked": at, "reason": reason})).write(place(home))
    typer.echo(f"{found.label} is revoked: nothing that it signed counts.")
    for version, state in Ledger.of(home).versions().values():
        if state in PROMOTIONS and version.release.signature == "required":
            typer.echo(f"  {version.label} stands in {state}: `ratchet verify {version.id[:12]}`, and sign it anew")


@app.command()
def sign(
    version: Annotated[str, typer.Argument(help="Version: the start of its id, or its policy's name.")],
    home: Home = HOME,
) -> None:
    """Verify a version's evidence, then sign it with the key in RATCHET_SIGNING_KEY."""
    from ratchet.errors import SignatureError
    from ratchet.release.evidence import latest_bundle
    from ratchet.release.export import home_source
    from ratchet.release.keys import KEY, configured_signer
    from ratchet.release.ledger import Ledger
    from ratchet.release.signing import sign_bundle
    from ratchet.release.verify import failed, verify

    entry = Ledger.of(home).find(version)
    signer = configured_signer(home)
    if signer is None:
        raise SignatureError(KEY, rule="it must name the key to sign with", remedy=f"set {KEY}, see docs/keys.md")
    source = home_source(home, entry)
    wrong = [one for one in failed(verify(source)) if one.item != "signed"]
    bundle = latest_bundle(source.store, entry.id)
    if wrong or bundle is None:
        raise SignatureError(
            f"version {entry.label}",
            seen=f"{len(wrong)} items that do not match",
            rule=f"only what verifies is signed ({wrong[0].item}: {wrong[0].words})",
            remedy=f"`ratchet verify {entry.id[:12]}` names each of them",
        )
    place = sign_bundle(source.store, bundle, signer, at=datetime.now(UTC))
    typer.echo(f"{entry.label} is signed by {signer.public_key.keyid[:12]}: {place}")
