// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that reach other vCPUs (Linux, Documentation/virt/kvm/x86/hypercalls.rst).

use turnstile_exitstat::Event;
use turnstile_vapic::{Bus, Signal};
use turnstile_vm::attention::Reasons;
use turnstile_x86policy::features::kvm as feature;

use crate::cpu::svm::Vmcb;
use crate::vcpu::frame::Frame;
use crate::vcpu::statistics;
use crate::vm::{Vcpu, Vm};

/// KVM_HC_KICK_CPU: ends the HLT of the vCPU whose APIC ID is in RCX.
pub(crate) const KICK_CPU: u32 = 5;
/// KVM_HC_SEND_IPI: interrupts the vCPUs whose bits are set in RBX and RCX; the first bit is that of the APIC ID in RDX. RSI
/// is the lower half of the command, as for the register of the APIC.
pub(crate) const SEND_IPI: u32 = 10;

/// Unknown call.
pub(crate) const ENOSYS: u64 = -1000i64 as u64;
/// Wrong argument.
const EINVAL: u64 = -22i64 as u64;

/// Carries out a call; returns the answer.
pub(crate) fn call(frame: &Frame, vmcb: &Vmcb, vcpu: &'static Vcpu) -> u64 {
    // Outside 64-bit mode arguments have 32 bits, so there are half as many bits for vCPUs.
    let bits = if vmcb.is_long() { 64 } else { 32 };
    let argument = |value: u64| if bits == 64 { value } else { value & u64::from(u32::MAX) };
    match vmcb.rax() as u32 {
        KICK_CPU if vcpu.vm.offers(feature::PV_UNHALT) => {
            if let Some(target) = find(vcpu.vm, frame.rcx() as u32) {
                target.post(Reasons::UNHALT);
            }
            0
        }
        SEND_IPI if vcpu.vm.offers(feature::PV_SEND_IPI) => {
            statistics::add(vcpu, Event::PvIpi);
            let masks = [argument(frame.rbx()), argument(frame.rcx())];
            send(vcpu.vm, masks, bits, frame.rdx() as u32, argument(frame.rsi()))
        }
        _ => ENOSYS,
    }
}

/// Finds a vCPU by its APIC ID, which is its number.
fn find(vm: &'static Vm, apic_id: u32) -> Option<&'static Vcpu> {
    vm.vcpu(apic_id as usize)
}

/// What a command sends to each of its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Interrupt(u8),
    Signal(Signal),
}

/// Reads the lower half of an interrupt command (APM vol. 2, 16.5). Targets are named otherwise, so a logical destination is
/// an error; what there is no message for goes nowhere.
fn message(command: u64) -> Result<Option<Message>, u64> {
    const LOGICAL: u64 = 1 << 11;
    if command & LOGICAL != 0 {
        return Err(EINVAL);
    }
    let vector = command as u8;
    Ok(match command >> 8 & 7 {
        // Vectors below 16 cannot be sent.
        0 | 1 if vector >= 16 => Some(Message::Interrupt(vector)),
        0b100 => Some(Message::Signal(Signal::Nmi)),
        0b101 => Some(Message::Signal(Signal::Init)),
        0b110 => Some(Message::Signal(Signal::Startup(vector))),
        _ => None,
    })
}

/// Calls `f` with the APIC IDs that two masks of `bits` bits name, of which the first bit is `first`.
fn each(masks: [u64; 2], bits: u32, first: u32, mut f: impl FnMut(u32)) {
    for (mut mask, base) in masks.into_iter().zip([0, bits]) {
        while mask != 0 {
            if let Some(id) = first.checked_add(base + mask.trailing_zeros()) {
                f(id);
            }
            mask &= mask - 1;
        }
    }
}

/// Sends a command to the vCPUs that the masks name; returns to how many.
fn send(vm: &'static Vm, masks: [u64; 2], bits: u32, first: u32, command: u64) -> u64 {
    let message = match message(command) {
        Ok(Some(message)) => message,
        Ok(None) => return 0,
        Err(error) => return error,
    };
    let mut sent = 0;
    each(masks, bits, first, |id| {
        if find(vm, id).is_none() {
            return;
        }
        match message {
            Message::Interrupt(vector) => vm.post(id as usize, vector, false),
            Message::Signal(signal) => vm.signal(id as usize, signal),
        }
        sent += 1;
    });
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(masks: [u64; 2], bits: u32, first: u32) -> Vec<u32> {
        let mut ids = Vec::new();
        each(masks, bits, first, |id| ids.push(id));
        ids
    }

    #[test]
    fn masks_name_whom_the_bits_are() {
        assert_eq!(named([0b101, 0], 64, 0), [0, 2]);
        assert_eq!(named([1 << 63, 1 | 1 << 63], 64, 100), [163, 164, 227]);
        assert_eq!(named([1 << 31, 1], 32, 5), [36, 37]);
        assert_eq!(named([u64::MAX, u64::MAX], 64, 0), (0..128).collect::<Vec<_>>());
        assert_eq!(named([0b11, 0], 64, u32::MAX), [u32::MAX], "an identification does not wrap");
        assert!(named([0, 0], 64, 7).is_empty());
    }

    #[test]
    fn commands_are_read_as_the_apics() {
        assert_eq!(message(0x4000 | 0xfd), Ok(Some(Message::Interrupt(0xfd))));
        assert_eq!(message(0x1fd), Ok(Some(Message::Interrupt(0xfd))));
        assert_eq!(message(0x400), Ok(Some(Message::Signal(Signal::Nmi))));
        assert_eq!(message(0x500), Ok(Some(Message::Signal(Signal::Init))));
        assert_eq!(message(0x69a), Ok(Some(Message::Signal(Signal::Startup(0x9a)))));
        assert_eq!(message(0x8fd), Err(EINVAL));
        for nothing in [0x0f, 0x2fd, 0x3fd, 0x7fd] {
            assert_eq!(message(nothing), Ok(None), "{nothing:#x}");
        }
    }
}
