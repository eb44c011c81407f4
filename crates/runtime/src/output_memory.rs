//! Memory of outputs: blocks that go back to a pool when the tensor's storage dies, and from there to the next call.
//!
//! A page touched for the first time costs a fault, several times what writing to it costs, and the C library gives large
//! blocks back to the system as soon as they are freed. Here they stay, within two bounds:
//!
//! - unused bytes are at most what the outputs of the executables that are alive need at once ([`OutputPool::demand`]);
//! - used and unused bytes together are at most an eighth more than what was in use at one time, so that keeping memory
//!   hardly raises the peak; with no allowance for gaps too small for the next block, a step could find its largest block
//!   gone each time. Free neighbours become one and are cut anew: what the forward saved is there for the gradients, and the other
//!   way round.
//!
//! Large blocks consist of whole large pages, where the system has them; while unused they are offered to the system,
//! which takes them only when it runs short of memory.

use crate::gaps::Gaps;
use std::ptr::NonNull;
#[cfg(target_os = "linux")]
use std::sync::LazyLock;
use std::sync::{Mutex, MutexGuard};

/// Smaller outputs are better off with the provider's allocator, which keeps them too.
pub const SMALLEST: usize = 256 << 10;
/// From here on blocks are made of large pages: rounding up wastes an eighth at most.
const LARGE: usize = 16 << 20;
const LARGE_PAGE: usize = 2 << 20;
/// No system has larger ordinary pages.
const PAGE: usize = 64 << 10;

/// Blocks for outputs. Shared by all executables of the process; see the module's comment.
pub struct OutputPool {
    small: Heap,
    large: Heap,
}

/// Blocks of one page size.
struct Heap {
    page: usize,
    state: Mutex<State>,
}

struct State {
    unused: Gaps,
    unused_bytes: usize,
    used_bytes: usize,
    most_used_bytes: usize,
    /// What live executables need at once.
    needed_bytes: usize,
}

/// The process's pool.
pub fn output_pool() -> &'static OutputPool {
    static POOL: OutputPool = OutputPool::new();
    &POOL
}

impl OutputPool {
    pub const fn new() -> OutputPool {
        OutputPool { small: Heap::new(PAGE), large: Heap::new(LARGE_PAGE) }
    }

    /// A block of at least this many bytes, of unspecified content, aligned to a page.
    pub fn acquire(&self, bytes: usize) -> Result<OutputBlock<'_>, String> {
        let heap = self.heap(bytes);
        let rounded = heap.rounded(bytes).ok_or_else(|| no_memory(bytes))?;
        let data = heap.acquire(rounded).ok_or_else(|| no_memory(bytes))?;
        Ok(OutputBlock { pool: self, data, bytes: rounded })
    }

    /// Lets the pool keep memory for an executable whose outputs need blocks of these sizes at once.
    pub fn demand(&self, outputs: impl IntoIterator<Item = usize>) -> Demand<'_> {
        let mut demand = Demand { pool: self, small: 0, large: 0 };
        for bytes in outputs {
            let heap = self.heap(bytes);
            let rounded = heap.rounded(bytes).unwrap_or(0);
            if heap.page == PAGE { demand.small += rounded } else { demand.large += rounded }
        }
        self.small.state().needed_bytes += demand.small;
        self.large.state().needed_bytes += demand.large;
        demand
    }

    /// Bytes kept that no tensor uses.
    pub fn unused_bytes(&self) -> usize {
        self.small.state().unused_bytes + self.large.state().unused_bytes
    }

    /// Bytes that tensors use.
    pub fn used_bytes(&self) -> usize {
        self.small.state().used_bytes + self.large.state().used_bytes
    }

    fn heap(&self, bytes: usize) -> &Heap {
        if bytes <= LARGE - PAGE { &self.small } else { &self.large }
    }
}

impl Default for OutputPool {
    fn default() -> Self {
        OutputPool::new()
    }
}

/// What the pool may hold when this much was in use at one time.
fn with_gaps(bytes: usize) -> usize {
    bytes + bytes / 8
}

fn no_memory(bytes: usize) -> String {
    format!("no memory for an output of {bytes} bytes")
}

