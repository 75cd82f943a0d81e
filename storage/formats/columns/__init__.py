"""Stored bodies to Arrow columns without a Python object per record. Knows bodies, no Spark.

Other code uses `rows.RangeRows`. A module per body format converts a whole run of batches to
`columns.Columns` with numpy. Irregular batches go through the plain codec.
"""
