"""How many tokens a KV cache has room for."""

from ..limits import MAX_CAPACITY

# rows that a cache has beyond its tokens, and the multiple that its capacity is rounded to
ROOM = 1024


def limit(n_ctx: int, capacity: int | None = None) -> int:
    """The most tokens a cache may hold: `capacity` where it is given, else a model's context."""
    return capacity or min(n_ctx, MAX_CAPACITY)


def rows(n_tok: int, limit: int, n_more: int = 0) -> int:
    """The capacity of a new cache of `n_tok` tokens that `n_more` will follow: at most `limit`."""
    return min(limit, -(-(n_tok + max(ROOM, n_more)) // ROOM) * ROOM)


def remedy(limit: int, capacity: int | None = None) -> str:
    """The end of a message that there are more tokens than `limit`, for the `capacity` asked
    for.
    """
    if capacity or limit == MAX_CAPACITY:
        return ""
    return ", the model's context (a larger --ctx-size overrides it)"
