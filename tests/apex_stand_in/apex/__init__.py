"""A stand-in of NVIDIA's apex on the CPU: the interface that fairseq and fairseq_mega use, with readable arithmetic."""
