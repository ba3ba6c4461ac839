"""Capabilities with their levels, and jobs in which every pair of levels meets at least once.

The array is made greedily: each new job is the best of many candidates. A seed decides all of it.
"""

import random
from itertools import combinations

FACTORS = {
    "spark": ("3.5.9", "4.0.2", "4.1.4", "4.3.0"),
    "api": ("batch", "stream", "write", "batch_writer"),
    "guarantee": ("at-least-once", "exactly-once"),
    "format": ("raw", "json", "avro", "protobuf"),
    "key": ("none", "unique", "few"),
    "codec": ("none", "gzip", "snappy", "lz4", "zstd"),
    "dead_letters": ("off", "on"),
    "interceptor": ("none", "changes text"),
    "partitioner": ("default", "own function", "column"),
    "rate": ("none", "limited"),
    "listener": ("PLAINTEXT", "TLS", "SCRAM", "PLAIN"),
    "delivery": ("idempotent", "acks all", "acks 1"),
    "in_flight": ("1", "5"),
    "topic": ("option", "column"),
    "headers": ("none", "column"),
    "batch_size": ("512", "16384", "1048576"),
    "memory": ("2097152", "33554432"),
}
_IMPOSSIBLE = (
    ({"spark": "3.5.9"}, {"api": "batch"}),  # Python data sources came with Spark 4.0
    ({"spark": "3.5.9"}, {"api": "stream"}),
    ({"guarantee": "exactly-once"}, {"delivery": "acks all"}),
    ({"guarantee": "exactly-once"}, {"delivery": "acks 1"}),
)
_CANDIDATES = 60


def is_possible(job):
    """Whether no two levels of the job exclude each other. A job may lack factors."""
    return not any(_has(job, first) and _has(job, second) for first, second in _IMPOSSIBLE)


def _has(job, levels):
    return all(job.get(factor) == level for factor, level in levels.items())


def pairs_of(job):
    """All pairs of levels that meet in a job."""
    return {frozenset(pair) for pair in combinations(job.items(), 2)}


def all_pairs():
    """All pairs of levels of two factors that can meet."""
    pairs = set()
    for (one, levels), (other, others) in combinations(FACTORS.items(), 2):
        for level in levels:
            for second in others:
                if is_possible({one: level, other: second}):
                    pairs.add(frozenset({(one, level), (other, second)}))
    return pairs


def jobs(seed, at_least):
    """Jobs that cover all pairs, and further ones until there are ``at_least``."""
    rng = random.Random(seed)
    missing = all_pairs()
    made = []
    while missing or len(made) < at_least:
        candidates = [_candidate(rng, missing) for _ in range(_CANDIDATES)]
        best = max(candidates, key=lambda job: len(pairs_of(job) & missing))
        missing -= pairs_of(best)
        made.append({factor: best[factor] for factor in FACTORS})
    return made


def _candidate(rng, missing):
    """A possible job; the first two levels are a pair that is missing, if there is one."""
    in_order = sorted(missing, key=sorted)
    while True:
        job = dict(rng.choice(in_order)) if in_order else {}
        for factor in rng.sample(list(FACTORS), len(FACTORS)):
            if factor not in job:
                levels = [one for one in FACTORS[factor] if is_possible({**job, factor: one})]
                if not levels:
                    break
                gains = {
                    one: sum(frozenset({(factor, one), met}) in missing for met in job.items())
                    for one in levels
                }
                best = [one for one in levels if gains[one] == max(gains.values())]
                job[factor] = rng.choice(best)
        else:
            return job
