"""Random schemas: what the grammar accepts is what the jsonschema package accepts, both ways."""

import itertools
import json

import jsonschema
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from schema_grammar import accepts, grammar_of

from sluice import faults
from sluice.grammar.schema.formats import NUMBERS

NAMES = ["a", "b", "ab", "é"]
PATTERNS = ["^a*$", "b", "^[ab]{1,2}$", "^(a|bb)+$", "a$", "^..$"]


def scalars():
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-12, 120),
        st.sampled_from([0.5, 1.25, -3.75, 10.5]),
        st.text("ab", max_size=4),
        st.sampled_from(["é", 'a"b', "a\nb"]),
    )


def values():
    return st.recursive(
        scalars(),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(st.sampled_from([*NAMES, "c"]), inner, max_size=4),
        ),
        max_leaves=6,
    )


def bounds(minimum, maximum, numbers):
    return st.fixed_dictionaries({}, optional={minimum: numbers, maximum: numbers})


def strings():
    return st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(0, 4),
            "pattern": st.sampled_from(PATTERNS),
        },
    )


def numbers():
    limit = st.one_of(st.integers(-15, 130), st.sampled_from([0.5, -3.75, 10.25, 1.1]))
    return st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={
            "minimum": limit,
            "maximum": limit,
            "exclusiveMinimum": limit,
            "exclusiveMaximum": limit,
            "multipleOf": st.sampled_from([1, 2, 3, 7, 10]),
        },
    )


def composed(inner):
    names = st.sampled_from(NAMES)
    objects = st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(names, inner, max_size=3),
            "required": st.lists(names, max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
            "maxProperties": st.integers(0, 3),
            "minProperties": st.integers(0, 1),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": st.integers(0, 3),
            "maxItems": st.integers(0, 3),
        },
    )
    several = st.lists(inner, min_size=1, max_size=3)
    joined = st.one_of(
        st.builds(lambda s: {"anyOf": s}, several),
        st.builds(lambda s: {"oneOf": s}, several),
        st.builds(lambda s: {"allOf": s}, several),
        st.builds(lambda s: {"not": s}, inner),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
        st.builds(
            lambda a, b: {**a, "allOf": [b]}, inner.filter(lambda x: x not in (True, False)), inner
        ),
        st.just({"$ref": "#"}),
    )
    return st.one_of(objects, arrays, joined)


def schemas():
    leaves = st.one_of(
        st.booleans(),
        st.just({}),
        strings(),
        numbers(),
        st.builds(lambda v: {"enum": v}, st.lists(values(), min_size=1, max_size=3)),
        st.builds(lambda v: {"const": v}, scalars()),
        st.builds(
            lambda t: {"type": t},
            st.lists(
                st.sampled_from(
                    ["null", "boolean", "integer", "number", "string", "array", "object"]
                ),
                min_size=1,
                max_size=3,
                unique=True,
            ),
        ),
    )
    return st.recursive(leaves, composed, max_leaves=5)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(), st.lists(values(), min_size=1, max_size=6))
def test_grammar_agrees_with_jsonschema(schema, instances):
    try:
        grammar = grammar_of(schema)
    except faults.Error as e:
        event(str(e).rsplit(": ", 1)[-1][:40])
        assume(False)
    validator = jsonschema.Draft202012Validator(schema)
    for value in instances:
        try:
            valid = validator.is_valid(value)
        except RecursionError:
            continue
        orders = every_order(value)
        accepted = [accepts(grammar, json.dumps(v)) for v in orders]
        assert valid or not any(accepted), (schema, value)
        # some order of the properties is the schema's
        assert not valid or any(accepted), (schema, value)
        event("valid" if valid else "invalid")


def every_order(value, limit=200):
    """`value` with the properties of its objects in all orders."""
    if isinstance(value, list):
        parts = [every_order(v) for v in value]
        return [list(each) for each in itertools.islice(itertools.product(*parts), limit)]
    if isinstance(value, dict):
        out = []
        for names in itertools.permutations(value):
            parts = [every_order(value[n]) for n in names]
            out += [dict(zip(names, each)) for each in itertools.product(*parts)]
        return out[:limit]
    return [value]


BOUNDS = {name: bounds for name, bounds in NUMBERS.items() if bounds}
EDGES = sorted({b + d for pair in BOUNDS.values() for b in pair for d in (-1, 0, 1)})
FORMATS = jsonschema.FormatChecker(formats=())
for _name in BOUNDS:

    @FORMATS.checks(_name)
    def _is_within(value, bounds=BOUNDS[_name]):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True
        return value == int(value) and bounds[0] <= value <= bounds[1]


def sized():
    """Schemas with a format of numbers, and all that may meet it."""
    limit = st.one_of(st.sampled_from(EDGES), st.integers(-12, 300), st.sampled_from([-3.5, 0.5]))
    value = st.one_of(limit, st.sampled_from([None, True, "12"]))
    words = ["integer", "number", ["integer", "null"], ["number", "string"]]
    leaf = st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(words),
            "format": st.sampled_from(list(NUMBERS)),
            **dict.fromkeys(
                ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
                limit,
            ),
            "multipleOf": st.sampled_from([1, 2, 3, 7, 10, 100]),
            "enum": st.lists(value, min_size=1, max_size=4),
            "const": value,
        },
    )
    plain = st.builds(lambda name: {"format": name}, st.sampled_from(list(NUMBERS)))

    def joined(inner):
        several = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            *(st.builds(lambda s, k=k: {k: s}, several) for k in ("anyOf", "oneOf", "allOf")),
            st.builds(lambda a, b: {**a, "not": b}, inner, inner),
            st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
        )

    return st.recursive(st.one_of(leaf, plain), joined, max_leaves=4), value


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(sized()[0], st.lists(sized()[1], min_size=1, max_size=12))
def test_formats_of_numbers_agree_with_their_bounds(schema, instances):
    """In every combination: none is refused, as each has an opposite."""
    grammar = grammar_of(schema)
    validator = jsonschema.Draft202012Validator(schema, format_checker=FORMATS)
    for value in instances:
        assert accepts(grammar, json.dumps(value)) is validator.is_valid(value), (schema, value)
