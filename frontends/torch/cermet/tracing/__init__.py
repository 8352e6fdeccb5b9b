"""How Dynamo traces what Cermet compiles: what it need not trace again, and what neither ends a graph nor is a symbol."""
