"""Guidance: each rule by what it promises, and beside its formula in another form; what a model is asked when."""

import math

import numpy as np
import pytest

from graphc_images.sampling import guidance
from graphc_images.sampling.guidance import DynamicThreshold, Moment, Projected
from graphc_images.sampling.guided import Conditioned, Guidance, Guided, Prompts, Weakened, Weakening
from graphc_images.sampling.levels import Path

RANDOM = np.random.default_rng(0)
X, POSITIVE, NEGATIVE, EMPTY = RANDOM.standard_normal((4, 2, 4, 8, 8))
AT = Moment(X, 2.5, POSITIVE, NEGATIVE, 7.0, 3, 20)
PLAIN = NEGATIVE + 7 * (POSITIVE - NEGATIVE)


def moment(**changes):
    return Moment(**(AT.__dict__ | changes))


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_classifier_free():
    close(guidance.classifier_free(AT), PLAIN)
    close(guidance.classifier_free(moment(scale=1.0)), POSITIVE)
    close(guidance.classifier_free(moment(scale=0.0)), NEGATIVE)


def test_composition():
    close(guidance.composed([POSITIVE], [1.0], NEGATIVE), POSITIVE)
    both = guidance.composed([POSITIVE, EMPTY], [1.0, -0.5], NEGATIVE)
    total = NEGATIVE + 7 * (POSITIVE - NEGATIVE) - 0.5 * 7 * (EMPTY - NEGATIVE)
    close(moment(positive=both).mixed(), total)


def test_guidance_with_an_image():
    close(guidance.with_image(AT, EMPTY, 1.0), PLAIN)
    close(guidance.with_image(moment(negative=POSITIVE), EMPTY, 1.5), EMPTY + 1.5 * (POSITIVE - EMPTY))


def v_of(estimate):
    root = math.hypot(1, AT.sigma)
    return (X / root**2 - estimate) * root / AT.sigma


def test_rescaling_gives_v_the_deviation_of_the_positive_one():
    close(guidance.rescaled(AT, 0.0), PLAIN)
    full = v_of(guidance.rescaled(AT, 1.0))
    close(full.std((1, 2, 3)), v_of(POSITIVE).std((1, 2, 3)))
    close(guidance.rescaled(AT, 0.7), 0.7 * guidance.rescaled(AT, 1.0) + 0.3 * PLAIN)
    close(guidance.rescaled_noise(PLAIN, POSITIVE, 1.0).std((1, 2, 3)), POSITIVE.std((1, 2, 3)))


@pytest.mark.torch
def test_rescaling_of_noise_is_diffusers():
    import torch
    from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import rescale_noise_cfg

    theirs = rescale_noise_cfg(torch.from_numpy(PLAIN), torch.from_numpy(POSITIVE), 0.7)
    close(guidance.rescaled_noise(PLAIN, POSITIVE, 0.7), theirs.numpy())


def test_perpendicular_negatives():
    """What of the negative prompt lies along the prompt does nothing; without one, it is plain guidance."""
    none = guidance.perpendicular(moment(negative=EMPTY), EMPTY)
    close(none, EMPTY + 7 * (POSITIVE - EMPTY))
    along = EMPTY + 0.3 * (POSITIVE - EMPTY)
    close(guidance.perpendicular(moment(negative=along), EMPTY), none)
    across = guidance.perpendicular(AT, EMPTY) - none
    assert abs((across * (POSITIVE - EMPTY)).sum()) < 1e-9
    assert (across * (NEGATIVE - EMPTY)).sum() < 0
    close(guidance.perpendicular(AT, EMPTY, 0.0), none)


def test_projected_guidance():
    """With nothing changed it is ComfyUI's sum; its length is held, the part along the estimate goes, old runs are forgotten."""
    difference = POSITIVE - NEGATIVE
    close(Projected(1.0, 0.0)(AT), POSITIVE + 7 * difference)
    short = (Projected(1.0, 2.0)(AT) - POSITIVE) / 7
    close(np.sqrt((short**2).sum((1, 2, 3))), [2, 2])
    flat = (Projected(0.0, 0.0)(AT) - POSITIVE) / 7
    close((flat * POSITIVE).sum((1, 2, 3)), [0, 0])
    running = Projected(1.0, 0.0, 0.5)
    close(running(AT), POSITIVE + 7 * difference)
    close(running(moment(sigma=2.0)), POSITIVE + 7 * 1.5 * difference)
    close(running(moment(sigma=9.0)), POSITIVE + 7 * difference)


def test_zero_star():
    """The factor is the one with which the negative noise lies nearest to the positive one."""
    positive, negative = X - POSITIVE, X - NEGATIVE
    factor = (positive * negative).sum((1, 2, 3), keepdims=True) / (negative**2).sum((1, 2, 3), keepdims=True)
    scaled = NEGATIVE * factor
    close(guidance.zero_star(AT), scaled + 7 * (POSITIVE - scaled))
    np.testing.assert_allclose(guidance.zero_star(moment(negative=POSITIVE)), POSITIVE, atol=1e-7)


