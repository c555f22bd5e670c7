"""Pure functions of DataFrames and Columns: they neither read nor write."""
