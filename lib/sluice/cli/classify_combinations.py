"""Which options of `classify` go together. Those that depend on the texts are checked with them
(classify/plan.py).
"""

from .combinations import (
    excludes,
    need,
    need_files,
    need_one_question,
    not_with,
    one_of,
    take_no_file,
    without,
)

CHANGES = "learn", "forget", "reset", "list_learned"
# --evaluate and --fit go with none of these
LABELLED = (
    *("listen", "pass_through", "learn", "jsonl", "long", "each", "select", "forget"),
    *("state_file", "null", "why", "verify", "receipt"),
)
# --rules and --learned-in go with none of these
RULED = (
    *("evaluate", "compared", "fit", "why", "learn", "verify", "forget", "receipt"),
    *("prior", "save_prior"),
)

RULES = (
    # outputs
    one_of("long", "as_json", "listen", "pass_through"),
    one_of("files", "listen", "pass_through"),
    one_of("jsonl", "long", "listen", "pass_through"),
    one_of("why", "verify", "long", "listen", "pass_through"),
    need(("top", "spans", "counterfactual"), "why"),
    one_of("verify", "receipt", "listen", "pass_through"),
    one_of("verify", "long", "select", "state_file"),
    need(("receipt_key",), "receipt", "verify"),
    need(("mass",), "as_json", "jsonl"),
    need(("workers", "mode"), "listen"),
    need(("stats",), "listen"),
    need(("explain_header",), "pass_through", "long"),
    # labelled texts
    need(("label_column",), "evaluate", "fit"),
    need(("compared",), "evaluate"),
    need(("curve",), "evaluate"),
    need(("html",), "why", "evaluate"),
    need(("head", "risk"), "fit"),
    without("evaluate", *LABELLED, "fit"),
    need_files("evaluate", "LABELLED texts"),
    excludes("curve", "compared", "prior"),
    without("fit", *LABELLED, "prior", "save_prior", "no_calibration"),
    need_files("fit", "LABELLED texts"),
    # probabilities
    excludes(
        "prior", "learn", "forget", "auto_learn", "calibration_file", "fit_path", unless="none"
    ),
    # messages
    need(("client",), "rules"),
    need(("learned_by",), "learned_in"),
    not_with(("client", "learned_by"), "listen"),
    without("rules", *RULED),
    need_one_question("rules"),
    without("learned_in", *RULED, "no_calibration", "auto_learn"),
    need_one_question("learned_in"),
    # learning
    one_of(*CHANGES),
    *(one_of(*CHANGES, other) for other in ("listen", "pass_through", "no_calibration", "long")),
    need_one_question("learn", "forget", "list_learned", "reset", "auto_learn"),
    take_no_file("list_learned", "reset"),
    one_of("auto_learn", "learn", "forget"),
)
