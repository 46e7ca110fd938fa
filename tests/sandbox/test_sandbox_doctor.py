"""`diagnose()` really probes: every finding is ok here, and each broken part is named with a remedy."""

from __future__ import annotations

import pytest

from ratchet.sandbox import diagnose, doctor, launch


def test_this_machine_can_run_the_sandbox() -> None:
    findings = diagnose()
    assert [finding for finding in findings if not finding.ok] == []
    assert findings[-1].name == "isolation"


def test_missing_interpreter_is_named_and_stops_the_last_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_INTERPRETERS", ("/usr/bin/no-python",))
    findings = {finding.name: finding for finding in diagnose()}
    assert not findings["system python"].ok
    assert "apt-get install python3" in findings["system python"].remedy
    assert "isolation" not in findings


def test_missing_libseccomp_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> bytes:
        raise RuntimeError("Unable to find libseccomp")

    monkeypatch.setattr(doctor, "filter_program", missing)
    findings = {finding.name: finding for finding in diagnose()}
    assert not findings["seccomp"].ok
    assert "libseccomp2" in findings["seccomp"].remedy


def test_sandbox_with_a_hole_is_not_called_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    hole = doctor._BREAKOUT.model_copy(update={"source": "def attempts(): return ['host files']"})
    monkeypatch.setattr(doctor, "_BREAKOUT", hole)
    isolation = diagnose()[-1]
    assert not isolation.ok
    assert "host files" in isolation.detail


def test_old_landlock_is_said_and_not_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratchet.sandbox.inside.landlock.abi", lambda: 1)
    landlock = next(finding for finding in diagnose() if finding.name == "landlock")
    assert landlock.ok
    assert "6.12" in landlock.remedy
