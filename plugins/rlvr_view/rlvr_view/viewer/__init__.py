"""``rlvr view``: a local web app over the folders of runs."""
