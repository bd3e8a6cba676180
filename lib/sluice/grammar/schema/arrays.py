"""Arrays: their items and how many, as nodes of a grammar."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .compiler import Compiler
    from .logic import Conjunct


def build(compiler: "Compiler", c: "Conjunct", depth: int) -> int:
    """Return the node of the arrays that a Conjunct allows."""
    b, layout = compiler.builder, compiler.layout
    minimum, maximum = c.min_items, c.max_items
    if maximum is not None and maximum < minimum:
        return b.nothing()
    if maximum == 0:
        return b.text(b"[]")
    first = max((len(prefix) for prefix, _ in c.arrays), default=0)
    if maximum is not None:
        first = min(first, maximum)

    def item(i):
        literals = [(p[i] if i < len(p) else rest, True) for p, rest in c.arrays]
        return compiler.value(literals, depth + 1, "item")

    def more(node):
        return b.sequence([*layout.comma(b, depth), node])

    rest_maximum = None if maximum is None else maximum - first
    if first == 0:
        if rest_maximum is not None:
            rest_maximum -= 1
        inner = b.sequence([item(0), b.repeat(more(item(0)), max(0, minimum - 1), rest_maximum)])
    else:
        nodes = []
        if rest_maximum != 0:
            nodes.append(b.repeat(more(item(first)), max(0, minimum - first), rest_maximum))
        for i in range(first - 1, -1, -1):
            nodes.insert(0, item(i) if i == 0 else more(item(i)))
            if i > 0 and i >= minimum:
                nodes = [b.repeat(b.sequence(nodes), 0, 1)]
        inner = b.sequence(nodes)
    opening = layout.open(depth)
    parts = [b.sequence(([b.text(opening)] if opening else []) + [inner] + layout.close(b, depth))]
    if minimum == 0:
        parts.append(b.empty())
    return b.sequence([b.text(b"["), b.choice(parts), b.text(b"]")])
