"""Trains the digit classifier of `graphc demo`, and writes what the package carries: the ONNX file and the test digits.

    python examples/train_digits.py [DIRECTORY]

Needs torch, onnxscript and scikit-learn. A quarter of scikit-learn's 1,797 digits (8x8 pixels, 0..16; from the UCI
repository's "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak, CC BY 4.0) is held out: the
network never sees it, and the demonstration measures its accuracy on it. The same seed gives the same split and, on the
same machine, the same weights.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

SEED = 7
EPOCHS = 60
BATCH = 64
KEPT_NOTES = ("pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.name_scopes")


class DigitNet(nn.Module):
    """Pixels [batch, 1, 8, 8] from 0 to 16 in, a score for each digit [batch, 10] out."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(block(1, 16), block(16, 32), nn.MaxPool2d(2), block(32, 64))
        self.classifier = nn.Linear(64, 10)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Scores before the softmax."""
        return self.classifier(self.features(pixels / 16).mean(dim=(2, 3)))


def block(channels: int, features: int) -> nn.Sequential:
    """A 3x3 convolution, normalized over the batch, and a ReLU."""
    return nn.Sequential(nn.Conv2d(channels, features, 3, padding=1, bias=False), nn.BatchNorm2d(features), nn.ReLU())


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Each image moved by up to one pixel, so that the network does not learn places by heart."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))[:, 0]
    y, x = (torch.randint(0, 3, (len(images), 1)) + torch.arange(8) for _ in range(2))
    return padded[torch.arange(len(images))[:, None, None], y[:, :, None], x[:, None, :]][:, None]


def train(images: torch.Tensor, labels: torch.Tensor) -> DigitNet:
    """A network fitted to the images, ready for evaluation."""
    network = DigitNet()
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-3)
    steps = -(-len(images) // BATCH) * EPOCHS
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(images)).split(BATCH):
            loss = nn.functional.cross_entropy(network(shifted(images[chosen])), labels[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def export(network: DigitNet, images: torch.Tensor, path: Path) -> None:
    """Write the ONNX file for any number of images; of the exporter's notes, only the module scopes are kept."""
    settings = {"input_names": ["pixels"], "output_names": ["scores"], "dynamo": True, "verbose": False}
    program = torch.onnx.export(network, (images,), dynamic_shapes=({0: torch.export.Dim("batch")},), **settings)
    model = program.model_proto
    graph = model.graph
    graph.name = "digits"
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for noted in (model, graph, *graph.node, *values):
        kept = [entry for entry in noted.metadata_props if entry.key in KEPT_NOTES]
        del noted.metadata_props[:]
        noted.metadata_props.extend(kept)
    onnx.helper.set_model_props(model, {"graphc.example": '{"pixels": [1, 1, 8, 8]}'})
    path.write_bytes(model.SerializeToString(deterministic=True))


def main() -> None:
    """Train, measure, and write the two files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "graphc" / "demo"
    torch.manual_seed(SEED)
    torch.set_num_threads(2)
    digits = load_digits()
    parts = train_test_split(digits.images, digits.target, test_size=0.25, random_state=SEED, stratify=digits.target)
    images, test_images = (torch.tensor(part, dtype=torch.float32)[:, None] for part in parts[:2])
    labels, test_labels = (torch.tensor(part) for part in parts[2:])
    network = train(images, labels)
    with torch.no_grad():
        right = (network(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"{right:.2%} of {len(test_images)} held-out digits")
    export(network, test_images[:2], folder / "digits.onnx")
    small = {"images": test_images[:, 0].numpy().astype(np.uint8), "labels": test_labels.numpy().astype(np.uint8)}
    np.savez_compressed(folder / "digits.npz", **small)


if __name__ == "__main__":
    main()
