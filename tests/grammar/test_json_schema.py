"""JSON Schema as a grammar: what each keyword allows, what is refused by name and place, layout,
hostile schemas, and texts that random choices make.
"""

import json
import random
import subprocess

import jsonschema
import pytest
from conftest import run
from grammar_words import Words
from schema_grammar import accepts, grammar_of

import sluice
from sluice import faults
from sluice.grammar import matcher, show, sources

# Keywords ------------------------------------------------------------------------

KEYWORDS = [  # schema, texts that it allows, texts that it does not
    ({"type": "integer", "enum": [1, 2.0]}, ["1", "2"], ["1.0", "2.0"]),
    ({"type": "integer"}, ["0", "-7", "120"], ["01", "1.5", "-", "+1", "1e3", " 1", "1 "]),
    (
        {"type": "number"},
        ["0", "-7.25", "1e9", "1.5E-3", "1e+100", "-2e-299"],
        [".5", "1.", "1e", "NaN", "1e300", "1e0009"],
    ),
    ({"type": ["string", "null"]}, ['""', "null", r'"\u00e9\n\ud83d\ude00"'], ["1", r'"\ud800"']),
    ({"type": "string"}, ['"é"', r'"\/"', '"\x7f"'], ['"\n"', r'"\x"', '"a']),
    (
        {"minLength": 2, "maxLength": 3},
        ['"ab"', '"é😀"', r'"\ud83d\ude00\n"', "7"],
        ['"a"', '"abcd"'],
    ),
    (
        {"enum": ["a", 1, {"b": [True]}]},
        ['"a"', "1", "1.0", '{"b":[true]}', '{"b": [true]}'],
        ['"b"'],
    ),
    (
        {"type": "integer", "minimum": -3, "maximum": 120},
        ["-3", "0", "99", "120"],
        ["-4", "121", "-0"],
    ),
    ({"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 11}, ["10"], ["9", "11"]),
    (
        {"type": "number", "minimum": 0.5, "maximum": 2},
        ["0.5", "1", "1.999", "2.0"],
        ["0.49", "2.01"],
    ),
    (
        {"type": "number", "exclusiveMaximum": 3},
        ["2.999", "-8"],
        ["3", "3.0", "2.99999999999999999"],
    ),
    ({"type": "number", "minimum": -1.5, "maximum": -0.25}, ["-1.5", "-0.25", "-1"], ["-0.2", "0"]),
    ({"type": "integer", "multipleOf": 7}, ["0", "14", "-21"], ["1", "15"]),
    ({"type": "integer", "multipleOf": 30, "minimum": 100}, ["120"], ["90", "110"]),
    (
        {"format": "int32"},
        ["-2147483648", "2147483647", '"a"'],
        ["2147483648", "-2147483649", "0.5"],
    ),
    ({"type": "integer", "format": "uint8", "minimum": 250}, ["250", "255"], ["249", "256"]),
    ({"type": "number", "format": "double"}, ["1.5", "-3e9"], ['"a"']),
    ({"format": "int64", "enum": [7, 1.5, 9223372036854775808, "a"]}, ["7", '"a"'], ["1.5"]),
    ({"type": "integer", "multipleOf": 10**9}, ["0", "3000000000"], ["100", "3000000001"]),
    ({"type": "string", "pattern": "^[a-z]+[0-9]?$"}, ['"ab1"', '"a"'], ['""', '"A"', '"a12"']),
    ({"type": "string", "pattern": "b"}, ['"abc"', '"b"'], ['"ac"']),
    ({"type": "string", "pattern": "^a|b$"}, ['"axx"', '"xxb"'], ['"xax"']),
    ({"pattern": '^"\\\\\n$'}, [r'"\"\\\n"'], ['"a"']),
    ({"pattern": "^[ab]+$", "minLength": 2, "maxLength": 3}, ['"ab"', '"aba"'], ['"a"', '"abab"']),
    ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, ['"xbya"'], ['"a"']),
    (
        {"items": {"type": "integer"}, "maxItems": 2},
        ["[]", "[1]", "[1, 2]", "[1,2]"],
        ["[1,2,3]", '["a"]'],
    ),
    ({"type": "array", "minItems": 2, "items": {"const": 1}}, ["[1,1]", "[1,1,1]"], ["[]", "[1]"]),
    (
        {"prefixItems": [{"const": 1}, {"const": 2}], "items": False},
        ["[]", "[1]", "[1, 2]"],
        ["[2]", "[1,2,3]"],
    ),
    ({"items": [{"const": 1}], "additionalItems": {"const": 2}}, ["[1,2,2]"], ["[1,1]"]),
    (
        {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["b"]},
        ['{"b": 2}', '{"a":1,"b":2}', '{"a": 1, "b": 2, "c": [null]}'],
        [
            "{}",
            '{"a": 1}',
            '{"b": 2, "a": 1}',
            '{"b": 3}',
            '{"b": 2, "b": 2}',
            r'{"b": 2, "\u0062": 3}',
        ],
    ),
    ({"additionalProperties": False, "properties": {"a": {}}}, ["{}", '{"a":1}'], ['{"b":1}']),
    (
        {"additionalProperties": {"const": 1}, "type": "object"},
        ["{}", '{"x":1,"y":1}'],
        ['{"x":2}'],
    ),
    ({"patternProperties": {"^n": {"const": 1}}}, ['{"n":1,"x":2}'], ['{"na":2}']),
    ({"propertyNames": {"maxLength": 2}}, ['{"ab":1}'], ['{"abc":1}']),
    ({"maxProperties": 1}, ["{}", '{"a":1}'], ['{"a":1,"b":1}']),
    ({"minProperties": 1, "type": "object"}, ['{"a":1}'], ["{}"]),
    ({"properties": {"é": {"const": 1}}, "required": ["é"]}, ['{"é":1}', r'{"\u00e9":1}'], ["{}"]),
    ({"anyOf": [{"type": "null"}, {"minimum": 3}]}, ["null", "3", '"a"'], ["2"]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, ["1", "2.5"], ["3", "1.5"]),
    ({"not": {"type": ["string", "object", "array"]}}, ["1", "null"], ['"a"', "[]"]),
    ({"not": {"required": ["a"]}}, ["{}", '{"b":1}'], ['{"a":1}', "1"]),
    ({"if": {"minimum": 10}, "then": {"multipleOf": 10}, "type": "integer"}, ["3", "20"], ["11"]),
    (
        {"type": "object", "dependentRequired": {"a": ["b"]}},
        ["{}", '{"b":1}', '{"a":1,"b":1}'],
        ['{"a":1}'],
    ),
    ({"type": "object", "dependencies": {"a": {"required": ["b"]}}}, ['{"b":1}'], ['{"a":1}']),
    (
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#"}}}},
        ["[[],[[]]]"],
        ["[1]"],
    ),
    (
        {"type": "string", "format": "date"},
        ['"2024-02-29"', '"1999-12-31"', '"0001-01-01"', '"0400-02-29"', '"2000-02-29"'],
        ['"2023-02-29"', '"1999-13-01"', '"0000-01-01"', '"0000-02-29"', '"1900-02-29"'],
    ),
    (
        {"type": "string", "format": "time"},
        ['"23:59:60Z"', '"12:00:00.5+01:30"'],
        ['"24:00:00Z"', '"12:00:00"'],
    ),
    (
        {"type": "string", "format": "duration"},
        ['"P1Y2M3DT4H"', '"P4W"', '"PT5S"'],
        ['"P"', '"P1D2H"', '"PT1H2S"'],
    ),
    (
        {"type": "string", "format": "hostname"},
        ['"a-b.example"', '"a"'],
        ['"-a.b"', '"a..b"', '"%s"' % ("a" * 64)],
    ),
    (
        {"type": "string", "format": "ipv6"},
        ['"::1"', '"1:2::3"', '"::ffff:1.2.3.4"'],
        ['"1:2"', '":::"', '"12345::"'],
    ),
    (
        {"type": "string", "format": "uri"},
        ['"http://a.b/c?d#e"', '"mailto:x"'],
        ['"/a"', '"http://a b"'],
    ),
    ({"type": "string", "format": "email"}, ['"a.b@c.example"'], ['"a"', '"a..b@c"', '"@c"']),
    ({"exclusiveMinimum": True, "minimum": 3, "type": "integer"}, ["4"], ["3"]),
    (True, ["1", "[{}]"], ["", "x"]),
    ({}, ['{"a": [1, {"b": null}]}'], ["{'a':1}", "[1,]", '{"a":1,}']),
]


@pytest.mark.parametrize(
    "schema, allowed, refused", KEYWORDS, ids=[str(k[0])[:60] for k in KEYWORDS]
)
def test_keyword_allows(schema, allowed, refused):
    grammar = grammar_of(schema)
    assert [t for t in allowed if not accepts(grammar, t)] == []
    assert [t for t in refused if accepts(grammar, t)] == []
    validator = jsonschema.Draft202012Validator(schema)
    if not ("exclusiveMinimum" in str(schema) and "True" in str(schema)) and "addit" not in str(
        schema
    ):
        for text in allowed if "dependencies" not in str(schema) else []:
            assert validator.is_valid(json.loads(text)), text


@pytest.mark.parametrize(
    "schema, allowed, refused", KEYWORDS, ids=[str(k[0])[:60] for k in KEYWORDS]
)
def test_printed_grammar_is_the_same(schema, allowed, refused):
    printed = show.gbnf(sources.of_schema(json.dumps(schema).encode(), "s"))
    grammar = matcher.Grammar(printed, "printed")
    assert [t for t in allowed if not accepts(grammar, t)] == []
    assert [t for t in refused if accepts(grammar, t)] == []


# Refusals ------------------------------------------------------------------------

REFUSED = [  # schema, exit code, place, part of the message
    (
        {"properties": {"a": {"uniqueItems": True}}},
        69,
        "#/properties/a/uniqueItems",
        "not supported",
    ),
    ({"items": {"contains": {}}}, 69, "#/items/contains", "not supported"),
    ({"format": "phone"}, 69, "#/format", "'phone' is not supported (--json-schema-lax leaves it"),
    ({"anyOf": [True, {"pattern": "(?=a)"}]}, 69, "#/anyOf/1/pattern", "lookahead"),
    ({"pattern": r"(a)\1"}, 69, "#/pattern", "reference to a group"),
    ({"pattern": r"\ba"}, 69, "#/pattern", "word boundary"),
    ({"multipleOf": 0.1}, 69, "#/multipleOf", "whole numbers"),
    ({"$ref": "http://example.com/x"}, 69, "#/$ref", "another document"),
    ({"$dynamicRef": "#a"}, 69, "#/$dynamicRef", "not supported"),
    ({"unevaluatedProperties": False}, 69, "#/unevaluatedProperties", "not supported"),
    (
        {"oneOf": [{"items": {"minimum": 1}}, {"items": {"minimum": 2}}]},
        69,
        "#/oneOf",
        "told apart",
    ),
    ({"minProperties": 2}, 69, "#/minProperties", "may repeat"),
    (
        {"a/b": 1, "properties": {"a/b~": {"type": "strng"}}},
        65,
        "#/properties/a~1b~0/type",
        "not a type",
    ),
    (
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1e-300},
        69,
        "#/exclusiveMinimum",
        "more than 60 digits after the point",
    ),
    ({"maximum": -1e31}, 69, "#/maximum", "beyond 1e+30"),
    (
        {"$ref": "#/components/Pet", "components": {"Pet": {"allOf": [{"format": "phone"}]}}},
        69,
        "#/components/Pet/allOf/0/format",
        "not supported",
    ),
    ({"pattern": "("}, 65, "#/pattern", "never closed"),
    ({"minimum": "3"}, 65, "#/minimum", "not a number"),
    ({"maxItems": -1}, 65, "#/maxItems", "not a number of things"),
    ({"required": "a"}, 65, "#/required", "not a list of names"),
    ({"properties": []}, 65, "#/properties", "not an object"),
    ({"anyOf": []}, 65, "#/anyOf", "not a list of schemas"),
    ({"$ref": "#/$defs/none"}, 65, "#/$ref", "no schema at"),
    ({"$ref": "#"}, 65, "#", "refers to itself"),
    (
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, True]}}, "$ref": "#/$defs/a"},
        65,
        "#/$defs/a",
        "itself",
    ),
    (False, 65, "", "allows no value"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, 65, "", "allows no value"),
    (
        {"required": ["a"], "properties": {"a": {"$ref": "#"}}, "type": "object"},
        65,
        "",
        "allows no value",
    ),
    ([], 65, "", "a schema is an object"),
]


