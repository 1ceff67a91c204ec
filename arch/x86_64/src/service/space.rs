// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entering a service, and what it was left with.

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::offset_of;
use core::ops::Range;

use alloc::boxed::Box;

use turnstile_arch_common::memory::Error;
use turnstile_arch_common::service::{Left, Window};
use turnstile_service::abi::{Answer, Call, Event, REGISTERS};
use turnstile_service::image::{self, Image};
use turnstile_vm::asid::Tag;

use super::block;
use super::pages::{BASE, Pages};
use crate::board::mitigation;
use crate::cpu;
use crate::cpu::regs::{CR4, cr4, flags};
use crate::cpu::svm::vmcb::part;
use crate::cpu::svm::{Vmcb, code};
use crate::state::asid;
use crate::time;

/// The machine of a service's instructions, as ELF numbers it.
pub const ISA: u32 = image::X86_64;

/// What a nested page fault says of an access that is no load or store where nothing is mapped: that the entry is there, a fetch, a walk
/// of the program's own tables (APM vol. 2, 15.25.6).
const NO_MISS: u64 = 1 << 0 | 1 << 4 | 1 << 33;

/// Bytes of VMMCALL.
const VMMCALL: u64 = 3;

/// The registers of a report.
const NAMES: [&str; 16] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8 ", "r9 ", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

/// What `entry.S` needs of a service, and where it leaves the service's registers.
#[repr(C)]
pub struct Registers {
    /// RDI, RSI, RDX, RCX, R8, R9, as the C ABI has arguments.
    pub arguments: [u64; REGISTERS],
    /// RBX, RBP, R10 to R15.
    pub others: [u64; 8],
    /// Its control block.
    pub vmcb: *mut Vmcb,
    /// A control block in which what VMSAVE stores of the guest waits.
    hidden: *mut Vmcb,
    /// The code that enters it, by what this machine needs against speculation.
    way: usize,
    /// The hypervisor's SPEC_CTRL, which some ways write.
    spec_ctrl: u64,
}

const _: () = {
    assert!(offset_of!(Registers, arguments) == 0);
    assert!(offset_of!(Registers, others) == 48);
    assert!(offset_of!(Registers, vmcb) == 112);
    assert!(offset_of!(Registers, hidden) == 120);
    assert!(offset_of!(Registers, way) == 128);
    assert!(offset_of!(Registers, spec_ctrl) == 136);
};

/// What belongs to who is inside.
struct Inside {
    registers: Registers,
    /// Its address space identifier.
    tag: Tag,
    /// When it has taken too long, as a value of the time stamp counter.
    late: u64,
}

/// A service's address space and registers.
pub struct Space {
    pages: Pages,
    /// How long it may take for an event, in ticks of the time stamp counter.
    limit: u64,
    entry: u64,
    stack_top: u64,
    has_umip: bool,
    inside: UnsafeCell<Inside>,
}

// SAFETY: `inside` is reached by who is inside the service's gate alone, as the contracts of its functions say; `is_late` and `explain`
// are called by nobody else. Nothing else changes.
unsafe impl Sync for Space {}
// SAFETY: the control blocks live for ever, and have no place.
unsafe impl Send for Space {}

