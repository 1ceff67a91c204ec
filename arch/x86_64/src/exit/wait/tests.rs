// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a vCPU's life and the beginning of the next one: what is left of one for the other. The test is its CPU.

use core::sync::atomic::{AtomicU32, Ordering};
use std::vec::Vec;

use turnstile_arch_common::monitor::CommonMonitor;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::{Phase, Stop};
use turnstile_vm::startup::Start;
use turnstile_x86policy::features::kvm as feature;

use super::{halt, settle};
use crate::cpu;
use crate::cpu::regs::fakes;
use crate::cpu::regs::flags;
use crate::cpu::svm::vmcb::{interrupt, part};
use crate::cpu::svm::{Vmcb, event};
use crate::exit::attend::{Attended, attend, begin};
use crate::exit::tests::{bytes, machine_with, msr_of};
use crate::irq::interrupts::Arrived;
use crate::memory::{GuestRam, Piece};
use crate::state::start::BootState;
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::kvm;
use crate::vm::monitor::Monitor;
use crate::vm::{Vcpu, Vm};

const KVM: u32 = feature::CLOCKSOURCE
    | feature::CLOCKSOURCE2
    | feature::STEAL_TIME
    | feature::PV_EOI
    | feature::PV_TLB_FLUSH
    | feature::POLL_CONTROL;
const APIC_BASE: u32 = 0x1b;
const X2APIC: u64 = 0xfee0_0d00;

/// Registers whose writes do something to others, or to the vCPU's own life: the commands of the local APIC.
const COMMANDS: [u32; 2] = [0x830, 0x83f];

/// What `facility` moves, as the fakes know it.
const OF_THE_CPU: [&str; 7] = ["EXTENDED", "XCR0", "DR0", "DR1", "DR2", "DR3", "TSC_AUX"];

fn msrs() -> impl Iterator<Item = u32> {
    let kvm = 0x4b56_4d00..0x4b56_4d10;
    (0..0x2000).chain(kvm).chain(0xc000_0000..0xc000_2000).chain(0xc001_0000..0xc001_2000)
}

/// All that there is of a vCPU whose life has just begun.
#[derive(Debug, PartialEq)]
struct Found {
    block: Vec<u8>,
    registers: Vec<u64>,
    msrs: Vec<(u32, Result<u64, u64>)>,
    /// What is in the CPU's own.
    cpu: Vec<u64>,
    nmis: bool,
    unhalted: bool,
}

fn found(vcpu: &'static Vcpu, frame: &mut Frame) -> Found {
    let (block, registers) = vcpu.with_vmcb(|vmcb| {
        let mut block = bytes(vmcb);
        // The ASID is another one each time.
        block[0x58..0x5c].fill(0);
        (block, (0..16).map(|number| frame.get(vmcb, number)).collect())
    });
    let (nmis, unhalted) = vcpu.owned(|owned| (!owned.nmi.is_idle(), owned.unhalted));
    let msrs = vcpu
        .with_vmcb(|vmcb| msrs().map(|number| (number, msr_of(vcpu, frame, vmcb, number, None))).collect());
    let cpu = OF_THE_CPU.map(fakes::get).to_vec();
    Found { block, registers, msrs, cpu, nmis, unhalted }
}

/// Writes to every MSR whatever it takes, and to all else. Returns how many MSRs have changed.
fn spoil(vcpu: &'static Vcpu, frame: &mut Frame, with_base: bool) -> usize {
    let before = found(vcpu, frame).msrs;
    vcpu.with_vmcb(|vmcb| {
        for number in
            msrs().filter(|number| !COMMANDS.contains(number) && (with_base || *number != APIC_BASE))
        {
            for value in [0x301, 0x1101, 0x0101_0101_0101_0101, 0x1800, 0xec, 1, 0] {
                let result = msr_of(vcpu, frame, vmcb, number, Some(value));
                // The first value that the register takes, unless it is what it was.
                if result.is_ok() && !before.contains(&(number, Ok(value))) {
                    break;
                }
            }
        }
    });
    let after = found(vcpu, frame).msrs;
    OF_THE_CPU.iter().for_each(|name| fakes::set(name, 0x77));
    vcpu.owned(|owned| {
        owned.nmi.post();
        owned.unhalted = true;
    });
    vcpu.with_vmcb(|vmcb| {
        (0..16).for_each(|number| frame.set(vmcb, number, 0x5555));
        vmcb.set_event(1 << 31);
        vmcb.set_interrupt_shadow(1);
        vmcb.set_exception_intercepts(0);
        vmcb.set_cr2(0x1234);
    });
    before.iter().zip(&after).filter(|(before, after)| before != after).count()
}

