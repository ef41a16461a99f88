"""PySpark: the data source and sink, the tables, the reconciliation, the evidence check."""
