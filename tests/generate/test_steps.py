"""The steps of the sampler, against a second implementation in numpy and against their rules by
hand; what the sampler remembers; orders of steps.
"""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_steps import ORDER, Reference, longest_repetition
from test_sampler import OFF, candidates, dense

from sluice.faults import Error
from sluice.generate.sampler import Sampler, splitmix64
from sluice.generate.settings import STEPS

N_VOCAB = 80
# Settings of each step whose borders no coarse record can meet exactly: there two roundings of the
# same real number may differ.
CHOICES = {
    "temperature": [0, 0.3, 0.8, 1, 2.5],
    "dynatemp_range": [0, 0, 0.4, 2],
    "dynatemp_exponent": [0, 0.5, 1, 3],
    "top_k": [0, 1, 3, 40],
    "top_p": [0.137, 0.871, 1],
    "min_p": [0, 0.0123, 0.31],
    "typical": [0.0371, 0.433, 0.9137, 1, 1],
    "top_nsigma": [-1, -1, 0.37, 1.231, 2.713],
    "xtc_probability": [0, 0.5, 1],
    "xtc_threshold": [0.0213, 0.0931, 0.307, 0.7],
    "repeat": [1, 1.3, 0.7],
    "presence": [0, 0.5, -1],
    "frequency": [0, 0.2],
    "last_n": [0, 3, 64],
    "dry_multiplier": [0, 0.8, 3.5],
    "dry_base": [1, 1.75, 4],
    "dry_allowed_length": [1, 2, 5],
    "dry_last_n": [-1, 0, 7, 64],
    "mirostat_entropy": [1.5, 3.3, 5],
    "mirostat_rate": [0.1, 0.7],
    "mirostat_mu": [None, -3.1, 2.7],
}
BREAKERS = [(7,), (3, 4), (5, 5, 6)]


def some_logits(rng, n):
    """n f32 logits: spread, flat, or coarse so that there are ties."""
    kind = rng.randrange(3)
    if kind == 0:
        return [float(np.float32(rng.gauss(0, 3))) for _ in range(n)]
    if kind == 1:
        return [rng.randrange(-9, 10) / 4 for _ in range(n)]
    return [float(np.float32(-2.3 * math.log(i + 2) + rng.gauss(0, 0.1))) for i in range(n)]


def compare(rng, trial, mirostat=0, n_records=6, order=None, **chosen):
    """Both samplers choose the same tokens of a text of random records."""
    settings = {name: rng.choice(values) for name, values in CHOICES.items()}
    settings.update(mirostat=mirostat, **chosen)
    least, seed = rng.random() < 0.2, rng.getrandbits(64)
    order = order or STEPS
    bias = rng.choice([{}, {0: 2.5, 5: -1.25}, {1: -math.inf, 2: 3.0}])
    ours = Sampler(
        N_VOCAB, seed=seed, least=least, order=order, bias=bias, dry_breakers=BREAKERS, **settings
    )
    theirs = Reference(
        N_VOCAB, seed=seed, least=least, order=order, bias=bias, breakers=BREAKERS, **settings
    )
    pos, prev = rng.randrange(50), -1
    for _ in range(n_records):
        n = rng.choice([2, 5, 17, N_VOCAB])
        ids = sorted(rng.sample(range(N_VOCAB), n))
        record = list(zip(ids, some_logits(rng, n)))
        got = ours.choose(candidates(record, pos, prev))[0]
        want = theirs.choose(record, pos, prev)
        assert got == want, (trial, settings, order)
        if mirostat:
            assert abs(ours.mu - theirs.mu) < 1e-6
        pos += 1
        # few tokens, so that repetitions are common; and sometimes another text
        prev = rng.choice([got, *range(9), -1])


@pytest.mark.parametrize("step", ["all", *(step for step in STEPS if step != "least")])
def test_step_equals_the_rule_in_numpy(step):
    """Alone, and all together."""
    rng = random.Random(step)
    for trial in range(150):
        compare(rng, trial, order=None if step == "all" else (step,))


def test_any_order_of_steps_equals_the_rule():
    rng = random.Random(1)
    for trial in range(400):
        compare(rng, trial, order=rng.sample(ORDER, rng.randrange(1, len(ORDER) + 1)))


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_equals_the_rule(version):
    rng = random.Random(version)
    for trial in range(200):
        compare(rng, trial, mirostat=version, n_records=12)


def test_default_order_is_that_of_the_reference():
    assert list(STEPS) == ORDER


# The rules by hand ------------------------------------------------------------------------