impl Heap {
    const fn new(page: usize) -> Heap {
        let state = State { unused: Gaps::new(), unused_bytes: 0, used_bytes: 0, most_used_bytes: 0, needed_bytes: 0 };
        Heap { page, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn rounded(&self, bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(self.page).filter(|n| isize::try_from(*n).is_ok())
    }

    /// `bytes` is a multiple of the page.
    fn acquire(&self, bytes: usize) -> Option<NonNull<u8>> {
        let (found, excess) = {
            let mut state = self.state();
            let found = state.unused.take(bytes);
            if found.is_some() {
                state.unused_bytes -= bytes;
            }
            state.used_bytes += bytes;
            let most = with_gaps(state.most_used_bytes.max(state.used_bytes));
            let excess = (state.used_bytes + state.unused_bytes).saturating_sub(most);
            (found, state.shrink(excess))
        };
        excess.into_iter().for_each(unmap);
        let data = match found {
            Some(place) => NonNull::new(std::ptr::with_exposed_provenance_mut(place)),
            None => map(bytes, self.page),
        };
        let mut state = self.state();
        match data {
            Some(_) => state.most_used_bytes = state.most_used_bytes.max(state.used_bytes),
            None => state.used_bytes -= bytes,
        }
        data
    }

    /// Takes back a block that [`Heap::acquire`] gave.
    fn release(&self, data: NonNull<u8>, bytes: usize) {
        if self.page == LARGE_PAGE {
            offer(data, bytes); // before anyone can get the block
        }
        let excess = {
            let mut state = self.state();
            state.used_bytes -= bytes;
            state.unused.put(data.as_ptr().expose_provenance(), bytes);
            state.unused_bytes += bytes;
            let most = state.needed_bytes.min(with_gaps(state.most_used_bytes).saturating_sub(state.used_bytes));
            let excess = state.unused_bytes.saturating_sub(most);
            state.shrink(excess)
        };
        excess.into_iter().for_each(unmap);
    }

    fn end_demand(&self, bytes: usize) {
        let excess = {
            let mut state = self.state();
            state.needed_bytes -= bytes;
            let excess = state.unused_bytes.saturating_sub(state.needed_bytes);
            state.shrink(excess)
        };
        excess.into_iter().for_each(unmap);
    }
}

impl State {
    /// Removes this many unused bytes, scraps before large gaps. The caller unmaps them once the lock is free.
    fn shrink(&mut self, mut bytes: usize) -> Vec<(usize, usize)> {
        let mut removed = Vec::new();
        while bytes > 0
            && let Some((place, size)) = self.unused.pop_smallest(bytes)
        {
            bytes -= size;
            self.unused_bytes -= size;
            removed.push((place, size));
        }
        removed
    }
}

/// Memory for one output. Dropping it gives the memory back.
#[derive(Debug)]
pub struct OutputBlock<'a> {
    pool: &'a OutputPool,
    data: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a block is memory that nobody else uses; the pool takes it back on any thread.
unsafe impl Send for OutputBlock<'_> {}
// SAFETY: a shared block only tells its address and size.
unsafe impl Sync for OutputBlock<'_> {}

impl OutputBlock<'_> {
    pub fn data(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl OutputBlock<'static> {
    /// Address and size of a block of the process's pool; [`OutputBlock::from_raw`] gives it back.
    pub fn into_raw(self) -> (NonNull<u8>, usize) {
        debug_assert!(std::ptr::eq(self.pool, output_pool()));
        let block = std::mem::ManuallyDrop::new(self);
        (block.data, block.bytes)
    }

    /// # Safety
    /// The two come from [`OutputBlock::into_raw`], and nobody else makes a block of them again.
    pub unsafe fn from_raw(data: NonNull<u8>, bytes: usize) -> OutputBlock<'static> {
        OutputBlock { pool: output_pool(), data, bytes }
    }
}

impl Drop for OutputBlock<'_> {
    fn drop(&mut self) {
        self.pool.heap(self.bytes).release(self.data, self.bytes);
    }
}

/// What an executable's outputs need at once; see [`OutputPool::demand`].
#[derive(Debug)]
pub struct Demand<'a> {
    pool: &'a OutputPool,
    small: usize,
    large: usize,
}

impl Drop for Demand<'_> {
    fn drop(&mut self) {
        self.pool.small.end_demand(self.small);
        self.pool.large.end_demand(self.large);
    }
}

