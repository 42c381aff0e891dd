"""The nodes, by subject. Importing this fills the table."""

from graphc_server.comfyui.nodes import (
    controls,
    hints,
    images,
    inpainting,
    ip_adapters,
    lacking,
    latents,
    loaders,
    masks,
    patches,
    qwen,
    samplers,
    schedules,
    texts,
    tooling,
)

SUBJECTS = (
    loaders,
    texts,
    qwen,
    latents,
    samplers,
    schedules,
    patches,
    controls,
    ip_adapters,
    images,
    masks,
    tooling,
    inpainting,
    hints,
    lacking,
)
"""In the order of the documentation."""
