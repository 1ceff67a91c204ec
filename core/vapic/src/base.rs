// SPDX-License-Identifier: Apache-2.0 OR MIT
//! APIC_BASE, MSR 0x1b: the modes of a local APIC, and the ways between them (APM vol. 2, 16.3.1 and 16.9; SDM vol. 3A,
//! "x2APIC State Transitions").

use crate::hardware::{Bus, Hardware};
use crate::mode::Mode;
use crate::{Context, Fault, Lapic};

const BOOTSTRAP: u64 = 1 << 8;
const EXTENDED: u64 = 1 << 10;
const ENABLE: u64 = 1 << 11;

impl Lapic {
    /// Returns the mode.
    #[inline]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the address of the page of registers, if there is one.
    #[inline]
    pub fn page(&self) -> Option<u64> {
        (self.mode == Mode::XApic).then_some(self.page)
    }

    /// Reads APIC_BASE.
    pub fn base(&self) -> u64 {
        let mode = match self.mode {
            Mode::Disabled => 0,
            Mode::XApic => ENABLE,
            Mode::X2Apic => ENABLE | EXTENDED,
        };
        self.page | mode | if self.index == 0 { BOOTSTRAP } else { 0 }
    }

    /// Writes APIC_BASE. `may_hold` says whether an APIC page may be at an address: inside the guest's physical address
    /// space, and not where there is memory or another device. The BSP bit is read-only and ignored.
    pub fn set_base<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        value: u64,
        may_hold: impl FnOnce(u64) -> bool,
    ) -> Result<(), Fault> {
        let mode = match value & (ENABLE | EXTENDED) {
            0 => Mode::Disabled,
            ENABLE => Mode::XApic,
            EXTENDED => return Err(Fault),
            _ => Mode::X2Apic,
        };
        let page = value & !0xfff;
        let is_allowed = match (self.mode, mode) {
            (Mode::X2Apic, Mode::XApic) | (Mode::Disabled, Mode::X2Apic) => false,
            (_, Mode::X2Apic) => self.has_x2apic,
            _ => true,
        };
        let reserved = 0xfff & !(BOOTSTRAP | EXTENDED | ENABLE);
        if !is_allowed || value & reserved != 0 || page != self.page && !may_hold(page) {
            return Err(Fault);
        }
        self.page = page;
        if mode != self.mode {
            self.sync(cx);
            if mode == Mode::Disabled {
                // It comes back in its reset state; what it held is gone.
                self.init(cx);
            }
            self.mode = mode;
            self.enroll(cx);
            self.refresh_external();
            self.offer(cx.hardware);
        }
        Ok(())
    }
}