fn start_life(vcpu: &'static Vcpu, frame: &mut Frame, start: Start) {
    fakes::set("TSC", 1_000_000);
    crate::state::facility::start_cpu();
    begin(frame, vcpu, start);
}

#[test]
fn a_life_begins_with_nothing_of_the_one_before() {
    let (vcpu, mut frame, _, _) = machine_with(KVM);
    start_life(vcpu, &mut frame, Start::Boot);
    let first = found(vcpu, &mut frame);
    let asid = vcpu.with_vmcb(|vmcb| vmcb.asid());
    assert!(!first.nmis && !first.unhalted);
    assert!(spoil(vcpu, &mut frame, true) > 20, "the sweep is worth something");
    start_life(vcpu, &mut frame, Start::Boot);
    assert_eq!(found(vcpu, &mut frame), first);
    assert_ne!(vcpu.with_vmcb(|vmcb| vmcb.asid()), asid, "nor translations of the one before");
}

#[test]
fn a_startup_finds_nothing_of_what_was_before_the_init() {
    let (vcpu, mut frame, _, _) = machine_with(KVM);
    // The mode of the local APIC stays over an INIT: in x2APIC mode all its registers are MSRs.
    start_life(vcpu, &mut frame, Start::Boot);
    let on = vcpu.with_vmcb(|vmcb| msr_of(vcpu, &mut frame, vmcb, APIC_BASE, Some(X2APIC)));
    assert_eq!(on, Ok(X2APIC));
    start_life(vcpu, &mut frame, Start::Startup(9));
    let first = found(vcpu, &mut frame);
    assert!(spoil(vcpu, &mut frame, false) > 25, "the sweep is worth something");
    start_life(vcpu, &mut frame, Start::Startup(9));
    assert_eq!(found(vcpu, &mut frame), first);
}

/// What the hypervisor has of a VM that ends: it gives its memory back, and starts it anew. Meanwhile the vCPU's CPU goes to others
/// once.
struct Owner {
    vcpu: &'static Vcpu,
    ram: &'static [u8],
    /// What the firmware finds behind an INIT.
    resumes: bool,
    /// How often the guest's timer has rung, and how often the CPU has been interrupted at all.
    rings: AtomicU32,
    wakes: AtomicU32,
}

impl Owner {
    /// Nothing of the vCPU writes to the memory, or rings.
    fn is_left_alone(&self) {
        let before = self.ram.to_vec();
        kvm::put(self.vcpu);
        self.vcpu.with_vmcb(|vmcb| {
            kvm::load(self.vcpu, vmcb);
            kvm::adjust(self.vcpu, vmcb);
        });
        assert!(self.ram == before, "memory of a VM that is over is written to");
    }
}

impl CommonMonitor<Vm> for Owner {
    fn mmio_read(&self, _: &'static Vm, _: u64, _: u8) -> Option<u64> {
        None
    }
    fn mmio_write(&self, _: &'static Vm, _: u64, _: u8, _: u64) -> bool {
        false
    }
    fn deadline(&self) {}

    /// The CPU is interrupted again and again: by its timer, if that is set, and by a device. In the end the guest gets an NMI,
    /// after a long time.
    fn interrupt(&self, _: u32) {
        let deadline = time::guest_deadline();
        let rings = deadline != u64::MAX;
        self.rings.fetch_add(rings.into(), Ordering::Relaxed);
        if rings {
            fakes::set("TSC", deadline);
        }
        if self.wakes.fetch_add(1, Ordering::Relaxed) == WAKES {
            fakes::set("TSC", time::ticks() + LONG);
            self.vcpu.post(Reasons::NMI);
        }
        let arrived = Arrived::CONSOLE.bits() | if rings { Arrived::TIMER.bits() } else { 0 };
        cpu::this().arrived.store(arrived, Ordering::Relaxed);
    }

    fn waiting(&self, vm: &'static Vm) {
        self.is_left_alone();
        if matches!(vm.lifecycle.phase(), Phase::Running) {
            // It waits for its startup IPI, or does not.
            assert_ne!(vm.startup.startup(0, 9), self.resumes);
            return;
        }
        let piece = Piece { guest: 0, size: self.ram.len() as u64, host: self.ram.as_ptr() as u64 };
        vm.prepare(0, GuestRam::new([piece].into_iter()), None, BootState::default());
        assert!(vm.lifecycle.start());
    }

