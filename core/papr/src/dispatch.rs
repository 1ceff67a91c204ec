// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest is told of its vCPU's turns on a shared processor: the counters of the virtual processor area, and the
//! log of dispatches (LoPAPR 14.11.1.3 and 14.11.3.2; the places that LoPAPR leaves open as Linux has them, `struct lppaca`
//! and `struct dtl_entry`).
//!
//! Only areas that the guest has registered are written. A vCPU that has its processor to itself takes no turns, but its waits
//! still advance its count of dispatches.

use crate::Memory;
use crate::sync::{Ordering, fence};
pub use crate::turns::Left;
use crate::vpa::{Area, Areas, LOG_ENTRY, make_count, offset};

/// Bits of the byte at [`offset::LOG_MASK`]: which turns the guest wants logged, by what ended the one before.
mod mask {
    /// It waited.
    pub const WAITED: u8 = 1;
    /// Its time was over.
    pub const PREEMPTED: u8 = 2;
}

/// Why a vCPU gave its processor away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// It waited (H_CEDE).
    Waits,
    /// Another one's turn had come.
    Preempted,
}

impl Reason {
    /// As the log has it: what ended the turn before, and what begins this one.
    fn codes(self) -> [u8; 2] {
        /// What ended one.
        const CEDED: u8 = 2;
        const SLICE_OVER: u8 = 4;
        /// What begins one: an event of the firmware, which does not say what has woken the vCPU; its slice.
        const EVENT: u8 = 1;
        const SLICE: u8 = 7;
        match self {
            Reason::Waits => [EVENT, CEDED],
            Reason::Preempted => [SLICE, SLICE_OVER],
        }
    }

    fn mask(self) -> u8 {
        match self {
            Reason::Waits => mask::WAITED,
            Reason::Preempted => mask::PREEMPTED,
        }
    }
}

/// A turn that begins.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The processor.
    pub processor: u16,
    /// The time base.
    pub now: u64,
    /// The time base when the vCPU was ready for it.
    pub ready: u64,
    /// The ticks that the vCPU was ready and did not run, ever.
    pub stolen: u64,
    /// Where the guest goes on.
    pub pc: u64,
    /// Its machine state.
    pub msr: u64,
}

/// What a vCPU that is kept from running goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its virtual processor area.
    area: Area,
    /// The time base when it was kept.
    now: u64,
    /// Whether it had ceded its processor.
    waits: bool,
}

impl Areas {
    /// The vCPU gives its processor away: its yield count is odd until it has one again.
    pub fn leave(&mut self, left: Left, memory: &impl Memory) {
        let Some(area) = self.vpa else { return };
        self.turns.left = Some(left);
        make_count(area.address, true, memory);
    }

    /// The vCPU waits (H_CEDE), whether or not somebody else gets its processor: its yield count is odd until it goes on.
    pub fn rest(&self, memory: &impl Memory) {
        if let Some(area) = self.vpa {
            make_count(area.address, true, memory);
        }
    }

    /// The vCPU goes on: at once, or when it has got a processor again.
    pub fn go_on(&self, memory: &impl Memory) {
        if let Some(area) = self.vpa {
            make_count(area.address, false, memory);
        }
    }

    /// The VM is paused: the vCPU is kept from running from `now` on, the time base. Until [`Areas::go_on_after`] nothing is told of
    /// its turns, whoever gets its processor meanwhile. `None` if it has no area.
    pub fn keep(&mut self, now: u64, memory: &impl Memory) -> Option<Kept> {
        let area = self.vpa.take()?;
        let count = memory.word(area.address + offset::YIELD_COUNT).unwrap_or(0);
        make_count(area.address, true, memory);
        Some(Kept { area, now, waits: count & 1 != 0 })
    }

