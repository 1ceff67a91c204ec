// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor tells of this CPU's turns on a shared processor, by H_REGISTER_VPA (LoPAPR 14.11.3.2): the virtual
//! processor area and the log of dispatches.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::hcall::{self, call};
use crate::platform::MAX_CPUS;
use crate::{cpu, println, smp};

/// Functions of H_REGISTER_VPA.
const REGISTER: u64 = 1 << 45;
const REGISTER_LOG: u64 = 2 << 45;
/// Offsets in the area, in doublewords: which turns are logged, the ticks that it was ready, the number of entries.
const LOG_MASK: usize = 0xb8 / 8;
const READY_TIME: usize = 0x158 / 8;
const LOG_INDEX: usize = 0x218 / 8;
/// Doublewords of an entry.
const ENTRY: usize = 48 / 8;
/// Entries of a log, which ends before its page does.
const ENTRIES: usize = 64;
/// What is behind a log.
const GUARD: u64 = 0xa5a5_5a5a_a5a5_5a5a;

/// The areas of a CPU, a page each.
#[repr(C, align(4096))]
struct Areas {
    vpa: [AtomicU64; 512],
    log: [AtomicU64; 512],
}

static AREAS: [Areas; MAX_CPUS] =
    [const { Areas { vpa: [const { AtomicU64::new(0) }; 512], log: [const { AtomicU64::new(0) }; 512] } };
        MAX_CPUS];

/// Asks to be told of this CPU's turns. Once for each CPU.
pub fn register() {
    let index = cpu::this().index();
    let areas = &AREAS[index];
    // The lengths: of 16 bits in the area, of 32 in the log, both behind the first word.
    areas.vpa[0].store((640u64 << 16).to_be(), SeqCst);
    areas.log.iter().for_each(|word| word.store(GUARD, SeqCst));
    areas.log[0].store(((ENTRIES * ENTRY * 8) as u64).to_be(), SeqCst);
    // All turns.
    areas.vpa[LOG_MASK].store((7u64 << 56).to_be(), SeqCst);
    let (vpa, log) = (areas.vpa.as_ptr() as u64, areas.log.as_ptr() as u64);
    let server = u64::from(smp::server(index));
    for (function, address) in [(REGISTER, vpa), (REGISTER_LOG, log)] {
        if call(hcall::REGISTER_VPA, [function, server, address, 0]) != hcall::SUCCESS {
            println!("@error an area is refused");
        }
    }
}

/// Returns the ticks for which this CPU was ready and did not run, since [`register`]; complains if the log, where it has
/// not overflowed, says otherwise, or more than the log was written.
pub fn stolen() -> u64 {
    let areas = &AREAS[cpu::this().index()];
    let number = |word: &AtomicU64| u64::from_be(word.load(SeqCst));
    // The turn may change between looks.
    let (ready, logged) = loop {
        let before = number(&areas.vpa[LOG_INDEX]);
        let ready = number(&areas.vpa[READY_TIME]);
        if number(&areas.vpa[LOG_INDEX]) == before {
            break (ready, before as usize);
        }
    };
    if areas.log[ENTRIES * ENTRY..].iter().any(|word| word.load(SeqCst) != GUARD) {
        println!("@error something is written behind the log");
    }
    // The low half of an entry's first doubleword, which is big-endian: from its queue to the processor.
    let entry = |index: usize| number(&areas.log[index % ENTRIES * ENTRY]) & 0xffff_ffff;
    let sum: u64 = (0..logged).map(entry).sum();
    if logged <= ENTRIES && sum != ready {
        println!("@error the log has {sum} ticks in {logged} entries, and the area {ready}");
    }
    ready
}
