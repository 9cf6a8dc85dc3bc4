#!/usr/bin/env python3
"""Writes scikit-learn's digits (1797 images of 8x8 pixels, 10 classes) as IDX files, as MNIST has them.

    pip install scikit-learn
    python3 bench/digits_as_idx.py FOLDER

FOLDER gets train-images-idx3-ubyte and train-labels-idx1-ubyte with 1437 images, and t10k-… with the other 360, in an order
that a fixed seed has shuffled: data.images = "FOLDER/train*", data.eval = ["FOLDER/t10k*"].
"""
import argparse
import struct
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HELD_OUT = 360


def write(path, array):
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + b"".join(struct.pack(">I", n) for n in array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def write_digits(folder, images_to_train=None):
    """All of the training images, or the first so many of them."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.target))
    images, labels = digits.images[order] * 15, digits.target[order]
    end = -HELD_OUT if images_to_train is None else images_to_train
    for name, part in (("train", slice(0, end)), ("t10k", slice(-HELD_OUT, None))):
        write(folder / f"{name}-images-idx3-ubyte", images[part])
        write(folder / f"{name}-labels-idx1-ubyte", labels[part])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    write_digits(parser.parse_args().folder)
