"""The parts of a MEGA layer as ``nn.Module``s on batch-first tensors (B, L, D); nothing here knows fairseq."""
