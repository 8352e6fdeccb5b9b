"""Layers that Dynamo does not trace, as they are like one that it traced."""