    fn stopped(&self, vm: &'static Vm, _: Stop) {
        self.is_left_alone();
        self.vcpu.owned(|owned| {
            assert_eq!(owned.lapic.pv_eoi(), 0, "the EOI word is in memory that is given back");
            assert_eq!(owned.lapic.deadline(), u64::MAX, "a timer is left");
        });
        vm.lifecycle.finish();
    }
}

impl Monitor for Owner {
    fn port_read(&self, _: &'static Vm, _: u16, _: u8) -> Option<u64> {
        None
    }
    fn port_write(&self, _: &'static Vcpu, _: u16, _: u8, _: u64) -> bool {
        false
    }
    fn resumes(&self, _: &'static Vm) -> bool {
        self.resumes
    }
    fn shut_down(&self, _: &'static Vcpu) {}
}

/// A vCPU whose guest has asked for records in its memory, and has its timer armed.
fn recording() -> (&'static Vcpu, Frame, Owner) {
    let (vcpu, mut frame, _, ram) = machine_with(KVM);
    start_life(vcpu, &mut frame, Start::Boot);
    assert!(vcpu.vm.startup.take_start(0).is_some());
    vcpu.with_vmcb(|vmcb| {
        let mut write = |number, value| assert!(msr_of(vcpu, &mut frame, vmcb, number, Some(value)).is_ok());
        write(0x4b56_4d01, 0x1001);
        write(0x4b56_4d03, 0x1101);
        write(0x4b56_4d04, 0x1201);
        write(APIC_BASE, X2APIC);
        write(0x80f, 0x1ff);
        write(0x832, 0x4_00ec);
        write(0x6e0, 1 << 50);
    });
    vcpu.attention.take();
    ram[0x1000..0x1400].fill(0x5a);
    ram[0x467..0x46b].copy_from_slice(&[0x34, 0x12, 0x00, 0x70]);
    (vcpu, frame, Owner { vcpu, ram, resumes: false, rings: AtomicU32::new(0), wakes: AtomicU32::new(0) })
}

#[test]
fn a_stop_leaves_nothing_that_writes_or_rings() {
    let (vcpu, mut frame, owner) = recording();
    vcpu.vm.stop(Stop::Reset);
    assert_eq!(attend(&mut frame, vcpu, &owner), Attended::Begun);
    assert_eq!(vcpu.vm.lifecycle.boots(), 2);
}

#[test]
fn an_init_leaves_nothing_that_writes() {
    let (vcpu, mut frame, owner) = recording();
    assert!(vcpu.vm.startup.init(0));
    vcpu.post(Reasons::INIT);
    assert_eq!(attend(&mut frame, vcpu, &owner), Attended::Begun);
    assert_eq!(vcpu.vm.lifecycle.boots(), 1);
    assert_eq!(vcpu.with_vmcb(|vmcb| vmcb.cs().base), 0x9000);
}

#[test]
fn behind_an_init_the_first_vcpu_goes_on_where_the_firmware_is_told_to() {
    let (vcpu, mut frame, owner) = recording();
    let owner = Owner { resumes: true, ..owner };
    assert!(vcpu.vm.startup.init(0));
    vcpu.post(Reasons::INIT);
    assert_eq!(attend(&mut frame, vcpu, &owner), Attended::Begun);
    assert_eq!(vcpu.with_vmcb(|vmcb| (vmcb.cs().base, vmcb.rip())), (0x7_0000, 0x1234));
    assert!(vcpu.vm.startup.is_on(0));
}

#[test]
fn what_was_under_way_for_an_nmi_ends_with_the_life() {
    let (vcpu, mut frame, owner) = recording();
    // Before its first NMI's IRET, which is stepped over, another NMI comes, and then an INIT.
    vcpu.owned(|owned| {
        vcpu.with_vmcb(|vmcb| {
            owned.nmi.post();
            owned.nmi.enter(vmcb);
            vmcb.set_event(0);
            owned.nmi.post();
            owned.nmi.iret();
            owned.nmi.enter(vmcb);
            assert_ne!(vmcb.rflags() & flags::TRAP, 0);
        });
    });
    vcpu.attention.raise(Reasons::NMI);
    assert!(vcpu.vm.startup.init(0));
    vcpu.post(Reasons::INIT);
    assert_eq!(attend(&mut frame, vcpu, &owner), Attended::Begun);
    assert!(vcpu.owned(|owned| owned.nmi.is_idle()));
    let mut fresh = Vmcb::new();
    crate::cpu::svm::intercept::set(&mut fresh);
    vcpu.with_vmcb(|vmcb| {
        assert_eq!(vmcb.exception_intercepts(), fresh.exception_intercepts());
        assert_eq!(vmcb.intercepts(), fresh.intercepts());
        assert_eq!((vmcb.rflags(), vmcb.event()), (flags::RESERVED, 0));
    });
}

#[test]
fn who_gets_another_asid_loads_everything_anew() {
    let (vcpu, mut frame, _, _) = machine_with(0);
    start_life(vcpu, &mut frame, Start::Boot);
    vcpu.with_vmcb(|vmcb| {
        vmcb.set_clean(part::ALL);
        crate::vcpu::asid::renew(vcpu, vmcb);
        assert_eq!(vmcb.clean(), 0, "the CPU may have kept parts of another vCPU's block");
    });
}

/// Another vCPU sends an interrupt.
fn send(vcpu: &'static Vcpu, vector: u8) {
    vcpu.notify(vcpu.mailbox.post(&vcpu.attention, vector, false));
}

fn write(vcpu: &'static Vcpu, frame: &mut Frame, msr: u32, value: u64) {
    let result = vcpu.with_vmcb(|vmcb| msr_of(vcpu, frame, vmcb, msr, Some(value)));
    assert!(result.is_ok(), "{msr:#x}");
}

/// The vectors that wait in the IRR.
fn pending(vcpu: &'static Vcpu, frame: &mut Frame) -> Vec<u32> {
    let words: Vec<u64> = vcpu.with_vmcb(|vmcb| {
        (0..8).map(|word| msr_of(vcpu, frame, vmcb, 0x820 + word, None).expect("IRR")).collect()
    });
    (0..256).filter(|vector| words[*vector as usize / 32] >> (vector % 32) & 1 != 0).collect()
}

/// The vector that the guest takes next.
fn offered(vcpu: &'static Vcpu) -> Option<u64> {
    vcpu.with_vmcb(|vmcb| {
        (vmcb.interrupts() & interrupt::PENDING != 0).then(|| vmcb.interrupt_vector().into())
    })
}

/// The vCPU gets an INIT, and begins anew.
fn init(vcpu: &'static Vcpu, frame: &mut Frame, owner: &Owner) {
    assert!(vcpu.vm.startup.init(0));
    vcpu.post(Reasons::INIT);
    settle(frame, vcpu, owner);
    assert!(vcpu.vm.startup.is_on(0));
}

/// The guest has set its 8259s up, whose first vector is 30h.
fn set_pics_up(vm: &Vm) {
    for (port, value) in [(0x20, 0x11), (0x21, 0x30), (0x21, 4), (0x21, 1), (0x21, 0)] {
        vm.write_port(port, value);
    }
}

const LINT0: u32 = 0x835;

#[test]
fn of_reasons_that_come_together_none_is_left_out() {
    let (vcpu, mut frame, owner) = recording();
    let others = [
        Reasons::NMI,
        Reasons::UNHALT,
        Reasons::EXTERNAL,
        Reasons::DEADLINE,
        Reasons::FLUSH,
        // Not any more: a startup IPI was faster.
        Reasons::INIT,
    ];
    for (vector, reason) in (0x50..).zip(others) {
        send(vcpu, vector);
        vcpu.attention.raise(reason);
        settle(&mut frame, vcpu, &owner);
        assert!(pending(vcpu, &mut frame).contains(&vector.into()), "{reason:?}");
    }
}

#[test]
fn what_others_have_sent_before_an_init_is_gone() {
    let (vcpu, mut frame, owner) = recording();
    send(vcpu, 0x41);
    init(vcpu, &mut frame, &owner);
    // Nor is it there if the reason to look for it was taken while the vCPU waited.
    send(vcpu, 0x42);
    vcpu.attention.take();
    assert!(vcpu.vm.startup.init(0) && vcpu.vm.startup.startup(0, 9));
    start_life(vcpu, &mut frame, vcpu.vm.startup.take_start(0).expect("it starts"));
    write(vcpu, &mut frame, 0x80f, 0x1ff);
    send(vcpu, 0x52);
    settle(&mut frame, vcpu, &owner);
    assert_eq!(pending(vcpu, &mut frame), [0x52]);
}

#[test]
fn an_init_changes_nothing_of_what_the_8259_asks_for() {
    let (vcpu, mut frame, owner) = recording();
    set_pics_up(vcpu.vm);
    let mut opened = |change: fn(&'static Vcpu)| {
        write(vcpu, &mut frame, LINT0, 0x700);
        settle(&mut frame, vcpu, &owner);
        change(vcpu);
        init(vcpu, &mut frame, &owner);
        assert_eq!(offered(vcpu), None, "LINT0 is masked");
        write(vcpu, &mut frame, 0x80f, 0x1ff);
        write(vcpu, &mut frame, LINT0, 0x700);
        offered(vcpu)
    };
    // In the moment of the INIT it begins to ask, and ceases.
    assert_eq!(opened(|vcpu| vcpu.vm.set_irq(3, true)), Some(0x33));
    assert_eq!(opened(|vcpu| vcpu.vm.set_irq(3, false)), None);
    assert_eq!(opened(|vcpu| vcpu.vm.set_irq(3, true)), Some(0x33));
    // The guest has taken it, which nobody has seen yet.
    let takes = |vcpu: &'static Vcpu| {
        vcpu.with_vmcb(|vmcb| vmcb.set_interrupts(vmcb.interrupts() & !interrupt::PENDING));
    };
    assert_eq!(opened(takes), None);
    vcpu.vm.write_port(0x20, 0x0b);
    assert_eq!(vcpu.vm.read_port(0x20), 1 << 3, "in service");
}

