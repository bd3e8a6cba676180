"""The chain from logits to an id, against a slow plain one, and against what probability says."""

import array
import math
import random
import struct

import pytest
import reference_sampler as reference

from sluice import stream
from sluice.faults import Error
from sluice.generate.sampler import Sampler, splitmix64

OFF = dict(top_k=0, top_p=1.0, min_p=0.0)


def dense(logits, pos=0, prev=-1):
    return stream.Record(b"L", 0, pos, prev, array.array("f", logits).tobytes())


def candidates(pairs, pos=0, prev=-1):
    return stream.Record(b"C", 0, pos, prev, b"".join(struct.pack("<if", *p) for p in pairs))


def some_logits(rng, n):
    """n f32 logits: spread, or coarse so that there are ties, or of one value."""
    kind = rng.randrange(4)
    if kind == 0:
        return [reference.f32(rng.gauss(0, 4)) for _ in range(n)]
    if kind == 1:
        return [rng.randrange(-4, 5) / 2 for _ in range(n)]
    if kind == 2:
        return [rng.choice([0.0, -0.0, 1.5])] * n
    return [reference.f32(rng.choice([-1, 1]) * 10 ** rng.uniform(-6, 3)) for _ in range(n)]


NEVER = float("-inf")


def some_options(rng):
    return dict(
        temperature=rng.choice([0, 0.3, 0.8, 1, 2.5]),
        top_k=rng.choice([0, 1, 2, 5, 40, 1000]),
        top_p=rng.choice([0, 0.1, 0.5, 0.95, 1]),
        min_p=rng.choice([0, 0.01, 0.05, 0.5, 1]),
        repeat=rng.choice([1, 1.1, 0.5, 2]),
        presence=rng.choice([0, 0.5, -1]),
        frequency=rng.choice([0, 0.2]),
        bias=rng.choice(
            [{}, {}, {0: 3.5}, {0: -1e6, 2: 0.1, 999: 7.0}, {1: NEVER, 2: 5.0, 16: NEVER}]
        ),
        least=rng.random() < 0.3,
    )


def test_splitmix64_gives_the_published_numbers():
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert (
        [splitmix64(1234567, i) for i in range(5)] == published == reference.splitmix64(1234567, 5)
    )


@pytest.mark.full
def test_choose_equals_the_reference():
    rng = random.Random(1)
    for trial in range(1500):
        n = rng.choice([1, 2, 3, 17, 60])
        logits, options, seed, pos = (
            some_logits(rng, n),
            some_options(rng),
            rng.getrandbits(64),
            rng.randrange(50),
        )
        sampler, recent = Sampler(1000, seed=seed, last_n=5, **options), []
        for _ in range(3):
            prev = rng.randrange(-1, n)
            recent = (recent + [prev])[-5:] if prev >= 0 else recent
            number = splitmix64(seed, pos)
            want = reference.choose(list(enumerate(logits)), number, recent, **options)
            assert sampler.choose(dense(logits, pos, prev))[0] == want, (trial, options)
            pos += 1


def test_candidates_equal_the_reference_and_dense():
    rng = random.Random(2)
    for trial in range(700):
        n = rng.randrange(1, 50)
        tokens = sorted(rng.sample(range(1000), n))
        pairs, options, seed = (
            list(zip(tokens, some_logits(rng, n))),
            some_options(rng),
            rng.getrandbits(64),
        )
        got = Sampler(1000, seed=seed, **options).choose(candidates(pairs))[0]
        assert got == reference.choose(pairs, splitmix64(seed, 0), **options), (trial, options)
        numbered = list(enumerate(l for _, l in pairs))
        a = Sampler(1000, seed=seed, **options).choose(candidates(numbered, 3, 0), logprob=True)
        b = Sampler(1000, seed=seed, **options).choose(
            dense([l for _, l in pairs], 3, 0), logprob=True
        )
        assert a == b and tokens.index(got) < n


@pytest.mark.parametrize(
    "options",
    [
        OFF,
        dict(top_k=40),
        dict(top_k=5000, top_p=1.0),
        dict(top_k=0, top_p=0.9, min_p=0.0),
        dict(temperature=0),
    ],
)
@pytest.mark.quick_cases(1)
def test_choose_in_a_large_vocabulary_equals_the_reference(options):
    rng = random.Random(3)
    logits = [reference.f32(rng.gauss(0, 3)) for _ in range(20000)]
    sampler = Sampler(20000, seed=7, **options)
    for pos in range(2):
        want = reference.choose(list(enumerate(logits)), splitmix64(7, pos), **options)
        assert sampler.choose(dense(logits, pos))[0] == want


def chi_square(counts, weights):
    n, total = sum(counts.values()), sum(weights.values())
    assert set(counts) <= set(weights)
    return sum(
        (counts.get(i, 0) - n * w / total) ** 2 / (n * w / total) for i, w in weights.items()
    )


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature):
    rng = random.Random(4)
    logits = [reference.f32(rng.gauss(0, 1)) for _ in range(31)]
    sampler, counts = Sampler(31, temperature=temperature, seed=99, **OFF), {}
    for pos in range(30000):
        id, _ = sampler.choose(dense(logits, pos))
        counts[id] = counts.get(id, 0) + 1
    # 59.7: the value that chi-square with 30 degrees of freedom passes once in 1,000; the seed is
    # fixed
    assert chi_square(counts, {i: math.exp(l / temperature) for i, l in enumerate(logits)}) < 59.7


