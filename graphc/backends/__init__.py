"""ggml's backends beyond the CPU: what there is, building one for this machine, loading what was built."""
