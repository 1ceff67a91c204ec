// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a CPU does first on each exit, so that no guest steers the hypervisor's speculation. `board::mitigation` says what that
//! is; a CPU that needs something takes exceptions by a guarded copy of its vector table (`guards.S`).

use core::sync::atomic::{AtomicU32, Ordering};

use turnstile_mitigation::arm64::Exit;

/// The guarded tables of a table, in the order in which they follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    None,
    Clear,
    Loop,
    Call,
    LoopCall,
}

impl Kind {
    const fn of(exit: Exit) -> Self {
        match exit {
            Exit::Nothing => Self::None,
            Exit::Clear => Self::Clear,
            Exit::Loop(_) => Self::Loop,
            Exit::Firmware(_) => Self::Call,
            Exit::LoopAndFirmware(..) => Self::LoopCall,
        }
    }
}

/// What a CPU does first on each exit. `guards.S` knows the first two fields.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Guard {
    call: AtomicU32,
    turns: AtomicU32,
    kind: AtomicU32,
}

const _: () = assert!(core::mem::offset_of!(Guard, turns) == 4);

/// Bytes of a vector table.
const TABLE: u64 = 0x800;

impl Guard {
    /// Nothing.
    pub const fn new() -> Self {
        Self { call: AtomicU32::new(0), turns: AtomicU32::new(0), kind: AtomicU32::new(0) }
    }

    /// Makes it do `exit`.
    // Relaxed: written by the CPU itself before it enters a guest, and read by it alone.
    pub fn set(&self, exit: Exit) {
        self.call.store(exit.call().unwrap_or(0), Ordering::Relaxed);
        self.turns.store(exit.turns().unwrap_or(0).into(), Ordering::Relaxed);
        self.kind.store(Kind::of(exit) as u32, Ordering::Relaxed);
    }

    /// The address of the table that does what the one at `plain` does, guarded if need be; its guarded copies begin
    /// at `guarded`.
    pub fn table(&self, plain: u64, guarded: u64) -> u64 {
        match self.kind.load(Ordering::Relaxed) {
            0 => plain,
            kind => guarded + u64::from(kind - 1) * TABLE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guard_has_its_table() {
        let guard = Guard::new();
        let table = |exit| {
            guard.set(exit);
            (
                guard.table(0x1_0000, 0x2_0000),
                guard.turns.load(Ordering::Relaxed),
                guard.call.load(Ordering::Relaxed),
            )
        };
        assert_eq!(table(Exit::Clear), (0x2_0000, 0, 0));
        assert_eq!(table(Exit::Loop(24)), (0x2_0800, 24, 0));
        assert_eq!(table(Exit::Firmware(0x8000_3fff)), (0x2_1000, 0, 0x8000_3fff));
        assert_eq!(table(Exit::LoopAndFirmware(8, 0x8000_8000)), (0x2_1800, 8, 0x8000_8000));
        assert_eq!(table(Exit::Nothing), (0x1_0000, 0, 0));
    }
}
