"""An FX graph as graph text, and the tables of what single torch calls mean in it."""
