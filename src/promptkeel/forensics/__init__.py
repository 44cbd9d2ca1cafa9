"""Where cached tokens were lost, and why, for requests of any framework: no store, no migration."""
