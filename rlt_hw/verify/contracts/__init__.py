"""Level 1: do our adapters call the vendors' packages as these are published?

`published/` holds signatures as data, with version and source, so that the check needs no vendor package.
python -m rlt_hw.verify.contracts           every call of every adapter against every published version
python -m rlt_hw.verify.contracts.refresh   the data again, from wheels and source archives
"""
