"""``train.compile``: the layers of the policy under ``torch.compile``."""
