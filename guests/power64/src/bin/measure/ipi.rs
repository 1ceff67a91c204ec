// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts between two CPUs that wait by H_CEDE, by the controller that the machine has.
//!
//! Where one thread emulates all CPUs in turn, the ticks contain the waiting of all; what each side's exit
//! costs is then for the meter to say.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_guests_power64::exception::{self, vector};
use turnstile_guests_power64::platform::{Controller, platform};
use turnstile_guests_power64::state::vsx;
use turnstile_guests_power64::{bench, cpu, irq, measured_loop, options, println, smp, xive};

use super::xics::xics_handler;

/// A word that has a cache line of its own.
#[repr(align(128))]
struct Line(AtomicU64);

/// Interrupts that the other CPU has taken, and this one.
static ANSWERS: Line = Line(AtomicU64::new(0));
static MINE: Line = Line(AtomicU64::new(0));

// R27 is the address of the word that is counted up. The interrupted code is in H_CEDE or before it, and names what
// hypervisor calls change as changed. With XICS: r26 = this server. With XIVE: r26 = presentation, r24 = management page,
// r23 = queue, r22 = place in it.
global_asm!(
    r#"
    .section .text.ipi, "ax"
    .balign 64
ipi_xics:
    "#,
    xics_handler!("ld 3, 0(27)\n addi 3, 3, 1\n std 3, 0(27)"),
    r#"

    .balign 64
ipi_xive:
    li      3, 0x810
    lhbrx   3, 26, 3                // accepts
    lwzx    4, 23, 22
    addi    22, 22, 4
    clrldi  22, 22, 48
    li      3, 0xc00
    ldx     3, 24, 3                // ends
    ld      3, 0(27)
    addi    3, 3, 1
    std     3, 0(27)
    li      3, 0xff
    stb     3, 0x11(26)             // lets others in
    rfid
    "#
);

unsafe extern "C" {
    fn ipi_xics();
    fn ipi_xive();
}

/// What one side needs in registers.
struct Side {
    /// R27: the word its interrupts are counted in.
    count: u64,
    /// R26: its server, or its presentation.
    own: u64,
    /// R24 and R23: its management page and queue, with XIVE.
    management: u64,
    queue: u64,
    /// R21: the other's server, or its trigger page.
    target: u64,
    /// R20: whether to send by H_IPI.
    by_call: u64,
    /// R17: the function that waits.
    wait: u64,
}

fn side(index: usize, count: &AtomicU64) -> Side {
    let other = 1 - index;
    match platform().controller {
        Controller::Xive(facts) => Side {
            count: count.as_ptr() as u64,
            own: facts.presentation,
            management: xive::management_page(index),
            queue: xive::queue(index),
            target: xive::trigger_page(other),
            by_call: 0,
            wait: wait(),
        },
        _ => Side {
            count: count.as_ptr() as u64,
            own: u64::from(smp::server(index)),
            management: 0,
            queue: 0,
            target: u64::from(smp::server(other)),
            by_call: 1,
            wait: wait(),
        },
    }
}

/// Returns how this CPU waits, with what it then uses switched on.
fn wait() -> u64 {
    let function = match options::get("facilities").is_some() {
        true => {
            vsx::enable();
            measure_wait_vsx
        }
        false => measure_wait as unsafe extern "C" fn(),
    };
    function as *const () as u64
}

/// Sets the controller up, and starts the other CPU; says whether this machine has one.
fn prepare() -> bool {
    if smp::count() < 2 {
        println!("@error this machine has one CPU: the row needs two");
        return false;
    }
    if !irq::init() {
        println!("@error this machine has no interrupt controller");
        return false;
    }
    let by_xive = matches!(platform().controller, Controller::Xive(_));
    exception::set_handler(vector::EXTERNAL, if by_xive { ipi_xive } else { ipi_xics });
    if !smp::start(1, take_turns, 0) {
        println!("@error CPU 1 does not start");
        return false;
    }
    true
}

/// The two CPUs take turns: each sends to the other and waits by H_CEDE. One operation is there and back, divided by
/// `parts`. With the option `facilities` both use vector-scalar registers each time.
pub fn handoff(row: &str, parts: u64) {
    if !prepare() {
        return;
    }
    let side = side(0, &MINE.0);
    let place = core::cell::Cell::new(0_u64);
    bench::measure(
        row,
        |count| turns(count.div_ceil(parts), &side, &place),
        |count| {
            measured_loop!(count / parts, ["addi 26, 26, 1", "nop", "cmpld 26, 27", "bne 3f", "nop", "3:"],
                inout("r26") 0_u64 => _, inout("r27") 0_u64 => _,)
        },
    );
    if options::get("once").is_some() {
        println!("  {} turns", MINE.0.load(Ordering::SeqCst));
    }
    exception::init();
}

// Sends, and waits for it to have been received; both CPUs are here: where they share one, their visits are of one kind.
// H_CEDE returns with interrupts let in; they are masked again (mtmsrd with L=1) before the word is looked at.
global_asm!(
    r#"
    .section .text.turns, "ax"
    .global turnstile_measure_send
    .balign 64
turnstile_measure_send:
    sync
    cmpldi  20, 0
    beq     1f
    li      3, 0x6c                 // H_IPI
    mr      4, 21
    li      5, 4
    sc      1
    blr
1:  std     20, 0(21)
    blr

    .balign 64
measure_wait_vsx:
    mflr    16
    bl      measure_wait
    .long   0xf0000490              // xxlor vs0, vs0, vs0
    mtlr    16
    blr
measure_wait:                       // until the word has reached r18
1:  ld      3, 0(27)
    cmpld   3, 18
    bgelr
    li      3, 0xe0                 // H_CEDE
    sc      1
    li      3, 2
    mtmsrd  3, 1
    b       1b
    "#
);

unsafe extern "C" {
    fn measure_wait();
    fn measure_wait_vsx();
}

/// Sends, and waits until the answer has been counted; interrupts are masked but in H_CEDE.
fn turns(count: u64, side: &Side, place: &core::cell::Cell<u64>) {
    let next;
    measured_loop!(count, [
            "addi 18, 18, 1",
            "bl turnstile_measure_send",
            "mtctr 17",
            "bctrl",
        ], in("r17") side.wait, out("r16") _, in("r27") side.count, in("r26") side.own, out("r25") _, in("r24") side.management,
        inout("r23") side.queue => _, inout("r22") place.get() => next, in("r21") side.target, in("r20") side.by_call,
        inout("r18") MINE.0.load(Ordering::SeqCst) => _, out("lr") _,);
    place.set(next);
}

/// Waits for the first interrupt, and then answers each until the machine is switched off.
fn take_turns(_: u64) {
    let side = side(1, &ANSWERS.0);
    cpu::mask();
    // SAFETY: as for `turns`, but that waiting comes first, and it never ends.
    unsafe {
        asm!(
            "2:",
            "addi 18, 18, 1",
            "mtctr 17",
            "bctrl",
            "bl turnstile_measure_send",
            "b 2b",
            in("r27") side.count, in("r26") side.own, in("r24") side.management, in("r23") side.queue, in("r22") 0_u64,
            in("r21") side.target, in("r20") side.by_call, in("r18") 0_u64, in("r17") side.wait,
            options(noreturn),
        );
    }
}
