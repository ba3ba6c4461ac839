"""What the spark-submit jobs in ``jobs/`` share: settings, progress, a clean stop."""
