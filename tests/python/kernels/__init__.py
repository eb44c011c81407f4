"""Generated Triton kernels: run in Triton's interpreter, and compiled without a device."""
