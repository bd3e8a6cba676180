"""Write the table of samplers in lib/README.md, from the settings in the code.

.venv/bin/python3 tests/helpers/sampler_table.py
"""

from pathlib import Path

from sluice.generate.settings import LETTERS, SETTINGS, STEPS

PAGE = Path(__file__).parents[2] / "lib" / "README.md"
HEAD = "| step | option | argument in Python | default | range |\n"


def table():
    """The rows: the steps in their order, then Mirostat."""
    letters = {step: letter for letter, step in LETTERS.items()}
    out = [HEAD.rstrip("\n"), "| --- | --- | --- | --- | --- |"]
    for step in (*STEPS, "mirostat"):
        if step == "least":
            out.append("| `least` (`l`) | `--least` | `least` | off | |")
        for i, setting in enumerate(s for s in SETTINGS if s.step == step):
            low, high = setting.limits
            name = "" if i else f"`{step}`" + (f" (`{letters[step]}`)" if step in letters else "")
            default = setting.shown or f"{setting.default:g}"
            most = "" if high is None else f"{high:.10g}"
            out.append(
                f"| {name} | `{setting.flags[0]}` | `{ARGUMENTS.get(setting.argument, setting.argument)}`"
                f" | {default} | {low:.10g} to {most} |".replace("to  |", "or more |")
            )
    return "\n".join(out) + "\n"


# names that Model.generate had first
ARGUMENTS = {name: f"{name}_penalty" for name in ("repeat", "presence", "frequency")}


def main():
    before, rest = PAGE.read_text().split(HEAD)
    PAGE.write_text(before + table() + "\n" + rest.split("\n\n", 1)[1])


if __name__ == "__main__":
    main()
