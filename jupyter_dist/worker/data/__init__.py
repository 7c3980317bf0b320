"""Data sets on a rank: shares of data sets, of Ray Datasets and of Spark DataFrames."""
