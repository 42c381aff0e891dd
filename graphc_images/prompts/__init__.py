"""From a prompt to what text encoders read, and from what they give to what a denoiser reads."""
