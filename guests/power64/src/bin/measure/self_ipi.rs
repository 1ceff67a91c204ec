// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts to itself: sent, taken by a handler that only ends it, and waited for.

use core::arch::global_asm;

use turnstile_guests_power64::exception::{self, vector};
use turnstile_guests_power64::platform::{Controller, platform};
use turnstile_guests_power64::{bench, cpu, irq, measured_loop, println, smp, xive};

use super::xics::xics_handler;

// R27 counts the interrupts. The loops name what hypervisor calls change as changed, so that handlers need not keep it.
global_asm!(
    r#"
    .section .text.self_ipi, "ax"
    .balign 64
self_ipi_xics:                      // r26 = this server
    "#,
    xics_handler!("addi 27, 27, 1"),
    r#"

    // r26 = presentation, r24 = management page, r23 = queue, r22 = 2 + place in it, r21 = 0xff
    .balign 64
self_ipi_xive:
    lhbrx   3, 26, 20               // accepts
    lwzx    4, 23, 22               // the entry, which is the next one's
    addi    22, 22, 4
    clrldi  22, 22, 48
    ldx     5, 24, 19               // ends
    addi    27, 27, 1
    stb     21, 0x11(26)            // lets others in
    rfid
    "#
);

unsafe extern "C" {
    fn self_ipi_xics();
    fn self_ipi_xive();
}

/// By hypervisor calls, four for each.
pub fn xics() {
    if platform().controller != Controller::Xics {
        println!("@error this machine has no XICS");
        return;
    }
    irq::init();
    exception::set_handler(vector::EXTERNAL, self_ipi_xics);
    let server = u64::from(smp::server(0));
    cpu::unmask();
    bench::measure(
        "self-ipi-xics",
        |n| {
            measured_loop!(n, [
                    "addi 24, 24, 1",
                    "li 3, 0x6c",
                    "mr 4, 26",
                    "li 5, 4",
                    "sc 1",
                    "2:",
                    "cmpld 24, 27",
                    "bne 2b",
                ], inout("r27") 0_u64 => _, in("r26") server, out("r25") _, inout("r24") 0_u64 => _,
                out("r23") _, out("r22") _,)
        },
        nothing::<19>,
    );
    finish();
}

/// By the pages of XIVE.
pub fn xive() {
    let Controller::Xive(facts) = platform().controller else {
        println!("@error this machine has no XIVE");
        return;
    };
    if !irq::init() {
        return;
    }
    exception::set_handler(vector::EXTERNAL, self_ipi_xive);
    let place = core::cell::Cell::new(0_u64);
    cpu::unmask();
    bench::measure(
        "self-ipi-xive",
        |n| {
            let next;
            measured_loop!(n, [
                    "addi 18, 18, 1",
                    "std 21, 0(25)",
                    "2:",
                    "cmpld 18, 27",
                    "bne 2b",
                ], inout("r27") 0_u64 => _, in("r26") facts.presentation, in("r25") xive::trigger_page(0),
                in("r24") xive::management_page(0), in("r23") xive::queue(0), inout("r22") place.get() => next,
                in("r21") 0xff_u64, in("r20") xive::tima::ACK, in("r19") xive::esb::SET_READY,
                inout("r18") 0_u64 => _,);
            place.set(next);
        },
        nothing::<8>,
    );
    finish();
}

/// Hands the vector back.
fn finish() {
    cpu::mask();
    exception::init();
}

/// As many instructions as the loop and the handler have, without what exits: the loop that counts by itself, and
/// `MORE` others.
fn nothing<const MORE: usize>(count: u64) {
    measured_loop!(count,
        ["addi 26, 26, 1", "addi 27, 27, 1", "cmpld 26, 27", "bne 3f", "3:", ".rept {more}", "nop", ".endr"],
        inout("r26") 0_u64 => _, inout("r27") 0_u64 => _, more = const MORE,);
}
