// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is exchanged when a service is entered and left: all that it could see or change at EL0.
//!
//! | what a service could reach | what keeps it from that |
//! |---|---|
//! | general registers, flags, SP_EL0, TPIDR_EL0, TPIDRRO_EL0 | saved, cleared |
//! | memory | VHE: only its own tables have entries for EL0; without: stage 2 has nothing but its pages |
//! | FP, SIMD, SVE, SME | VHE: CPTR_EL2 traps them at EL0 while TGE is 1, always; without: [`Closed`] |
//! | breakpoints, watchpoints, single step, the debug communications channel | [`Closed`]; nobody's while the vCPU has not used them |
//! | PMU | [`Closed`]; trapped while the vCPU has not used it |
//! | counters and timers | VHE: CNTHCTL_EL2 has no bit for EL0; without: CNTKCTL_EL1 is zero |
//! | the generic key of pointer authentication | VHE: [`Closed`]; without: HCR_EL2.API, which traps where TGE is 1. Other keys: SCTLR |
//! | WFI, WFE, DC, IC, CTR_EL0, DAIF, SCXTNUM_EL0, implementation-defined registers | SCTLR_EL2; without VHE SCTLR_EL1, [`SCTLR`] |
//! | virtual interrupts | none is taken while TGE is 1 |
//! | SVC, HVC, SMC, ERET, BRK, all else | an exception, which TGE takes to EL2 |
//! | its own PSTATE (SSBS, DIT, TCO and so on) | SPSR_EL2, saved |
//!
//! With E2H = 1 the first TLB entries of the other address range do not matter: those of the hypervisor are global and not for EL0.

use core::cell::Cell;
use core::sync::atomic::AtomicU64;

use turnstile_arch_common::of_cpu::OfCpu;

use crate::cpu::mode::{Mode, in_mode};
use crate::cpu::{self, PerCpu, regs};
use crate::state::pauth;
use crate::state::traps::{Open, Traps};

/// HCR_EL2.TGE: EL0 is the hypervisor's, and its exceptions come to EL2.
const TGE: u64 = 1 << 27;
/// HCR_EL2.DC: there is no stage 1; memory is Normal and cacheable.
const DC: u64 = 1 << 12;
/// HCR_EL2.API and APK: one lets through.
const PAUTH: u64 = 3 << 40;
/// SCTLR_EL1 for EL0 of a service where E2H is 0: RES1 (among them TSCXT), caches, checks of SP; nothing that EL0 may beyond that.
const SCTLR: u64 = 0x30d0_0800 | 1 << 2 | 1 << 4 | 1 << 12;
/// CPTR_EL2 without VHE where everything traps.
const CPTR: u64 = 0x33ff | 1 << 10 | 1 << 20 | 1 << 30;
/// MDSCR_EL1 of a service: nothing but TDCC, which traps the debug communications channel.
const MDSCR: u64 = 1 << 12;
/// PMCR_EL0.E.
const PMCR_E: u64 = 1;
/// PMCR_EL0.P and C, which reset counters when they are written.
const PMCR_RESETS: u64 = 1 << 1 | 1 << 2;

/// TCR_EL2, with VHE, of the upper address range: 39 bits (T1SZ), write-back, inner shareable, 4 KiB; A1, which takes the ASID from
/// TTBR1_EL2.
const TCR_UPPER: u64 = 25 << 16 | 1 << 22 | 1 << 24 | 1 << 26 | 3 << 28 | 2 << 30;
/// EPD1, which forbids walks of the upper range.
const TCR_EPD1: u64 = 1 << 23;
/// E0PD0: an access of EL0 to the lower range faults without a walk, and so in constant time.
const TCR_E0PD0: u64 = 1 << 55;

/// The upper address range of a CPU that has not entered a service: nothing.
static EMPTY: Empty = Empty([const { AtomicU64::new(0) }; 512]);

/// A root table. Atomics, so that it is not among the constants of the image.
#[repr(align(4096))]
struct Empty([AtomicU64; 512]);

/// What a CPU has to enter services.
pub struct Entrance {
    /// The address of the vectors by which it leaves them.
    vectors: OfCpu<Cell<u64>>,
}

impl Entrance {
    /// Makes that of a CPU that has not started.
    pub const fn new() -> Self {
        // SAFETY: each CPU touches only its own; interrupts are masked at EL2.
        Self { vectors: unsafe { OfCpu::new(Cell::new(0)) } }
    }
}

impl Default for Entrance {
    fn default() -> Self {
        Self::new()
    }
}

