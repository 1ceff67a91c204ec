// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The address space of a service, and its registers.

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use spin::Mutex;
use turnstile_arch_common::bound::Bound;
use turnstile_arch_common::memory::Error;
use turnstile_arch_common::service::{Left, Places, Window};
use turnstile_arch_common::time::NANOSECONDS;
use turnstile_service::abi::{Event, REGISTERS};
use turnstile_service::image::{self, Image};

use super::context::entry::{
    turnstile_service_enter, turnstile_service_resume, turnstile_service_resume_lent,
};
use super::context::{Context, Fixed};
use super::report::{self, Cause};
use super::strikes::Strikes;
use crate::cpu;
use crate::cpu::regs::{HMER, HSRR0, HSRR1, msr};
use crate::cpu::vector;
use crate::memory::partition;
use crate::memory::service::{self as memory, ServiceMemory};
use crate::time;

/// The machine of a service's instructions, as ELF numbers it.
pub const ISA: u32 = image::PPC64;

/// Problem state, and what goes with it: interrupts, translation (Power ISA 3.0B Book III, 3.2.1). No facility.
const STATE: u64 = msr::SF | msr::EE | msr::PR | msr::ME | msr::IR | msr::DR | msr::RI | msr::LE;

/// LPIDs of POWER9 have twelve bits; those of VMs have the lower ones.
const LPIDS: core::ops::Range<u32> = 0x800..0x1000;
/// The next one.
static NEXT: AtomicU32 = AtomicU32::new(LPIDS.start);

/// A service's address space and registers.
pub struct Space {
    /// First: it is aligned.
    context: UnsafeCell<Context>,
    strikes: Strikes,
    bound: Bound,
    /// How it was left last, but by a call.
    cause: Cell<Cause>,
    /// Whether it had vector registers when it was interrupted last.
    had_vectors: Cell<bool>,
    image: Image<'static>,
    /// For who is inside alone: nobody waits.
    memory: Mutex<ServiceMemory>,
    /// Likewise.
    places: Mutex<Places>,
}

// SAFETY: who is inside the service's gate alone touches what is not constant, and the gate orders those who are.
unsafe impl Sync for Space {}
// SAFETY: it does not matter which CPU has made it.
unsafe impl Send for Space {}

impl Space {
    /// Makes an address space for a program, which may take `limit` nanoseconds for an event.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(image: Image<'static>, limit: u64) -> Result<Self, Error> {
        let memory = memory::build(image.header())?;
        let lpid = NEXT.fetch_add(1, Ordering::Relaxed);
        if !LPIDS.contains(&lpid) {
            return Err(turnstile_paging::Error::OutOfRange.into());
        }
        partition::set(lpid, memory.tables, memory::PROCESSES);
        let bound = Bound::new(ticks(limit));
        let fixed = Fixed {
            lpid: lpid.into(),
            entry: memory::BASE + u64::from(image.header().entry),
            stack: memory::BASE + u64::from(image.header().size()),
            state: STATE,
            slice: bound.slice(),
        };
        let context = UnsafeCell::new(Context::new(fixed));
        let (strikes, cause, had_vectors) = (Strikes::default(), Cell::default(), Cell::default());
        let (memory, places) = (Mutex::new(memory), Mutex::new(Places::new()));
        Ok(Self { context, strikes, bound, cause, had_vectors, image, memory, places })
    }

    /// Returns what is kept of it; for who is inside.
    #[inline(always)] // The same address.
    fn context(&self) -> &Context {
        // SAFETY: whoever is inside its gate is alone, and the service does not run meanwhile.
        unsafe { &*self.context.get() }
    }

    /// It was left by a call.
    #[inline(always)] // A comparison, on the way of each access.
    fn called(&self) -> Left {
        self.strikes.put_back();
        Left::Call
    }

    /// It was left by an interrupt. Lets it go on if that needs nobody else.
    #[cold]
    fn interrupted(&self, mut vector: u32) -> Left {
        loop {
            // Before all else: whoever looks at vector registers finds the guest's.
            // SAFETY: as for `context`; no reference to it is in use.
            self.had_vectors.set(unsafe { (*self.context.get()).take_back() });
            if let Some(left) = self.sort(vector) {
                self.strikes.put_back();
                return left;
            }
            // SAFETY: as for `Space::resume`, which it is part of, or of the entry; it has not faulted.
            vector = unsafe { self.resume_interrupted() };
            if vector == 0 {
                return self.called();
            }
        }
    }

    /// Lets it go on where it was interrupted.
    ///
    /// # Safety
    /// As for [`Space::resume`](turnstile_arch_common::service::Space::resume).
    unsafe fn resume_interrupted(&self) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            match self.had_vectors.get() {
                true => turnstile_service_resume_lent(self.context.get()),
                false => turnstile_service_resume(self.context.get()),
            }
        }
    }

    /// Says what an interrupt means; `None` if it was dealt with.
    fn sort(&self, vector: u32) -> Option<Left> {
        let found = self.context().found;
        let own = !matches!(vector, vector::SYSTEM_RESET | vector::MACHINE_CHECK);
        let (mut pc, state) = if own { (HSRR0.read(), HSRR1.read()) } else { (found.srr0, found.srr1) };
        // In privileged state it is at a vector of its own partition, where nothing is.
        let strike = (state & msr::PR == 0).then_some(pc & vector::OFFSET);
        let silent = strike.is_some_and(|strike| own && self.strikes.keep_away(strike, found.dsisr));
        if strike.is_some() {
            pc = found.srr0;
        }
        // SAFETY: as for `context`; no reference to it is in use.
        unsafe { (*self.context.get()).pc = pc };
        self.cause.set(Cause::new(vector, strike, found));
        if strike.is_some() && !silent {
            return Some(Left::Fault);
        }
        match vector {
            vector::HYPERVISOR_DECREMENTER | vector::HYPERVISOR_DOORBELL | vector::VIRTUALIZATION => {
                Some(Left::Interrupt)
            }
            vector::MAINTENANCE => {
                // SAFETY: clears what interrupts the hypervisor.
                unsafe { HMER.write(0) };
                None
            }
            vector::HYPERVISOR_INSTRUCTION_STORAGE if silent => None,
            _ => Some(Left::Fault),
        }
    }
}

