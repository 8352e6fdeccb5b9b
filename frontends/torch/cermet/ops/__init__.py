"""libcermet from Python, and the ops that stand for regions in a torch graph."""