#[test]
fn where_the_firmware_goes_on_the_8259_gets_through() {
    let (vcpu, mut frame, owner) = recording();
    let owner = Owner { resumes: true, ..owner };
    set_pics_up(vcpu.vm);
    init(vcpu, &mut frame, &owner);
    assert_eq!(offered(vcpu), None);
    vcpu.vm.set_irq(3, true);
    settle(&mut frame, vcpu, &owner);
    assert_eq!(offered(vcpu), Some(0x33));
    init(vcpu, &mut frame, &owner);
    assert_eq!(offered(vcpu), Some(0x33), "it asked before");
}

/// How often the CPU of [`Owner`] is interrupted before the guest gets its NMI.
const WAKES: u32 = 20;
/// What passes meanwhile, in ticks: more than five periods.
const LONG: u64 = 101_000;
const PERIOD: u64 = 20_000;

/// The guest executes HLT with its timer ringing as often as it can. Returns how often that rang.
fn rings_in_halt(timer: u64, rflags: u64, priority: u32) -> (u32, &'static Vcpu, Frame) {
    let (vcpu, mut frame, owner) = recording();
    for (msr, value) in [(0x832, 1 << 17 | timer), (0x83e, 0xb), (0x838, 100)] {
        write(vcpu, &mut frame, msr, value);
    }
    vcpu.with_vmcb(|vmcb| {
        vmcb.set_rflags(flags::RESERVED | rflags);
        vmcb.set_interrupts(vmcb.interrupts() & !interrupt::TPR | priority);
    });
    cpu::this().arrived.store(Arrived::CONSOLE.bits(), Ordering::Relaxed);
    halt(&mut frame, vcpu, &owner);
    (owner.rings.load(Ordering::Relaxed), vcpu, frame)
}

