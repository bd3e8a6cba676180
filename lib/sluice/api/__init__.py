"""The Python API: load, Model, Generation, Question and others, exported by the package `sluice`.

    with sluice.load("m.gguf") as model:
        for text in model.generate("Once upon a time", max_tokens=20, seed=1):
            print(text, end="", flush=True)

    with sluice.Question("spam") as question:
        verdict = question.classify(mail)

Results are bit-identical to those of the commands `tokenize`, `prefill`, `generate`, `embed`,
`rerank` and `classify`, and arguments have the defaults of the commands' options.

Errors: DataError (invalid model, grammar, question or text), UnsupportedError (a model or processor
that this build does not support), and other Errors, whose `code` is the commands' exit code;
OSError for a file that cannot be opened or read; MemoryError; ValueError and TypeError for invalid
arguments.

All threads may call; one call computes at a time. The kernels' worker threads belong to the
process, and the model opened last sets their number. A fork waits for the call that computes. The
child has no worker threads until it opens a model: open models after forking. Truncating a model
file in use ends the process with status 74; replace models by rename.
"""

from .chat import Call, ChatPrompt
from .generation import Generation
from .model import Model, load
from .question import Question, Verdict
from .texts import Ranked

__all__ = ["Call", "ChatPrompt", "Generation", "Model", "Question", "Ranked", "Verdict", "load"]
