"""What code is compiled for: the devices of this machine, or a target that is captured and need not be here."""
