// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An NMI that comes while another one is in service (AMD APM vol. 2, 8.2.3): it is taken right behind the IRET that ends the first
//! one, wherever that goes, and not before.

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use turnstile_guests_x86_64::apic::{self, icr};
use turnstile_guests_x86_64::cpu::{self, selector};
use turnstile_guests_x86_64::exception::{self, vector};
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, irq, read_control, write_control};

pub const TESTS: &[Test] = &[
    Test { name: "nmi-behind-iret", run: behind_iret },
    Test { name: "nmi-iret-faults", run: iret_faults },
    Test { name: "nmi-to-a-stepped-program", run: to_stepped },
    Test { name: "nmi-iret-is-stepped", run: iret_is_stepped },
    Test { name: "nmi-to-user-mode", run: to_user_mode },
    Test { name: "nmi-behind-an-interrupt", run: behind_interrupt },
];

/// What an exception pushes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pushed {
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

// Handlers on the stack that they find, with or without an error code on it. NMI's sets TF before its IRETQ if it is told to.
global_asm!(
    r#"
    .macro nmi_entry handler, code
    push    rax
    push    rcx
    push    rdx
    push    rsi
    push    rdi
    push    r8
    push    r9
    push    r10
    push    r11
    push    rbp
    lea     rdi, [rsp + 80 + \code]
    mov     rbp, rsp
    and     rsp, -16
    call    \handler
    mov     rsp, rbp
    pop     rbp
    pop     r11
    pop     r10
    pop     r9
    pop     r8
    pop     rdi
    pop     rsi
    pop     rdx
    pop     rcx
    pop     rax
    .endm

    .section .text.nmi, "ax"
    .balign 16
    .global nmi_handler, nmi_iret, nmi_on_trap, nmi_on_fault, nmi_user
nmi_handler:
    nmi_entry {on_nmi}, 0
    cmp     byte ptr [{steps}], 0
    je      nmi_iret
    pushfq
    or      qword ptr [rsp], 0x100
    popfq
nmi_iret:
    iretq
nmi_on_trap:
    nmi_entry {on_trap}, 0
    iretq
nmi_on_fault:
    nmi_entry {on_fault}, 8
    add     rsp, 8
    iretq
// At privilege level 3: ends with an exception that nobody expects, if no NMI comes.
nmi_user:
    mov     ecx, 0x1000000
1:  loop    1b
    ud2
    "#,
    on_nmi = sym on_nmi,
    on_trap = sym on_trap,
    on_fault = sym on_fault,
    steps = sym STEPS,
);

unsafe extern "C" {
    static nmi_handler: u8;
    static nmi_iret: u8;
    static nmi_on_trap: u8;
    static nmi_on_fault: u8;
    static nmi_user: u8;
}

const TF: u64 = 1 << 8;
const DR6_STEP: u64 = 1 << 14;
const DR6_RESET: u64 = 0xffff_0ff0;

/// What the first NMI does besides sending the second one.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Scene {
    Nothing,
    /// It lets its IRET fault.
    Fault,
    /// It goes back to a program that is stepped through.
    Stepped,
    /// It goes to user mode.
    User,
    /// It takes an interrupt.
    Interrupt,
}

/// The exceptions of each kind that came.
struct Seen {
    count: AtomicU64,
    rip: [AtomicU64; 2],
    rflags: AtomicU64,
    /// How many NMIs had come.
    nmis: AtomicU64,
}

impl Seen {
    const fn new() -> Self {
        Seen {
            count: AtomicU64::new(0),
            rip: [const { AtomicU64::new(0) }; 2],
            rflags: AtomicU64::new(0),
            nmis: AtomicU64::new(0),
        }
    }

    /// Returns how many there were before.
    fn note(&self, pushed: &Pushed) -> u64 {
        let before = self.count.fetch_add(1, Relaxed);
        if let Some(rip) = self.rip.get(before as usize) {
            rip.store(pushed.rip, Relaxed);
        }
        self.rflags.fetch_or(pushed.rflags, Relaxed);
        self.nmis.store(NMIS.count.load(Relaxed), Relaxed);
        before
    }

    fn rip(&self, index: usize) -> u64 {
        self.rip[index].load(Relaxed)
    }
}

static NMIS: Seen = Seen::new();
static TRAPS: Seen = Seen::new();
static FAULTS: Seen = Seen::new();
static SCENE: AtomicU64 = AtomicU64::new(0);
static STEPS: AtomicBool = AtomicBool::new(false);
static BACK: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
/// NMIs that had come when the first one ended.
static INSIDE: AtomicU64 = AtomicU64::new(0);

fn send() {
    apic::send(apic::id(), icr::NMI | icr::ASSERT);
}

extern "C" fn on_nmi(pushed: &mut Pushed) {
    let is = |scene: Scene| SCENE.load(Relaxed) == scene as u64;
    if NMIS.note(pushed) != 0 {
        if pushed.cs & 3 != 0 {
            let [rip, cs, rsp, ss] = BACK.each_ref().map(|word| word.load(Relaxed));
            *pushed = Pushed { rip, cs, rsp, ss, rflags: pushed.rflags };
        }
        // It ends as usual.
        return STEPS.store(false, Relaxed);
    }
    send();
    if is(Scene::Fault) {
        pushed.cs = 0xfff8;
    } else if is(Scene::Stepped) {
        pushed.rflags |= TF;
    } else if is(Scene::User) {
        for (word, value) in BACK.iter().zip([pushed.rip, pushed.cs, pushed.rsp, pushed.ss]) {
            word.store(value, Relaxed);
        }
        pushed.rip = &raw const nmi_user as u64;
        (pushed.cs, pushed.ss) = (selector::USER_CODE.into(), selector::USER_DATA.into());
    } else if is(Scene::Interrupt) {
        apic::send_to_self(0x61);
        cpu::take_interrupts();
    }
    INSIDE.store(NMIS.count.load(Relaxed), Relaxed);
}

