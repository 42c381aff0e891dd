"""From noise to pictures: noise levels, schedulers, predictions, samplers, guidance, and the names that people know them by.

sampler, scheduler = find_sampler("DPM++ 2M Karras", "a1111")
levels = levels_of_model("eps", "a1111")
found = plan(sampler, scheduler, levels, Request(steps=20, mode="a1111"))
model = Conditioned(predict, lambda network: model_for(found, network, prediction_of("eps")))
guided = Guided(model, lambda evaluation: prompts, Guidance(scale=7), found.evaluations)
for step in found.run(guided, found.start(source.first()), source):
    ...  # step.x, step.denoised
"""

from graphc_images.sampling.guided import Conditioned, Guidance, Guided, Prompts, Weakened, Weakening
from graphc_images.sampling.levels import Levels, flow_levels, flux2_mu, flux_mu, levels_of_model
from graphc_images.sampling.names import SAMPLERS, SCHEDULERS, NamedScheduler, Sampler, find_sampler, find_scheduler
from graphc_images.sampling.plan import Plan, Request, model_for
from graphc_images.sampling.predictions import Prediction, edm, prediction_of
from graphc_images.sampling.samplers.steps import Step

__all__ = [
    "SAMPLERS",
    "SCHEDULERS",
    "Conditioned",
    "Guidance",
    "Guided",
    "Levels",
    "NamedScheduler",
    "Plan",
    "Prediction",
    "Prompts",
    "Request",
    "Sampler",
    "Step",
    "Weakened",
    "Weakening",
    "edm",
    "find_sampler",
    "find_scheduler",
    "flow_levels",
    "flux2_mu",
    "flux_mu",
    "levels_of_model",
    "model_for",
    "prediction_of",
]
