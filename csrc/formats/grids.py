"""Make csrc/formats/grids.h: the grids of IQ1, IQ2 and IQ3, the only part of these weight types
that no formula gives.

    pip install gguf                      # whose types know their grids
    python3 csrc/formats/grids.py >csrc/formats/grids.h

An entry of a grid is 8 or 4 weights, each one of few values: a number of 16 bits has a digit of 2
or 3 bits for each of them, the first weight in the lowest bits.
"""

import gguf.quants

# name -> the class of the gguf package, bits of a digit
GRIDS = {
    "IQ1": ("IQ1_S", 2),
    "IQ2_XXS": ("IQ2_XXS", 2),
    "IQ2_XS": ("IQ2_XS", 2),
    "IQ2_S": ("IQ2_S", 2),
    "IQ3_XXS": ("IQ3_XXS", 3),
    "IQ3_S": ("IQ3_S", 3),
}
A_LINE = 10

HEAD = """\
/* grids.h - the grids of IQ1, IQ2 and IQ3 (parts.h). Made by grids.py: do not edit.
 * E(number): an entry; a digit of 2 bits for each of 8 weights, or, of IQ3, of 3 for each of 4. */
// clang-format off
"""


def entries(name, bits):
    """The grid of a type: [number]."""
    kind = getattr(gguf.quants, name)
    kind.init_grid()
    digit = {value: i for i, value in enumerate(kind.grid_map)}
    return [
        sum(digit[int(value)] << bits * i for i, value in enumerate(row))
        for row in kind.grid.reshape(kind.grid_shape)
    ]


def main():
    print(HEAD, end="")
    for name, (kind, bits) in GRIDS.items():
        numbers = [f"E({n:#x})" for n in entries(kind, bits)]
        lines = [" ".join(numbers[i : i + A_LINE]) for i in range(0, len(numbers), A_LINE)]
        print(f"#define GRID_{name}(E) \\\n    " + " \\\n    ".join(lines))
    print("// clang-format on")


if __name__ == "__main__":
    main()
