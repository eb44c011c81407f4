//! Memory for intermediates, which is kept: one block a run.
//!
//! Memory that is touched for the first time costs a page fault per page, several times what writing to it costs, so
//! blocks go back to a pool instead of to the system. All executables of the process share the pool: the forward and the
//! backward of a step get the same block. What no executable alive could need is not kept, and large unused blocks are
//! offered to the system, which takes their pages when it runs short.

use crate::output_memory::offer;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Alignment of every buffer in a block.
pub const ALIGN: usize = 64;
/// Blocks from this size on are aligned to it, so that the system may back them with large pages.
const LARGE: usize = 2 << 20;
/// Unused blocks from this size on are offered to the system.
const OFFERED: usize = 16 << 20;

/// Blocks that nobody uses right now: never more bytes than were in use at one time, and no block larger than the largest
/// [demand](ArenaPool::demand).
pub struct ArenaPool {
    free: Mutex<Free>,
    limit: AtomicUsize,
}

struct Free {
    /// By capacity, then by age.
    blocks: BTreeMap<(usize, u64), Block>,
    bytes: usize,
    in_use: usize,
    peak_in_use: usize,
    /// Capacities that live executables ask for, each with how many do.
    demands: BTreeMap<usize, usize>,
}

struct Block {
    id: u64,
    data: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block owns its memory; the pool and the leases see to it that one user has it at a time.
unsafe impl Send for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.data.as_ptr(), self.layout) };
    }
}

/// The process's pool for intermediates: a run takes any block that is large enough.
pub fn pool() -> &'static ArenaPool {
    static POOL: ArenaPool = ArenaPool::new(usize::MAX);
    &POOL
}

impl ArenaPool {
    /// Keeps at most `limit` bytes of unused blocks.
    pub const fn new(limit: usize) -> ArenaPool {
        let free = Free { blocks: BTreeMap::new(), bytes: 0, in_use: 0, peak_in_use: 0, demands: BTreeMap::new() };
        ArenaPool { free: Mutex::new(free), limit: AtomicUsize::new(limit) }
    }

    /// A block of at least this many bytes. When the pool has smaller ones only, the largest of them is given up for it:
    /// a step whose needs grow ends up with one block that fits, not with a staircase.
    pub fn acquire(&self, bytes: usize) -> Result<Lease<'_>, String> {
        let capacity = size_class(bytes)?;
        let outgrown = {
            let mut free = self.free();
            let found = free.blocks.range((capacity, 0)..).next().map(|(key, _)| *key);
            if let Some(key) = found {
                let block = free.take(key);
                free.lend(key.0);
                return Ok(Lease { block, pool: self });
            }
            let largest = free.blocks.last_key_value().map(|(key, _)| *key);
            largest.filter(|(size, _)| *size >= capacity / 4).and_then(|key| free.take(key))
        };
        drop(outgrown);
        let block = Block::new(capacity)?;
        self.free().lend(capacity);
        Ok(Lease { block: Some(block), pool: self })
    }

    /// Lets the pool keep blocks for an executable that will ask for this many bytes, as long as the result lives.
    pub fn demand(&self, bytes: usize) -> Result<ArenaDemand<'_>, String> {
        let capacity = size_class(bytes)?;
        *self.free().demands.entry(capacity).or_default() += 1;
        Ok(ArenaDemand { pool: self, capacity })
    }

    /// Gives all unused memory back to the system.
    pub fn trim(&self) {
        let blocks = {
            let mut free = self.free();
            free.bytes = 0;
            free.peak_in_use = free.in_use;
            std::mem::take(&mut free.blocks)
        };
        drop(blocks);
    }

    /// At most this many bytes stay in the pool; more are given back at once.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
        drop(self.free().shrink(bytes));
    }

    /// Bytes of unused blocks.
    pub fn unused_bytes(&self) -> usize {
        self.free().bytes
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Free {
    fn take(&mut self, key: (usize, u64)) -> Option<Block> {
        let block = self.blocks.remove(&key)?;
        self.bytes -= key.0;
        Some(block)
    }

    fn lend(&mut self, bytes: usize) {
        self.in_use += bytes;
        self.peak_in_use = self.peak_in_use.max(self.in_use);
    }

    /// Removes the smallest blocks until the rest fits, and those that are too large for anyone.
    fn shrink(&mut self, limit: usize) -> Vec<Block> {
        let mut removed = Vec::new();
        while self.bytes > limit
            && let Some((&key, _)) = self.blocks.first_key_value()
        {
            removed.extend(self.take(key));
        }
        let largest = self.demands.last_key_value().map_or(0, |(capacity, _)| *capacity);
        while let Some((&key, _)) = self.blocks.last_key_value()
            && key.0 > largest
        {
            removed.extend(self.take(key));
        }
        removed
    }
}

/// See [`ArenaPool::demand`].
pub struct ArenaDemand<'a> {
    pool: &'a ArenaPool,
    capacity: usize,
}

impl Drop for ArenaDemand<'_> {
    fn drop(&mut self) {
        let mut free = self.pool.free();
        if let Some(count) = free.demands.get_mut(&self.capacity) {
            *count -= 1;
            if *count == 0 {
                free.demands.remove(&self.capacity);
            }
        }
        let removed = free.shrink(usize::MAX);
        drop(free);
        drop(removed);
    }
}

