"""What-if by replay: the recorded steps once more, without some of their syncs."""
