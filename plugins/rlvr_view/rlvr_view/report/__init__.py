"""``rlvr report``: runs as one HTML page that needs no network, and as images of its plots."""
