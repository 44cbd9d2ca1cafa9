"""Why cached tokens are lost, in the traffic of any framework: no store, no migration, requests and usage suffice."""
