//! The C library's allocator, from which PyTorch's operators take their temporary buffers and results.
//!
//! glibc gives large freed blocks back to the system, which then hands out zeroed pages anew at the next step: thousands of
//! page faults for a small convolutional network. It adapts: once a block of some size was freed, blocks up to that size stay,
//! but never larger ones than 32 MB, and at most twice that at the heap's end. How far it gets depends on the order of
//! what is freed, so the limit of its adaptation is set at once.

/// Largest block that glibc's own adaptation ever keeps (`DEFAULT_MMAP_THRESHOLD_MAX` on 64 bits).
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
const LARGEST: libc::c_int = 32 << 20;

/// Lets glibc keep freed blocks as far as it would by itself at most. Does nothing where the user has set its parameters, or
/// with another C library.
pub fn keep_freed_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            let set = |name: &str| std::env::var_os(name).is_some();
            let by_user = ["GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"];
            if by_user.into_iter().any(set) {
                return;
            }
            // SAFETY: sets two parameters under the allocator's own lock.
            unsafe {
                libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST);
                libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * LARGEST);
            }
        });
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod tests {
    fn faults() -> i64 {
        // SAFETY: fills a plain structure.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage.ru_minflt
        }
    }

    #[test]
    fn a_freed_block_is_found_again_without_page_faults() {
        super::keep_freed_blocks();
        let touch = || std::hint::black_box(vec![1u8; 24 << 20]);
        drop(touch());
        let before = faults();
        for _ in 0..4 {
            drop(touch());
        }
        // Each block has 6144 pages.
        assert!(faults() - before < 1000, "{} page faults", faults() - before);
    }
}
