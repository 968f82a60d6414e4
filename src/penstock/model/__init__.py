"""A GPT, written once."""
