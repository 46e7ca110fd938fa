"""Near-duplicate search and the contamination check: exact counting beside datasketch, and both at the loop's size.

Run with `python benchmarks/near_duplicates.py [DOCUMENTS]` (default 10,000 of about 2.5 kB, one in ten a near copy of
an earlier one). Prints one line per method with the CPU time end to end, from text to verified pairs (both use one
thread), and the recall against brute force over all pairs of a sample of the copies; then the times of `lock` and of
`check`.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import Splits
from ratchet.splits import Document, check, lock, select
from ratchet.splits.text import SHINGLE, Index, grams, hash_words, words

THRESHOLD = 0.8
Pairs = set[tuple[int, int]]


def corpus(count: int, seed: int = 0) -> list[str]:
    """Texts of about 400 words drawn by Zipf's law; one in ten copies an earlier one with 1-30 words replaced."""
    numbers = np.random.default_rng(seed)
    shuffler = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = ["".join(shuffler.choices(letters, k=shuffler.randint(3, 9))) for _ in range(30_000)]
    ranks = numbers.zipf(1.2, size=(count, 400)) % len(vocabulary)
    texts: list[list[str]] = []
    for at in range(count):
        text = [vocabulary[rank] for rank in ranks[at]]
        if at and at % 10 == 0:
            text = list(texts[shuffler.randrange(at)])
            for place in shuffler.sample(range(400), shuffler.randint(1, 30)):
                text[place] = shuffler.choice(vocabulary)
        texts.append(text)
    return [" ".join(text) for text in texts]


def exact_index(texts: list[str]) -> Pairs:
    """The inverted index of `ratchet.splits`: every shared 5-gram is counted."""
    sets = [np.unique(grams(hash_words(words(text)), SHINGLE)) for text in texts]
    index = Index(sets)
    pairs: Pairs = set()
    for right, own in enumerate(sets):
        found, shared = index.shared(own)
        similar = found[shared >= THRESHOLD * (index.sizes[found] + len(own) - shared)]
        pairs.update((left, right) for left in similar.tolist() if left < right)
    return pairs


def shingle_sets(texts: list[str]) -> list[set[str]]:
    found = []
    for text in texts:
        tokens = words(text)
        found.append({" ".join(tokens[at : at + SHINGLE]) for at in range(len(tokens) - SHINGLE + 1)})
    return found


def verified(sets: list[set[str]], candidates: Pairs) -> Pairs:
    return {
        (left, right)
        for left, right in candidates
        if len(sets[left] & sets[right]) >= THRESHOLD * len(sets[left] | sets[right])
    }


def datasketch_default(texts: list[str]) -> Pairs:
    """datasketch's MinHashLSH at its default setting (threshold 0.8, 128 permutations), candidates verified exactly."""
    from datasketch import MinHash, MinHashLSH

    sets = shingle_sets(texts)
    lookup = MinHashLSH(threshold=THRESHOLD, num_perm=128)
    candidates: Pairs = set()
    for right, own in enumerate(sets):
        signature = MinHash(num_perm=128)
        signature.update_batch([one.encode() for one in own])
        candidates.update((left, right) for left in lookup.query(signature))
        lookup.insert(right, signature)
    return verified(sets, candidates)


def timed(method: Callable[[list[str]], Pairs], texts: list[str], truth: Pairs) -> float:
    start = time.process_time()
    found = method(texts)
    seconds = time.process_time() - start
    recall = len(found & truth) / len(truth)
    rate = len(texts) / seconds
    print(
        f"{method.__name__:20} {seconds:7.2f} s CPU  {rate:6.0f} documents/s  recall {recall:.3f}  pairs {len(found)}"
    )
    return seconds


def main(count: int) -> None:
    texts = corpus(count)
    sets = shingle_sets(texts)
    copies = list(range(10, count, 10))[:100]
    truth = {
        (min(left, right), max(left, right))
        for right in copies
        for left in range(count)
        if left != right and len(sets[left] & sets[right]) >= THRESHOLD * len(sets[left] | sets[right])
    }
    print(
        f"{count} documents, {sum(map(len, texts)) / count / 1000:.1f} kB each, {len(truth)} true pairs in the sample"
    )
    ours = timed(exact_index, texts, truth)
    theirs = timed(datasketch_default, texts, truth)
    print(f"exact_index is {theirs / ours:.1f} times as fast")
    check_at_the_size_of_the_loop()


def check_at_the_size_of_the_loop() -> None:
    """1,160 tasks of 116 repos and 3,000 training documents that quote a train task each, with code."""
    texts, others = corpus(1_160 + 116, seed=1), corpus(1_160, seed=2)
    source = (
        "def work(items):\n    total = {}\n    for item in items:\n"
        "        if item > {}:\n            total += item * {}\n    return total\n"
    )
    tasks = [
        Task(
            task_id=f"bench/{at % 116}@{at}",
            prompt=f"{' '.join(texts[1_160 + at % 116].split()[:150])} {' '.join(texts[at].split()[:40])}",
            repo=f"bench/{at % 116}",
            issue_id=f"bench/{at % 116}#{at}",
            segment="ab"[at % 2],
            payload={"source": source.format(at % 116, at, at)},
            environment="bench",
            environment_version="1",
        )
        for at in range(1_160)
    ]
    rule = Splits(train=500, validation=100, heldout=300)
    start = time.process_time()
    locked = lock(tasks, rule, seed=0, at=datetime(2026, 1, 1, tzinfo=UTC), manifest_digest="0" * 64)
    print(f"lock of {len(tasks)} tasks: {time.process_time() - start:.2f} s CPU, groups {locked.groups}")
    train = select(locked, tasks, "train")
    documents = [
        Document(
            name=f"d{at}",
            source="bench",
            text=f"{train[at % 500].prompt} {others[at % 1_160]}",
            code=(train[at % 500].payload["source"],),
            identifiers=(train[at % 500].repo,),
        )
        for at in range(3_000)
    ]
    start = time.process_time()
    certificate = check(locked, tasks, documents)
    findings = {layer.layer: layer.findings for layer in certificate.layers}
    print(f"check of {len(documents)} documents: {time.process_time() - start:.2f} s CPU, findings {findings}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
