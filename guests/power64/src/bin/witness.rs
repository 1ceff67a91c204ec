// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Has a service of this VM do what it must not do (`services/misbehave`), and looks whether anything of the VM changes: general,
//! vector-scalar and special-purpose registers, what its interrupts and breakpoints are. Its own interrupts and breakpoints do no
//! harm to the service either. What the service reaches of this VM's memory is that memory, to read and write, and nothing beside it.
//!
//! With several CPUs, the others use the service at the same time.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use turnstile_guests_power64::state::{self, Present, numbers, sprs};
use turnstile_guests_power64::{
    boot, cpu, entry, hcall, irq, mfspr, mmio, mtspr, options, println, probe, smp, timer, trap,
};

entry!(main);

const PRESENT: Present = Present(&state::ALL);
/// Where the service's registers are: the number of the deed, its arguments, what the last one has returned.
const DEVICE: u64 = 0x100_0001_0000;
const FIRST: u64 = DEVICE + 8;
const SECOND: u64 = DEVICE + 16;
const RESULT: u64 = DEVICE + 24;
/// Where its code is, and what of that is looked at for breakpoints.
const CODE: u64 = 0xf_0000_0000_0000;
/// Where it has the memory of VMs: this one's begins in the first place of 1 GiB.
const WINDOWS: u64 = 0xe_0000_0000_0000;
const PLACE: u64 = 1 << 30;
/// How much memory this VM has.
const MEMORY: u64 = 64 << 20;
/// Deeds with an address.
const READ: u64 = 1;
const WRITE: u64 = 2;
const JUMP: u64 = 3;
/// The deed that says where an address of this VM is.
const WHERE: u64 = 17;
/// The deed that does nothing.
const NOTHING: u64 = 0;
/// The deed that executes an instruction.
const INSTRUCTION: u64 = 5;
/// All others, but those that never end.
const DEEDS: [(u64, u64, u64); 18] = [
    (1, 0, 0),
    (1, CODE - 8, 0),
    (1, 0x2000_0000, 0),
    (1, 0xc000_0000_0000_4c00, 0),
    (1, 0x4000_0000_0000_0000, 0),
    (1, 0x20_0000, 0),
    (2, 0, 1),
    (2, 0x40_0000, 1),
    (3, 0, 0),
    (3, 0xc000_0000_0000_4c00, 0),
    (4, 0x10, 0),
    (6, 0, 0),
    (6, 99, 1),
    (8, 0, 0),
    (9, 5, 0),
    (10, 0, 0),
    (11, 0, 0),
    (12, 0, 0),
];
/// The deed that asks for vector registers, and says what is wrong with them; and the one that crashes with them.
const VECTORS: u64 = 18;
const CRASH_WITH_VECTORS: u64 = 19;
/// Those that never end.
const ENDLESS: [u64; 4] = [7, 13, 14, 20];

/// What the service reads and writes.
static WORD: AtomicU64 = AtomicU64::new(0);
/// The other CPUs are to end.
static END: AtomicBool = AtomicBool::new(false);

/// What a deed has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// This is what it has returned.
    Returned(u64),
    /// The service has crashed.
    Crashed,
}

struct Checks {
    errors: u32,
    seed: u64,
}

fn main() {
    irq::init();
    cpu::mask();
    let mut checks = Checks { errors: 0, seed: state::seed(options::number("seed", 1), 0) };
    println!("@boot witness {PRESENT}");
    let alone = smp::count() == 1;
    if !alone {
        smp::start_others(|_| beside());
    }
    checks.all(alone);
    // Vectors at c000000000004000h, where the CPU has that.
    if hcall::call(hcall::SET_MODE, [3, hcall::set_mode::TRANSLATION, 0, 0]) == hcall::SUCCESS {
        println!("@again with translation on in interrupts");
        checks.all(alone);
    }
    END.store(true, Relaxed);
    smp::others().for_each(|index| {
        smp::wait_done(index);
    });
    println!("@done witness errors={}", checks.errors);
}

/// Uses the service and the terminal until the first CPU has finished: what is read is no matter, that it ends is.
fn beside() {
    while !END.load(Relaxed) {
        mmio::read64(RESULT);
        hcall::call(hcall::GET_TERM_CHAR, [0; 4]);
    }
}

impl Checks {
    fn wrong(&mut self, what: core::fmt::Arguments<'_>) {
        self.errors += 1;
        println!("@error {what}");
    }