#[test]
fn a_timer_does_not_wake_for_what_a_halted_vcpu_does_not_take() {
    const VECTOR: u64 = 0xec;
    for (rflags, priority) in [(0, 0), (flags::INTERRUPT, 15)] {
        let (rings, vcpu, mut frame) = rings_in_halt(VECTOR, rflags, priority);
        assert_eq!(rings, 1, "RFLAGS {rflags:#x}, priority {priority}");
        assert!(vcpu.owned(|owned| !owned.nmi.is_idle()), "the NMI has ended it");
        assert_eq!(pending(vcpu, &mut frame), [VECTOR as u32]);
        // It rings again, where it would have rung.
        let (now, next) = (time::ticks(), time::guest_deadline());
        assert!(next > now && next <= now + PERIOD, "{next} behind {now}");
        assert_eq!((next - 1_000_100) % PERIOD, 0);
        vcpu.with_vmcb(|vmcb| {
            vmcb.set_interrupts(vmcb.interrupts() & !(interrupt::PENDING | interrupt::TPR))
        });
        write(vcpu, &mut frame, 0x80b, 0);
        assert_eq!(pending(vcpu, &mut frame), [0; 0], "once");
    }
    // What no APIC accepts is an error, once.
    assert_eq!(rings_in_halt(5, flags::INTERRUPT, 0).0, 1);
}

#[test]
fn a_timer_wakes_whoever_takes_its_interrupt() {
    let (rings, vcpu, _) = rings_in_halt(0xec, flags::INTERRUPT, 0);
    assert_eq!((rings, offered(vcpu)), (1, Some(0xec)));
    assert!(vcpu.owned(|owned| owned.nmi.is_idle()), "nothing else was needed");
    assert!(vcpu.with_vmcb(|vmcb| event::takes_interrupt(vmcb)));
}
