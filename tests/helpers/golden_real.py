"""Make tests/golden/real/MODEL.npz with Hugging Face transformers in f32, or compare with them.

    python3 tests/helpers/golden_real.py            write them, of the models that are here
    python3 tests/helpers/golden_real.py --check    exit 1 if fresh logits differ by more than
                                                    TOLERANCE

transformers reads the models' GGUF files itself. A model that is not here is skipped by name (make
real-models fetches it). Written with the versions in golden-requirements.txt.
"""

import argparse
import functools
import os
import sys

os.environ["TQDM_DISABLE"] = "1"  # read where it is imported

import gguf
import golden_real_cases as cases
import torch
import transformers

TOLERANCE = 1e-5  # of the largest logit: other versions of torch sum in another order
ROWS = 20  # positions whose logits are held at a time


def net(model):
    """transformers' own reading of the file of `model`, in f32."""
    read = transformers.AutoModelForCausalLM.from_pretrained
    return read(
        model.path.parent, gguf_file=model.file, dtype=torch.float32, attn_implementation="eager"
    ).eval()


@torch.no_grad()
def rows(model, tokens):
    """f32 [n_vocab] after each of the last N_POSITIONS of `tokens`."""
    m = net(model)
    hidden = m.model(torch.tensor([tokens])).last_hidden_state[0, -cases.N_POSITIONS :]
    for part in hidden.split(ROWS):
        yield from m.lm_head(part).numpy()


def write(name, fresh):
    kept = cases.keep(fresh, cases.STEPS[name])
    cases.save(kept, name)
    lead = float((kept.top[:, 0] - kept.top[:, 1]).min())
    print(f"{name}: largest logit {kept.largest:.2f}, least lead of the first {lead:.4f}")


def check(name, fresh):
    found = cases.difference(cases.load(name), fresh)
    print(f"{name}: {found:.1e} of the largest logit, {TOLERANCE:.0e} is allowed", flush=True)
    return found <= TOLERANCE


def main():
    parser = argparse.ArgumentParser(description="Make or compare the logits of the real models.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    a = parser.parse_args()
    torch.set_num_threads(1)
    # transformers opens a file three times; Gemma's 262,144 tokens take gguf 15 s each time
    gguf.GGUFReader = functools.cache(gguf.GGUFReader)
    good = True
    for name, model in cases.MODELS.items():
        if not model.is_here():
            print(f"{name}: skipped, {model.path} is not there: make real-models fetches it")
            continue
        fresh = rows(model, cases.facts(name)["ids"])
        if a.check:
            good = check(name, fresh) and good
        else:
            write(name, fresh)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
