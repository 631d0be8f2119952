"""A backend whose import fails, as one with a missing library does."""

raise OSError("libvendor.so.7: cannot open shared object file")
