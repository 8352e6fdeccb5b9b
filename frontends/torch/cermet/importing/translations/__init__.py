"""What single torch calls are in graph text: a table from a call to its translation for each kind of call."""
