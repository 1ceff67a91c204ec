// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists without allocation.

/// A list of bounded length, without allocation.
#[derive(Clone, Copy)]
pub struct List<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    /// Returns an empty list; `filler` is never seen.
    pub const fn new(filler: T) -> Self {
        List { items: [filler; N], len: 0 }
    }

    /// Appends; what does not fit is left out.
    pub fn push(&mut self, item: T) {
        if let Some(slot) = self.items.get_mut(self.len) {
            *slot = item;
            self.len += 1;
        }
    }

    /// Keeps so many items at most.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The items.
    pub fn as_slice(&self) -> &[T] {
        self.items.get(..self.len).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_takes_what_fits() {
        let mut list: List<u8, 2> = List::new(0);
        (1..4).for_each(|item| list.push(item));
        assert_eq!(list.as_slice(), [1, 2]);
        list.truncate(1);
        assert_eq!(list.as_slice(), [1]);
    }
}
