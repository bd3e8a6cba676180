"""JSON Schema (draft 2020-12) as a grammar of JSON texts."""
