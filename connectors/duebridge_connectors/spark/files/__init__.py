"""Places of files, and how each library opens them: Arrow, object_store (delta-rs too), Hadoop."""
