"""The journal as a table and a stream: offsets, readers, and a stream that could not be opened."""
