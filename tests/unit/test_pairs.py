"""The jobs of `make pairs`: they cover what they say, and none is impossible."""

from tests.pairs.covering import FACTORS, all_pairs, is_possible, jobs, pairs_of


def test_the_jobs_of_a_seed_cover_all_pairs():
    made = jobs(seed=3, at_least=1)
    assert set().union(*map(pairs_of, made)) == all_pairs()
    assert all(is_possible(job) and list(job) == list(FACTORS) for job in made)
    assert made == jobs(seed=3, at_least=1)