    fn all(&mut self, alone: bool) {
        let (mut passed, mut crashed) = (0, 0);
        for number in 0.. {
            match self.deed(INSTRUCTION, number, 0) {
                // There is no such instruction.
                Outcome::Returned(0) => break,
                Outcome::Returned(_) => passed += 1,
                Outcome::Crashed => crashed += 1,
            }
        }
        println!("@instructions passed={passed} crashed={crashed}");
        if alone && (passed == 0 || crashed < 40) {
            self.wrong(format_args!("instructions: {passed} were executed, {crashed} were not"));
        }
        for (number, first, second) in DEEDS {
            self.deed(number, first, second);
            self.general(number, first, second);
        }
        for number in ENDLESS {
            let begin = timer::now();
            if self.deed(number, 0, 0) != Outcome::Crashed {
                self.wrong(format_args!("endless deed {number} has ended"));
            }
            println!("@endless {number} {} us", timer::microseconds(timer::now() - begin));
        }
        if alone {
            self.vectors();
            self.window();
            self.interrupts();
            self.breakpoints();
        }
    }

    /// Has it do a deed; nothing of the registers that a seed fills may be different afterwards.
    fn deed(&mut self, number: u64, first: u64, second: u64) -> Outcome {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let seed = self.seed;
        mmio::write64(FIRST, first);
        mmio::write64(SECOND, second);
        let before = mmio::read64(DEVICE);
        PRESENT.fill(seed);
        // Those that are in no group, because exceptions change them, or this program needs them.
        mtspr!(26, seed & !3);
        mtspr!(27, seed & 0xffff);
        let kept = [mfspr!(26), mfspr!(27), mfspr!(153)];
        mmio::write64(DEVICE, number);
        let found = [mfspr!(26), mfspr!(27), mfspr!(153)];
        if found != kept {
            self.wrong(format_args!("deed {number} ({first:#x}): {found:x?}, not {kept:x?}"));
        }
        for state in PRESENT.wrong(seed) {
            let which = sprs::first_wrong(&sprs::PLAIN, seed).unwrap_or("");
            let word = numbers::first_wrong(seed);
            self.wrong(format_args!("deed {number} ({first:#x}): {}: changed {which} {word:?}", state.name));
        }
        // A crash begins with zeros, or is counted twice: it was tried twice.
        match mmio::read64(DEVICE).wrapping_sub(before) {
            1 => Outcome::Returned(mmio::read64(RESULT)),
            _ => Outcome::Crashed,
        }
    }

    /// The same with general registers, CTR and CR.
    fn general(&mut self, number: u64, first: u64, second: u64) {
        mmio::write64(FIRST, first);
        mmio::write64(SECOND, second);
        let mut input = probe::pattern(self.seed);
        input[1] = boot::image().1 + (1 << 20);
        (input[4], input[5]) = (number, DEVICE);
        // mtctr r6; mtcr r7; std r4, 0(r5); mfctr r8; mfcr r9.
        let code = [0x7cc9_03a6, 0x7cef_f120, 0xf885_0000, 0x7d09_02a6, 0x7d20_0026];
        // SAFETY: stores to the device, and changes the registers that it names.
        match unsafe { probe::execute(&code, &input) } {
            Ok(output) => {
                (input[8], input[9]) = (input[6], input[7] & 0xffff_ffff);
                if let Some(index) = (0..32).find(|index| output[*index] != input[*index]) {
                    self.wrong(format_args!("deed {number}: r{index} is {:#x}", output[index]));
                }
            }
            Err(trap) => self.wrong(format_args!("deed {number}: {trap}")),
        }
    }

    /// Nothing happens to the service, nor to what `what` says.
    fn unharmed(&mut self, what: &str) {
        if self.deed(NOTHING, 0, 0) != Outcome::Returned(0) {
            self.wrong(format_args!("{what}: the service has crashed"));
        }
    }

    /// The service has vector registers when it asks for them, and finds nothing of this VM there. They are its own for as long as it runs, also
    /// if it is interrupted; and this VM's when it is left, also if it crashes or takes too long.
    fn vectors(&mut self) {
        let mut longest = 0;
        for spins in (0..40).map(|bit| 1 << bit) {
            match self.deed(VECTORS, self.seed, spins) {
                Outcome::Returned(0) => longest = spins,
                Outcome::Returned(wrong) => {
                    self.wrong(format_args!("vectors: {wrong} when it spins {spins} times"));
                }
                Outcome::Crashed => break,
            }
        }
        println!("@vectors spins={longest}");
        if longest == 0 {
            self.wrong(format_args!("vectors: the service has none"));
        }
        self.deed(CRASH_WITH_VECTORS, 0, 0);
        self.general(VECTORS, self.seed, 1);
    }

