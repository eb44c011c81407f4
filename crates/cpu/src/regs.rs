//! Places of values among the registers of a task.

/// Rounded up to whole cache lines.
pub(crate) fn lines(bytes: usize) -> usize {
    bytes.div_ceil(64).max(1) * 64
}

/// Hands out places and takes them back; a freed place serves values of the same size again.
#[derive(Default)]
pub(crate) struct Registers {
    size: usize,
    free: Vec<(usize, usize)>,
}

impl Registers {
    pub(crate) fn take(&mut self, bytes: usize) -> usize {
        let bytes = lines(bytes);
        // The place freed last is the one most likely in the first-level cache.
        if let Some(i) = self.free.iter().rposition(|(_, n)| *n == bytes) {
            return self.free.remove(i).0;
        }
        let offset = self.size;
        self.size += bytes;
        offset
    }

    pub(crate) fn give(&mut self, offset: usize, bytes: usize) {
        self.free.push((offset, lines(bytes)));
    }

    /// Bytes ever used.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}
