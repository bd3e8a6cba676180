"""Why a text got its answer: on a terminal, as JSON and as a page."""