impl Space {
    /// Makes an address space for a program, which may take `limit` nanoseconds for an event.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(image: Image<'static>, limit: u64) -> Result<Self, Error> {
        let pages = Pages::new(image)?;
        let registers = Registers {
            arguments: [0; REGISTERS],
            others: [0; 8],
            vmcb: Box::leak(Vmcb::boxed()),
            hidden: Box::leak(Vmcb::boxed()),
            way: way(mitigation::exit().number()),
            spec_ctrl: mitigation::host_spec_ctrl(),
        };
        Ok(Self {
            entry: pages.entry(),
            stack_top: pages.stack_top(),
            pages,
            // So that the counter does not wrap.
            limit: time::in_ticks(limit).min(u64::MAX / 2),
            has_umip: CR4.read() & cr4::UMIP != 0,
            inside: UnsafeCell::new(Inside { registers, tag: Tag::default(), late: 0 }),
        })
    }

    /// Uses what belongs to who is inside.
    #[inline(always)] // An address computation.
    fn inside<R>(&self, f: impl FnOnce(&mut Inside, &mut Vmcb) -> R) -> R {
        // SAFETY: unique: the caller is inside the service's gate, and `f` does not get here again.
        let inside = unsafe { &mut *self.inside.get() };
        // SAFETY: as above; the control block is the service's alone, and lives for ever.
        let vmcb = unsafe { &mut *inside.registers.vmcb };
        f(inside, vmcb)
    }
}

impl Inside {
    /// What each way in needs, on this CPU.
    #[inline(always)] // Of each access.
    fn prepare(&mut self, vmcb: &mut Vmcb) {
        let cpu = cpu::this();
        asid::load_service(cpu, &mut self.tag, vmcb);
        time::interrupt_by(cpu, self.late);
    }
}

/// Says why the service was left.
fn left(vmcb: &Vmcb) -> Left {
    match vmcb.exit_code() as u32 {
        code::VMMCALL => Left::Call,
        // The machine's own: they are taken by the handler.
        code::INTR | code::NMI | code::INIT | code::MACHINE_CHECK => Left::Interrupt,
        _ => Left::Fault,
    }
}

impl turnstile_arch_common::service::Space for Space {
    unsafe fn attach(&self, member: usize, windows: &mut [Window]) -> Result<(), Error> {
        // What was not there is in no TLB (APM vol. 2, 5.5.2).
        self.pages.attach(member, windows)
    }

    unsafe fn detach(&self, member: usize) {
        self.pages.detach(member);
        // What TLBs have is of an identifier that this service has no more, and that others get only when it was flushed.
        self.inside(|inside, _| inside.tag = Tag::default());
    }

    unsafe fn enter(&self, event: &Event) -> Left {
        // SAFETY: the caller's promise.
        match unsafe { self.ask(event) } {
            Ok(Answer { value, lines, count, words: [first, second] }) => {
                let call = [Call::Done as u64, value, lines, count, first, second];
                self.inside(|inside, _| inside.registers.arguments = call);
                Left::Call
            }
            Err(left) => left,
        }
    }

    #[inline(always)] // Of each access: event and answer stay in registers.
    unsafe fn ask(&self, event: &Event) -> Result<Answer, Left> {
        self.inside(|inside, vmcb| {
            inside.late = cpu::ticks().wrapping_add(self.limit);
            inside.prepare(vmcb);
            vmcb.set_rip(self.entry);
            vmcb.set_rsp(self.stack_top);
            vmcb.set_rflags(flags::RESERVED);
            vmcb.set_rax(0);
            // SAFETY: the caller's promise: an exit handler, in the gate.
            let answer = unsafe { enter(&mut inside.registers, event) };
            // Who writes a part clears its bit.
            vmcb.set_clean(part::ALL);
            answer.ok_or_else(|| left(vmcb))
        })
    }

    #[cold]
    unsafe fn resume(&self, result: Option<u64>) -> Left {
        self.inside(|inside, vmcb| {
            inside.prepare(vmcb);
            if let Some(result) = result {
                vmcb.set_rip(vmcb.rip().wrapping_add(VMMCALL));
                inside.registers.arguments[0] = result;
            }
            // SAFETY: as in `ask`.
            unsafe { turnstile_service_resume(&mut inside.registers) };
            vmcb.set_clean(part::ALL);
            left(vmcb)
        })
    }

    unsafe fn call(&self) -> [u64; REGISTERS] {
        self.inside(|inside, _| inside.registers.arguments)
    }

    #[inline(always)] // On the way of a message.
    unsafe fn words(&self, answer: &Answer) -> [u64; 2] {
        // `ask` leaves them in registers.
        answer.words
    }

