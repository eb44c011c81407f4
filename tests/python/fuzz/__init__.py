"""Random PyTorch programs, compiled and compared with eager and with a double-precision run; see ``__main__``."""
