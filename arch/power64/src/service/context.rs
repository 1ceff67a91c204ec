// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is kept of a service and of who has entered it, in one place whose address HSPRG0 holds while the service runs.
//!
//! It begins as a vCPU's frame does (`vcpu/frame.rs`), as far as the vectors look at it: they lead out of the service by it, and
//! know nothing of services.

use crate::cpu::area::CPU_IN_FRAME;
use crate::state::fp::Vectors;

/// Where a frame has the handlers that vectors go on with: light ones, of all interrupts, of data storage, of facilities; of full
/// exits; and of calls of problem state. `vcpu/frame.rs` has the same offsets, and the vectors.
pub(crate) const LIGHT: usize = 360;
pub(crate) const FULL: usize = 368;
pub(crate) const DATA: usize = 424;
pub(crate) const FACILITY: usize = 432;
pub(crate) const USER: usize = 448;

/// A handler that vectors go on with.
type Handler = unsafe extern "C" fn();

/// The guest's registers that a service may change, or that are not for it, and those that an interrupt of its own partition
/// changes. All others are closed to it (HFSCR and FSCR are 0, MSR has no facility) or stay what they are. Vector registers are closed to
/// it until it asks for them ([`Lending`]).
#[repr(C)]
#[derive(Default)]
pub(super) struct Guest {
    srr0: u64,
    srr1: u64,
    dar: u64,
    dsisr: u64,
    vrsave: u64,
    amr: u64,
    ppr: u64,
    hfscr: u64,
    fscr: u64,
    lpidr: u64,
    pidr: u64,
}

/// What an interrupt has left behind in the service's partition.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) srr0: u64,
    pub(super) srr1: u64,
    pub(super) dar: u64,
    pub(super) dsisr: u64,
}

/// What is the same for each event.
#[repr(C)]
pub(super) struct Fixed {
    /// The number of the service's partition.
    pub(super) lpid: u64,
    /// Where it is entered.
    pub(super) entry: u64,
    /// The end of its stack.
    pub(super) stack: u64,
    /// Its machine state.
    pub(super) state: u64,
    /// After how long it is interrupted, in ticks.
    pub(super) slice: u64,
}

/// The vector registers, which a service has from when it asks for them until it makes its next call. While it does not run, what is in
/// the CPU is always the guest's.
#[repr(C)]
pub(super) struct Lending {
    /// Whether it has them.
    pub(super) lent: u64,
    /// The handlers of its calls: while it does not have them, and while it does.
    users: [Handler; 2],
    reserved: u64,
    /// The guest's, as they are from when it has asked until it makes its next call: whatever interrupts it meanwhile leaves them alone.
    guest: Vectors,
    /// Its own, while it has been interrupted.
    own: Vectors,
}

impl Lending {
    const fn new() -> Self {
        Self {
            lent: 0,
            users: [entry::turnstile_service_called, entry::turnstile_service_called_lent],
            reserved: 0,
            guest: Vectors::new(),
            own: Vectors::new(),
        }
    }
}

/// See the module. `entry.S` knows this layout.
#[repr(C, align(128))]
pub(super) struct Context {
    linkage: [u64; 4],
    /// The service's general registers, when it has been left. After a call that it does not go on from, the six of the call alone.
    pub(super) gpr: [u64; 32],
    pub(super) lr: u64,
    pub(super) ctr: u64,
    pub(super) xer: u64,
    pub(super) cr: u64,
    /// Where it goes on.
    pub(super) pc: u64,
    /// In which state: always the same one.
    pub(super) msr: u64,
    vcpu: u64,
    written: u32,
    /// The interrupt by which it was left, unless that was a call.
    pub(super) vector: u32,
    calls: u64,
    light: Handler,
    full: Handler,
    cpu: u64,
    timing: [u64; 4],
    came_from: u64,
    data: Handler,
    facility: Handler,
    full_call: u64,
    user: Handler,
    /// Who has entered it: the frame, R1, R2, LR, CR and R13 to R31.
    frame: u64,
    pointers: [u64; 2],
    links: [u64; 2],
    registers: [u64; 19],
    guest: Guest,
    pub(super) found: Found,
    pub(super) fixed: Fixed,
    /// When it was entered, in ticks.
    pub(super) entered: u64,
    pub(super) lending: Lending,
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Context, gpr) == 32);
    assert!(offset_of!(Context, lr) == 288);
    assert!(offset_of!(Context, pc) == 320);
    assert!(offset_of!(Context, vector) == 348);
    assert!(offset_of!(Context, light) == LIGHT);
    assert!(offset_of!(Context, full) == FULL);
    assert!(offset_of!(Context, cpu) == CPU_IN_FRAME);
    assert!(offset_of!(Context, data) == DATA);
    assert!(offset_of!(Context, facility) == FACILITY);
    assert!(offset_of!(Context, user) == USER);
    assert!(offset_of!(Context, frame) == 456);
    assert!(offset_of!(Context, registers) == 496);
    assert!(offset_of!(Context, guest) == 648);
    assert!(offset_of!(Context, found) == 736);
    assert!(offset_of!(Context, fixed) == 768);
    assert!(offset_of!(Context, entered) == 808);
    assert!(offset_of!(Context, lending.lent) == 816);
    assert!(offset_of!(Context, lending.users) == 824);
    assert!(offset_of!(Context, lending.guest) == 848);
    assert!(offset_of!(Context, lending.own) == 1904);
};

