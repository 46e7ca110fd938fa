"""Instance ids of public benchmarks: which repo and which report they name."""

import pytest

from ratchet.intake.tasks import instance_claims, url_claims


@pytest.mark.parametrize(
    ("instance", "repo", "issue"),
    [
        ("django__django-12345", "django/django", "django/django#12345"),
        ("scikit-learn__scikit-learn-13439", "scikit-learn/scikit-learn", "scikit-learn/scikit-learn#13439"),
        ("SWE-agent__test-repo-i1", "SWE-agent/test-repo", "SWE-agent/test-repo#1"),
        ("pandas-dev__pandas.95280573.pr_53652", "pandas-dev/pandas", "pandas-dev/pandas#53652"),
        ("oauthlib__oauthlib.1fd52536.combine_file__09vlzwgc", "oauthlib/oauthlib", None),
        (f"instance_owner__name-{'0a' * 20}-v{'1b' * 20}", "owner/name", None),
        ("HumanEval/12", None, None),
        ("owner__name", None, None),
    ],
)
def test_an_instance_id_names_repo_and_report(instance, repo, issue):
    claims = instance_claims(instance)
    assert (claims["task_id"], claims.get("repo"), claims.get("issue_id")) == (instance, repo, issue)


def test_an_issue_address_names_repo_and_report_and_others_nothing():
    assert url_claims("https://github.com/owner/na.me/issues/7") == {"repo": "owner/na.me", "issue_id": "owner/na.me#7"}
    assert url_claims("https://github.com/owner/name") == {}
