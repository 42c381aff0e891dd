"""Pictures from words: samplers, prompts and models of the Stable Diffusion family on graphc's engines, without PyTorch."""
