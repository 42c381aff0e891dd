"""The headers in C++ give the bits of the samplers, schedulers and generators in Python, and the programs' numbers."""

import math
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from oracles import ORACLES
from test_samplers import FLOW, VE
from toys import flow, karras

import graphc_images
from graphc_images.noise import GENERATORS, BatchNoise, ImageNoise, TorchCpu, brownian_noise
from graphc_images.sampling.guidance import Moment, classifier_free
from graphc_images.sampling.levels import ContinuousLevels, flow_levels, scaled_linear
from graphc_images.sampling.names import SAMPLERS, SCHEDULERS, find_sampler
from graphc_images.sampling.plan import Plan
from graphc_images.sampling.predictions import denoiser, lcm_denoiser, prediction_of
from graphc_images.sampling.samplers.euler import euler_ancestral
from graphc_images.sampling.samplers.times import a1111_timesteps
from graphc_images.sampling.schedulers import Wanted, lcm_sampler
from graphc_images.sampling.schedulers import karras as karras_schedule

HEADERS = Path(graphc_images.__file__).parent / "native"
MODES = ("a1111", "comfyui")
ALONE = ("noise", "schedules", "samplers", "predictions")
PROGRAM = Path(__file__).parent / "native_samplers.cpp"
WARNINGS = ["-std=c++17", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]

pytestmark = pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(["-O0"], id="plain", marks=pytest.mark.thorough),
        pytest.param(["-O3", "-march=native", "-ffp-contract=fast"], id="fused"),
    ],
)
def ask(request, tmp_path_factory):
    """The answers of the program to questions; compiled plainly, and with leave to fuse products and sums."""
    program = tmp_path_factory.mktemp("native") / "program"
    subprocess.run(["c++", *WARNINGS, *request.param, f"-I{HEADERS}", PROGRAM, "-o", program], check=True, timeout=300)

    def answers(questions):
        text = "".join(f"{question}\n" for question in questions)
        done = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=300)
        return done.stdout.splitlines()

    return answers


def numbers(line):
    assert not line.startswith("error"), line
    return np.array([float.fromhex(word) for word in line.split()], np.float32)


def levels_of(name, mode):
    if name in ("sd", "zero_snr"):
        return scaled_linear(narrow=mode == "a1111", zero_snr=name == "zero_snr")
    return ContinuousLevels(0.002, 120.0) if name == "edm" else flow_levels(name, mode)


def included(path):
    """A header and all that it includes of ours."""
    names = re.findall(r'#include "(.*)"', path.read_text())
    return {path}.union(*(included((path.parent / name).resolve()) for name in names))


@pytest.mark.parametrize(
    "path",
    sorted(set().union(*(included(HEADERS / f"{name}.hpp") for name in ALONE))),
    ids=lambda path: str(path.relative_to(HEADERS)),
)
def test_each_header_can_be_used_alone(path, tmp_path):
    (tmp_path / "alone.cpp").write_text(f'#include "{path}"\n#include "{path}"\nint main() {{}}\n')
    subprocess.run(["c++", *WARNINGS, "-fsyntax-only", tmp_path / "alone.cpp"], check=True, timeout=100)


@pytest.mark.parametrize("generator", ["cpu", "gpu"])
def test_noise_has_the_same_bits(ask, generator):
    sizes, seeds = [7, 3, 16, 17, 31, 0, 1, 20000], (0, 1, 42, 2**32 - 1, 2**32 + 5, 2**63 + 11)
    questions = [f"noise {generator} {seed} {' '.join(map(str, sizes))}" for seed in seeds]
    for seed, line in zip(seeds, ask(questions), strict=True):
        made = GENERATORS[generator](seed)
        np.testing.assert_array_equal(numbers(line), np.concatenate([made.normal([size]) for size in sizes]))


