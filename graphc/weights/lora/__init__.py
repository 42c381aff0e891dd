"""LoRA and its relatives: small changes of weights, from a file of their own, put on a compiled model and taken off again."""
