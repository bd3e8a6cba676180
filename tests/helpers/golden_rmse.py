"""Rows to quantize, and the errors of llama.cpp's quantizers: tests/golden/rmse.json.

    python3 tests/helpers/golden_rmse.py /path/to/libggml-base.so

The rows are made from a seed, by Python's random.Random alone. Of llama.cpp only numbers are kept:
for each kind of row and type the root of the mean square of (row - dequantised row), from
ggml_quantize_chunk without an importance matrix. The library is part of the PyPI package
llama-cpp-python (llama_cpp/lib).
"""

import ctypes
import json
import math
import random
import sys
from pathlib import Path

import numpy as np

OUT = Path(__file__).parents[1] / "golden" / "rmse.json"
TYPES = {"Q8_0": 8, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14}
N_ROW, N = 16, 1024


def normal(draw):
    return math.sqrt(-2 * math.log(1 - draw())) * math.cos(2 * math.pi * draw())


def heavy(draw):
    """Student's t with three degrees of freedom."""
    return normal(draw) / math.sqrt(sum(normal(draw) ** 2 for _ in range(3)) / 3)


KINDS = {  # name: element from (draw, row, column)
    "normal": lambda draw, r, i: 0.02 * normal(draw),
    "heavy": lambda draw, r, i: 0.02 * heavy(draw),
    "outliers": lambda draw, r, i: 0.02 * normal(draw) * (20 if draw() < 1 / 64 else 1),
    "uniform": lambda draw, r, i: 2 * draw() - 1,
    "positive": lambda draw, r, i: abs(normal(draw)),
    "shifted": lambda draw, r, i: 0.1 * normal(draw) - 1,
    "uneven": lambda draw, r, i: normal(draw) * 4.0 ** (i // 32 % 8 - 6),
    "few": lambda draw, r, i: math.floor(3 * draw()) - 1.0,
    "sparse": lambda draw, r, i: normal(draw) if draw() < 1 / 16 else 0.0,
    "constant": lambda draw, r, i: 0.37 * (r - 7),
    "zero": lambda draw, r, i: 0.0,
    "tiny": lambda draw, r, i: 3e-6 * normal(draw),
    "vanishing": lambda draw, r, i: 1e-20 * normal(draw),
    "large": lambda draw, r, i: 5e3 * normal(draw),
}


def rows(kind):
    """f32 [N_ROW, N]."""
    draw = random.Random(f"sluice {kind}").random
    return np.array([[KINDS[kind](draw, r, i) for i in range(N)] for r in range(N_ROW)], "<f4")


def rmse(x, type, blocks):
    """Of `x` f32 and what `blocks` (bytes) mean."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    y = dequantize(
        np.frombuffer(blocks, np.uint8).reshape(len(x), -1), GGMLQuantizationType(TYPES[type])
    )
    return float(np.sqrt(np.mean((x.astype(np.float64) - y) ** 2)))


def main(path):
    library = ctypes.CDLL(path)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        *[ctypes.c_int64] * 3,
        ctypes.c_void_p,
    ]
    golden = {}
    for kind in KINDS:
        x, golden[kind] = rows(kind), {}
        for type, number in TYPES.items():
            out = np.zeros(4 * x.size, np.uint8)
            n = library.ggml_quantize_chunk(
                number, x.ctypes.data, out.ctypes.data, 0, *x.shape, None
            )
            golden[kind][type] = rmse(x, type, out[:n].tobytes())
    library.ggml_version.restype = ctypes.c_char_p
    OUT.write_text(
        json.dumps({"ggml": library.ggml_version().decode(), "rmse": golden}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
