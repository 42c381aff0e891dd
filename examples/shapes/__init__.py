"""The small model of Stable Diffusion 1.5's structure that comes with graphc_images, and how it is trained."""