extern "C" fn on_trap(pushed: &mut Pushed) {
    TRAPS.note(pushed);
    pushed.rflags &= !TF;
}

/// The words that the IRETQ has failed to load are where RSP was.
extern "C" fn on_fault(pushed: &mut Pushed) {
    FAULTS.note(pushed);
    // SAFETY: the frame of the first NMI, which waits for its IRETQ.
    unsafe { (*(pushed.rsp as *mut Pushed)).cs = selector::CODE.into() };
}

/// Takes an NMI that sends another one, and waits without an exit until that has come, too.
fn take_two(scene: Scene) -> Outcome {
    for seen in [&NMIS, &TRAPS, &FAULTS] {
        seen.count.store(0, Relaxed);
        seen.rflags.store(0, Relaxed);
    }
    SCENE.store(scene as u64, Relaxed);
    exception::set_gate(vector::NMI as u8, &raw const nmi_handler as u64);
    exception::set_gate(vector::DB as u8, &raw const nmi_on_trap as u64);
    exception::set_gate(vector::GP as u8, &raw const nmi_on_fault as u64);
    write_control!("dr6", DR6_RESET);
    send();
    let mut left = 1_000_000;
    while NMIS.count.load(Relaxed) < 2 && left != 0 {
        left -= 1;
    }
    let (came, inside) = (NMIS.count.load(Relaxed), INSIDE.load(Relaxed));
    STEPS.store(false, Relaxed);
    check_eq!(came, 2, "NMIs");
    check_eq!(inside, if scene == Scene::Interrupt { 2 } else { 1 }, "NMIs before the first one ended");
    Ok(())
}

/// Nothing is executed between the two, and nobody has stepped.
fn behind_iret() -> Outcome {
    for _ in 0..20 {
        take_two(Scene::Nothing)?;
        check_eq!(NMIS.rip(1), NMIS.rip(0), "where the second NMI came");
        check_eq!(NMIS.rflags.load(Relaxed) & TF, 0, "TF");
        check_eq!(TRAPS.count.load(Relaxed), 0, "debug exceptions");
        check_eq!(read_control!("dr6"), DR6_RESET, "DR6");
    }
    Ok(())
}

/// An IRET that faults ends nothing; that of the fault's handler does.
fn iret_faults() -> Outcome {
    take_two(Scene::Fault)?;
    let iret = &raw const nmi_iret as u64;
    check_eq!(FAULTS.count.load(Relaxed), 1, "faults");
    check_eq!(FAULTS.rip(0), iret, "where the fault came");
    check_eq!(FAULTS.rflags.load(Relaxed) & TF, 0, "TF that the fault has pushed");
    check_eq!(FAULTS.nmis.load(Relaxed), 1, "NMIs before the fault");
    check_eq!(NMIS.rip(1), iret, "where the second NMI came");
    check_eq!(TRAPS.count.load(Relaxed), 0, "debug exceptions");
    Ok(())
}

/// The step of the program that is gone back to comes behind its next instruction, and so behind the NMI.
fn to_stepped() -> Outcome {
    take_two(Scene::Stepped)?;
    check_eq!(NMIS.rip(1), NMIS.rip(0), "where the second NMI came");
    check_eq!(TRAPS.count.load(Relaxed), 1, "debug exceptions");
    check_eq!(TRAPS.nmis.load(Relaxed), 2, "NMIs before it");
    check!(TRAPS.rip(0) != NMIS.rip(0), "nothing was executed");
    check!(read_control!("dr6") & DR6_STEP != 0, "DR6 says nothing of a step");
    Ok(())
}

/// The trap of IRET itself comes before the NMI that waits.
fn iret_is_stepped() -> Outcome {
    STEPS.store(true, Relaxed);
    take_two(Scene::Nothing)?;
    check_eq!(TRAPS.count.load(Relaxed), 1, "debug exceptions");
    check_eq!(TRAPS.rip(0), NMIS.rip(0), "where the debug exception came");
    check_eq!(TRAPS.rflags.load(Relaxed) & TF, 0, "TF");
    check_eq!(NMIS.rip(1), &raw const nmi_on_trap as u64, "where the second NMI came");
    check!(read_control!("dr6") & DR6_STEP != 0, "DR6 says nothing of a step");
    Ok(())
}

fn to_user_mode() -> Outcome {
    take_two(Scene::User)?;
    check_eq!(NMIS.rip(1), &raw const nmi_user as u64, "where the second NMI came");
    check_eq!(NMIS.rflags.load(Relaxed) & TF, 0, "TF");
    Ok(())
}

/// The IRET of any handler unmasks NMIs.
fn behind_interrupt() -> Outcome {
    take_two(Scene::Interrupt)?;
    check_eq!(irq::count(0x61), 1, "interrupts");
    check_eq!(NMIS.rflags.load(Relaxed) & TF, 0, "TF");
    check_eq!(TRAPS.count.load(Relaxed), 0, "debug exceptions");
    Ok(())
}
