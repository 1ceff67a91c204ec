// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All CPUs send to all, themselves too. One goes out only when the one before it, from the same CPU to the same one, was
//! taken: so no two can become one. Some CPUs poll, some wait by HLT, some have interrupts masked for a while.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use turnstile_guests_x86_64::random;
use turnstile_guests_x86_64::test::Outcome;
use turnstile_guests_x86_64::{apic, check, check_eq, cpu, irq, pv_eoi, smp, timer};

use crate::wanted;

/// Most CPUs.
const MAX_CPUS: usize = 8;
/// The first CPU's vector, and those of the next ones are each of another class, so that they nest.
const FIRST: u8 = 0x40;
const TIMER: u8 = 0x31;

/// By sender and receiver.
static SENT: [[AtomicU32; MAX_CPUS]; MAX_CPUS] =
    [const { [const { AtomicU32::new(0) }; MAX_CPUS] }; MAX_CPUS];
static TAKEN: [[AtomicU32; MAX_CPUS]; MAX_CPUS] =
    [const { [const { AtomicU32::new(0) }; MAX_CPUS] }; MAX_CPUS];
static TOTAL: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicBool = AtomicBool::new(false);
static READY: AtomicU32 = AtomicU32::new(0);
static LEFT: AtomicU32 = AtomicU32::new(0);
static DOUBLED: AtomicU32 = AtomicU32::new(0);

fn handle(vector: u8) {
    if vector < FIRST {
        return;
    }
    let (sender, this) = (usize::from((vector - FIRST) >> 4) & 7, cpu::this().index() & 7);
    // First: once this one counts as taken, the next may be sent.
    let sent = SENT[sender][this].load(SeqCst);
    if TAKEN[sender][this].fetch_add(1, SeqCst) + 1 != sent {
        DOUBLED.fetch_add(1, SeqCst);
    }
    TOTAL.fetch_add(1, SeqCst);
}

/// All CPUs of the machine, eight at most.
pub fn all() -> Outcome {
    let count = smp::count().min(MAX_CPUS);
    irq::set_handler(Some(handle));
    OVER.store(false, SeqCst);
    READY.store(0, SeqCst);
    LEFT.store(0, SeqCst);
    timer::apic_ticks();
    for index in 1..count {
        check!(smp::start(index, work, count as u64), "CPU {index} does not start");
    }
    work(count as u64);
    for index in 1..count {
        check!(smp::wait_done(index), "CPU {index} does not end");
    }
    check_eq!(DOUBLED.load(SeqCst), 0, "interrupts that nobody had sent");
    for sender in 0..count {
        for receiver in 0..count {
            let [sent, taken] = [&SENT, &TAKEN].map(|accounts| accounts[sender][receiver].load(SeqCst));
            check_eq!(taken, sent, "taken by CPU {receiver} from CPU {sender}");
        }
    }
    check!(TOTAL.load(SeqCst) >= wanted(), "{} interrupts, before something was lost", TOTAL.load(SeqCst));
    Ok(())
}

fn settled(this: usize, count: usize) -> bool {
    (0..count).all(|receiver| TAKEN[this][receiver].load(SeqCst) == SENT[this][receiver].load(SeqCst))
}

fn work(count: u64) {
    let this = cpu::this().index() & 7;
    let count = count as usize;
    let mut random = random::stream(100 + this as u64);
    if pv_eoi::is_wanted() {
        pv_eoi::enable();
    }
    // Ends every HLT.
    apic::set_timer(TIMER, apic::PERIODIC, ((timer::ticks(500) * timer::apic_ticks()) >> 20) as u32);
    // What is sent to a CPU before it starts goes with its INIT.
    READY.fetch_add(1, SeqCst);
    while READY.load(SeqCst) < count as u32 {
        cpu::relax();
    }
    let mut progress = (0, timer::now());
    while !OVER.load(SeqCst) {
        let receiver = random.below(count as u64) as usize;
        if TAKEN[this][receiver].load(SeqCst) == SENT[this][receiver].load(SeqCst) {
            SENT[this][receiver].fetch_add(1, SeqCst);
            apic::send_to(smp::apic_id(receiver), FIRST + 16 * this as u8);
        }
        match random.below(8) {
            0 => cpu::wait(),
            1..6 => cpu::take_interrupts(),
            _ => {}
        }
        let total = TOTAL.load(SeqCst);
        if total != progress.0 {
            progress = (total, timer::now());
        }
        // For ten seconds nobody has taken anything: something is lost.
        if total >= wanted() || timer::now() - progress.1 > timer::ticks(10_000_000) {
            OVER.store(true, SeqCst);
        }
    }
    let end = timer::now() + timer::ticks(2_000_000);
    while !settled(this, count) && timer::now() < end {
        cpu::take_interrupts();
    }
    // The others may have sent something here still.
    LEFT.fetch_add(1, SeqCst);
    while LEFT.load(SeqCst) < count as u32 && timer::now() < end {
        cpu::take_interrupts();
    }
    cpu::take_interrupts();
    apic::stop_timer();
    pv_eoi::disable();
}