@pytest.mark.parametrize(
    ("question", "values"),
    [
        ("noise gpu 0 6", [-0.9246624, -0.4253440, -2.6438458, 0.1451839, -0.1208665, -0.5797257]),
        ("noise NV 42 3", [0.1940189, 2.1613739, -0.1720510]),
        ("noise cuda 4294967301 3", [-2.8427474, 1.3404924, 0.2722309]),
        ("noise cpu 1 16", [-1.5255959, -0.7502318, -0.6539809, -1.6094848]),
        ("noise CPU 0 8", [1.5409961, -0.2934289, -2.1787894, 0.5684313]),
        ("noise cpu 0 20", [-1.1258398, -1.1523602, -0.2505786, -0.4338788, 0.5988395, -1.5550951]),
    ],
)
def test_noise_is_that_of_cuda_and_of_pytorch(ask, question, values):
    found = numbers(ask([question])[0])
    np.testing.assert_allclose(found[: len(values)], values, rtol=0, atol=1e-7)


BROWNIAN = "14.614643096923828 9.10292911529541 5.478392124176025 1.0 0.029167158529162407 0.0"
"""Noise levels."""


@pytest.mark.parametrize("generator", ["cpu", "gpu"])
def test_brownian_noise_has_the_same_bits(ask, generator):
    sigmas, sizes = [float(sigma) for sigma in BROWNIAN.split()], (1, 7, 64)
    ways = [*pairwise(sigmas[:-1]), (5.5, 7.25), (0.5, 0.25), (3.0, 2.999), *pairwise(sigmas[:-1])]
    asked = " ".join(f"{start} {end}" for start, end in ways)
    for seeds in ([0, 1], [2**33 + 1, 2**40]):
        questions = [f"brownian {generator} {seeds[0]} {seeds[1]} {size} 6 {BROWNIAN} {asked}" for size in sizes]
        for size, line in zip(sizes, ask(questions), strict=True):
            noise = brownian_noise("a1111", [2, 1, 1, size], seeds, sigmas, generator)
            np.testing.assert_array_equal(numbers(line), np.concatenate([noise(*way).reshape(-1) for way in ways]))


@pytest.mark.parametrize("case", ORACLES["brownian"], ids=lambda case: f"{case['seed']}")
def test_the_tree_is_torchsde(ask, case):
    size = math.prod(case["shape"])
    for (start, end, values), line in zip(
        case["increments"],
        ask(
            f"tree {case['seed']} {size} {case['ends'][0]} {case['ends'][1]} {each[0]} {each[1]}"
            for each in case["increments"]
        ),
        strict=True,
    ):
        np.testing.assert_allclose(numbers(line)[: len(values)], values, rtol=0, atol=2e-6, err_msg=f"{start} to {end}")


LEFT_OUT = ("automatic", "gits", "logit_normal")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "scheduler", [each for each in SCHEDULERS if each.name not in LEFT_OUT], ids=lambda each: each.name
)
def test_schedules_have_the_same_bits(ask, scheduler, mode):
    family = "flux" if scheduler.name == "optimal_steps" else "sdxl"
    questions, expected = [], []
    for name in ("sd", "zero_snr", "edm", "sd3", "flux", "auraflow"):
        levels = levels_of(name, mode)
        if name == "edm" and scheduler.name in ("turbo", "sd_turbo", "smoothstep", "lcm"):
            continue  # they go by the thousand times of a table
        for steps in (1, 2, 3, 7, 10, 20, 31, 100):
            questions.append(f"schedule {scheduler.name} {steps} {name} {mode} 1500 {family}")
            want = Wanted(steps, levels, levels.lowest, levels.highest, mode, tokens=1500, family=family)
            expected.append(np.array(list(dict.fromkeys(scheduler.function(want))), np.float32))
    for question, line, sigmas in zip(questions, ask(questions), expected, strict=True):
        np.testing.assert_array_equal(numbers(line), sigmas, question)


def test_the_schedule_of_a1111s_lcm_has_the_same_bits(ask):
    levels = levels_of("sd", "a1111")
    for steps, line in zip(
        (1, 4, 9), ask(f"schedule lcm_sampler {steps} sd a1111" for steps in (1, 4, 9)), strict=True
    ):
        want = Wanted(steps, levels, levels.lowest, levels.highest)
        np.testing.assert_array_equal(numbers(line), np.array(lcm_sampler(want), np.float32))