@pytest.mark.parametrize(
    "schema, code, place, part", REFUSED, ids=[str(r[0])[:60] for r in REFUSED]
)
def test_refusal_names_place_and_cause(schema, code, place, part):
    with pytest.raises(faults.Error) as e:
        sources.of_schema(json.dumps(schema).encode(), "file.json")
    assert e.value.code == code
    assert str(e.value).startswith(f"file.json: {place}") and part in str(e.value)
    assert "\n" not in str(e.value)


def test_lax_leaves_keywords_out_and_says_so(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(
        '{"type": "array", "uniqueItems": true, "items": {"format": "x", "type": "string"}}'
    )
    done = run("grammar-filter", "--json-schema", path, "--check", input=b'["a", "a"]')
    assert done.returncode == 69 and done.stderr.count(b"\n") == 1
    done = run(
        "grammar-filter", "--json-schema", path, "--json-schema-lax", "--check", input=b'["a", "a"]'
    )
    assert done.returncode == 0
    assert b"#/uniqueItems: not supported; left out" in done.stderr
    assert b"#/items/format: the format 'x' is not supported; left out" in done.stderr


# Layout --------------------------------------------------------------------------

NESTED = {"a": [1, {"b": {}}, []], "c": {"d": "x"}, "e": [[[]]]}


@pytest.mark.parametrize("indent", [0, 1, 2, 4])
def test_indented_layout_is_that_of_json_dumps(indent):
    for schema in ({}, {"const": NESTED}, {"properties": {"a": {"items": {}}, "c": {}}}):
        grammar = grammar_of(schema, indent=indent)
        assert accepts(grammar, json.dumps(NESTED, indent=indent))
        assert not accepts(grammar, json.dumps(NESTED))
        assert not accepts(grammar, json.dumps(NESTED, indent=indent + 1))


def test_white_space_is_bounded():
    grammar = grammar_of({})
    for text in ('{"a":  1}', '{ "a": 1}', "[1 ,2]", "[1,  2]", " 1", "1\n", "[\n1]"):
        assert not accepts(grammar, text)


# Commands ------------------------------------------------------------------------


def test_commands_take_schema_from_text_file_and_stdin(tmp_path):
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
    path = tmp_path / "s.json"
    path.write_text(schema)
    for given in (schema, path):
        for text, code in ((b'{"a": 3}', 0), (b'{"a": "3"}', 1), (b"", 1)):
            done = run("grammar-filter", "--json-schema", given, "--check", input=text)
            assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")
    done = run("grammar-filter", "--json-schema", "-", "--print", input=schema.encode())
    assert done.returncode == 0 and done.stdout.startswith(b'root ::= "{"')
    printed = tmp_path / "g.gbnf"
    printed.write_bytes(done.stdout)
    assert run("grammar-filter", "-g", printed, "--check", input=b'{"a": 3}').returncode == 0


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["new", "old"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def test_generated_texts_validate(datafile):
    model = datafile("models/stories260K.gguf")
    for seed in range(1, 9):
        options = ["-n", 100, "--seed", seed, "--json-schema", json.dumps(PERSON)]
        done = run("generate", "-m", model, *options, "Anna is", stdin=subprocess.DEVNULL)
        assert (done.returncode, done.stderr) == (0, b"")
        jsonschema.validate(json.loads(done.stdout), PERSON)
    done = run(
        "chat", "-m", model, "--template", "plain", *options, "--json-indent", 1, input=b"Anna\n"
    )
    assert done.returncode == 0
    value = json.loads(done.stdout)
    jsonschema.validate(value, PERSON)
    assert done.stdout.decode() == json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def test_python_takes_schema_and_expression(datafile):
    with sluice.load(str(datafile("models/stories260K.gguf"))) as model:
        for schema in (PERSON, json.dumps(PERSON)):
            text = "".join(model.generate("Anna is", json_schema=schema, max_tokens=100, seed=1))
            jsonschema.validate(json.loads(text), PERSON)
        assert "".join(model.generate("1 + 1 =", regex="[0-9]{3}", max_tokens=9)).isdigit()
        with pytest.raises(ValueError, match="exclude each other"):
            model.generate("a", regex="a", grammar='root ::= "a"')
        with pytest.raises(sluice.UnsupportedError, match="json_schema: #/contains"):
            model.generate("a", json_schema={"contains": {}})


@pytest.mark.parametrize(
    "options, part",
    [
        (["--json-schema", "{}", "--regex", "a", "--check"], b"exclude each other"),
        (["--json-schema-lax", "--regex", "a", "--check"], b"only with --json-schema"),
        (["--json-schema", "-", "--check"], b"stdin"),
        (["--json-schema", "{}", "--check", "--print"], b"exclude each other"),
        (["--check"], b"--json-schema"),
    ],
)
def test_usage(options, part):
    done = run("grammar-filter", *options)
    assert done.returncode == 64 and part in done.stderr


# Hostile schemas -----------------------------------------------------------------

HOSTILE = {
    "more bytes than are read": '{"enum": ["%s"]}' % ("x" * (4 << 20)),
    "nested brackets": '{"not":' * 100_000,
    "100,000 values": json.dumps({"enum": list(range(100_000))}),
    "100,000 alternatives": json.dumps({"anyOf": [{"const": i} for i in range(100_000)]}),
    "alternatives of alternatives": json.dumps(
        {"allOf": [{"anyOf": [{"minimum": i}, {"maxLength": i}]} for i in range(40)]}
    ),
    "references of references": json.dumps(
        {
            "$ref": "#/$defs/0",
            "$defs": {
                **{str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(40)},
                "40": {},
            },
        }
    ),
    "20,000 properties": json.dumps({"properties": {f"p{i}": {} for i in range(20_000)}}),
    "a long name": json.dumps({"properties": {"x" * 100_000: {}}}),
    "an exponential automaton": json.dumps({"pattern": "(a|b)*a(a|b){40}", "maxLength": 1000}),
    "nested counts": json.dumps({"pattern": "^((((a{1,99}){1,99}){1,99}){1,99}){1,99}$"}),
    "60,000 groups": json.dumps({"pattern": "(" * 60_000}),
    "a billion items": json.dumps({"type": "array", "minItems": 10**9}),
    "many digits": '{"minimum": %s}' % ("9" * 5000),
    "a large exponent": '{"minimum": 1e99999999}',
    "not UTF-8": b'{"const": "\xff"}',
    "a lone surrogate": r'{"const": "\ud800"}',
    "a name twice": '{"properties": {"a": {"type": "null", "type": "string"}}}',
    "keys of ours": '{"whole": 1, "excluded": 2, "multiple": 3}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schema_ends_soon_with_one_line(name, tmp_path):
    path = tmp_path / "s.json"
    data = HOSTILE[name]
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    done = run("grammar-filter", "--json-schema", path, "--check", input=b"7", timeout=60)
    assert done.returncode in (0, 1, 65, 69)
    assert done.stderr.count(b"\n") == (done.returncode > 1)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("text", [b"[" * 1_000_000, b'{"a":' * 200_000, b'"' + b"a" * 1_000_000])
def test_deep_and_long_texts_are_bounded(text):
    assert run("grammar-filter", "--json-schema", "true", "--check", input=text).returncode == 1


# What random choices make ---------------------------------------------------------

BYTES = Words([bytes([b]) for b in range(256)])
# the formats that jsonschema checks without other packages, as RFCs have them
FORMATS = jsonschema.FormatChecker(["date", "email", "ipv4", "ipv6", "uuid"])
MADE = [
    k[0] for k in KEYWORDS if isinstance(k[0], dict) and not ({"dependencies", "$ref"} & set(k[0]))
]


@pytest.mark.parametrize("schema", MADE, ids=[str(s)[:60] for s in MADE])
def test_random_texts_validate(schema):
    if schema.get("exclusiveMinimum") is True or isinstance(schema.get("items"), list):
        schema = {"$schema": "http://json-schema.org/draft-04/schema#", **schema}
    grammar, rng = grammar_of(schema), random.Random(str(schema))
    check = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    validator = check(schema, format_checker=FORMATS)
    n_made = 0
    for _ in range(60):
        text = random_text(grammar, rng)
        if text is not None:
            n_made += 1
            assert validator.is_valid(json.loads(text)), text
    assert n_made > 5


def random_text(grammar, rng, limit=300):
    """A text that random bytes make, or None if it got too long; closing bytes are preferred."""
    m, out = matcher.Matcher(grammar, BYTES), bytearray()
    while len(out) < limit:
        bits, _ = m.allowed()
        allowed = [b for b in range(256) if bits[b // 64] >> b % 64 & 1]
        if m.complete and (not allowed or rng.random() < 0.5):
            return out.decode()
        ends = [b for b in allowed if chr(b) in '"}]']
        if ends and rng.random() < 0.3:
            allowed = ends
        else:
            allowed = [b for b in allowed if b < 128 or rng.random() < 0.1] or allowed
        byte = rng.choice(allowed)
        assert m.feed(bytes([byte]))
        out.append(byte)
    return None


def test_rules_of_like_names_are_not_confused():
    """The rule of any value and the second rule of an object called "value" have names of their
    own.
    """
    inner = {
        "type": "object",
        "properties": {"kind": {"const": 1}, "unwrap": {"type": "boolean"}},
        "required": ["kind"],
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": {"key": {"type": "string"}, "value": {"oneOf": [{"type": "string"}, inner]}},
    }
    grammar = grammar_of(schema)
    assert accepts(grammar, '{"id": {"unwrap": 1}}')
    assert not accepts(grammar, '{"id": unwrap": true}')