def test_tangential_damping():
    damped = guidance.tangential(AT)
    close(damped.positive, POSITIVE)
    noise, rest = X - damped.negative, damped.negative - NEGATIVE
    close((noise * rest).sum((1, 2, 3)), [0, 0])
    close(guidance.tangential(moment(negative=POSITIVE)).negative, POSITIVE)


def test_frequencies():
    close(guidance.Frequencies(1.0, 1.0, 3)(AT).positive, POSITIVE)
    close(guidance.Frequencies(2.0, 2.0, 3)(AT).positive, NEGATIVE + 2 * (POSITIVE - NEGATIVE))
    mean = guidance.frequency_scaled(POSITIVE, 1.0, 0.0, 1).mean((2, 3))
    close(mean, POSITIVE.mean((2, 3)))
    assert np.abs(guidance.frequency_scaled(POSITIVE, 1.0, 0.0, 1)).std() < 0.5 * POSITIVE.std()
    assert guidance.frequency_scaled(POSITIVE.astype(np.float32), 1.0, 0.0, 9).dtype == np.float32


def test_mahiro_and_norms():
    close(guidance.mahiro(moment(negative=POSITIVE, scale=1.0)), POSITIVE)
    found = guidance.normed(AT)
    lengths = np.sqrt((found**2).sum(1)) - np.sqrt((POSITIVE**2).sum(1))
    assert lengths.max() < 1e-6


def test_lengths_stay():
    close(guidance.lengthened(moment(scale=1.0)), POSITIVE)
    found, noise = X - guidance.lengthened(AT), X - POSITIVE
    for rows, columns in ((slice(2), slice(2)), (slice(2, 4), slice(2, 4))):
        squares = [(each[:, :, rows, columns] ** 2).sum((1, 2, 3)) for each in (found, noise)]
        close(*squares)
    plain = X - PLAIN
    close(found[:, :, :2, :2] / plain[:, :, :2, :2], (found / plain)[:, :1, :1, :1] * np.ones((1, X.shape[1], 2, 2)))
    close(guidance.in_squares(np.ones((1, 1, 3, 3)))[0, 0], [[4, 4, 2], [4, 4, 2], [2, 2, 1]])


def test_dynamic_threshold():
    close(DynamicThreshold(mimic=7.0)(AT), PLAIN)
    low = DynamicThreshold(mimic=3.0)(AT)
    like = NEGATIVE + 3 * (POSITIVE - NEGATIVE)
    spread = np.abs(low - low.mean((2, 3), keepdims=True)).max((2, 3))
    close(spread, np.abs(like - like.mean((2, 3), keepdims=True)).max((2, 3)))
    close(low.mean((2, 3)), PLAIN.mean((2, 3)))
    close(DynamicThreshold(mimic=3.0, share=0.0)(AT), PLAIN)
    deviation = DynamicThreshold(mimic=3.0, by_deviation=True)(AT)
    close(deviation.std((2, 3)), like.std((2, 3)))
    clipped = DynamicThreshold(mimic=3.0, percentile=0.9, each_channel=False)(AT)
    assert np.isfinite(clipped).all()
    close(DynamicThreshold(mimic=3.0, from_mean=False, by_deviation=True)(AT).std((2, 3)), like.std((2, 3)))
    close(DynamicThreshold(mimic=7.0, shape="Linear Down", lowest=1.0, share=0.0)(moment(step=19)), POSITIVE)
    for shape in guidance.SHAPES:
        assert np.isfinite(DynamicThreshold(mimic_shape=shape, mimic_lowest=1.0, power=4.0)(AT)).all()


def test_noise_and_score_scaling():
    close(X - guidance.noise_scaled(X, POSITIVE, 1.1), (X - POSITIVE) / 1.1)
    close(guidance.score_rescaled(X, POSITIVE, 2.0, 1.0), POSITIVE)
    close(guidance.score_rescaled(X, POSITIVE, 1e-6, 0.9), X + 0.9 * (POSITIVE - X))
    flow = Path(flow=True)
    close(guidance.score_rescaled(X, POSITIVE, 1.0, 0.9, path=flow), POSITIVE)


def test_away_from_a_weakened_model():
    close(guidance.away_from(PLAIN, POSITIVE, EMPTY, 3.0), PLAIN + 3 * (POSITIVE - EMPTY))
    close(guidance.away_from(PLAIN, POSITIVE, EMPTY, 3.0, 1.0).std(), POSITIVE.std())


class Model:
    """The estimates are the conditionings; what was asked is remembered."""

    def __init__(self):
        self.asked = []

    def __call__(self, x, sigma, conditionings, weakening=None):
        self.asked.append((list(conditionings), weakening))
        return [np.full_like(x, value) - (0.5 if weakening else 0.0) for value in conditionings]


def asked(guidance, evaluations=10, sigmas=(5.0,), prompts=None):
    model = Model()
    guided = Guided(model, prompts or (lambda step: Prompts([(2.0, 1.0)], -1.0)), guidance, evaluations)
    results = [float(guided(np.zeros((1, 1, 2, 2)), sigma)[0, 0, 0, 0]) for sigma in sigmas]
    return results, [len(conditionings) for conditionings, _ in model.asked], model


