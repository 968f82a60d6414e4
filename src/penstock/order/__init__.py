"""Which row comes when, and whose it is. Arithmetic on numpy: no files, no clock, no torch."""
