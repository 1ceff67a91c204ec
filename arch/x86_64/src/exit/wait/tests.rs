// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a vCPU's life and the beginning of the next one: what is left of one for the other. The test is its CPU.

mod halted;
mod interrupts;
mod sweep;

use core::sync::atomic::{AtomicU32, Ordering};

use turnstile_arch_common::monitor::CommonMonitor;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::{Phase, Stop};
use turnstile_vm::startup::Start;
use turnstile_x86policy::features::kvm as feature;

use super::settle;
use crate::cpu::regs::{fakes, flags};
use crate::cpu::svm::vmcb::{interrupt, part};
use crate::cpu::svm::{Vmcb, event};
use crate::exit::attend::{Attended, attend, begin, wait_for_start};
use crate::exit::tests::{machine_with, msr_of};
use crate::irq::interrupts::Arrived;
use crate::memory::{GuestRam, Piece};
use crate::state::start::BootState;
use crate::vcpu::frame::Frame;
use crate::vcpu::kvm;
use crate::vm::monitor::Monitor;
use crate::vm::{Vcpu, Vm};
use crate::{cpu, time};

const KVM: u32 = feature::CLOCKSOURCE
    | feature::CLOCKSOURCE2
    | feature::STEAL_TIME
    | feature::PV_EOI
    | feature::PV_TLB_FLUSH
    | feature::POLL_CONTROL;
const APIC_BASE: u32 = 0x1b;
const X2APIC: u64 = 0xfee0_0d00;

/// How often the CPU of [`Owner`] is interrupted before the guest gets its NMI.
const WAKES: u32 = 20;
/// What passes meanwhile, in ticks: more than five periods.
const LONG: u64 = 101_000;

fn start_life(vcpu: &'static Vcpu, frame: &mut Frame, start: Start) {
    fakes::set("TSC", 1_000_000);
    crate::state::facility::start_cpu();
    begin(frame, vcpu, start);
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
    /// How often a vCPU has gone on after a pause.
    resumed: AtomicU32,
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
        vm.prepare(0, GuestRam::new([piece].into_iter()), BootState::default());
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

    /// Ends each pause as soon as its clock stands, a long time later.
    fn paused(&self, vm: &'static Vm) {
        assert_eq!(time::guest_deadline(), u64::MAX, "a timer of a paused VM rings");
        assert!(vm.pause.close(time::ticks()));
        fakes::set("TSC", time::ticks() + LONG);
        assert_eq!(vm.pause.end(time::ticks(), |ticks| vm.stood_still(ticks)), Some(LONG));
    }
    fn short_of_memory(&self, _: &'static Vm, _: u32) {}
    fn resumed(&self, _: &'static Vm) {
        self.resumed.fetch_add(1, Ordering::Relaxed);
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
    let [rings, wakes, resumed] = [const { AtomicU32::new(0) }; 3];
    (vcpu, frame, Owner { vcpu, ram, resumes: false, rings, wakes, resumed })
}

#[test]
fn a_stop_leaves_nothing_that_writes_or_rings() {
    let (vcpu, mut frame, owner) = recording();
    vcpu.vm.stop(Stop::Reset);
    assert_eq!(attend(&mut frame, vcpu, &owner), Attended::Begun);
    assert_eq!(vcpu.vm.lifecycle.boots(), 2);
}

#[test]
fn a_pause_silences_timers_and_stops_the_clock_and_the_guest_is_told() {
    let (vcpu, mut frame, owner) = recording();
    vcpu.vm.write_port(0x43, 0x34);
    [100, 0].into_iter().for_each(|byte| vcpu.vm.write_port(0x40, byte));
    vcpu.attention.take();
    vcpu.with_vmcb(|vmcb| crate::vcpu::irq::load(vcpu, vmcb));
    let guest_now = || vcpu.with_vmcb(|vmcb| time::ticks().wrapping_add(vmcb.tsc_offset()));
    let (before, rings, deadline) =
        (guest_now(), time::guest_deadline(), vcpu.owned(|owned| owned.lapic.deadline()));
    assert_ne!(rings, u64::MAX);
    const FLAGS: usize = 0x1000 + 29;
    // Whatever the guest has left there.
    write(vcpu, &mut frame, 0x4b56_4d01, 0x1001);
    let flags = || owner.ram[FLAGS];
    assert_eq!(flags(), 1);
    assert!(vcpu.vm.begin_pause() && !vcpu.vm.begin_pause());
    assert_eq!(attend(&mut frame, vcpu, &owner), Attended::Same);
    assert_eq!(vcpu.vm.lifecycle.boots(), 1);
    assert_eq!(guest_now(), before, "its time stamp counter has stood still");
    assert_eq!(
        vcpu.vm.life().tsc_offset(),
        vcpu.with_vmcb(|vmcb| vmcb.tsc_offset()),
        "for vCPUs that start later, too"
    );
    assert_eq!(vcpu.owned(|owned| owned.lapic.deadline()), deadline);
    assert_eq!(time::guest_deadline(), rings + LONG, "the 8254 rings as much later");
    assert_eq!(flags(), 3, "it is told (PVCLOCK_GUEST_STOPPED)");
    assert_eq!(owner.resumed.load(Ordering::Relaxed), 1, "the devices are looked at by its CPU");
    // Its counter set to something else: it has not looked yet, and then it has.
    vcpu.with_vmcb(|vmcb| kvm::adjust(vcpu, vmcb));
    assert_eq!(flags(), 3, "it is not forgotten");
    // SAFETY: the test's RAM, which nobody else uses now.
    unsafe { owner.ram.as_ptr().add(FLAGS).cast_mut().write_volatile(1) };
    vcpu.with_vmcb(|vmcb| kvm::adjust(vcpu, vmcb));
    assert_eq!(flags(), 1, "it is not told twice");
    // A pause that is over when the vCPU looks changes nothing.
    vcpu.attention.take();
    vcpu.attention.raise(Reasons::STOP);
    assert_eq!(attend(&mut frame, vcpu, &owner), Attended::Same);
    assert_eq!((vcpu.attention.word(), guest_now()), (0, before));
}

#[test]
fn a_paused_vm_that_is_stopped_is_taken_down() {
    let (vcpu, mut frame, owner) = recording();
    assert!(vcpu.vm.begin_pause());
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
fn an_nmi_behind_a_startup_ipi_is_for_the_vcpu_that_begins() {
    for before in [false, true] {
        let (vcpu, mut frame, owner) = recording();
        let owner = Owner { resumes: !before, ..owner };
        kvm::end(vcpu);
        vcpu.with_vmcb(|vmcb| crate::vcpu::irq::off(vcpu, vmcb));
        assert!(vcpu.vm.startup.init(0));
        // It does not begin while its VM is paused. Before the startup IPI it has nobody who could take one.
        assert!(before || vcpu.vm.startup.startup(0, 9));
        assert!(vcpu.vm.begin_pause());
        vcpu.post(Reasons::NMI);
        wait_for_start(&mut frame, vcpu, &owner);
        assert!(vcpu.vm.startup.is_on(0));
        settle(&mut frame, vcpu, &owner);
        assert_eq!(vcpu.owned(|owned| owned.nmi.is_idle()), before);
    }
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
