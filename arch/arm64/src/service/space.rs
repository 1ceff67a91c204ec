// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The address space of a service, and its registers while it is out.

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_arch_common::memory::Error;
use turnstile_arch_common::service::{Left, Window};
use turnstile_arch_common::time::NANOSECONDS;
use turnstile_service::abi::{Event, REGISTERS};
use turnstile_service::image::{self, Image};

use super::exchange::{self, Own, ToClose};
use super::state::State;
use crate::cpu::mode::{self, Mode, Nvhe, Vhe};
use crate::cpu::{self, PerCpu};
use crate::memory::coherence;
use crate::memory::service::ServiceMemory;
use crate::time;

/// The machine of a service's instructions, as ELF numbers it.
pub const ISA: u32 = image::AARCH64;

/// A service's address space and registers.
pub struct Space {
    /// Its address space, for the register that chooses it.
    translation: u64,
    /// Where it is entered, and its stack pointer then.
    entry: u64,
    stack: u64,
    /// How long it may take for an event, in ticks.
    limit: u64,
    /// Until when it may take for this one.
    until: AtomicU64,
    /// What that was when it was put off: that happens once for an event.
    put_off: AtomicU64,
    state: UnsafeCell<State>,
    memory: ServiceMemory,
    image: Image<'static>,
}

// SAFETY: the state is touched by who is inside the service's gate, which lets in one at a time and orders what they do.
unsafe impl Sync for Space {}

/// More ticks than any machine's counter takes.
const FOREVER: u64 = 1 << 62;

impl Space {
    /// Makes an address space for a program, which may take `limit` nanoseconds for an event.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(image: Image<'static>, limit: u64) -> Result<Self, Error> {
        let header = image.header();
        let memory = ServiceMemory::new(header)?;
        let base = ServiceMemory::base();
        let ticks = u128::from(limit) * u128::from(time::frequency()) / u128::from(NANOSECONDS);
        let space = Self {
            translation: memory.translation(),
            entry: base + u64::from(header.entry),
            stack: base + u64::from(header.size()),
            // The counter does not get there.
            limit: u64::try_from(ticks).map_or(FOREVER, |ticks| ticks.min(FOREVER)),
            until: AtomicU64::new(0),
            put_off: AtomicU64::new(0),
            state: UnsafeCell::default(),
            memory,
            image,
        };
        space.write();
        Ok(space)
    }

    /// Writes code, constants and data.
    fn write(&self) {
        let header = self.image.header();
        // SAFETY: nobody is inside but the caller; the other references to this memory are gone.
        let contents = unsafe { self.memory.bytes(0, header.file()) };
        self.image.write(contents, ServiceMemory::base());
        // Instruction fetches, which are others' than these stores, see them.
        coherence::publish(contents.as_ptr().addr() as u64, contents.len() as u64);
        cpu::ic_ialluis();
        cpu::dsb_ish();
        cpu::isb();
    }

    /// Lets the service run until it is left.
    ///
    /// # Safety
    /// As for [`Space::enter`](turnstile_arch_common::service::Space::enter). `go` goes to it and returns how it was left.
    #[inline(always)] // Once for each mode, into the way of each access.
    unsafe fn run<M: Mode>(&self, own: Own, cpu: &PerCpu, go: impl FnOnce(*mut State) -> Left) -> Left {
        let to_close = ToClose::now::<M>(cpu);
        // SAFETY: opened again below; the caller is inside the gate.
        unsafe {
            if to_close.is_any() {
                to_close.close(&mut (*self.state.get()).closed);
            }
        }
        // SAFETY: the caller's promise; left below.
        let guests = unsafe { exchange::enter::<M>(cpu, self.translation, own) };
        let left = go(self.state.get());
        // SAFETY: of this CPU, where the service has just been left.
        unsafe {
            exchange::leave::<M>(guests);
            if to_close.is_any() {
                to_close.open(&(*self.state.get()).closed);
            }
        }
        left
    }

    #[inline(always)] // As above.
    unsafe fn enter_in<M: Mode>(&self, event: &Event, cpu: &PerCpu) -> Left {
        // EL0t, nothing masked: interrupts are the hypervisor's.
        let own = Own { pc: self.entry, state: 0, sp: self.stack, thread: 0 };
        // SAFETY: the caller's promise.
        unsafe {
            self.run::<M>(own, cpu, |state| {
                let [kind, a, b, c, d, e] = event.0;
                turnstile_service_enter(kind, a, b, c, d, e, state)
            })
        }
    }

    #[cold]
    unsafe fn resume_in<M: Mode>(&self) -> Left {
        // SAFETY: the caller's promise.
        unsafe {
            let own = (*self.state.get()).own;
            self.run::<M>(own, cpu::this(), |state| turnstile_service_resume(state))
        }
    }
}

#[cfg(target_os = "none")]
unsafe extern "C" {
    /// Goes to where ELR_EL2 says with an event in x0 to x5 and zeros in the others. Returns how that was left, with what there is to
    /// know in `state`.
    fn turnstile_service_enter(kind: u64, a: u64, b: u64, c: u64, d: u64, e: u64, state: *mut State) -> Left;
    /// The same with the registers that are in `state`.
    fn turnstile_service_resume(state: *mut State) -> Left;
}

#[cfg(test)]
pub(crate) use fake::pretend;
#[cfg(not(target_os = "none"))]
use fake::{turnstile_service_enter, turnstile_service_resume};