def test_schedules_are_the_programs(ask):
    karras_10 = "14.61464 9.10293 5.47839 3.1686 1.74942 .91407 .44692 .2014 .08191 .02917 0"
    beta_10 = "14.61464 11.54277 7.37184 4.3728 2.61524 1.61828 1.02733 .65489 .39551 .19906 0"
    simple_10 = "1 .96429 .92308 .875 .81818 .75 .66667 .5625 .42857 .25 0"
    questions = ["schedule Karras 10 sd comfyui", "schedule beta 10 sd comfyui", "schedule automatic 10 sd3 comfyui"]
    for line, text in zip(ask(questions), (karras_10, beta_10, simple_10), strict=True):
        np.testing.assert_allclose(numbers(line), [float(each) for each in text.split()], rtol=0, atol=6e-6)


def test_every_scheduler_has_the_names_that_python_knows(ask):
    names = [
        (scheduler, name) for scheduler in SCHEDULERS if scheduler.name not in LEFT_OUT for name in scheduler.names
    ]
    spaceless = [(scheduler, name) for scheduler, name in names if " " not in name]
    lines = ask(
        f"schedule {name} 5 sd a1111 1500 {'flux' if scheduler.name == 'optimal_steps' else 'sd1'}"
        for scheduler, name in spaceless
    )
    for (_, name), line in zip(spaceless, lines, strict=True):
        assert not line.startswith("error"), name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["sd", "zero_snr", "edm", "sd3"])
def test_times_have_the_same_bits(ask, name, mode):
    levels = levels_of(name, mode)
    sigmas = np.exp(np.linspace(math.log(levels.lowest), math.log(levels.highest), 500))
    found = numbers(ask([f"times {name} {mode} {' '.join(map(repr, sigmas.tolist()))}"])[0])
    expected = []
    for sigma in sigmas.tolist():
        time = levels.timestep(sigma, False)
        expected += [time, levels.timestep(sigma), levels.sigma(time)]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def rational(x, sigma):
    """A model of exact operations."""
    return x / (np.abs(x) + 1) * (1 / (1 + sigma))


def known(ask):
    """What each sampler in C++ says of itself: names; scheduler, Brownian noise, where the penultimate level is left out."""
    entries = [entry.split("|") for entry in ask(["names"])[0].split(";") if entry]
    return [(entry[:-4], entry[-4:]) for entry in entries]


@pytest.mark.parametrize("levels_name", ["sd", "sd3", "flux"])
@pytest.mark.parametrize("mode", MODES)
def test_samplers_have_the_same_bits(ask, mode, levels_name):
    levels = levels_of(levels_name, mode)
    function = {each.name: each.function for each in SCHEDULERS}["sgm_uniform"]
    questions, expected = [], []
    for (name, *_), _ in known(ask):
        sampler, _ = find_sampler(name, mode)
        sampler = find_sampler(name, "comfyui")[0] if sampler.on_times else sampler
        if "levels" in sampler.takes and levels_name != "sd":
            continue
        for steps in (2, 5, 25) if name in ("dpm_fast", "dpm_adaptive") else (1, 2, 5, 25):
            sigmas = function(Wanted(steps, levels, levels.lowest, levels.highest, mode))
            for eta in ({}, {"eta": 0.0}, {"eta": 0.6}):
                source = BatchNoise([1, 1, 5, 7], 3)
                x = source.first() * sigmas[0]
                taken = Plan(sampler, levels, mode, sigmas, sigmas).run(rational, x, source, **eta)
                *_, last = (step.x for step in taken)
                assert last.dtype == np.float32
                expected.append(last.reshape(-1))
                asked = eta.get("eta", -1)
                questions.append(
                    f"sample {name} {mode} {levels_name} rational {asked} 35 {' '.join(map(repr, sigmas))}"
                )
    for question, line, x in zip(questions, ask(questions), expected, strict=True):
        np.testing.assert_array_equal(numbers(line), x, question)


class Rational:
    """The same, with another estimate for the negative prompt."""

    def __call__(self, x, sigma):
        return rational(x, sigma)

    def pair(self, x, sigma):
        return rational(x, sigma), rational(x, sigma) * 0.5


