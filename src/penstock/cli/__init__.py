"""Words → calls. One file per verb; decides nothing."""