    unsafe fn missed(&self) -> Option<u64> {
        self.inside(|_, vmcb| {
            let [info, address] = vmcb.exit_info();
            let is_miss = vmcb.exit_code() as u32 == code::NESTED_PAGE_FAULT && info & NO_MISS == 0;
            // In no window it is what the program, or a walk of its tables, must not do.
            if is_miss { Pages::address(address) } else { None }
        })
    }

    unsafe fn supply(&self, window: &Window, offset: u64, host: u64) -> bool {
        // What was not there is in no TLB (APM vol. 2, 5.5.2). No barrier: the walker of this CPU sees its stores.
        // SAFETY: the caller's promise.
        unsafe { self.pages.supply(window, offset, host) }
    }

    unsafe fn withdraw(&self, window: &Window, offsets: Range<u64>) {
        // SAFETY: the caller's promise.
        unsafe { self.pages.withdraw(window, offsets) };
        // As in `detach`.
        self.inside(|inside, _| inside.tag = Tag::default());
    }

    unsafe fn excuse<R>(&self, act: impl FnOnce() -> R) -> R {
        let begun = cpu::ticks();
        let done = act();
        let passed = cpu::ticks().wrapping_sub(begun);
        self.inside(|inside, _| inside.late = inside.late.wrapping_add(passed));
        done
    }

    #[inline(always)] // Of each doorbell.
    fn now() -> u64 {
        time::uptime().nanoseconds()
    }

    fn is_late(&self) -> bool {
        self.inside(|inside, _| cpu::ticks() >= inside.late)
    }

    unsafe fn begin(&self, keep: bool) {
        self.inside(|inside, vmcb| {
            block::reset(vmcb, self.pages.nested_root(), self.has_umip);
            inside.registers.arguments = [0; REGISTERS];
            inside.registers.others = [0; 8];
        });
        // SAFETY: the caller's promise.
        unsafe { self.pages.begin(keep) };
    }

    fn explain(&self, left: Left, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inside(|inside, vmcb| {
            let (code, [first, second]) = (vmcb.exit_code() as u32, vmcb.exit_info());
            let rip = vmcb.rip();
            write!(f, "at {rip:#x} (program + {:#x})", rip.wrapping_sub(BASE))?;
            if left == Left::Fault {
                write!(f, ": {} (exit {code:#x}, {first:#x}, {second:#x})", block::name(code))?;
            }
            let [rdi, rsi, rdx, rcx, r8, r9] = inside.registers.arguments;
            let [rbx, rbp, r10, r11, r12, r13, r14, r15] = inside.registers.others;
            let all =
                [vmcb.rax(), rbx, rcx, rdx, rsi, rdi, rbp, vmcb.rsp(), r8, r9, r10, r11, r12, r13, r14, r15];
            for (number, (name, value)) in NAMES.iter().zip(&all).enumerate() {
                let before = if number % 4 == 0 { '\n' } else { ' ' };
                write!(f, "{before}{name} {value:016x}")?;
            }
            write!(f, " rflags {:x}", vmcb.rflags())
        })
    }
}

#[cfg(target_os = "none")]
unsafe extern "C" {
    /// Enters a service with the registers that are stored.
    fn turnstile_service_resume(registers: *mut Registers);
    /// Stores the service's registers: with a calling convention of its own.
    fn turnstile_service_store();
    /// The ways to enter one, by [`mitigation::Exit::number`].
    static turnstile_service_ways: [usize; 16];
}

