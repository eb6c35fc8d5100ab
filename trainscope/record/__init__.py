"""What runs inside the user's loop."""