def left_by(logits, n_seeds=400, **options):
    """The tokens that are ever chosen from `logits`."""
    return {
        Sampler(len(logits), seed=seed, **{"temperature": 1, **OFF, **options}).choose(
            dense(logits)
        )[0]
        for seed in range(n_seeds)
    }


LOGITS = [math.log(p) for p in (0.5, 0.25, 0.15, 0.07, 0.03)]


def test_typical_prefers_the_surprise_nearest_to_the_entropy():
    """The entropy is 1.28 nats; -ln p is 0.69, 1.39, 1.90, 2.66 and 3.51."""
    assert left_by(LOGITS, typical=0.2) == {1}
    assert left_by(LOGITS, typical=0.3) == {0, 1}
    assert left_by(LOGITS, typical=0.8) == {0, 1, 2}
    assert left_by(LOGITS, typical=1) == {0, 1, 2, 3, 4}


def test_typical_of_equal_logits_takes_the_lower_tokens():
    assert left_by([1.0] * 8, typical=0.2) == {0, 1}
    assert left_by([1.0] * 4, typical=0.5) == {0, 1, 2}  # more than 0.5,
    assert left_by([1.0] * 4, top_p=0.5) == {0, 1}  # 0.5 or more


def test_top_nsigma_is_a_distance_in_standard_deviations():
    logits = [0.0, -1.0, -2.0, -3.0]  # deviation 1.118
    assert left_by(logits, top_nsigma=0.8) == {0}
    assert left_by(logits, top_nsigma=1) == {0, 1}
    assert left_by(logits, top_nsigma=2) == {0, 1, 2}
    assert left_by(logits, top_nsigma=0) == {0, 1, 2, 3}
    assert left_by([2.5] * 4, top_nsigma=0.01) == {0, 1, 2, 3}


def test_xtc_leaves_the_least_likely_of_the_top():
    assert left_by(LOGITS, xtc_probability=1, xtc_threshold=0.1) == {2, 3, 4}
    assert left_by(LOGITS, xtc_probability=1, xtc_threshold=0.2) == {1, 2, 3, 4}
    assert left_by(LOGITS, xtc_probability=1, xtc_threshold=0.3) == {0, 1, 2, 3, 4}
    assert left_by(LOGITS, xtc_probability=1, xtc_threshold=0) == {4}
    assert left_by(LOGITS, xtc_probability=1, xtc_threshold=0.1, temperature=0) == {2}


def test_xtc_excludes_with_its_probability_whatever_is_chosen():
    """The number for it is not the one for the choice."""
    n, excluded, low = 4000, 0, 0
    for pos in range(n):
        sampler = Sampler(5, seed=3, temperature=0, xtc_probability=0.25, **OFF)
        is_excluded = sampler.choose(dense(LOGITS, pos))[0] == 2
        excluded += is_excluded
        low += is_excluded and splitmix64(3, pos) < 1 << 63
    assert abs(excluded / n - 0.25) < 0.025 and abs(low / excluded - 0.5) < 0.05


def test_dynamic_temperature_follows_the_entropy():
    """A flat record gets T + R, a certain one T - R: at 0 it is greedy."""
    flat, sharp = [0.0] * 8, [40.0] + [0.0] * 7
    assert left_by(flat, dynatemp_range=1) == set(range(8))
    assert left_by(sharp, dynatemp_range=1) == {0}
    chosen = [
        Sampler(
            3, seed=seed, temperature=0.5, dynatemp_range=0.5, dynatemp_exponent=0, **OFF
        ).choose(dense([1.0, 0.5, 0.0]))[0]
        for seed in range(300)
    ]
    at_one = [
        Sampler(3, seed=seed, temperature=1, **OFF).choose(dense([1.0, 0.5, 0.0]))[0]
        for seed in range(300)
    ]
    assert chosen == at_one  # any share of the entropy to the power of 0 is 1


def after(tokens, logits, **options):
    """The token chosen behind the text `tokens`, greedily."""
    sampler = Sampler(len(logits), temperature=0, **{**OFF, **options})
    sampler.read(tokens)
    return sampler.choose(dense(logits))[0]


def test_dry_penalises_what_would_continue_a_repetition():
    text = [0, 1, 2, 3, 9, 0, 1, 2]  # 3 would make it four tokens: 0.8 * 1.75^(3 - 2) = 1.4
    logits = [0.0, 0, 0, 1.5, 0, 0, 0, 0, 0, 0]
    assert after(text, logits, dry_multiplier=0.8) == 3
    logits[3] = 1.3
    assert after(text, logits, dry_multiplier=0.8) == 0
    assert after(text, logits, dry_multiplier=0.8, dry_allowed_length=4) == 3
    logits[3] = 0.9
    assert after(text, logits, dry_multiplier=0.8) == 0
    assert after(text, logits, dry_multiplier=0.8, dry_last_n=7) == 3  # 1 2 are two tokens: 0.8
    logits[3] = 0.7
    assert after(text, logits, dry_multiplier=0.8, dry_last_n=7) == 0


