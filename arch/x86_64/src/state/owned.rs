// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of a vCPU only the CPU touches where it is resident.

use turnstile_vapic::Lapic;
use turnstile_vm::asid::Tag;
use turnstile_x86insn::cache::Cache;
use turnstile_x86policy::msr::Bank;

use super::kvm;
use super::nmi::Nmi;
use super::walks::Walks;

/// The part of a vCPU that only its physical CPU touches.
pub struct Owned {
    /// Its local APIC. First: of all this, light exits use it most.
    pub lapic: Lapic,
    /// NMIs for it.
    pub nmi: Nmi,
    /// It is to leave HLT without an interrupt.
    pub unhalted: bool,
    /// What its guest says of polling while it halts.
    pub polling: kvm::Polling,
    /// What it has asked for of KVM's interface.
    pub kvm: kvm::State,
    /// MSRs that only keep what is written to them.
    pub registers: Bank,
    /// Its SPEC_CTRL, where the run loop switches that.
    pub spec_ctrl: u64,
    /// Instructions that have reached a device.
    pub decoded: Cache,
    /// How their code was found.
    pub walks: Walks,
    /// By which its CPU's TLB tells it from others.
    pub asid: Tag,
}

impl Owned {
    /// Makes that of vCPU `index`, whose local APIC can be an x2APIC or not, and whose guest is offered to speak of polling or not.
    #[inline(always)] // It is made where it stays: it is large.
    pub fn new(index: usize, x2apic: bool, polls: bool) -> Self {
        Self {
            lapic: Lapic::new(index, x2apic),
            nmi: Nmi::default(),
            unhalted: false,
            polling: kvm::Polling::new(polls),
            kvm: kvm::State::default(),
            registers: Bank::new(),
            spec_ctrl: 0,
            decoded: Cache::new(),
            walks: Walks::default(),
            asid: Tag::default(),
        }
    }

    /// Forgets everything but the local APIC, which `vcpu::irq::reset` resets: for a new life, or an INIT.
    pub fn reset(&mut self) {
        (self.nmi, self.unhalted) = (Nmi::default(), false);
        self.polling.reset();
        self.kvm = kvm::State::default();
        self.registers = Bank::new();
        self.spec_ctrl = 0;
        self.walks.clear();
    }
}
