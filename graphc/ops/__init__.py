"""The operators. A program that runs imports those that it has; `base.operators` imports all."""