def test_dry_stops_at_breakers_and_spares_them():
    text = [0, 1, 2, 3, 9, 0, 1, 2]
    logits = [0.0, 0, 0, 0.5, 0, 0, 0, 0, 0, 0]
    dry = dict(dry_multiplier=8, dry_allowed_length=2)
    assert after(text, logits, **dry) == 0
    assert after(text, logits, **dry, dry_breakers=[(1,)]) == 3  # one token after it
    assert after(text, logits, **dry, dry_breakers=[(9, 0)]) == 0
    assert after(text, logits, **dry, dry_breakers=[(0, 1)]) == 3
    assert after(text, logits, **dry, dry_breakers=[(3,)]) == 3  # itself a breaker
    logits[3] = 0.9  # against 0.8 for two tokens after the breaker, 1.4 for three
    assert after(text, logits, dry_multiplier=0.8, dry_breakers=[(0,)]) == 3
    assert after(text, logits, dry_multiplier=0.8) == 0


def test_dry_does_not_go_on_across_the_border_of_two_texts():
    logits = [0.0, 0, 0, 0.5, 0]
    sampler = Sampler(5, temperature=0, dry_multiplier=8, **OFF)
    for pos, prev in enumerate([-1, 0, 1, 2, 3]):
        sampler.choose(dense(logits, pos, prev))
    sampler.choose(dense(logits, 9, -1))
    sampler.choose(dense(logits, 10, 1))
    assert sampler.choose(dense(logits, 11, 2))[0] == 0  # 1 2 are of this text
    other = Sampler(5, temperature=0, dry_multiplier=8, **OFF)
    for pos, prev in enumerate([-1, 0, 1, 2, 3, 0, 1]):
        other.choose(dense(logits, pos, prev))
    other.choose(dense(logits, 20, -1))
    assert other.choose(dense(logits, 21, 2))[0] == 3  # but 0 1 | 2 is no repetition


@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.integers(1, 4),
    st.sampled_from([-1, 5, 17]),
    st.sampled_from([[], [(2,)], [(1, 3)]]),
)
def test_dry_finds_every_repetition(text, allowed, last_n, breakers):
    """Against a comparison of every pair of places; the base of 1 makes all penalties equal."""
    logits = [0.0, 0.0, 0.0, 0.0, -0.5]
    penalised = [
        longest_repetition(text, token, breakers, last_n) >= allowed and (token,) not in breakers
        for token in range(4)
    ]
    want = penalised.index(False) if False in penalised else 4
    options = dict(dry_multiplier=1, dry_base=1, dry_allowed_length=allowed, dry_last_n=last_n)
    assert after(text, logits, dry_breakers=breakers, **options) == want


@pytest.mark.parametrize("pattern", [[1], [1, 2], [1] * 500 + [2]])
def test_dry_is_linear_in_a_text_of_128k_tokens(pattern):
    """Texts that repeat themselves everywhere: a quadratic search would need hours."""
    text = (pattern * (1 << 17))[: 1 << 17]
    sampler = Sampler(5, temperature=0, dry_multiplier=5, dry_last_n=-1, **OFF)
    sampler.read(text)
    following = pattern[len(text) % len(pattern)]
    for pos in range(20):
        logits = [0.0] * 5
        logits[following] = 3e38
        assert sampler.choose(dense(logits, pos, 0 if pos else -1))[0] in (0, following)
        sampler.read(text[-200:])