impl std::fmt::Debug for OutputPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OutputPool({} bytes used, {} unused)", self.used_bytes(), self.unused_bytes())
    }
}

/// Fresh memory, aligned to `page`.
fn map(bytes: usize, page: usize) -> Option<NonNull<u8>> {
    // Neighbouring mappings come from the system already aligned, as a rule; if not, a larger one is cut to measure.
    let data = map_anonymous(bytes)?;
    let place = data.as_ptr().expose_provenance();
    let data = if place.is_multiple_of(page) {
        data
    } else {
        unmap((place, bytes));
        let start = map_anonymous(bytes.checked_add(page)?)?.as_ptr().expose_provenance();
        let aligned = start.next_multiple_of(page);
        for scrap in [(start, aligned - start), (aligned + bytes, start + page - aligned)] {
            unmap(scrap);
        }
        NonNull::new(std::ptr::with_exposed_provenance_mut(aligned))?
    };
    #[cfg(target_os = "linux")]
    if page == LARGE_PAGE {
        // SAFETY: the whole of a fresh mapping; a hint that may fail without harm.
        unsafe { libc::madvise(data.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    Some(data)
}

fn map_anonymous(bytes: usize) -> Option<NonNull<u8>> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
    // SAFETY: asks for memory at any place; nothing that exists is replaced.
    let data = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    if data == libc::MAP_FAILED { None } else { NonNull::new(data.cast()) }
}

/// Gives part of our mappings back to the system.
fn unmap((place, bytes): (usize, usize)) {
    if bytes > 0 {
        // SAFETY: memory of ours that nobody uses. It fails only if the system has no room to note a hole in a mapping:
        // then the memory is lost, but nothing is damaged.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(place), bytes) };
    }
}

/// Lets the system take the pages of an unused block when it runs short; until then they stay as they are. Only for
/// large pages: with small ones it costs as much as writing to them.
#[cfg(target_os = "linux")]
pub(crate) fn offer(data: NonNull<u8>, bytes: usize) {
    static LARGE_PAGES: LazyLock<bool> = LazyLock::new(|| {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        setting.is_ok_and(|s| !s.contains("[never]"))
    });
    if *LARGE_PAGES {
        // SAFETY: a block of ours that nobody uses, whose content is of no interest any more; failing does no harm.
        unsafe { libc::madvise(data.as_ptr().cast(), bytes, libc::MADV_FREE) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn offer(_: NonNull<u8>, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn touch(block: &OutputBlock<'_>, value: u8) {
        // SAFETY: the block's own bytes.
        unsafe { block.data().write_bytes(value, block.bytes()) };
    }

    #[test]
    fn freed_blocks_are_reused_and_held_ones_are_not() {
        for bytes in [MIB, 20 * MIB] {
            let pool = OutputPool::new();
            let _demand = pool.demand([bytes, bytes]);
            let first = pool.acquire(bytes).unwrap();
            let second = pool.acquire(bytes).unwrap();
            touch(&first, 1);
            touch(&second, 2);
            let freed = first.data();
            drop(first);
            let third = pool.acquire(bytes).unwrap();
            assert_eq!(third.data(), freed);
            touch(&third, 3);
            // SAFETY: inside of a held block.
            assert_eq!(unsafe { second.data().read() }, 2);
            drop((second, third));
            assert_eq!((pool.used_bytes(), pool.unused_bytes()), (0, 2 * bytes));
        }
    }

    #[test]
    fn without_demand_nothing_is_kept() {
        let pool = OutputPool::new();
        drop(pool.acquire(MIB).unwrap());
        assert_eq!(pool.unused_bytes(), 0);
        let demand = pool.demand([MIB, 20 * MIB]);
        let blocks = [pool.acquire(MIB).unwrap(), pool.acquire(20 * MIB).unwrap()];
        drop(blocks);
        assert_eq!(pool.unused_bytes(), 21 * MIB);
        drop(demand);
        assert_eq!(pool.unused_bytes(), 0);
    }

    #[test]
    fn blocks_outlive_the_demand() {
        let pool = OutputPool::new();
        let demand = pool.demand([20 * MIB]);
        let block = pool.acquire(20 * MIB).unwrap();
        drop(demand);
        touch(&block, 5);
        drop(block);
        assert_eq!((pool.used_bytes(), pool.unused_bytes()), (0, 0));
    }

    #[test]
    fn many_blocks_freed_at_once_leave_no_more_than_is_needed() {
        let pool = OutputPool::new();
        let _demand = pool.demand([20 * MIB]);
        let blocks: Vec<_> = (0..5).map(|_| pool.acquire(20 * MIB).unwrap()).collect();
        drop(blocks);
        assert_eq!(pool.unused_bytes(), 20 * MIB);
    }

    #[test]
    fn blocks_of_other_sizes_are_cut_from_what_is_unused() {
        let pool = OutputPool::new();
        let _saved = pool.demand([20 * MIB, 20 * MIB]);
        let _gradients = pool.demand([40 * MIB]);
        for _ in 0..3 {
            let saved = [pool.acquire(20 * MIB).unwrap(), pool.acquire(20 * MIB).unwrap()];
            drop(saved);
            drop(pool.acquire(40 * MIB).unwrap());
            assert!(pool.unused_bytes() + pool.used_bytes() <= 45 * MIB);
        }
    }

    /// A step that frees a large block, cuts others from it, and asks for a large one again before they are back.
    #[test]
    fn a_large_block_is_still_there_in_the_next_step() {
        let pool = OutputPool::new();
        let _demand = pool.demand([8 * MIB, 4 * MIB, 4 * MIB, 6 * MIB]);
        let mut places = Vec::new();
        for _ in 0..4 {
            let (large, saved) = (pool.acquire(8 * MIB).unwrap(), pool.acquire(6 * MIB).unwrap());
            places.push(large.data().addr());
            drop(large);
            let gradients = [pool.acquire(4 * MIB).unwrap(), pool.acquire(3 * MIB).unwrap()];
            drop(saved);
            drop(gradients);
        }
        assert_eq!(places[2], places[3]);
    }

    #[test]
    fn used_and_unused_hardly_exceed_what_was_in_use() {
        let pool = OutputPool::new();
        let _demand = pool.demand(vec![30 * MIB; 100]);
        let mut seed = 1u64;
        let mut random = move |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        let (mut held, mut most): (Vec<(OutputBlock<'_>, u8)>, usize) = (Vec::new(), 0);
        for i in 0..400u32 {
            if held.len() > 6 || random(3) == 0 {
                let n = held.len();
                if n > 0 {
                    let (block, value) = held.swap_remove(random(n));
                    // SAFETY: first and last byte of a held block.
                    assert_eq!(unsafe { (*block.data(), *block.data().add(block.bytes() - 1)) }, (value, value));
                }
            } else {
                let block = pool.acquire(16 * MIB + random(20 * MIB)).unwrap();
                assert!(block.data().addr().is_multiple_of(LARGE_PAGE));
                let value = i as u8;
                // SAFETY: first and last byte of a held block.
                unsafe {
                    block.data().write(value);
                    block.data().add(block.bytes() - 1).write(value);
                }
                held.push((block, value));
            }
            most = most.max(pool.used_bytes());
            assert!(pool.used_bytes() + pool.unused_bytes() <= most + most / 8);
        }
    }

    #[test]
    fn blocks_move_between_threads() {
        let pool = OutputPool::new();
        let _demand = pool.demand(vec![MIB; 4]);
        std::thread::scope(|s| {
            for t in 0..4u8 {
                let pool = &pool;
                s.spawn(move || {
                    for _ in 0..100 {
                        let block = pool.acquire(MIB).unwrap();
                        touch(&block, t);
                        s.spawn(move || {
                            // SAFETY: inside of the block.
                            assert_eq!(unsafe { *block.data().add(MIB - 1) }, t);
                        });
                    }
                });
            }
        });
        assert_eq!(pool.used_bytes(), 0);
        assert!(pool.unused_bytes() <= 4 * MIB);
    }

    #[test]
    fn sizes_beyond_all_memory_are_errors() {
        let pool = OutputPool::new();
        assert!(pool.acquire(usize::MAX).is_err());
        assert!(pool.acquire(1 << 62).is_err());
        assert_eq!(pool.used_bytes(), 0);
    }
}