/// The right to use a block; dropping it puts the block back into the pool.
pub struct Lease<'a> {
    block: Option<Block>,
    pool: &'a ArenaPool,
}

impl Lease<'_> {
    pub fn data(&self) -> *mut u8 {
        self.block.as_ref().map_or(std::ptr::without_provenance_mut(ALIGN), |b| b.data.as_ptr())
    }

    /// Differs for any two blocks that ever were.
    pub fn id(&self) -> u64 {
        self.block.as_ref().map_or(0, |b| b.id)
    }

    pub fn capacity(&self) -> usize {
        self.block.as_ref().map_or(0, |b| b.layout.size())
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        if block.layout.size() >= OFFERED {
            offer(block.data, block.layout.size()); // before anyone can get the block
        }
        let removed = {
            let mut free = self.pool.free();
            free.bytes += block.layout.size();
            free.in_use -= block.layout.size();
            free.blocks.insert((block.layout.size(), block.id), block);
            let limit = self.pool.limit.load(Ordering::Relaxed).min(free.peak_in_use);
            free.shrink(limit)
        };
        drop(removed);
    }
}

impl Block {
    fn new(capacity: usize) -> Result<Block, String> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let none = || format!("no memory for {capacity} bytes of intermediates");
        let align = if capacity >= LARGE { LARGE } else { ALIGN };
        let layout = Layout::from_size_align(capacity, align).map_err(|_| none())?;
        // SAFETY: size classes are not zero.
        let data = NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or_else(none)?;
        #[cfg(target_os = "linux")]
        if capacity >= LARGE {
            // SAFETY: the whole of a fresh block; a hint that may fail without harm.
            unsafe { libc::madvise(data.as_ptr().cast(), capacity, libc::MADV_HUGEPAGE) };
        }
        Ok(Block { id: NEXT.fetch_add(1, Ordering::Relaxed), data, layout })
    }
}

/// Four classes a power of two, whole large pages from their size on.
fn size_class(bytes: usize) -> Result<usize, String> {
    let bytes = bytes.max(4096);
    let step = ((bytes.checked_next_power_of_two().ok_or("arena size overflows")?) / 8).max(ALIGN);
    let step = if bytes >= LARGE { step.max(LARGE) } else { step };
    bytes.checked_next_multiple_of(step).ok_or_else(|| "arena size overflows".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_and_are_shared() {
        let pool = ArenaPool::new(usize::MAX);
        let _demand = pool.demand(300_000).unwrap();
        let (a, id) = {
            let lease = pool.acquire(100_000).unwrap();
            (lease.data(), lease.id())
        };
        let small = pool.acquire(5_000).unwrap();
        assert_eq!((small.data(), small.id()), (a, id));
        let other = pool.acquire(5_000).unwrap();
        assert_ne!(other.id(), id);
        drop((small, other));
        let big = pool.acquire(300_000).unwrap();
        assert!(big.capacity() >= 300_000 && big.data().addr().is_multiple_of(ALIGN));
        drop(big);
        assert!(pool.unused_bytes() < 300_000 * 5 / 4 + 8192);
        pool.trim();
        assert_eq!(pool.unused_bytes(), 0);
    }

    #[test]
    fn the_limit_holds() {
        let pool = ArenaPool::new(1 << 20);
        let _demand = pool.demand(3 << 20).unwrap();
        drop(pool.acquire(3 << 20).unwrap());
        assert_eq!(pool.unused_bytes(), 0);
        drop(pool.acquire(1 << 19).unwrap());
        assert_eq!(pool.unused_bytes(), 1 << 19);
        pool.set_limit(1 << 18);
        assert_eq!(pool.unused_bytes(), 0);
    }

    #[test]
    fn nothing_is_kept_that_no_executable_asks_for() {
        let pool = ArenaPool::new(usize::MAX);
        let (small, large) = (pool.demand(1 << 20).unwrap(), pool.demand(20 << 20).unwrap());
        let blocks = [pool.acquire(20 << 20).unwrap(), pool.acquire(1 << 20).unwrap()];
        drop(blocks);
        assert_eq!(pool.unused_bytes(), 21 << 20);
        drop(large);
        assert_eq!(pool.unused_bytes(), 1 << 20);
        let block = pool.acquire(20 << 20).unwrap();
        drop(small);
        assert_eq!(pool.unused_bytes(), 0);
        drop(block);
        assert_eq!(pool.unused_bytes(), 0);
    }

    #[test]
    fn large_blocks_are_aligned_to_large_pages_and_classes_waste_a_quarter_at_most() {
        assert!(ArenaPool::new(0).acquire(5 << 20).unwrap().data().addr().is_multiple_of(LARGE));
        for bytes in [1, 4096, 5000, 1 << 20, (1 << 20) + 1, 9 << 20, 100 << 20] {
            let class = size_class(bytes).unwrap();
            assert!(class >= bytes && class <= bytes.max(4096) * 5 / 4 + LARGE, "{bytes} {class}");
        }
        assert!(size_class(usize::MAX).is_err());
    }
}
