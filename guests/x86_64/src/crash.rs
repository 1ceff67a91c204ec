// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways for a guest to die, each by name.

use core::arch::asm;

use turnstile_guests_common::stack::Stack;

use crate::platform::platform;
use crate::{apic, cpu, exception, mmu, options, pit, port, power, println, smp};

/// The names that [`die`] knows.
pub const WAYS: [&str; 15] = [
    "exception",
    "panic",
    "triple-fault",
    "pc-outside",
    "stack",
    "tables",
    "halt",
    "masked",
    "spin",
    "fault-loop",
    "off",
    "reset",
    "debug-exit",
    "init",
    "clock",
];

/// The index of the real-time clock; its data is behind it.
const CLOCK: u16 = 0x70;

/// Sets a register of the clock.
fn set_clock(register: u8, value: u8) {
    port::write8(CLOCK, register);
    port::write8(CLOCK + 1, value);
}

/// Arms what can ring on this machine, for interrupts that nobody takes: the 8254, the clock, the power management timer, and
/// the APIC's timer of each CPU, again and again or once. The other CPUs spin, or halt if this one will. Returns whether they do.
pub fn arm_timers() -> bool {
    apic::init();
    if options::get("how") == Some("masked") {
        return arm_masked();
    }
    pit::start_periodic(100);
    // 8192 Hz, periodic, in 24 hours.
    set_clock(0x0a, 0x23);
    set_clock(0x0b, 0x42);
    let event = platform().acpi.pm1a_event;
    if event != 0 {
        port::write16(event + 2, 1);
    }
    arm_apic();
    smp::start_others(|_| {
        arm_apic();
        while options::get("how") != Some("halt") {
            cpu::relax();
        }
    })
}

/// Lets each CPU's APIC ring at the shortest of periods, for an interrupt that the CPU does not take and halts nevertheless: the
/// others by their task priority, this one will by its flag.
fn arm_masked() -> bool {
    apic::set_timer(0xe0, apic::PERIODIC, 1000);
    smp::start_others(|_| {
        apic::write(apic::register::TPR, 0xf0);
        apic::set_timer(0xe0, apic::PERIODIC, 1000);
        loop {
            // SAFETY: nothing is taken.
            unsafe { asm!("sti", "hlt", options(nomem, nostack)) };
        }
    })
}

/// Lets this CPU's APIC ring at the shortest of periods; every second one's once.
fn arm_apic() {
    let mode = if cpu::this().index().is_multiple_of(2) { apic::PERIODIC } else { 0 };
    apic::set_timer(0xe0, mode, 1000);
}

/// Lets the clock ring at `rate=` (3: 8192 Hz, 15: 2 Hz), and asks it whether it has, for ever; says so when it has a
/// thousand times.
fn clock() -> ! {
    set_clock(0x0a, 0x20 | options::number("rate", 3) as u8);
    set_clock(0x0b, 0x42);
    let mut rung = 0;
    port::write8(CLOCK, 0x0c);
    loop {
        // The periodic interrupt's flag; read, it is clear.
        rung += u32::from(port::read8(CLOCK + 1) >> 6 & 1);
        if rung == 1000 {
            println!("@rung");
        }
    }
}

/// Sends an INIT to all CPUs, this one last.
fn init() -> ! {
    smp::others().chain([cpu::this().index()]).for_each(smp::send_init);
    power::halt()
}

/// Returns an address behind the last byte of memory, with a gap, that nothing answers at.
pub fn outside() -> u64 {
    platform().end_of_memory().next_multiple_of(mmu::WINDOW_SIZE) + mmu::WINDOW_SIZE
}

/// Dies in the way of this name; an unknown name is printed and ends in power-off.
pub fn die(how: &str) -> ! {
    println!("@crash how={how}");
    cpu::mask();
    match how {
        // SAFETY: here and below, nothing of this program is relied on afterwards.
        "exception" => unsafe { asm!("ud2", options(noreturn)) },
        "panic" => panic!("asked for by how=panic"),
        "triple-fault" => power::triple_fault(),
        "pc-outside" => {
            // Without gates: the fault of the fetch, or of what is fetched, has no handler.
            cpu::load_idt(0, 0);
            // SAFETY: as above.
            unsafe { asm!("jmp {}", in(reg) outside(), options(noreturn)) }
        }
        "stack" => {
            cpu::load_idt(0, 0);
            // SAFETY: as above.
            unsafe { asm!("mov rsp, {}", "call 2f", "2:", "ud2", in(reg) 1_u64 << 62, options(noreturn)) }
        }
        "tables" => {
            // SAFETY: as above: not even the next instruction can be fetched.
            unsafe { asm!("mov cr3, {}", "ud2", in(reg) outside(), options(noreturn)) }
        }
        "halt" | "masked" => power::halt(),
        "spin" => loop {
            cpu::relax();
        },
        "fault-loop" => fault_loop(),
        "off" => power::off(),
        "reset" => power::reset(),
        "init" => init(),
        "clock" => clock(),
        "debug-exit" => port::write8(power::DEBUG_EXIT, 0x2a),
        _ => println!("@error how={how} is none of {WAYS:?}"),
    }
    println!("@error still alive after how={how}");
    power::off()
}

/// Executes an invalid instruction whose handler executes it again, for ever.
fn fault_loop() -> ! {
    exception::set_gate(6, invalid as *const () as u64);
    invalid()
}

extern "C" fn invalid() -> ! {
    // The stack is given back, so that it never ends.
    // SAFETY: as above.
    unsafe {
        asm!("lea rsp, [{stack} + {size}]", "ud2", stack = sym STACK, size = const 4096, options(noreturn))
    }
}

/// The stack of `invalid`.
static STACK: Stack<4096> = Stack::new();
