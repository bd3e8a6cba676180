"""Order texts by how well they answer a query, as Qwen3-Reranker does: by the yes or no to it."""