def test_draws_after_top_p_are_the_softmax_of_what_is_left():
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.06, 0.04)]
    sampler, counts = Sampler(5, temperature=1, top_k=0, top_p=0.85, min_p=0, seed=5), {}
    for pos in range(20000):
        id, _ = sampler.choose(dense(logits, pos))
        counts[id] = counts.get(id, 0) + 1
    assert chi_square(counts, {0: 0.4, 1: 0.3, 2: 0.2}) < 13.8  # 2 degrees of freedom, 1 in 1,000


def test_ties_go_to_the_lower_id():
    assert Sampler(9, temperature=0).choose(dense([1, 2, 0, 2, 2]))[0] == 1
    assert Sampler(9, temperature=0).choose(dense([-0.0, 0.0]))[0] == 0
    assert Sampler(9, temperature=0).choose(candidates([(3, 5.0), (8, 5.0)]))[0] == 3
    seen = {Sampler(9, top_k=2, seed=s).choose(dense([1, 1, 1, 1]))[0] for s in range(50)}
    assert seen == {0, 1}


def test_recent_ids_are_those_of_the_window():
    sampler = Sampler(4, temperature=0, presence=10, last_n=2)
    logits = [3, 2, 1, 0]
    prevs = [-1, 0, 1, 2, 3]  # after them recent is: nothing; 0; 0 1; 1 2; 2 3
    assert [sampler.choose(dense(logits, i, p))[0] for i, p in enumerate(prevs)] == [0, 1, 2, 0, 0]


def test_frequency_counts_and_presence_does_not():
    def chosen(**options):
        sampler = Sampler(4, temperature=0, **options)
        for pos in range(3):
            sampler.choose(dense([0, 0, 0, 0], pos, 0))
        return sampler.choose(dense([2.5, 0, 0, 0], 3, 0))[0]

    assert chosen(presence=1) == 0 and chosen(frequency=1) == 1


def test_bias_of_minus_infinity_is_never_chosen():
    """Not by --least either, nor where its logit is the largest; where nothing else is left, that
    is an error."""
    for least in (False, True):
        for seed in range(50):
            sampler = Sampler(
                5,
                temperature=2.0,
                top_k=0,
                top_p=1,
                min_p=0,
                seed=seed,
                bias={0: NEVER, 3: NEVER},
                least=least,
            )
            assert sampler.choose(dense([3.4e38, 0.0, 0.0, -3.4e38, 0.0]))[0] in (1, 2, 4)
    with pytest.raises(Error, match="position 0 is suppressed or has a bias of -inf") as e:
        Sampler(2, bias={0: NEVER, 1: NEVER}).choose(dense([1.0, 2.0]))
    assert e.value.code == 65
    id, log_p = Sampler(3, temperature=0, bias={0: NEVER}).choose(
        dense([9.0, 1.0, 0.0]), logprob=True
    )
    # of the record as it came
    assert id == 1 and abs(log_p - (1 - math.log(math.exp(9) + math.e + 1))) < 1e-9


def test_bias_stays_finite_and_the_least_likely_is_the_worst():
    assert Sampler(3, temperature=0, bias={1: 1e6}).choose(dense([3.4e38, 3.4028234e38, 0]))[0] == 1
    assert Sampler(3, temperature=0, least=True).choose(dense([1, -7, -7]))[0] == 1
    assert Sampler(3, temperature=0, least=True).choose(dense([1, -7, -7]), logprob=True)[1] < -8
    assert (
        Sampler(3, temperature=0, least=True, bias={1: 20.0}).choose(
            candidates([(0, 1.0), (1, -7.0)])
        )[0]
        == 0
    )


def test_penalties_stay_finite():
    sampler = Sampler(2, repeat=100, seed=1, **OFF)
    assert sampler.choose(dense([-3.0e38, -3.2e38], 0, 0))[0] == 1


def test_logprob_is_the_softmax_of_the_record():
    rng = random.Random(6)
    logits = [reference.f32(rng.gauss(0, 3)) for _ in range(1000)]
    log_total = math.log(sum(map(math.exp, logits)))
    for seed in range(200):
        sampler = Sampler(1000, temperature=2, repeat=1.5, seed=seed, **OFF)
        id, log_p = sampler.choose(dense(logits, 1, 3), logprob=True)
        assert abs(log_p - (logits[id] - log_total)) < 1e-9
    assert Sampler(9).choose(candidates([(4, -7.0)]), logprob=True) == (4, 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 7, 19])
def test_nonfinite_logit_is_named(value, at):
    logits = [0.5] * 20
    logits[at] = value
    for record in (dense(logits, 42), candidates(list(enumerate(logits)), 42)):
        for options in ({}, dict(temperature=0)):
            with pytest.raises(Error, match=f"token {at} at position 42 is not finite") as e:
                Sampler(20, **options).choose(record)
            assert e.value.code == 65


@pytest.mark.parametrize(
    "logits", [[0.0] * 262144, [3.4e38, -3.4e38] * 100, [-1e-45, 1e-45, 0.0], [5.0]]
)
@pytest.mark.parametrize("temperature", [0, 1e-310, 1e-30, 1e-3, 0.8, 1e300])
def test_extreme_records_give_an_id(logits, temperature):
    for options in (
        OFF,
        {},
        dict(top_k=1),
        dict(top_k=0, top_p=0.0),
        dict(top_k=0, min_p=1.0),
        dict(top_k=0, min_p=5e-324),
    ):
        sampler = Sampler(len(logits), **dict(options, temperature=temperature, seed=3))
        id, log_p = sampler.choose(dense(logits), logprob=True)
        assert 0 <= id < len(logits) and log_p <= 0
        if temperature <= 1e-310:
            assert logits[id] == max(logits)
