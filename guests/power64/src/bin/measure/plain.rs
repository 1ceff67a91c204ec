// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits of one or two instructions.

use core::arch::global_asm;

use turnstile_guests_power64::exception::{self, vector};
use turnstile_guests_power64::mmu::{self, PAGE, entry};
use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::{bench, cpu, hcall, measured_loop, options, println, smp};

/// H_CONFER(-1): the one call that Linux KVM answers in its kernel without doing anything.
pub fn null_hypercall() {
    bench::measure(
        "null-hypercall",
        |n| measured_loop!(n, ["li 3, 0xe4", "li 4, -1", "li 5, 0", "sc 1"],),
        |n| measured_loop!(n, ["li 3, 0xe4", "li 4, -1", "li 5, 0", "nop"],),
    );
    expect("H_CONFER", hcall::call(hcall::CONFER, [u64::MAX, 0, 0, 0]), hcall::SUCCESS);
}

fn expect(what: &str, status: i64, wanted: i64) {
    if status != wanted {
        println!("@error {what} answers {status}");
    }
}

/// A number behind those of PAPR.
pub fn unknown_hypercall() {
    bench::measure(
        "unknown-hypercall",
        |n| measured_loop!(n, ["li 3, 0x1000", "sc 1"],),
        |n| measured_loop!(n, ["li 3, 0x1000", "nop"],),
    );
    expect("an unknown call", hcall::call(hcall::NOTHING, [0; 4]), hcall::FUNCTION);
}

/// H_PROD of this CPU, so that the H_CEDE behind it returns at once.
pub fn prod_cede() {
    let server = u64::from(smp::server(0));
    bench::measure(
        "prod-cede",
        |n| measured_loop!(n, ["li 3, 0xe8", "mr 4, 27", "sc 1", "li 3, 0xe0", "sc 1"], in("r27") server,),
        |n| measured_loop!(n, ["li 3, 0xe8", "mr 4, 27", "nop", "li 3, 0xe0", "nop"], in("r27") server,),
    );
    // H_CEDE lets interrupts in.
    cpu::mask();
    expect("H_PROD", hcall::call(hcall::PROD, [server, 0, 0, 0]), hcall::SUCCESS);
    expect("H_CEDE", hcall::call(hcall::CEDE, [0; 4]), hcall::SUCCESS);
    cpu::mask();
}

/// H_GET_TERM_CHAR of the first terminal there is, of which nothing was typed.
pub fn terminal(row: &str) {
    bench::measure(
        row,
        |n| measured_loop!(n, ["li 3, 0x54", "li 4, 0", "sc 1"],),
        |n| measured_loop!(n, ["li 3, 0x54", "li 4, 0", "nop"],),
    );
    expect("H_GET_TERM_CHAR", hcall::call(hcall::GET_TERM_CHAR, [0; 4]), hcall::SUCCESS);
}

/// A byte to the scratch register of a 16550A, or to where the option `mmio=` says: in real mode.
pub fn mmio_store() {
    if let Some(place) = device() {
        stores("mmio-store", place);
    }
}

/// The same with translation on.
pub fn mmio_store_translated() {
    if let Some(place) = device().and_then(map) {
        mmu::translated(|| stores("mmio-store-translated", place));
    }
}

fn device() -> Option<u64> {
    const SCRATCH: u64 = 7;
    let place = options::number("mmio", platform().uart.map_or(0, |uart| uart.base + SCRATCH));
    if place == 0 {
        println!("@error the device tree has no device in memory, and mmio= names none");
    }
    (place != 0).then_some(place)
}

/// Gives the guest page tables that map the page of this address as a device; returns where it then is.
fn map(place: u64) -> Option<u64> {
    let status = mmu::init();
    expect("H_REGISTER_PROC_TBL", status, hcall::SUCCESS);
    let page = mmu::set_page(0, place & !(PAGE - 1) | entry::USUAL & !entry::EXECUTE | entry::DEVICE);
    (status == hcall::SUCCESS).then_some(page + place % PAGE)
}

fn stores(row: &str, place: u64) {
    bench::measure(
        row,
        |n| measured_loop!(n, ["stb 26, 0(27)"], in("r27") place, in("r26") 0x5a_u64,),
        |n| measured_loop!(n, ["nop"], in("r27") place, in("r26") 0x5a_u64,),
    );
}

// R4 is the interrupted code's to lose.
global_asm!(
    r#"
    .section .text.absent, "ax"
    .balign 64
absent_skipped:
    mfspr   4, 26
    addi    4, 4, 4
    mtspr   26, 4
    rfid
    "#
);

/// A load where there is neither memory nor a device, with translation on. Where that is an interrupt, the guest's handler steps
/// over the load: it is part of the operation, but its instructions are the guest's.
pub fn absent() {
    const NOWHERE: u64 = 1 << 38;
    let Some(place) = map(NOWHERE) else { return };
    exception::set_handler(vector::DATA_STORAGE, absent_skipped);
    mmu::translated(|| {
        bench::measure(
            "absent",
            |n| measured_loop!(n, ["lwz 3, 0(27)"], in("r27") place,),
            |n| measured_loop!(n, [".rept 5", "nop", ".endr"], in("r27") place,),
        );
    });
    exception::init();
}

// R27 counts.
global_asm!(
    r#"
    .section .text.doorbell, "ax"
    .balign 64
doorbell_taken:
    addi    27, 27, 1
    rfid
    "#
);

unsafe extern "C" {
    fn absent_skipped();
    fn doorbell_taken();
}

/// Directed privileged doorbell to thread 0 of this core, which it is: message type 5 (Power ISA 3.0B Book III, section
/// 10.2). The branch through the count register is for QEMU: it looks at HFSCR in a function within the one that its code
/// calls (`helper_hfscr_facility_check`), from where it does not find its place in the translated block. So it reports the
/// address where the block begins, which has to be the doorbell's, and books the whole block, to the branch behind the
/// comparison: two instructions that are executed, and booked, after the interrupt, too. In the empty loop NOPs stand for
/// the doorbell, and for the branch and the RFID of its interrupt.
pub fn facility_fault() {
    exception::set_handler(vector::DOORBELL, doorbell_taken);
    cpu::unmask();
    bench::measure(
        "facility-fault",
        |n| {
            measured_loop!(n, [
                    "addi 26, 26, 1",
                    "bcl 20, 31, 2f",
                    "2:",
                    "mflr 4",
                    "addi 4, 4, 16",
                    "mtctr 4",
                    "bctr",
                    ".long 0x7c00c91c",
                    "3:",
                    "cmpld 26, 27",
                    "bne 3b",
                ], in("r25") 5_u64 << 27, inout("r26") 0_u64 => _, inout("r27") 0_u64 => _, out("lr") _,)
        },
        |n| {
            measured_loop!(n, [
                    "addi 26, 26, 1",
                    "bcl 20, 31, 2f",
                    "2:",
                    "mflr 4",
                    "addi 4, 4, 16",
                    "mtctr 4",
                    "bctr",
                    "nop",
                    "nop",
                    "addi 27, 27, 1",
                    "nop",
                    "cmpld 26, 27",
                    "beq 4f",
                    "4:",
                ], inout("r26") 0_u64 => _, inout("r27") 0_u64 => _, out("lr") _,)
        },
    );
    cpu::mask();
}