/// Sets this CPU up to enter services.
pub fn start_cpu() {
    let (table, guarded) = vectors();
    let cpu = cpu::this();
    cpu.slot::<Entrance>().vectors.set(cpu.guard.table(table, guarded));
    in_mode!(start_cpu_in());
}

fn start_cpu_in<M: Mode>() {
    if !M::VHE {
        return;
    }
    let has_e0pd = regs::ID_AA64MMFR2_EL1.read() >> 60 != 0;
    let upper = TCR_UPPER | if has_e0pd { TCR_E0PD0 } else { 0 };
    // SAFETY: the upper range becomes one of no entries; the lower one, where the hypervisor is, stays as it was: its entries are
    // global, so that they are found with any ASID. First the root, then what allows to use it.
    unsafe {
        regs::TTBR1_EL2.write(core::ptr::from_ref(&EMPTY.0).expose_provenance() as u64);
        cpu::isb();
        regs::TCR_EL2.write(regs::TCR_EL2.read() & !TCR_EPD1 | upper);
    }
    cpu::isb();
}

/// Returns the address of the vectors of services, and of their guarded copies.
fn vectors() -> (u64, u64) {
    #[cfg(target_os = "none")]
    {
        unsafe extern "C" {
            static vectors_service: u8;
            static vectors_service_guarded: u8;
        }
        (&raw const vectors_service as u64, &raw const vectors_service_guarded as u64)
    }
    #[cfg(not(target_os = "none"))]
    (0x5000, 0)
}

/// What a service has of these registers while it is out. Of its own PSTATE, all is in SPSR_EL2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Own {
    /// Where it goes on.
    pub pc: u64,
    /// SPSR_EL2.
    pub state: u64,
    /// Its stack pointer.
    pub sp: u64,
    /// TPIDR_EL0.
    pub thread: u64,
}

impl Own {
    /// Takes what a service leaves behind.
    pub fn take() -> Self {
        Self {
            pc: regs::ELR_EL2.read(),
            state: regs::SPSR_EL2.read(),
            sp: regs::SP_EL0.read(),
            thread: regs::TPIDR_EL0.read(),
        }
    }
}

/// What the guest, or the hypervisor, has in registers that a service needs, or must not see.
pub(super) struct Guests {
    hcr: u64,
    vectors: u64,
    pc: u64,
    state: u64,
    sp: u64,
    thread: u64,
    thread_readable: u64,
    /// Without VHE: VTTBR_EL2, SCTLR_EL1, CNTKCTL_EL1.
    translation: u64,
    control: u64,
    timers: u64,
}

/// Makes this CPU's registers those of a service that goes on at `own` in the address space `translation`. Returns what they were.
///
/// # Safety
/// The caller is an exit handler and enters the service next, and then gives [`leave`] what this returns.
#[inline(always)] // Once for each mode, into the way of each access.
pub(super) unsafe fn enter<M: Mode>(cpu: &PerCpu, translation: u64, own: Own) -> Guests {
    let either = |value: fn() -> u64| if M::VHE { 0 } else { value() };
    let guests = Guests {
        hcr: regs::HCR_EL2.read(),
        vectors: regs::VBAR_EL2.read(),
        pc: regs::ELR_EL2.read(),
        state: regs::SPSR_EL2.read(),
        sp: regs::SP_EL0.read(),
        thread: regs::TPIDR_EL0.read(),
        thread_readable: regs::TPIDRRO_EL0.read(),
        translation: either(|| regs::VTTBR_EL2.read()),
        control: either(|| regs::SCTLR_EL1.read()),
        timers: either(|| regs::CNTKCTL_EL1.read()),
    };
    // SAFETY: all of these act on EL0 and EL1, or on what is taken from there; what they were is put back before the guest is
    // entered. EL2's own exceptions find handlers in both tables of vectors. The return to EL0 synchronizes.
    unsafe {
        regs::VBAR_EL2.write(cpu.slot::<Entrance>().vectors.get());
        if M::VHE {
            regs::HCR_EL2.write(guests.hcr | TGE);
            regs::TTBR1_EL2.write(translation);
        } else {
            // The other address space before what says how it translates: so no walk of the guest's tables is ever noted as one
            // without stage 1.
            regs::SCTLR_EL1.write(SCTLR);
            regs::CNTKCTL_EL1.write(0);
            regs::VTTBR_EL2.write(translation);
            regs::HCR_EL2.write((guests.hcr | TGE | DC) & !PAUTH);
        }
        regs::ELR_EL2.write(own.pc);
        regs::SPSR_EL2.write(own.state);
        regs::SP_EL0.write(own.sp);
        regs::TPIDR_EL0.write(own.thread);
        regs::TPIDRRO_EL0.write(0);
    }
    guests
}

