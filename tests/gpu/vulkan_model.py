"""Runs an engine on vulkan0 (generated) in this process, and writes what it gives: found.npz, from inputs.npz in this folder. Its
arguments are the engine, how exact products are, and `guessed` if schedules are to be those of GPUs."""

import sys

import numpy as np

import graphc
from graphc.backends.generated import tried
from graphc.kernels.gpu.forms import Spirv

tried["vulkan"] = ""  # a process that tries it would have the system's loader, and this one has another
graphc.set_float32_matmul_precision(sys.argv[2])
if "guessed" in sys.argv:
    Spirv.guesses = property(lambda form: True)  # type: ignore[assignment, method-assign]
model = graphc.load(sys.argv[1], device="vulkan0 (generated)", threads=1)
inputs = dict(np.load("inputs.npz"))
for _ in range(3):
    found = model.run(inputs)
np.savez("found.npz", **found)
model.close()