/// Enters a service with an event, and zeros in all other registers. Returns its answer, if it has left with that; otherwise its
/// registers are stored.
///
/// # Safety
/// In an exit handler; the control block lets nothing of the hypervisor or the guest be reached, and has the entry and the stack.
#[cfg(target_os = "none")]
#[inline(always)] // Of each access.
unsafe fn enter(registers: &mut Registers, event: &Event) -> Option<Answer> {
    let [kind, a, b, c, d, e] = event.0;
    let (number, value, lines, count, first, second): (u64, u64, u64, u64, u64, u64);
    // SAFETY: the caller's promise. All general registers are saved or named; no instruction of a service changes others
    // (service/block.rs). What is below the stack pointer is nobody's.
    unsafe {
        core::arch::asm!(
            "push rbx",
            "push rbp",
            "push rax",
            "mov r10, rax",
            "mov rax, [r10 + {hidden}]",
            "vmsave rax",
            "mov rax, [r10 + {vmcb}]",
            "vmload rax",
            "mov rax, r10",
            "xor ebx, ebx",
            "xor ebp, ebp",
            "xor r10d, r10d",
            "xor r11d, r11d",
            "xor r12d, r12d",
            "xor r13d, r13d",
            "xor r14d, r14d",
            "xor r15d, r15d",
            "call [rax + {way}]",
            // Another exit than a call, or another call than the answer, which is zero.
            "mov eax, [rax + {exit_code}]",
            "xor eax, {call}",
            "or rax, rdi",
            "jz 2f",
            "mov rax, [rsp]",
            "call {store}",
            "mov edi, 1",
            "2:",
            "pop rax",
            "mov rax, [rax + {hidden}]",
            "vmload rax",
            "pop rbp",
            "pop rbx",
            hidden = const offset_of!(Registers, hidden),
            vmcb = const offset_of!(Registers, vmcb),
            way = const offset_of!(Registers, way),
            exit_code = const Vmcb::EXIT_CODE,
            call = const code::VMMCALL,
            store = sym turnstile_service_store,
            inlateout("rax") core::ptr::from_mut(registers) => _,
            inlateout("rdi") kind => number,
            inlateout("rsi") a => value,
            inlateout("rdx") b => lines,
            inlateout("rcx") c => count,
            inlateout("r8") d => first,
            inlateout("r9") e => second,
            lateout("r10") _,
            lateout("r11") _,
            lateout("r12") _,
            lateout("r13") _,
            lateout("r14") _,
            lateout("r15") _,
        );
    }
    (number == 0).then_some(Answer { value, lines, count, words: [first, second] })
}

#[cfg(target_os = "none")]
fn way(number: usize) -> usize {
    // SAFETY: `entry.S` defines as many as there are numbers, and nobody changes them.
    unsafe { turnstile_service_ways[number] }
}

/// What a service does on the host: a function of the test's.
#[cfg(not(target_os = "none"))]
pub use host::pretend;
#[cfg(not(target_os = "none"))]
use host::{enter, turnstile_service_resume, way};

#[cfg(not(target_os = "none"))]
mod host {
    use core::cell::Cell;

    use turnstile_service::abi::{Answer, Event};

    use super::Registers;
    use crate::cpu::svm::code;

    std::thread_local!(static PROGRAM: Cell<fn(&mut Registers)> = const { Cell::new(|_| ()) });

    /// Lets services of this thread do this until they are left.
    pub fn pretend(program: fn(&mut Registers)) {
        PROGRAM.set(program);
    }

    pub(super) const fn way(_: usize) -> usize {
        0
    }

    pub(super) unsafe fn enter(registers: &mut Registers, event: &Event) -> Option<Answer> {
        registers.arguments = event.0;
        registers.others = [0; 8];
        PROGRAM.get()(registers);
        // SAFETY: the service's own, for ever.
        let exit = unsafe { (*registers.vmcb).exit_code() };
        let [number, value, lines, count, first, second] = registers.arguments;
        let is_answer = exit as u32 == code::VMMCALL && number == 0;
        is_answer.then_some(Answer { value, lines, count, words: [first, second] })
    }

    pub(super) unsafe fn turnstile_service_resume(registers: &mut Registers) {
        PROGRAM.get()(registers);
    }
}

#[cfg(test)]
mod tests;