@pytest.mark.parametrize("levels_name", ["sd", "flux"])
def test_samplers_of_cfg_pp_have_the_same_bits(ask, levels_name):
    levels = levels_of(levels_name, "a1111")
    want = {each.name: each.function for each in SCHEDULERS}["sgm_uniform"]
    questions, expected = [], []
    for sampler in (each for each in SAMPLERS if each.pair and not each.on_times):
        for steps in (1, 2, 12):
            sigmas = want(Wanted(steps, levels, levels.lowest, levels.highest))
            for eta in ({}, {"eta": 0.6}):
                source = BatchNoise([1, 1, 5, 7], 3)
                given = {"noise": source, "path": levels.path, **eta, **sampler.settings}
                given = {name: value for name, value in given.items() if name in sampler.takes}
                *_, last = sampler.function(Rational(), source.first() * sigmas[0], sigmas, **given)
                expected.append(last.x.reshape(-1))
                levels_asked = " ".join(map(repr, sigmas))
                questions.append(f"pairs {sampler.name} {levels_name} {eta.get('eta', -1)} 0 0 {levels_asked}")
    assert len(questions) == 42
    for question, line, x in zip(questions, ask(questions), expected, strict=True):
        np.testing.assert_array_equal(numbers(line), x, question)


@pytest.mark.parametrize("name", ["ddim", "ddim_cfg_pp", "plms", "unipc"])
def test_samplers_on_times_have_the_same_bits(ask, name):
    levels = levels_of("sd", "a1111")
    sampler, _ = find_sampler(name, "a1111")
    questions, expected = [], []
    for steps in (1, 2, 5, 20):
        for eta, picture in ((-1, 0), (0.6, 0), (-1, 1)):
            chosen = a1111_timesteps(steps)[: max(steps // 2, 1) if picture else None]
            source = BatchNoise([1, 1, 5, 7], 3)
            x = source.first()
            made = Plan(sampler, levels, "a1111", [], [], chosen, 1 if picture else None)
            steps_taken = list(made.run(Rational(), x, source, eta=None if eta < 0 else eta))
            expected.append((steps_taken[-1].x if steps_taken else x).reshape(-1))
            questions.append(f"pairs {name} sd {eta} 1 {picture} {' '.join(map(str, chosen))}")
    for question, line, x in zip(questions, ask(questions), expected, strict=True):
        np.testing.assert_array_equal(numbers(line), x, question)


@pytest.mark.parametrize(
    ("name", "levels_name", "mode"),
    [
        *[(*each, mode) for each in (("eps", "sd"), ("v", "sd"), ("edm", "edm"), ("flow", "sd3")) for mode in MODES],
        ("eps", "sd", "lcm"),
    ],
)
def test_predictions_and_guidance_have_the_same_bits(ask, name, levels_name, mode):
    levels = levels_of(levels_name, "comfyui" if mode == "comfyui" else "a1111")
    sigmas = levels.sigmas[:: len(levels.sigmas) // 10].tolist()
    noise = TorchCpu(3).normal([35])
    expected = []
    for sigma in sigmas:

        def estimate(factor, sigma=sigma):
            def network(x, time):
                return x * factor + x * (time / 1000)

            prediction = prediction_of(name)
            if mode == "lcm":
                return lcm_denoiser(network, prediction, levels)(noise * sigma, sigma)
            return denoiser(network, prediction, levels, mode == "comfyui")(noise * sigma, sigma)

        positive, negative = estimate(0.75), estimate(-0.4)
        expected.append(classifier_free(Moment(noise, sigma, positive, negative, 7.5)))
    question = f"predict {name} {levels_name} {mode} 7.5 {' '.join(map(repr, sigmas))}"
    np.testing.assert_array_equal(numbers(ask([question])[0]), np.concatenate(expected))


OTHER_NAMES = {
    "lms of k-diffusion": ("lms", "a1111"),
    "lms of ComfyUI": ("lms", "comfyui"),
    "unipc bh1": ("uni_pc", "comfyui"),
    "unipc bh2": ("uni_pc_bh2", "comfyui"),
    "sa_solver with noise": ("sa_solver", "comfyui"),
}
"""The names of the tests of Python."""


@pytest.mark.parametrize(
    ("table", "sigmas", "levels"), [(VE, karras(10), "sd"), (FLOW, flow(), "sd3")], ids=["VE", "flow"]
)
def test_samplers_give_the_programs_values(ask, table, sigmas, levels):
    """As far as float32 goes, in which the headers compute; every draw of noise is 0.5."""
    names = {name for entry, _ in known(ask) for name in entry}
    quiet = "sa_solver"  # the headers' adds noise where ComfyUI's does
    cases = [(*OTHER_NAMES.get(name, (name, "comfyui")), case) for name, case in table.items() if name != quiet]
    cases = [(name, mode, case) for name, mode, case in cases if name in names]
    assert len(cases) > 15
    questions = [f"sample {name} {mode} {levels} sine -1 1 {' '.join(map(repr, sigmas))}" for name, mode, _ in cases]
    for (name, _, case), line in zip(cases, ask(questions), strict=True):
        np.testing.assert_allclose(
            numbers(line), [case[2]], rtol=0, atol=2e-5 if name == "dpm_adaptive" else 4e-6, err_msg=name
        )


def test_samplers_are_described_as_in_python(ask):
    for names, (scheduler, brownian, a1111, comfyui) in known(ask):
        for name in names:
            sampler = next(
                each for each in SAMPLERS if name.lower() in map(str.lower, each.names) and not each.on_times
            )
            assert scheduler == (sampler.scheduler or "uniform")
            assert bool(int(brownian)) == bool(sampler.brownian)
            assert [bool(int(a1111)), bool(int(comfyui))] == [
                "a1111" in sampler.discard,
                "comfyui" in sampler.discard,
            ], name


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("noise dice 0 4", 'no random number generator "dice"'),
        ("brownian gpu 0 1 4 1 0", "noise level above 0"),
        ("sample dpm_fast a1111 sd rational -1 4 2 0", "two noise levels above 0"),
        ("sample tcd comfyui sd3 rational -1 4 1 0.5 0", "table of times"),
        ("schedule karas 10 sd a1111", 'no scheduler "karas"'),
        ("schedule karras 0 sd a1111", "number of steps must be 1 or more, not 0"),
        ("schedule align_your_steps 5 sd a1111 100 wan", 'no noise levels for "wan"'),
        ("schedule lcm 5 edm a1111", "not finite"),
        ("pairs ddim sd 0.5 1 0 5 5", "number 1 is 5"),
        ("pairs ddim sd 0.5 1 0 5 1000", "number 1 is 1000"),
        ("schedule lcm_sampler 4 flux a1111", "table of noise levels"),
        ("predict x0 sd a1111 1 2", 'no prediction "x0"'),
        ("sample eular a1111 sd rational -1 4 2 1 0", 'no sampler "eular"'),
        ("sample euler a1111 sd rational -1 4 2 3 0", "number 1 is 3"),
        ("sample euler a1111 sd rational -1 4 2 1 1", "number 2 is 1"),
        ("sample euler a1111 sd rational -1 4 2 nan 0", "number 1 is"),
    ],
)
def test_wrong_settings_are_named(ask, question, text):
    assert text in ask([question])[0]


def test_nothing_to_do(ask):
    first, alone = map(numbers, ask(["noise cpu 3 5", "sample euler a1111 sd rational -1 5 2"]))
    np.testing.assert_array_equal(alone, first * np.float32(2))
    assert ask(["sample euler a1111 sd rational -1 0 2 1 0"]) == [""]


def test_the_example_of_the_page(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "images.md").read_text()
    (source,) = re.findall(r"```cpp\n(.*?)```", page, re.DOTALL)
    (tmp_path / "example.cpp").write_text(source)
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{HEADERS}", "example.cpp", "-o", "example"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=100)
    printed = subprocess.run([tmp_path / "example"], capture_output=True, text=True, check=True, timeout=60).stdout

    levels, noise = scaled_linear(), ImageNoise([4, 64, 64], [42])
    sigmas = karras_schedule(Wanted(20, levels, levels.lowest, levels.highest))
    x = noise.first() * sigmas[0]
    *_, last = euler_ancestral(lambda x, sigma: x * (0.25 / (0.25 + sigma * sigma)), x, sigmas, noise=noise)
    np.testing.assert_array_equal(np.array(printed.split(), np.float32), last.x.reshape(-1)[:4])
