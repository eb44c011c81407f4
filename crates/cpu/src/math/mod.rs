//! Vector math: branch-free scalar functions that LLVM vectorises; within 2 ulp of correctly rounded.
