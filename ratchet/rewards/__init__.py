"""Rewards: what an outcome is worth, whether it is accepted, and whether a reward can be exploited.

`compose.judge_outcome` judges one episode and `compose.spec_digest` names the rules it was judged by; `audit.audit`
tries the honeypots on a reward before it trains anything, `policy_audit.audit_policy` looks at what a policy then did.
"""