impl Context {
    /// Makes that of a service that nobody has entered.
    pub(super) fn new(fixed: Fixed) -> Self {
        Self {
            linkage: [0; 4],
            gpr: [0; 32],
            lr: 0,
            ctr: 0,
            xer: 0,
            cr: 0,
            pc: 0,
            msr: fixed.state,
            vcpu: 0,
            written: 0,
            vector: 0,
            calls: 0,
            light: entry::turnstile_service_interrupted,
            full: entry::turnstile_service_out,
            cpu: 0,
            timing: [0; 4],
            came_from: 0,
            data: entry::turnstile_service_interrupted,
            facility: entry::turnstile_service_interrupted,
            full_call: 0,
            user: entry::turnstile_service_called,
            frame: 0,
            pointers: [0; 2],
            links: [0; 2],
            registers: [0; 19],
            guest: Guest::default(),
            found: Found::default(),
            fixed,
            entered: 0,
            lending: Lending::new(),
        }
    }

    /// It was interrupted: if it has vector registers, they are the guest's again, and its own are kept. Says whether that is so.
    pub(super) fn take_back(&mut self) -> bool {
        let is_lent = self.lending.lent != 0;
        if is_lent {
            self.lending.own.save();
            // SAFETY: what is there was stored.
            unsafe { self.lending.guest.load() };
            self.lending.lent = 0;
            [self.user, _] = self.lending.users;
        }
        is_lent
    }
}

#[cfg(not(target_os = "none"))]
impl Context {
    /// What `entry.S` does when a service asks for vector registers.
    #[cfg(test)]
    pub(super) fn lend(&mut self) {
        self.lending.guest.save();
        // SAFETY: what is there was stored.
        unsafe { Vectors::new().load() };
        self.take_note();
    }

    /// What it does when it gives a service that was interrupted its vector registers back.
    fn give_back(&mut self) {
        // SAFETY: what is there is what was stored when they were lent.
        unsafe { self.lending.own.load() };
        self.take_note();
    }

    fn take_note(&mut self) {
        self.lending.lent = 1;
        [_, self.user] = self.lending.users;
    }
}

/// `entry.S`.
#[cfg(target_os = "none")]
pub(super) mod entry {
    use super::Context;

    #[allow(
        improper_ctypes,
        reason = "no other language is called: the functions are assembly of this crate"
    )]
    unsafe extern "C" {
        /// Enters a service with an event, which is in the registers that the service has it in. Returns zero when it makes a call, or the vector of an interrupt.
        pub(crate) fn turnstile_service_enter(
            kind: u64,
            a: u64,
            b: u64,
            c: u64,
            d: u64,
            e: u64,
            context: *mut Context,
        ) -> u32;
        /// Lets it go on with the registers in its context. Returns likewise.
        pub(crate) fn turnstile_service_resume(context: *mut Context) -> u32;
        /// The same of one that had vector registers when it was interrupted.
        pub(crate) fn turnstile_service_resume_lent(context: *mut Context) -> u32;
        pub(super) fn turnstile_service_interrupted();
        pub(super) fn turnstile_service_out();
        pub(super) fn turnstile_service_called();
        pub(super) fn turnstile_service_called_lent();
    }
}

/// On the host a service is entered by a recorder: it leaves by what the fakes have under "service".
#[cfg(not(target_os = "none"))]
pub(super) mod entry {
    use super::Context;
    use crate::cpu::regs::fakes;

    pub(crate) unsafe extern "C" fn turnstile_service_enter(
        kind: u64,
        a: u64,
        b: u64,
        c: u64,
        d: u64,
        _: u64,
        context: *mut Context,
    ) -> u32 {
        const EVENT: [&str; 4] = ["service a", "service b", "service c", "service d"];
        const ANSWER: [&str; 5] =
            ["service value", "service lines", "service count", "service 1", "service 2"];
        fakes::write("service enters", kind);
        EVENT.into_iter().zip([a, b, c, d]).for_each(|(name, value)| fakes::set(name, value));
        for (register, name) in (4..).zip(ANSWER) {
            // SAFETY: the caller's; no reference to it is in use.
            unsafe { (*context).gpr[register] = fakes::get(name) };
        }
        fakes::get("service") as u32
    }

    pub(crate) unsafe extern "C" fn turnstile_service_resume(_: *mut Context) -> u32 {
        fakes::write("service resumes", 0);
        fakes::get("service") as u32
    }

    pub(crate) unsafe extern "C" fn turnstile_service_resume_lent(context: *mut Context) -> u32 {
        // SAFETY: the caller's; no reference to it is in use.
        unsafe { (*context).give_back() };
        fakes::write("service resumes with vectors", 0);
        fakes::get("service") as u32
    }

    pub(super) unsafe extern "C" fn turnstile_service_interrupted() {}
    pub(super) unsafe extern "C" fn turnstile_service_out() {}
    pub(super) unsafe extern "C" fn turnstile_service_called() {}
    pub(super) unsafe extern "C" fn turnstile_service_called_lent() {}
}
