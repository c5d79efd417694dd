"""A stand-in of NVIDIA's apex on the CPU: the interface that fairseq_mega uses, with readable arithmetic."""