def test_dry_penalty_that_overflows_leaves_finite_logits():
    sampler = Sampler(3, temperature=0, dry_multiplier=1000, dry_base=100, dry_last_n=-1, **OFF)
    sampler.read([1] * 5000)
    assert sampler.choose(dense([0.0, 3.4e38, -3.4e38]))[0] == 0
    assert sampler.choose(candidates([(1, 3.4e38)], 1, 1))[0] == 1


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_reaches_its_target(version):
    """The mean surprise of tokens from a Zipf distribution with more entropy than the target."""
    rng = random.Random(5)
    logits = [-1.05 * math.log(i + 1) + rng.gauss(0, 0.01) for i in range(2000)]
    p = np.exp(logits) / np.exp(logits).sum()
    for target in (2.0, 4.0):
        sampler = Sampler(
            2000, temperature=1, mirostat=version, mirostat_entropy=target, seed=9, **OFF
        )
        mus, surprises = [], []
        for pos in range(1500):
            mu = sampler.mu
            sampler.choose(dense(logits, pos, 0 if pos else -1))
            mus.append(sampler.mu)
            surprises.append((mu - sampler.mu) / 0.1 + target)
        assert abs(np.mean(surprises[300:]) - target) < 0.1
        assert np.isfinite(mus).all() and -(p * np.log2(p)).sum() > 6


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "logits", [[0.0] * 300, [3.4e38, -3.4e38], [1.0, 1.0], [5.0] + [-1e30] * 200, [2.0]]
)
def test_mirostat_of_extreme_records_stays_finite(version, logits):
    for mu in (-1e6, 0, 1e6):
        sampler = Sampler(len(logits), mirostat=version, mirostat_mu=mu, mirostat_rate=100)
        for pos in range(5):
            assert 0 <= sampler.choose(dense(logits, pos))[0] < len(logits)
            assert math.isfinite(sampler.mu)


def test_position_without_a_choice_does_not_move_mirostat():
    """A grammar that forces a token tells nothing about the text; a limit of mu does."""
    for version in (1, 2):
        sampler = Sampler(5, temperature=1, mirostat=version, mirostat_mu=-5)
        sampler.choose(candidates([(3, 1.0)], 0))
        assert sampler.mu == -5
        sampler.choose(candidates([(3, 1.0), (4, 0.0)], 1, 3))
        assert sampler.mu > -5


# Memory -----------------------------------------------------------------------------------


MEMORIES = [
    dict(repeat=1.4, presence=0.7, frequency=0.2, last_n=6),
    dict(dry_multiplier=2, dry_last_n=9, dry_breakers=[(3,), (1, 2)]),
    dict(dry_multiplier=2, dry_last_n=-1, presence=1, last_n=4),
    dict(mirostat=1, mirostat_entropy=2),
    dict(mirostat=2, mirostat_entropy=1.5),
]


def records(seed, n=60, n_tokens=6):
    rng = random.Random(seed)
    for pos in range(n):
        prev = rng.randrange(n_tokens) if pos % 20 else -1
        yield dense([rng.gauss(0, 1) for _ in range(n_tokens)], pos, prev)


@pytest.mark.parametrize("options", MEMORIES, ids=str)
def test_restored_state_goes_on_with_the_same_tokens(options):
    """At the border of two texts, and within one."""
    for cut in (20, 33):
        whole, first = Sampler(6, seed=8, **options), Sampler(6, seed=8, **options)
        then = Sampler(6, seed=8, **options)
        want = [whole.choose(record)[0] for record in records(2)]
        given = list(records(2))
        got = [first.choose(record)[0] for record in given[:cut]]
        then.restore(first.state())
        assert got + [then.choose(record)[0] for record in given[cut:]] == want
        assert then.mu == whole.mu


@pytest.mark.parametrize("options", MEMORIES[:3], ids=str)
def test_remembered_tokens_count_like_those_of_records(options):
    """Tokens that a grammar forces, and that come without records of their own."""
    rng = random.Random(4)
    tokens = [rng.randrange(4) for _ in range(50)]
    single, joint = Sampler(6, seed=1, **options), Sampler(6, seed=1, **options)
    logits = [0.3, 0.2, 0.1, 0.0, -0.1, -0.2]
    single.choose(dense(logits, 0))
    joint.choose(dense(logits, 0))
    for pos, token in enumerate(tokens, 1):
        single.choose(candidates([(token, 0.0)], pos, token))
    for token in tokens[:-1]:
        joint.remember(token)
    last = joint.choose(candidates([(tokens[-1], 0.0)], 50, tokens[-1]))[0]
    assert last == tokens[-1]
    for pos, token in enumerate([0, 1, 2, 0], 51):
        record = dense(logits, pos, token)
        assert single.choose(record) == joint.choose(record)


def test_forgotten_text_leaves_nothing():
    for options in MEMORIES[:3]:
        used, new = Sampler(6, seed=1, **options), Sampler(6, seed=1, **options)
        for record in records(1):
            used.choose(record)
        used.forget()
        assert [used.choose(r) for r in records(2)] == [new.choose(r) for r in records(2)]


def test_setting_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="top_q"):
        Sampler(5, top_q=1)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logit_that_is_not_finite_is_refused_by_every_chain(value):
    for options in (*MEMORIES, dict(typical=0.5), dict(xtc_probability=1), dict(top_nsigma=1)):
        with pytest.raises(Error, match="token 1 at position 3 is not finite"):
            Sampler(4, **options).choose(dense([0.0, value, 1.0, 0.0], 3))
