"""An emulated Databricks workspace, with real Spark."""
