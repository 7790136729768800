"""Where the code of a run came from: its git checkout, and files that its config names."""