def test_the_negative_prompt_is_asked_for_when_it_counts():
    assert asked(Guidance(7.0))[:2] == ([20.0], [2])
    assert asked(Guidance(1.0))[:2] == ([2.0], [1])
    assert asked(Guidance(1.0, combine=guidance.zero_star))[1] == [2]
    assert asked(Guidance(7.0), prompts=lambda step: Prompts([(2.0, 1.0)]))[:2] == ([2.0], [1])
    falling = (5.0, 4.0, 3.0, 2.0, 1.0, 0.5)
    assert asked(Guidance(7.0, skip_below=3.5), sigmas=falling)[1] == [2, 2, 2, 1, 2, 1]
    assert asked(Guidance(7.0, skip_below=3.5, skip_below_always=True), sigmas=falling)[1] == [2, 2, 1, 1, 1, 1]
    assert asked(Guidance(7.0, skip_early=0.2), sigmas=falling)[1] == [1, 1, 1, 2, 2, 2]


def test_prompts_change_with_the_evaluations():
    results, _, _ = asked(Guidance(1.0), sigmas=(3.0, 2.0), prompts=lambda step: Prompts([(step, 1.0)], 0.0))
    assert results == [0.0, 1.0]
    several = lambda step: Prompts([(2.0, 1.0), (5.0, 0.5)], 1.0)  # noqa: E731
    assert asked(Guidance(3.0), prompts=several)[:2] == ([1 + 3 * (1 + 0.5 * 4)], [3])
    assert asked(Guidance(1.0), prompts=several)[:2] == ([1 + (1 + 0.5 * 4)], [3])
    alone = lambda step: Prompts([(2.0, 1.0), (5.0, 0.5)])  # noqa: E731
    assert asked(Guidance(3.0), prompts=alone)[:2] == ([2 + 0.5 * (5 - 2)], [2])
    assert asked(Guidance(3.0, skip_early=1.0), prompts=several)[:2] == ([2 + 0.5 * (5 - 2)], [2])


def test_rules_of_three_estimates():
    three = lambda step: Prompts([(2.0, 1.0)], -1.0, 0.5)  # noqa: E731
    results, counts, _ = asked(Guidance(7.0, third=guidance.with_image), prompts=three)
    assert (results, counts) == ([0.5 - 1.5 * 1.5 + 7 * 3.0], [3])
    across = asked(Guidance(7.0, third=guidance.perpendicular), prompts=three)
    assert (across[0], across[1]) == ([0.5 + 7 * 1.5], [3])
    assert asked(Guidance(1.0, third=guidance.perpendicular), prompts=three)[1] == [3]
    assert asked(Guidance(7.0, third=guidance.perpendicular, skip_early=1.0), prompts=three)[:2] == ([2.0], [1])


def test_weakened_models_are_asked_between_their_levels():
    weakened = Weakened(Weakening(layers=(7, 8, 9)), 3.0, highest=4.0, lowest=1.0)
    results, counts, model = asked(Guidance(1.0, weakened=(weakened,)), sigmas=(5.0, 2.0, 0.5))
    assert results == [2.0, 2.0 + 3 * 0.5, 2.0]
    assert counts == [1, 1, 1, 1]
    assert [each.layers for _, each in model.asked if each] == [(7, 8, 9)]


def test_pairs_for_samplers_of_cfg_pp():
    model = Model()
    guided = Guided(model, lambda step: Prompts([(2.0, 1.0)], -1.0), Guidance(1.0, skip_early=1.0), 10)
    denoised, negative = guided.pair(np.zeros((1, 1, 2, 2)), 1.0)
    assert (denoised[0, 0, 0, 0], negative[0, 0, 0, 0]) == (2.0, -1.0)
    assert guided.count == 1
    scaled, _ = Guided(model, lambda step: Prompts([(2.0, 1.0)], -1.0), Guidance(1.0, noise_factor=2.0), 1).pair(
        np.ones((1, 1, 2, 2)), 1.0
    )
    assert scaled[0, 0, 0, 0] == 1 - (1 - 2) / 2


def test_a_model_that_predicts_for_one_conditioning_at_a_time():
    from graphc_images.errors import SettingError
    from graphc_images.sampling.levels import scaled_linear
    from graphc_images.sampling.predictions import EPS, denoiser

    told = []

    def predict(x, time, conditioning):
        told.append((time, conditioning))
        return np.full_like(x, conditioning)

    model = Conditioned(predict, lambda network: denoiser(network, EPS, scaled_linear()))
    positive, negative = model(np.ones((1, 1, 2, 2)), 2.0, [0.25, 0.5])
    assert (positive[0, 0, 0, 0], negative[0, 0, 0, 0]) == (0.5, 0.0)
    assert [conditioning for _, conditioning in told] == [0.25, 0.5]
    with pytest.raises(SettingError, match="skip layers"):
        model(np.ones((1, 1, 2, 2)), 2.0, [0.25], Weakening(layers=(7,)))
