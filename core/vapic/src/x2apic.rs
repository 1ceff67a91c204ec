// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The x2APIC's MSRs, 0x800 to 0x8ff (APM vol. 2, 16.11; SDM vol. 3A, "x2APIC Register Address Space"). Registers that there
//! are not, reserved bits, reads of write-only registers and writes of read-only ones are #GP.

use crate::hardware::{Bus, Hardware};
use crate::mode::Mode;
use crate::registers::{self as reg, LVT_FIRST, LVT_LAST, LVT_STATUS, lvt};
use crate::{Context, Fault, Lapic};

/// The first MSR.
pub const X2APIC_FIRST: u32 = 0x800;
/// The last MSR.
pub const X2APIC_LAST: u32 = 0x8ff;

const SELF_IPI: u32 = X2APIC_FIRST + reg::SELF_IPI;
const COMMAND: u32 = X2APIC_FIRST + reg::COMMAND_LOW;

/// The bits of the command register that software may set; bit 12, delivery status, is ignored.
const COMMAND_BITS: u32 = 0x000c_dfff;
const COMMAND_STATUS: u32 = 1 << 12;

impl Lapic {
    /// Reads MSR `msr` of the x2APIC's range.
    pub fn read_msr<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        msr: u32,
    ) -> Result<u64, Fault> {
        if self.mode != Mode::X2Apic {
            return Err(Fault);
        }
        match msr.wrapping_sub(X2APIC_FIRST) {
            reg::COMMAND_LOW => Ok(self.command),
            reg::COMMAND_HIGH | reg::DESTINATION_FORMAT | reg::ARBITRATION_PRIORITY | reg::REMOTE_READ => {
                Err(Fault)
            }
            register => self.read_register(cx, register).map(u64::from).ok_or(Fault),
        }
    }

    /// Writes zero to the EOI register if this is an x2APIC whose only interrupt that ends. False if [`Lapic::write_msr`] has to;
    /// then nothing was done. HOT: a leaf.
    #[inline(always)] // Its caller is a light exit.
    pub fn try_x2apic_eoi<H: Hardware>(&mut self, hardware: &mut H) -> bool {
        self.try_eoi(hardware, true)
    }

    /// Writes MSR `msr` of the x2APIC's range if it is an interrupt to the vCPU itself, in a frequent state. False if
    /// [`Lapic::write_msr`] has to; then nothing was done. HOT: a leaf.
    #[inline(always)] // Its caller is a light exit.
    pub fn try_self_ipi_msr<H: Hardware>(&mut self, hardware: &mut H, msr: u32, value: u64) -> bool {
        match msr {
            SELF_IPI => value <= 0xff && self.try_self_ipi(hardware, value as u8),
            COMMAND => self.try_command_to_itself(hardware, value),
            _ => false,
        }
    }

    /// Writes MSR `msr` of the x2APIC's range if it is an interrupt to another vCPU by its ID. False if [`Lapic::write_msr`] has to;
    /// then nothing was done. HOT.
    #[inline(always)] // Its caller is a light exit.
    pub fn try_send_msr<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        msr: u32,
        value: u64,
    ) -> bool {
        msr == COMMAND && self.mode == Mode::X2Apic && self.try_send(cx, value)
    }

    /// Writes MSR `msr` of the x2APIC's range.
    pub fn write_msr<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        msr: u32,
        value: u64,
    ) -> Result<(), Fault> {
        if self.mode != Mode::X2Apic {
            return Err(Fault);
        }
        match msr.wrapping_sub(X2APIC_FIRST) {
            reg::END_OF_INTERRUPT => {
                if value != 0 {
                    return Err(Fault);
                }
                self.eoi(cx);
                Ok(())
            }
            reg::COMMAND_LOW => {
                if value as u32 & !COMMAND_BITS != 0 {
                    return Err(Fault);
                }
                self.command = value & !u64::from(COMMAND_STATUS);
                self.command(cx, value as u32, (value >> 32) as u32);
                Ok(())
            }
            reg::SELF_IPI => {
                if value > 0xff {
                    return Err(Fault);
                }
                self.self_ipi(cx, value as u8);
                Ok(())
            }
            register => self.write_plain_msr(cx, register, value),
        }
    }

    #[inline(never)] // So that the frequent ones are leaves.
    fn write_plain_msr<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        register: u32,
        value: u64,
    ) -> Result<(), Fault> {
        let allowed = match register {
            reg::TASK_PRIORITY => 0xff,
            reg::SPURIOUS => reg::SPURIOUS_BITS,
            LVT_FIRST..=LVT_LAST => lvt::BITS[(register - LVT_FIRST) as usize] | LVT_STATUS,
            reg::INITIAL_COUNT => !0,
            reg::DIVIDE => 0xb,
            // Only zero, and of other registers nothing, may be written.
            _ => 0,
        };
        let is_reserved_mode = register == LVT_FIRST && value >> 17 & 3 == 3;
        if value & !u64::from(allowed) != 0 || is_reserved_mode {
            return Err(Fault);
        }
        if self.write_register(cx, register, value as u32) { Ok(()) } else { Err(Fault) }
    }
}
