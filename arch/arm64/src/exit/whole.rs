// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the vectors make of light and wide handlers, as functions that have all registers in the frame: for tests, and for images
//! for ablation, whose vectors store everything.

use super::light::{Code, Read};
use super::trapped::Lookup;
use super::{hvc, irq, mmio, service, sysreg};
use crate::cpu::class;
use crate::irq::Gic;
use crate::vcpu::frame::Frame;

/// A synchronous exit without techniques in its handlers: takes the frame and ESR_EL2, returns zero to re-enter, the attention
/// word, or a [`Code`].
pub(super) type Handler = extern "C" fn(&mut Frame, u64) -> u32;

/// Goes on with the wide handler if the light one has left it something.
fn widen(frame: &mut Frame, code: u32, wide: impl FnOnce(&mut Frame, u32) -> u32) -> u32 {
    // All wide codes, and nothing else, have this bit.
    if code & Code::WIDE == Code::WIDE { wide(frame, code) } else { code }
}

/// Delivers what a light handler has read.
fn deliver(frame: &mut Frame, register: usize, read: Read) -> u32 {
    let code = read.code as u32;
    if code & Code::FULL == 0 {
        frame.set(register, read.value);
    }
    code
}

/// A hypercall.
pub(super) extern "C" fn hypercall(frame: &mut Frame, _esr: u64) -> u32 {
    let code = hvc::light(frame);
    widen(frame, code, |frame, _| hvc::wide(frame))
}

/// A trapped system register.
pub(super) extern "C" fn system_register<G: Gic, L: Lookup>(frame: &mut Frame, esr: u64) -> u32 {
    let register = (esr >> 5 & 31) as usize;
    if esr & 1 != 0 {
        let read = sysreg::light_read::<L>(frame, esr);
        return deliver(frame, register, read);
    }
    let code = sysreg::light_write::<G, L>(frame, esr, frame.get(register));
    widen(frame, code, sysreg::wide_write::<G, L>)
}

/// A data abort.
pub(super) extern "C" fn data_abort<G: Gic>(frame: &mut Frame, esr: u64) -> u32 {
    let register = (esr >> 16 & 31) as usize;
    if esr & 1 << 6 == 0 {
        let read = mmio::light_read(frame, esr);
        let address = read.value;
        let code = deliver(frame, register, read);
        return match code {
            Code::SERVICE => service::load::<G, false>(frame, address),
            _ => widen(frame, code, mmio::wide_read),
        };
    }
    let code = match G::SYSTEM_REGISTERS {
        true => frame.aborts,
        false => mmio::light_write::<G>(frame, esr, frame.get(register) as u32),
    };
    match code {
        Code::SERVICE => service::store::<G, false>(frame),
        _ => widen(frame, code, mmio::wide_write::<G>),
    }
}

/// All other classes.
pub(super) extern "C" fn other(_frame: &mut Frame, _esr: u64) -> u32 {
    Code::SYNC
}

/// A physical interrupt.
pub(super) extern "C" fn interrupt<G: Gic>(frame: &mut Frame) -> u32 {
    let code = irq::light::<G, false>(frame);
    widen(frame, code, irq::wide::<G>)
}

/// The handlers of synchronous exits by class.
pub(super) const fn handlers<G: Gic, L: Lookup>() -> [Handler; 64] {
    let mut handlers: [Handler; 64] = [other; 64];
    handlers[class::HVC64 as usize] = hypercall;
    handlers[class::SYSTEM_REGISTER as usize] = system_register::<G, L>;
    handlers[class::DATA_ABORT as usize] = data_abort::<G>;
    handlers
}
