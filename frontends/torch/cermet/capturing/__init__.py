"""Packs from a model that has no numbers, for devices that are not here."""
