"""Rows → tensors, with a cursor."""
