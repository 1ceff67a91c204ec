// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's interrupts: their vectors, and the moments in which they are taken.
//!
//! The hypervisor runs with the global interrupt flag clear and IF set (APM vol. 2, 15.17): a physical interrupt makes a
//! guest exit, and none arrives in the hypervisor but where [`take`] or [`wait`] opens the flag for a moment. What arrives
//! then is noted in the CPU's area by `interrupts.S`; whoever opened the flag serves it.

use core::sync::atomic::Ordering;

use crate::cpu;

/// Vector of the serial port.
pub const CONSOLE: u8 = 0x30;
/// The first vector of PCI functions.
pub const DEVICE: u8 = 0x31;
/// How many of them there are; `interrupts.S` has as many entries.
pub const DEVICES: u8 = 8;
/// Vector of the local APIC's timer.
pub const TIMER: u8 = 0xef;
/// Vector of a kick.
pub const KICK: u8 = 0xf0;
/// Vector by which another CPU says that the run queue is to be looked at.
pub const RESCHEDULE: u8 = 0xf1;
/// Vector of errors of the local APIC.
pub const APIC_ERROR: u8 = 0xfe;
/// Vector of interrupts that have gone when the CPU looks.
pub const SPURIOUS: u8 = 0xff;

/// Interrupts that have arrived; `interrupts.S` has the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived(u32);

impl Arrived {
    /// None.
    pub const NOTHING: Self = Self(0);
    /// The serial port has received something.
    pub const CONSOLE: Self = Self(1);
    /// The timer has rung.
    pub const TIMER: Self = Self(2);
    /// Somebody wants an attention word to be looked at.
    pub const KICK: Self = Self(4);
    /// Somebody wants the run queue to be looked at.
    pub const RESCHEDULE: Self = Self(8);
    /// The local APIC reports an error.
    pub const APIC_ERROR: Self = Self(16);
    /// The first of the bits of PCI functions.
    const DEVICE: u32 = 5;
    /// The serial port has received something, or PCI functions have sent messages.
    pub const DEVICES: Self = Self(Self::CONSOLE.0 | ((1 << DEVICES) - 1) << Self::DEVICE);
    /// All there are.
    const ALL: Self = Self(Self::DEVICES.0 | ((1 << Self::DEVICE) - 1));

    /// Returns the bits, for [`Arrived::from_bits`].
    #[inline(always)] // Nothing.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns what [`Arrived::bits`] said.
    #[inline(always)] // One instruction.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Says whether nothing but kicks has arrived: what they are about is in the attention word.
    #[inline(always)] // One test.
    pub const fn is_kick(self) -> bool {
        self.0 & !Self::KICK.0 == 0
    }

    /// Says whether `other` has arrived.
    #[inline(always)] // One test.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the vectors of the [`Arrived::DEVICES`] that have interrupted.
    pub fn devices(self) -> impl Iterator<Item = u8> {
        let console = self.contains(Self::CONSOLE).then_some(CONSOLE);
        let functions =
            (0..DEVICES).filter(move |number| self.0 >> (Self::DEVICE + u32::from(*number)) & 1 != 0);
        console.into_iter().chain(functions.map(|number| DEVICE + number))
    }
}

/// What has arrived since the last look.
#[inline]
fn arrived() -> Arrived {
    let area = cpu::this();
    // Only this CPU writes the word, and no interrupt comes while the flag is clear.
    let bits = area.arrived.load(Ordering::Relaxed);
    area.arrived.store(0, Ordering::Relaxed);
    Arrived(bits)
}

/// Lets interrupts in for a moment, and returns what has arrived.
#[cfg(target_os = "none")]
#[inline]
pub fn take() -> Arrived {
    // SAFETY: SVM is on and IF is set (`start_cpu`); handlers touch nothing but the CPU's area, and what lies below the stack
    // pointer, which nobody uses. What they announce is read afterwards, so the asm is not `nomem`.
    unsafe { core::arch::asm!("stgi", "nop", "clgi", options(nostack)) };
    arrived()
}

/// Waits until an interrupt arrives, and returns what has arrived.
///
/// With IF clear the open flag lets nothing in, so that nothing is lost between it and HLT, which STI covers
/// (APM vol. 3, STI).
#[cfg(target_os = "none")]
pub fn wait() -> Arrived {
    // SAFETY: as for `take`; IF is set again at the end.
    unsafe { core::arch::asm!("cli", "stgi", "sti", "hlt", "clgi") };
    arrived()
}

/// Returns what a test says has arrived.
#[cfg(not(target_os = "none"))]
pub fn take() -> Arrived {
    arrived()
}

/// Returns what a test says has arrived.
#[cfg(not(target_os = "none"))]
pub fn wait() -> Arrived {
    arrived()
}
