"""What the tests and golden files of `rerank` ask: a query, and the form of Qwen3-Reranker in full,
as its model card has it.
"""

QUERY = "Where does it rain most?"
FORM = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and"
    ' the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer"
    " the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n"
    "<think>\n\n</think>\n\n"
)