    /// The service reads and writes this VM's memory, executes none of it, and reaches nothing before and behind it.
    fn window(&mut self) {
        let Outcome::Returned(window) = self.deed(WHERE, 0, 0) else {
            return self.wrong(format_args!("window: the service does not know where it is"));
        };
        if !(WINDOWS..WINDOWS + PLACE).contains(&window) {
            self.wrong(format_args!("window: it is at {window:#x}"));
        }
        let here = window + (&raw const WORD) as u64;
        WORD.store(self.seed, Relaxed);
        let kept = self.seed;
        let mut expect = |deed, address, value, outcome: Outcome| {
            if self.deed(deed, address, value) != outcome {
                self.wrong(format_args!("window: deed {deed} ({address:#x}) has another outcome"));
            }
        };
        expect(READ, here, 0, Outcome::Returned(kept));
        expect(WRITE, here, !kept, Outcome::Returned(0));
        expect(JUMP, here, 0, Outcome::Crashed);
        for beside in [window - 8, window + MEMORY, window + PLACE, window + 512 * PLACE] {
            expect(READ, beside, 0, Outcome::Crashed);
            expect(WRITE, beside, 0, Outcome::Crashed);
        }
        expect(READ, window + MEMORY - 8, 0, Outcome::Returned(0));
        if WORD.load(Relaxed) != !kept {
            self.wrong(format_args!("window: what the service has written is not there"));
        }
    }

    /// What the guest has masked, and is pending, strikes in the service: it stays pending.
    fn interrupts(&mut self) {
        irq::reset_counts();
        timer::arm(timer::now());
        timer::wait(10, || false);
        self.unharmed("decrementer");
        if (mfspr!(22) as i32) >= 0 {
            self.wrong(format_args!("the decrementer rings no more"));
        }
        irq::send(0);
        self.unharmed("external interrupt");
        if [irq::count(irq::TIMER), irq::count(irq::IPI)] != [0, 0] {
            self.wrong(format_args!("interrupts came while they were masked"));
        }
        cpu::take_interrupts();
        for _ in 0..10 {
            timer::wait(10, || false);
            cpu::take_interrupts();
        }
        if [irq::count(irq::TIMER), irq::count(irq::IPI)] != [1, 1] {
            let found = [irq::count(irq::TIMER), irq::count(irq::IPI)];
            self.wrong(format_args!("of timer and IPI came {found:?}"));
        }
        // A doorbell to the same core.
        // SAFETY: msgsndp of r3, type 5 to this thread; behind an indirect branch, for QEMU's sake.
        let rung = trap::caught(|| unsafe {
            core::arch::asm!("bcl 20, 31, 2f", "2:", "mflr 4", "addi 4, 4, 16", "mtctr 4", "bctr", ".long 0x7c00191c",
                in("r3") 5_u64 << 27, out("r4") _, out("lr") _, out("ctr") _);
        });
        if let Some(trap) = rung {
            self.wrong(format_args!("msgsndp: {trap}"));
        }
        let before = mmio::read64(DEVICE);
        cpu::take_interrupts();
        if irq::count(irq::DOORBELL) != 1 {
            self.wrong(format_args!("of doorbells came {}", irq::count(irq::DOORBELL)));
        }
        if mmio::read64(DEVICE) != before {
            self.wrong(format_args!("doorbell: the service has crashed"));
        }
        // The monitor's alert.
        mtspr!(795, 1 << 31 | 1 << 26 | 1 << 7);
        let before = mfspr!(795);
        mmio::read64(RESULT);
        if mfspr!(795) != before {
            self.wrong(format_args!("the monitor's control is {:#x}, not {before:#x}", mfspr!(795)));
        }
        mtspr!(795, 1 << 31);
    }

    /// Breakpoints and watchpoints of the guest, on the service's code and data.
    fn breakpoints(&mut self) {
        const PROBLEM: u64 = 1;
        let set = |resource, value, more| hcall::call(hcall::SET_MODE, [0, resource, value, more]);
        let mut refused = 0;
        for at in (CODE..CODE + 0x1000).step_by(4) {
            refused += u32::from(set(hcall::set_mode::CIABR, at | PROBLEM, 0) != hcall::SUCCESS);
            mmio::read64(RESULT);
        }
        set(hcall::set_mode::CIABR, 0, 0);
        self.unharmed("breakpoint");
        // Loads and stores, of 64 doublewords each.
        const WATCH: u64 = 0x3f << 10 | 3 << 5 | 3 << 3 | PROBLEM;
        let before = mmio::read64(DEVICE);
        for at in (CODE..CODE + 0x1_0000).step_by(512) {
            refused += u32::from(set(hcall::set_mode::DAWR, at, WATCH) != hcall::SUCCESS);
            mmio::read64(RESULT);
        }
        set(hcall::set_mode::DAWR, 0, 0);
        self.unharmed("watchpoint");
        if mmio::read64(DEVICE) != before + 1 || refused != 0 {
            self.wrong(format_args!("breakpoints: the service has crashed, or {refused} were refused"));
        }
    }
}
