"""Stored bodies to Arrow columns without a Python object per record. Knows bodies, no Spark.

`rows.RangeRows` is what the rest uses. One module per body format makes `columns.Columns` of a
whole run of batches with numpy; whatever is irregular there goes through the plain codec.
"""
