//! The memory allocator of the Python module and of the command, and a counter of allocations for tests.
//!
//! Compiling makes many small objects: with the C library's allocator a third of its time went there. `mimalloc`'s own
//! Rust crate asks for aligned memory each time, which costs a detour for most sizes though every block is aligned to eight
//! bytes as it is.
//!
//! ```
//! use permalloy_alloc::{Counting, Mimalloc, allocated};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting<Mimalloc> = Counting(Mimalloc);
//!
//! let before = allocated();
//! let numbers = vec![1u64; 100];
//! let after = allocated();
//! assert_eq!((after.blocks - before.blocks, after.bytes - before.bytes), (1, 800));
//! # drop(numbers);
//! ```

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

/// What every block of mimalloc is aligned to.
const ALIGNED: usize = 8;

/// The allocator mimalloc.
#[derive(Clone, Copy, Debug)]
pub struct Mimalloc;

// SAFETY: mimalloc gives blocks of the size asked for, aligned to eight bytes or to what the aligned form asks for, or null;
// `mi_free` and the reallocating forms take blocks of all forms.
unsafe impl GlobalAlloc for Mimalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size may be asked for; a layout's alignment is a power of two.
        unsafe {
            if layout.align() <= ALIGNED {
                mi_malloc(layout.size()).cast()
            } else {
                mi_malloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe {
            if layout.align() <= ALIGNED {
                mi_zalloc(layout.size()).cast()
            } else {
                mi_zalloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller gives back a block of this allocator.
        unsafe { mi_free(block.cast()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the block is of this allocator and of that layout.
        unsafe {
            if layout.align() <= ALIGNED {
                mi_realloc(block.cast(), size).cast()
            } else {
                mi_realloc_aligned(block.cast(), size, layout.align()).cast()
            }
        }
    }
}

/// An allocator that counts what each thread asks it for.
#[derive(Clone, Copy, Debug)]
pub struct Counting<A>(pub A);

/// What a thread has allocated since it began, given back or not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Allocated {
    pub blocks: u64,
    pub bytes: u64,
}

thread_local! {
    static ALLOCATED: Cell<Allocated> = const { Cell::new(Allocated { blocks: 0, bytes: 0 }) };
}

/// What this thread has allocated so far, if the program's allocator is a [`Counting`] one.
pub fn allocated() -> Allocated {
    ALLOCATED.get()
}

fn count(bytes: usize) {
    let Allocated { blocks, bytes: before } = ALLOCATED.get();
    ALLOCATED.set(Allocated { blocks: blocks + 1, bytes: before + bytes as u64 });
}

// SAFETY: every call is passed on as it is; counting allocates nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those that the inner allocator asks for.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { self.0.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as in `alloc`.
        unsafe { self.0.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_hold_what_they_should_and_keep_it_when_they_grow() {
        for align in [1, 2, 8, 16, 64, 4096] {
            for size in [1, 7, 8, 24, 40, 100, 1000, 100_000] {
                let layout = Layout::from_size_align(size, align).unwrap();
                let grown = Layout::from_size_align(3 * size, align).unwrap();
                // SAFETY: sizes are not zero; each block is used within its size and given back once, with its layout.
                unsafe {
                    let zeroed = Mimalloc.alloc_zeroed(layout);
                    assert!(!zeroed.is_null() && zeroed.addr().is_multiple_of(align));
                    assert!(std::slice::from_raw_parts(zeroed, size).iter().all(|b| *b == 0));
                    let block = Mimalloc.alloc(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align));
                    block.write_bytes(7, size);
                    let block = Mimalloc.realloc(block, layout, 3 * size);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align));
                    assert!(std::slice::from_raw_parts(block, size).iter().all(|b| *b == 7));
                    Mimalloc.dealloc(zeroed, layout);
                    Mimalloc.dealloc(block, grown);
                }
            }
        }
    }
}
