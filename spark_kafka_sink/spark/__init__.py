"""Code that Spark calls: source, writer, task, commit. Only this room and jobs/ import pyspark."""
