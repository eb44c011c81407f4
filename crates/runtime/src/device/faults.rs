//! Faults that kernels find: an index out of range.
//!
//! A device runs behind the host, and waiting for it to ask would cost more than the kernels. So a kernel writes a code into
//! a word that the host can see, and the host looks at the words when a run begins. What the kernel would have touched out of
//! range it leaves alone.

use super::{Driver, SharedWords};
use crate::engine::StepError;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

/// Launches of one process that may find faults at the same time.
const WORDS: usize = 16 * 1024;

/// The words of one device.
pub struct FaultBoard {
    words: SharedWords,
    slots: Mutex<Slots>,
}

struct Slots {
    /// What is said of each word in use.
    used: Vec<Option<Arc<Fault>>>,
    free: Vec<usize>,
}

struct Fault {
    messages: Vec<String>,
    by: String,
}

/// A word of its own for one launch.
pub struct FaultSlot {
    board: Arc<FaultBoard>,
    index: usize,
}

impl FaultBoard {
    pub fn new(driver: &dyn Driver) -> Result<FaultBoard, String> {
        let words = driver.shared_words(WORDS)?;
        Ok(FaultBoard { words, slots: Mutex::new(Slots { used: Vec::new(), free: Vec::new() }) })
    }

    /// A word for a launch; `messages` are those of its fault codes, from 1 on.
    pub fn slot(self: &Arc<Self>, messages: &[String], by: &str) -> Result<FaultSlot, String> {
        let fault = Arc::new(Fault { messages: messages.to_vec(), by: by.to_string() });
        let mut slots = self.slots.lock().unwrap_or_else(|e| e.into_inner());
        let index = match slots.free.pop() {
            Some(i) => {
                slots.used[i] = Some(fault);
                i
            }
            None if slots.used.len() < self.words.count => {
                slots.used.push(Some(fault));
                slots.used.len() - 1
            }
            None => return Err(format!("more than {} launches that check indices", self.words.count)),
        };
        Ok(FaultSlot { board: self.clone(), index })
    }

    fn word(&self, index: usize) -> &AtomicI32 {
        // SAFETY: within the words, which live for ever and are only accessed as a whole.
        unsafe { AtomicI32::from_ptr(self.words.host.add(index)) }
    }

    /// The first fault found since the last look; all are forgotten then.
    pub fn look(&self) -> Result<(), StepError> {
        let slots = self.slots.lock().unwrap_or_else(|e| e.into_inner());
        let mut found = Ok(());
        for (index, used) in slots.used.iter().enumerate() {
            if self.word(index).load(Ordering::Relaxed) == 0 {
                continue;
            }
            let code = self.word(index).swap(0, Ordering::Relaxed);
            if let (Some(fault), true) = (used, found.is_ok()) {
                let message = fault.messages.get((code - 1).max(0) as usize);
                let message = message.map_or_else(|| format!("fault {code}"), String::clone);
                found = Err(StepError::Late { message, by: fault.by.clone() });
            }
        }
        found
    }
}

impl FaultSlot {
    /// The word's address on the device.
    pub fn address(&self) -> u64 {
        self.board.words.device + (self.index * size_of::<i32>()) as u64
    }
}

impl Drop for FaultSlot {
    fn drop(&mut self) {
        let mut slots = self.board.slots.lock().unwrap_or_else(|e| e.into_inner());
        slots.used[self.index] = None;
        slots.free.push(self.index);
    }
}
