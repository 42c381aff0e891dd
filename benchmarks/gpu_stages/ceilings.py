"""What the GPU can do at all, by PyTorch: the rates of a large copy and of a large product."""

from __future__ import annotations

import subprocess

from gpu_stages.stage import Stage, torch_on_gpu, torch_seconds

import graphc


def ceilings(stage: Stage) -> None:
    """Lines for the devices, a copy (bytes read and written) and products of float16."""
    for each in graphc.devices():
        stage.note(each.name, description=each.description, free=each.memory_free)
    torch = torch_on_gpu()
    if torch is None:
        stage.note("PyTorch has no GPU")
        return
    wanted = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem", "--format=csv,noheader"]
    told = subprocess.run(wanted, capture_output=True, text=True, check=False)
    stage.note("driver", said=told.stdout.strip(), torch=torch.__version__, cuda=torch.version.cuda)
    x = torch.randn((1 << 20) if stage.tiny else (1 << 30), device="cuda")
    y = torch.empty_like(x)
    seconds = torch_seconds(y.copy_, x)
    stage.note("copy", seconds, gigabytes_a_second=2e-9 * x.numel() * x.element_size() / seconds)
    for size in (256,) if stage.tiny else (4096, 8192):
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
        stage.note(f"product of {size}", torch_seconds(torch.matmul, a, b), operations=2.0 * size**3)
