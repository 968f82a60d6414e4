"""Files → documents → shards: sources, clean, dedup, tokenize, split, prepare."""
