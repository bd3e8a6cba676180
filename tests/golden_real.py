"""Make tests/golden/real/MODEL.npz with Hugging Face transformers in f32, which reads the real models' GGUF files itself, or compare.

    python3 tests/golden_real.py            write them, of the models that are here
    python3 tests/golden_real.py --check    exit 1 if fresh logits differ from the files by more than TOLERANCE

Models that are not here (make real-models fetches them) are skipped by name. With the versions in golden-requirements.txt.
"""
import argparse
import functools
import sys

import gguf
import torch
import transformers

import golden_real_cases as cases

TOLERANCE = 1e-5  # of the largest logit; other processors and versions of torch sum in another order
ROWS = 20  # positions whose logits are held at a time


def net(model):
    """transformers' own reading of the file of `model`, in f32 with eager attention."""
    options = dict(gguf_file=model.file, dtype=torch.float32, attn_implementation="eager")
    return transformers.AutoModelForCausalLM.from_pretrained(model.path.parent, **options).eval()


@torch.no_grad()
def rows(model, ids, n):
    """f32 [n_vocab] after each of the last `n` of `ids`."""
    m = net(model)
    hidden = m.model(torch.tensor([ids])).last_hidden_state[0, -n:]
    for part in hidden.split(ROWS):
        yield from m.lm_head(part).numpy()


def write(name, model):
    ids = cases.facts(name)["ids"]
    kept = cases.keep(rows(model, ids, cases.N_POSITIONS), cases.STEPS[name])
    cases.save(kept, name)
    print(f"{name}: {len(kept.top)} positions, largest logit {kept.largest:.2f}, least lead of the first {float((kept.top[:, 0] - kept.top[:, 1]).min()):.4f}")


def check(name, model):
    found = cases.difference(cases.load(name), rows(model, cases.facts(name)["ids"], cases.N_POSITIONS))
    print(f"{name}: {found:.1e} of the largest logit, {TOLERANCE:.0e} is allowed", flush=True)
    return found <= TOLERANCE


def main():
    parser = argparse.ArgumentParser(description="Make or compare the golden logits of the real models.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    a = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    # transformers opens a file three times, and Gemma's vocabulary of 262,144 strings takes gguf 20 s each time
    gguf.GGUFReader = functools.cache(gguf.GGUFReader)
    good = True
    for name, model in cases.MODELS.items():
        if not model.is_here():
            print(f"{name}: skipped, {model.path} is not there: make real-models fetches it")
        elif a.check:
            good = check(name, model) and good
        else:
            write(name, model)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
