"""The nodes, by subject. Importing this fills the table."""

from graphc_server.comfyui.nodes import (
    controls,
    images,
    latents,
    loaders,
    masks,
    patches,
    samplers,
    schedules,
    texts,
)

SUBJECTS = (loaders, texts, latents, samplers, schedules, patches, controls, images, masks)
"""In the order of the documentation."""
