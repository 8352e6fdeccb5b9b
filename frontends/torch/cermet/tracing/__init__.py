"""How Dynamo traces what Cermet compiles: what it need not trace again, what ends no graph and what is no symbol."""
