//! Memory that holds machine code: written first, then made executable and never writable again.

use std::fmt;

/// The code of a kernel.
pub(crate) struct Code {
    memory: memmap2::Mmap,
}

impl Code {
    /// None where the system does not let a process make code.
    pub(crate) fn new(bytes: &[u8]) -> Option<Code> {
        let mut memory = memmap2::MmapMut::map_anon(bytes.len()).ok()?;
        memory.copy_from_slice(bytes);
        Some(Code { memory: memory.make_exec().ok()? })
    }

    /// Calls the function at `entry`.
    ///
    /// # Safety
    /// `entry` is where a function made by [`super::emit::emit`] begins, for a width that this processor has, and what `arguments`
    /// and `n` name is as that function expects.
    pub(crate) unsafe fn call(&self, entry: usize, arguments: *mut *mut u8, n: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: by the contract.
        unsafe {
            let function: extern "sysv64" fn(*mut *mut u8, usize) =
                std::mem::transmute(self.memory.as_ptr().add(entry));
            function(arguments, n);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (&self.memory, entry, arguments, n);
    }
}

/// Makes streaming stores visible before whatever comes after.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({} bytes)", self.memory.len())
    }
}
