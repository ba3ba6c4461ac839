"""How tasks that know nothing of each other keep to a common limit: a server on the driver."""
