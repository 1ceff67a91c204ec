// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which MSRs and ports a guest reaches without an exit (APM vol. 2, 15.10 and 15.11): the same for all guests of a machine. The MSRs
//! whose guest value stays in the CPU while the vCPU is resident are those that the hypervisor does not use: VMSAVE and VMLOAD move
//! them when another vCPU is to run, and TSC_AUX with them. Where VMRUN switches SPEC_CTRL, that is a guest's own, too.

use turnstile_x86policy::msr::{OWN, SPEC_CTRL};

/// Bytes of the map of MSRs: two pages.
pub const MSR_BYTES: usize = 8192;
/// Bytes of the map of ports: three pages.
const PORT_BYTES: usize = 12288;

/// A map, as the hardware wants it: aligned to a page. Bits that are set exit.
#[repr(C, align(4096))]
pub struct Map<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Map<BYTES> {
    /// Its physical address: the image is mapped one to one.
    pub fn address(&self) -> u64 {
        &raw const self.0 as u64
    }
}

/// The map of MSRs.
pub static MSRS: Map<MSR_BYTES> = Map(msr_map(&OWN, [0xff; MSR_BYTES]));
/// The same where SPEC_CTRL is the guest's own.
pub static MSRS_AND_SPEC_CTRL: Map<MSR_BYTES> = Map(msr_map(&[SPEC_CTRL], MSRS.0));
/// The map of ports: each exits, also those of accesses that reach beyond the last one.
pub static PORTS: Map<PORT_BYTES> = Map([0xff; PORT_BYTES]);

/// Returns the place of an MSR's two bits in the map: byte and shift. Bit 0 is for reads, bit 1 for writes.
const fn place(msr: u32) -> Option<(usize, u32)> {
    let (base, index) = match msr {
        0..=0x1fff => (0, msr),
        0xc000_0000..=0xc000_1fff => (0x800, msr & 0x1fff),
        0xc001_0000..=0xc001_1fff => (0x1000, msr & 0x1fff),
        _ => return None,
    };
    Some((base + index as usize / 4, index % 4 * 2))
}

/// Opens the registers of a list in a map.
const fn msr_map(own: &[u32], mut map: [u8; MSR_BYTES]) -> [u8; MSR_BYTES] {
    let mut next = 0;
    while next < own.len() {
        let Some((byte, shift)) = place(own[next]) else { panic!("the map has no place for this register") };
        map[byte] &= !(3 << shift);
        next += 1;
    }
    map
}

/// The MSRs that a guest with this map reads, or writes, without an exit.
#[cfg(test)]
pub(crate) fn open(map: &Map<MSR_BYTES>, write: bool) -> std::vec::Vec<u32> {
    let exits =
        |msr| place(msr).is_none_or(|(byte, shift)| map.0[byte] >> (shift + u32::from(write)) & 1 != 0);
    let all = (0..=0x1fff).chain(0xc000_0000..=0xc000_1fff).chain(0xc001_0000..=0xc001_1fff);
    all.filter(|msr| !exits(*msr)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_in_the_cpu_does_not_exit() {
        let mut own = OWN.to_vec();
        own.sort_unstable();
        assert_eq!((open(&MSRS, false), open(&MSRS, true)), (own.clone(), own.clone()));
        own.insert(0, SPEC_CTRL);
        let with = [false, true].map(|write| open(&MSRS_AND_SPEC_CTRL, write));
        assert_eq!(with, [own.clone(), own]);
    }

    #[test]
    fn maps_are_where_the_hardware_can_find_them() {
        let addresses = [MSRS.address(), MSRS_AND_SPEC_CTRL.address(), PORTS.address()];
        assert_eq!(addresses.map(|address| address % 4096), [0; 3]);
        assert!(PORTS.0.iter().all(|byte| *byte == 0xff));
    }
}