/// So many nanoseconds, as ticks that the hypervisor decrementer can count.
fn ticks(nanoseconds: u64) -> u64 {
    let ticks = u128::from(nanoseconds) * u128::from(time::frequency()) / u128::from(NANOSECONDS);
    u64::try_from(ticks).unwrap_or(u64::MAX).min(i32::MAX as u64)
}

/// Clears memory of a service.
///
/// # Safety
/// It is inside that, and nobody else uses it.
unsafe fn clear(memory: u64, from: u32, to: u32) {
    let start = ptr::with_exposed_provenance_mut::<u8>(memory as usize + from as usize);
    // SAFETY: the caller's promise.
    unsafe { ptr::write_bytes(start, 0, (to - from) as usize) };
}

impl turnstile_arch_common::service::Space for Space {
    unsafe fn attach(&self, member: usize, windows: &mut [Window]) -> Result<(), Error> {
        // What is unmapped if one fails, no CPU has walked.
        self.places.lock().open(member, windows, &mut *self.memory.lock())?;
        for window in windows {
            window.address = memory::address(window, window.address);
        }
        Ok(())
    }

    unsafe fn detach(&self, member: usize) {
        self.places.lock().close(member, &mut *self.memory.lock());
        // No CPU is in the partition: none walks tables that became free before it has forgotten them.
        partition::invalidate(self.context().fixed.lpid as u32);
    }

    #[inline(always)] // The way of each access.
    unsafe fn enter(&self, event: &Event) -> Left {
        let [kind, a, b, c, d, e] = event.0;
        // SAFETY: the caller's promise: the registers are those of a resident vCPU, and nobody else uses the context.
        match unsafe { turnstile_service_enter(kind, a, b, c, d, e, self.context.get()) } {
            0 => self.called(),
            vector => self.interrupted(vector),
        }
    }

    #[cold]
    unsafe fn resume(&self, result: Option<u64>) -> Left {
        // SAFETY: as above.
        let vector = unsafe {
            match result {
                Some(result) => {
                    let context = self.context.get();
                    (*context).gpr[3] = result;
                    turnstile_service_resume(context)
                }
                None => self.resume_interrupted(),
            }
        };
        if vector == 0 { self.called() } else { self.interrupted(vector) }
    }

    #[inline(always)] // As above.
    unsafe fn call(&self) -> [u64; REGISTERS] {
        let [_, _, _, a, b, c, d, e, f, ..] = self.context().gpr;
        [a, b, c, d, e, f]
    }

    unsafe fn missed(&self) -> Option<u64> {
        self.cause.get().missed()
    }

    unsafe fn supply(&self, window: &Window, offset: u64, host: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.memory.lock().supply(window, offset, host) }
    }

    unsafe fn withdraw(&self, window: &Window, offsets: Range<u64>) {
        // SAFETY: the caller's promise.
        unsafe { self.memory.lock().withdraw(window, offsets) };
        // Before anybody else gets one of them.
        partition::invalidate(self.context().fixed.lpid as u32);
    }

    unsafe fn excuse<R>(&self, act: impl FnOnce() -> R) -> R {
        let begun = time::ticks();
        let done = act();
        self.bound.excuse(self.context().entered, begun, time::ticks());
        done
    }

    #[inline(always)] // Of each doorbell.
    fn now() -> u64 {
        time::uptime().nanoseconds()
    }

    fn is_late(&self) -> bool {
        self.bound.is_late(self.context().entered, time::ticks())
    }

    unsafe fn begin(&self, keep: bool) {
        let header = self.image.header();
        let memory = self.memory.lock().address;
        let contents = ptr::with_exposed_provenance_mut::<u8>(memory as usize);
        let kept_to = header.kept_at() + header.kept;
        // SAFETY: its memory, as large as the header says, which only who is inside uses.
        unsafe {
            let contents = core::slice::from_raw_parts_mut(contents, header.file() as usize);
            self.image.write(contents, memory::BASE);
            clear(memory, header.file(), if keep { header.kept_at() } else { kept_to });
            clear(memory, header.stack_at(), header.size());
        }
        cpu::synchronize_code();
    }

    fn explain(&self, left: Left, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        report::explain(self.context(), &self.cause.get(), left, memory::BASE, f)
    }
}

#[cfg(test)]
mod tests;