/// Makes this CPU's registers the guest's again.
///
/// # Safety
/// `guests` is what [`enter`] returned, on this CPU, and the service has been left.
#[inline(always)] // As above.
pub(super) unsafe fn leave<M: Mode>(guests: Guests) {
    // SAFETY: what they were.
    unsafe {
        regs::HCR_EL2.write(guests.hcr);
        if !M::VHE {
            regs::VTTBR_EL2.write(guests.translation);
            regs::SCTLR_EL1.write(guests.control);
            regs::CNTKCTL_EL1.write(guests.timers);
        }
        regs::VBAR_EL2.write(guests.vectors);
        regs::ELR_EL2.write(guests.pc);
        regs::SPSR_EL2.write(guests.state);
        regs::SP_EL0.write(guests.sp);
        regs::TPIDR_EL0.write(guests.thread);
        regs::TPIDRRO_EL0.write(guests.thread_readable);
    }
}

/// What the guest had open that a service must not have, and what it had there.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Closed {
    vector: u64,
    debug: u64,
    counting: u64,
    counters: u64,
    keys: [u64; 2],
}

/// What has to be closed while a service is inside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ToClose {
    open: u8,
    keys: bool,
}

impl ToClose {
    /// Finds out.
    #[inline(always)] // Three loads and a branch of each access.
    pub fn now<M: Mode>(cpu: &PerCpu) -> Self {
        let traps = cpu.slot::<Traps>();
        let facilities = Open::PMU | Open::DEBUG;
        let facilities = if M::VHE { facilities } else { facilities | Open::FP | Open::SVE };
        Self { open: traps.open().bits() & facilities.bits(), keys: M::VHE && pauth::is_used() }
    }

    /// Says whether there is anything.
    #[inline(always)] // As above.
    pub const fn is_any(self) -> bool {
        self.open as u32 | self.keys as u32 != 0
    }

    fn has(self, open: Open) -> bool {
        Open::from_bits(self.open).intersects(open)
    }

    /// Closes it.
    ///
    /// # Safety
    /// [`ToClose::open`] follows on the same CPU, before the guest is entered.
    #[inline(never)] // Who has nothing open is not to pay for its registers.
    pub unsafe fn close(self, closed: &mut Closed) {
        // SAFETY: facilities of the guest, which gets them back as they were.
        unsafe {
            if self.has(Open::FP | Open::SVE) {
                closed.vector = regs::CPTR_EL2.read();
                regs::CPTR_EL2.write(CPTR);
            }
            if self.has(Open::DEBUG) {
                closed.debug = regs::MDSCR_EL1.read();
                regs::MDSCR_EL1.write(MDSCR);
            }
            if self.has(Open::PMU) {
                closed.counters = regs::PMUSERENR_EL0.read();
                regs::PMUSERENR_EL0.write(0);
                closed.counting = regs::PMCR_EL0.read() & !PMCR_RESETS;
                if closed.counting & PMCR_E != 0 {
                    regs::PMCR_EL0.write(closed.counting & !PMCR_E);
                }
            }
            if self.keys {
                closed.keys = [regs::APGAKeyLo_EL1.read(), regs::APGAKeyHi_EL1.read()];
                regs::APGAKeyLo_EL1.write(0);
                regs::APGAKeyHi_EL1.write(0);
            }
        }
    }

    /// Opens again what was closed.
    ///
    /// # Safety
    /// `closed` is what [`ToClose::close`] has written, and the service has been left.
    #[inline(never)] // As above.
    pub unsafe fn open(self, closed: &Closed) {
        // SAFETY: the caller's promise: the guest gets back what it had.
        unsafe {
            if self.has(Open::FP | Open::SVE) {
                regs::CPTR_EL2.write(closed.vector);
            }
            if self.has(Open::DEBUG) {
                regs::MDSCR_EL1.write(closed.debug);
            }
            if self.has(Open::PMU) {
                regs::PMUSERENR_EL0.write(closed.counters);
                if closed.counting & PMCR_E != 0 {
                    regs::PMCR_EL0.write(closed.counting);
                }
            }
            if self.keys {
                regs::APGAKeyLo_EL1.write(closed.keys[0]);
                regs::APGAKeyHi_EL1.write(closed.keys[1]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
