def process_results(doc, results):
    """A number, and a list that only an aggregation of its own can average."""
    return {"even": len(results[0]) % 2 == 0, "bytes": list(results[0].encode())}


def share_low(lists):
    flat = [byte for one in lists for byte in one]
    return sum(byte < 128 for byte in flat) / len(flat)