    /// The pause is over, and the vCPU has a processor: all the time since it was kept is stolen, of which `turn` says nothing. If it
    /// waited before (H_CEDE), it waits still.
    pub fn go_on_after(&mut self, kept: Kept, turn: &Turn, memory: &impl Memory) {
        self.vpa = Some(kept.area);
        if !kept.waits {
            make_count(kept.area.address, false, memory);
        }
        self.turns.left = Some(Left { now: kept.now, stolen: 0 });
        let turn = Turn { ready: kept.now, stolen: turn.now.saturating_sub(kept.now), ..*turn };
        self.begin(kept.area, &turn, memory);
    }

    /// The vCPU has a processor again.
    pub fn dispatch(&mut self, turn: &Turn, memory: &impl Memory) {
        let Some(area) = self.vpa else { return };
        let place = area.address + offset::YIELD_COUNT;
        if let Some(count) = memory.word(place) {
            // Here and below: what was RAM when it was registered is RAM as long as this life.
            let _ = memory.set_word(place, (count | 1).wrapping_add(1));
        }
        self.begin(area, turn, memory);
    }

    /// Tells of a turn that begins, apart from the yield count.
    #[inline(always)] // Of each dispatch.
    fn begin(&mut self, area: Area, turn: &Turn, memory: &impl Memory) {
        let at = |field| area.address + field;
        let moved = self.turns.processor.replace(turn.processor).is_some_and(|last| last != turn.processor);
        if moved && let Some(count) = memory.word(at(offset::DISPERSION)) {
            let _ = memory.set_word(at(offset::DISPERSION), count.wrapping_add(1));
        }
        // What was stolen before the area was there is not in it.
        let Some(left) = self.turns.left.take() else { return };
        let ready = turn.stolen.wrapping_sub(left.stolen);
        // Who was preempted was ready before it had left.
        let waited = turn.ready.saturating_sub(left.now);
        let why = if waited > 0 { Reason::Waits } else { Reason::Preempted };
        self.turns.ready = self.turns.ready.wrapping_add(ready);
        self.turns.waited = self.turns.waited.wrapping_add(waited);
        let _ = memory.write(at(offset::READY_TIME), &self.turns.ready.to_be_bytes());
        let _ = memory.write(at(offset::WAITED_TIME), &self.turns.waited.to_be_bytes());
        self.log(why, [ready, waited], turn, memory);
    }

    /// Writes an entry over the oldest one, if the guest wants to have it.
    fn log(&mut self, why: Reason, [ready, waited]: [u64; 2], turn: &Turn, memory: &impl Memory) {
        let (Some(area), Some(log)) = (self.vpa, self.log) else { return };
        let mut wanted = [0];
        let entries = log.size / LOG_ENTRY;
        if entries == 0
            || !memory.read(area.address + offset::LOG_MASK, &mut wanted)
            || wanted[0] & why.mask() == 0
        {
            return;
        }
        let place = log.address + self.turns.logged % entries * LOG_ENTRY;
        if memory.write(place, &entry(why, [ready, waited], turn)) {
            self.turns.logged += 1;
            // Who sees the number sees the entry.
            fence(Ordering::Release);
            let _ = memory.write(area.address + offset::LOG_INDEX, &self.turns.logged.to_be_bytes());
        }
    }
}

/// An entry of the log.
fn entry(why: Reason, [ready, waited]: [u64; 2], turn: &Turn) -> [u8; LOG_ENTRY as usize] {
    let mut bytes = [0; LOG_ENTRY as usize];
    let short = |ticks: u64| u32::try_from(ticks).unwrap_or(u32::MAX).to_be_bytes();
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &why.codes());
    put(2, &turn.processor.to_be_bytes());
    // From its queue to the processor; it is in the queue from the moment at which it is ready.
    put(4, &short(ready));
    put(12, &short(waited));
    put(16, &turn.now.to_be_bytes());
    put(32, &turn.pc.to_be_bytes());
    put(40, &turn.msr.to_be_bytes());
    bytes
}
