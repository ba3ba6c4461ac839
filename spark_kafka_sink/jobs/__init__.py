"""Shared parts of the spark-submit jobs in ``jobs/``: settings, progress, a clean stop."""
