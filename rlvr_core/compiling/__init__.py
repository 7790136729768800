"""``train.compile``: the layers and the LM head of the policy under ``torch.compile``."""
