"""What asks a cluster: metadata, topics, coordinators."""
