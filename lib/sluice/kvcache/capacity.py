"""Size of a KV cache, in tokens: the limit, and the rows of a new cache."""

from ..limits import MAX_CAPACITY

# rows of a cache beyond its tokens; the capacity is rounded up to a multiple of this
SPARE = 1024


def limit(n_ctx: int, capacity: int | None = None) -> int:
    """Return the maximum number of tokens of a cache: `capacity` if given, else the model's
    context.
    """
    return capacity or min(n_ctx, MAX_CAPACITY)


def rows(n_tok: int, limit: int, n_more: int = 0) -> int:
    """Return the capacity of a new cache of `n_tok` tokens that `n_more` will follow; at most
    `limit`.
    """
    return min(limit, -(-(n_tok + max(SPARE, n_more)) // SPARE) * SPARE)


def remedy(limit: int, capacity: int | None = None) -> str:
    """Return the end of a message about more tokens than `limit`, for the `capacity` the user
    gave.
    """
    if capacity or limit == MAX_CAPACITY:
        return ""
    return ", the model's context (a larger --ctx-size overrides it)"
