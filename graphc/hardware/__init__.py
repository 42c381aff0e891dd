"""The GPUs of a machine and what their backends need, found without any GPU library: by the system's own tools and files."""
