// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which ports of a VM have a device: exits that access others need ask nobody.

/// Words of a bit for each port.
const WORDS: usize = 0x1_0000 / 64;

/// A set of ports.
pub struct Ports([u64; WORDS]);

impl Ports {
    /// Makes the set of these ranges: the first port of each, and how many.
    pub const fn of(ranges: &[(u16, u16)]) -> Self {
        let mut words = [0; WORDS];
        let mut range = 0;
        while range < ranges.len() {
            let (first, count) = ranges[range];
            let mut port = first;
            while port < first + count {
                words[port as usize / 64] |= 1 << (port % 64);
                port += 1;
            }
            range += 1;
        }
        Self(words)
    }

    /// Returns the same with another range.
    pub const fn and(&self, first: u16, count: u16) -> Self {
        let mut words = self.0;
        let more = Self::of(&[(first, count)]);
        let mut word = 0;
        while word < WORDS {
            words[word] |= more.0[word];
            word += 1;
        }
        Self(words)
    }

    /// Says whether a port is in it.
    #[inline(always)] // A few instructions of a light exit.
    pub const fn has(&self, port: u16) -> bool {
        self.0[port as usize / 64] >> (port % 64) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_ranges() {
        static PORTS: Ports = Ports::of(&[(0x3f8, 8), (0x70, 2), (0xfffe, 1)]);
        static MORE: Ports = PORTS.and(0xcf8, 8);
        assert!((0..=u16::MAX).all(|port| MORE.has(port) == (PORTS.has(port) || port & !7 == 0xcf8)));
        let has: std::vec::Vec<u16> = (0..=u16::MAX).filter(|port| PORTS.has(*port)).collect();
        assert_eq!(has, [0x70, 0x71, 0x3f8, 0x3f9, 0x3fa, 0x3fb, 0x3fc, 0x3fd, 0x3fe, 0x3ff, 0xfffe]);
    }
}