/// What stands for the way to a service and back on the host.
#[cfg(not(target_os = "none"))]
mod fake {
    use std::boxed::Box;
    use std::cell::RefCell;

    use super::super::state::turnstile_service_note;
    use super::{Event, Left, State};

    /// A service: takes its registers, and the event if it is entered with one; returns how it is left.
    type Program = Box<dyn FnMut(&mut [u64; 31], Option<&Event>) -> Left>;

    std::thread_local!(static PROGRAM: RefCell<Option<Program>> = const { RefCell::new(None) });

    /// Makes `program` what runs in all services of this test.
    #[cfg(test)]
    pub(crate) fn pretend(program: impl FnMut(&mut [u64; 31], Option<&Event>) -> Left + 'static) {
        PROGRAM.set(Some(Box::new(program)));
    }

    fn go(state: *mut State, event: Option<&Event>) -> Left {
        // SAFETY: who enters a service has its state for itself.
        let state = unsafe { &mut *state };
        let left = PROGRAM.with_borrow_mut(|program| match program {
            Some(program) => program(&mut state.general, event),
            None => Left::Fault,
        });
        if (left, state.general[0]) != (Left::Call, 0) {
            turnstile_service_note(state);
        }
        left
    }

    /// Enters it.
    ///
    /// # Safety
    /// As on the bare machine.
    pub(super) unsafe fn turnstile_service_enter(
        kind: u64,
        a: u64,
        b: u64,
        c: u64,
        d: u64,
        e: u64,
        state: *mut State,
    ) -> Left {
        go(state, Some(&Event([kind, a, b, c, d, e])))
    }

    /// Goes on in it.
    ///
    /// # Safety
    /// As on the bare machine.
    pub(super) unsafe fn turnstile_service_resume(state: *mut State) -> Left {
        go(state, None)
    }
}

impl turnstile_arch_common::service::Space for Space {
    unsafe fn attach(&self, member: usize, windows: &mut [Window]) -> Result<(), Error> {
        self.memory.show(member, windows)
    }

    unsafe fn detach(&self, member: usize) {
        self.memory.hide(member);
    }

    #[inline(always)] // The way of each access.
    unsafe fn enter(&self, event: &Event) -> Left {
        let cpu = cpu::this();
        let until = time::ticks().wrapping_add(self.limit);
        self.until.store(until, Ordering::Relaxed);
        time::interrupt_by(cpu, until);
        // SAFETY: the caller's promise.
        unsafe {
            match mode::is_vhe() {
                true => self.enter_in::<Vhe>(event, cpu),
                false => self.enter_in::<Nvhe>(event, cpu),
            }
        }
    }

    unsafe fn resume(&self, result: Option<u64>) -> Left {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(result) = result {
                (*self.state.get()).general[0] = result;
            }
            match mode::is_vhe() {
                true => self.resume_in::<Vhe>(),
                false => self.resume_in::<Nvhe>(),
            }
        }
    }

    #[inline(always)] // As above.
    unsafe fn call(&self) -> [u64; REGISTERS] {
        // SAFETY: the caller is inside the gate.
        let [x0, x1, x2, x3, x4, x5, ..] = unsafe { (*self.state.get()).general };
        [x0, x1, x2, x3, x4, x5]
    }

    unsafe fn missed(&self) -> Option<u64> {
        // SAFETY: the caller is inside the gate.
        unsafe { (*self.state.get()).syndrome }.missed()
    }

    unsafe fn supply(&self, window: &Window, offset: u64, host: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.memory.supply(window, offset, host) }
    }

    unsafe fn withdraw(&self, window: &Window, offsets: Range<u64>) {
        // SAFETY: the caller's promise.
        unsafe { self.memory.withdraw(window, offsets) };
    }

    unsafe fn excuse<R>(&self, act: impl FnOnce() -> R) -> R {
        let begun = time::ticks();
        let done = act();
        let passed = time::ticks().wrapping_sub(begun);
        // What was put off stays so: `is_late` finds the two equal.
        for until in [&self.until, &self.put_off] {
            until.store(until.load(Ordering::Relaxed).wrapping_add(passed), Ordering::Relaxed);
        }
        // Meanwhile the interrupt that was to end it may have been taken.
        time::interrupt_by(cpu::this(), self.until.load(Ordering::Relaxed));
        done
    }

    #[inline(always)] // Of each doorbell.
    fn now() -> u64 {
        time::uptime().nanoseconds()
    }

    fn is_late(&self) -> bool {
        let (now, mut until) = (time::ticks(), self.until.load(Ordering::Relaxed));
        if now >= until {
            if until == self.put_off.load(Ordering::Relaxed) {
                return true;
            }
            // Where this machine is one of somebody else's, it may have stood still meanwhile: as long again, once.
            until = now.wrapping_add(self.limit);
            self.until.store(until, Ordering::Relaxed);
            self.put_off.store(until, Ordering::Relaxed);
        }
        time::interrupt_by(cpu::this(), until);
        false
    }

    unsafe fn begin(&self, keep: bool) {
        let header = self.image.header();
        let zeros = header.zeros - if keep { header.kept } else { 0 };
        self.write();
        // SAFETY: the caller is inside the gate, and the service has been left; one after the other.
        unsafe {
            self.memory.bytes(header.file(), zeros).fill(0);
            self.memory.bytes(header.stack_at(), header.stack).fill(0);
        }
    }

    fn explain(&self, left: Left, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: who explains is inside the gate.
        let state = unsafe { &*self.state.get() };
        super::explain::explain(state, left, ServiceMemory::base(), f)
    }
}
