// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptions that tests of services have in common.
#![allow(dead_code, reason = "no test uses all of it")]

use turnstile_bundle::{Bundle, CpuList, Machine, Mapping, OnCrash, Schedule, VmSpec, write_with};
use turnstile_service::image::{Header, PAGE};
use xxhash_rust::xxh64::xxh64;

/// Where the format puts the digest.
pub const DIGEST: std::ops::Range<usize> = 76..84;

/// A VM whose vCPUs have these CPUs to themselves.
pub fn vm(name: &'static str, list: &'static [u16]) -> VmSpec<'static> {
    VmSpec {
        name,
        vcpus: list.len(),
        cpus: CpuList::new(list),
        schedule: Schedule::Pinned,
        memory: 64 << 20,
        mapping: Mapping::AtStart,
        machine: Machine::default(),
        on_crash: OnCrash::Stop,
        statistics: false,
        cmdline: "",
        kernel: b"kernel",
        initrd: None,
    }
}

/// A program for this machine.
pub fn program(isa: u32) -> Vec<u8> {
    let header = Header { isa, code: PAGE, stack: PAGE, ..Header::default() };
    let mut program = header.bytes().to_vec();
    program.resize(2 * PAGE as usize, 0);
    program
}

/// Gives the blob the digest that it should have, as somebody who means harm can.
pub fn sign(blob: &mut [u8]) {
    blob[DIGEST].fill(0);
    let digest = xxh64(blob, 0);
    blob[DIGEST].copy_from_slice(&digest.to_be_bytes());
}

/// Puts each of these words, which mean something in the format, at each place behind a name in a bundle. What is read in spite of that can
/// be written again. Says how many were read.
pub fn read_damaged(blob: &[u8], behind: &[u8], words: &[u32]) -> u32 {
    let mut read = 0;
    let start = blob.windows(behind.len()).position(|bytes| bytes == behind).unwrap().next_multiple_of(4);
    for at in (start..blob.len()).step_by(4) {
        for word in words {
            let mut changed = blob.to_vec();
            let Some(place) = changed.get_mut(at..at + 4) else { continue };
            place.copy_from_slice(&word.to_be_bytes());
            sign(&mut changed);
            if let Ok(bundle) = Bundle::parse(&changed) {
                read += 1;
                let again = write_with(
                    bundle.vms(),
                    bundle.services(),
                    bundle.disks(),
                    bundle.ports(),
                    bundle.pool(),
                );
                assert!(again.is_ok(), "word {word:#x} at {at}");
            }
        }
    }
    read
}
