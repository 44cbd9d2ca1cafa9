"""What model providers see, keep, refuse and charge: pure, and free of any SDK."""
