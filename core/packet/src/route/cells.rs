//! An array of cells: memory of the process, or a map that the kernel shares.

/// An array of `u32`. A driver implements it over the memory of a BPF map. One call of `set` is one store, which
/// readers see whole; the tables order their stores so that a reader finds the old or the new route.
pub trait Cells {
    /// Number of cells.
    fn count(&self) -> usize;
    /// A cell; 0 beyond the last.
    fn get(&self, index: usize) -> u32;
    /// Changes a cell; nothing happens beyond the last.
    fn set(&mut self, index: usize, value: u32);
}

impl Cells for Vec<u32> {
    fn count(&self) -> usize {
        self.len()
    }

    fn get(&self, index: usize) -> u32 {
        self.as_slice().get(index).copied().unwrap_or(0)
    }

    fn set(&mut self, index: usize, value: u32) {
        if let Some(cell) = self.get_mut(index) {
            *cell = value;
        }
    }
}

/// Numbers of blocks or nodes: which are in use.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers {
    limit: u32,
    next: u32,
    free: Vec<u32>,
    /// No longer in the table, but a reader may still be there.
    left: Vec<u32>,
}

impl Numbers {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: u32::try_from(limit).unwrap_or(u32::MAX).min(i32::MAX as u32), ..Self::default() }
    }

    pub(super) fn available(&self) -> usize {
        (self.limit - self.next) as usize + self.free.len()
    }

    pub(super) fn used(&self) -> usize {
        self.next as usize - self.free.len() - self.left.len()
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let number = Some(self.next).filter(|next| *next < self.limit)?;
            self.next += 1;
            Some(number)
        })
    }

    pub(super) fn leave(&mut self, number: u32) {
        self.left.push(number);
    }

    pub(super) fn reuse(&mut self) {
        self.free.append(&mut self.left);
    }
}
