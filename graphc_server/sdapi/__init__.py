"""A1111's and Forge's API: `/sdapi/v1` and `/internal`.

Source: AUTOMATIC1111's modules/api/api.py, models.py and modules/processing.py; Forge's additions to them.
"""
