"""The logits of MaxViT in torchvision are divided by the root of the number of channels, not of the width of a head."""

from torchvision.models.maxvit import RelativePositionalMultiHeadAttention

layer = RelativePositionalMultiHeadAttention(feat_dim=128, head_dim=32, max_seq_len=49)
print("scale:", layer.scale_factor, "of a head's width:", 32**-0.5)
assert layer.scale_factor == 128**-0.5
