//! Test buffers beside memory that nobody may touch.
//!
//! Machine code that the engine makes is invisible to AddressSanitizer. A buffer whose last byte lies before an inaccessible
//! page turns each access behind its end into a fault; one whose first byte lies after such a page, each access before it.

use std::ptr;

/// Which end of a buffer touches an inaccessible page.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Guard {
    Front,
    Back,
}

/// What the rest of the pages holds.
const CANARY: u8 = 0xa5;

/// Memory of its own pages, between two that are inaccessible.
pub struct Guarded {
    map: *mut u8,
    page: usize,
    pages: usize,
    start: usize,
    bytes: usize,
}

impl Guarded {
    /// `bytes` bytes at a multiple of `align`. With `bytes` one, too, both guards are exact.
    pub fn new(bytes: usize, align: usize, guard: Guard) -> Guarded {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let pages = bytes.div_ceil(page).max(1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new pages, of which those in the middle are made accessible.
        let map = unsafe {
            let map = libc::mmap(ptr::null_mut(), (pages + 2) * page, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED, "no memory for {bytes} bytes");
            let map = map.cast::<u8>();
            assert_eq!(libc::mprotect(map.add(page).cast(), pages * page, libc::PROT_READ | libc::PROT_WRITE), 0);
            ptr::write_bytes(map.add(page), CANARY, pages * page);
            map
        };
        let start = match guard {
            Guard::Front => page,
            Guard::Back => page + (pages * page - bytes) / align * align,
        };
        Guarded { map, page, pages, start, bytes }
    }

    /// A copy of the first `bytes` bytes of `words`.
    pub fn of(words: &[u64], bytes: usize, align: usize, guard: Guard) -> Guarded {
        let g = Guarded::new(bytes, align, guard);
        assert!(bytes <= words.len() * 8);
        // SAFETY: both are so long.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr().cast(), g.pointer(), bytes) };
        g
    }

    pub fn pointer(&self) -> *mut u8 {
        // SAFETY: within the map.
        unsafe { self.map.add(self.start) }
    }

    /// Copies the content back, after a look at the bytes around it.
    pub fn into_words(self, words: &mut [u64]) {
        self.check();
        assert!(self.bytes <= words.len() * 8);
        // SAFETY: both are so long.
        unsafe { ptr::copy_nonoverlapping(self.pointer(), words.as_mut_ptr().cast(), self.bytes) };
    }

    /// Nothing wrote to the rest of the pages.
    pub fn check(&self) {
        // SAFETY: the accessible part.
        let all = unsafe { std::slice::from_raw_parts(self.map.add(self.page), self.pages * self.page) };
        let (before, rest) = all.split_at(self.start - self.page);
        let wrong = before.iter().chain(&rest[self.bytes..]).position(|b| *b != CANARY);
        assert_eq!(wrong, None, "written outside of a buffer of {} bytes", self.bytes);
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing points there any more.
        unsafe { libc::munmap(self.map.cast(), (self.pages + 2) * self.page) };
    }
}
