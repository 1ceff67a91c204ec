// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What only a GICv2 has (Arm IHI 0048): its register map at every offset and size, the senders of SGIs, the
//! targets of SPIs, and what each of them costs.

mod common;

use common::bench::{NOTHING, ONE_WRITE};
use common::hardware::{Accesses, HardwareModel};
use common::machine::Machine;
use turnstile_vgic::{
    Backing, ConfigError, LrState, MAX_GICV2_VCPUS, Maintenance, Model, Outcome, Vgic, VgicConfig,
};

const LINES: u32 = 96;

fn hw<R>(machine: &Machine, vcpu: usize, run: impl FnOnce(&mut HardwareModel) -> R) -> R {
    run(&mut machine.cpus[vcpu].borrow_mut().hw)
}

fn write(machine: &Machine, vcpu: usize, offset: u32, size: u8, value: u64) {
    machine.with(vcpu, |gic, cx| gic.dist_write(cx, offset, size, value));
}

fn read(machine: &Machine, vcpu: usize, offset: u32, size: u8) -> u64 {
    machine.with(vcpu, |gic, cx| gic.dist_read(cx, offset, size))
}

/// Builds vCPUs with the groups on, everything enabled, and SPIs 32 to 35 going to vCPU 0.
fn machine(vcpus: u64, list_registers: usize) -> Machine {
    let machine = Machine::gicv2(vcpus, list_registers);
    for vcpu in 0..vcpus as usize {
        write(&machine, vcpu, 0, 4, 3);
        write(&machine, vcpu, 0x100, 4, 0xffff_ffff);
        write(&machine, vcpu, 0x104, 4, 0xf);
    }
    write(&machine, 0, 0x820, 4, 0x0101_0101);
    machine.drain();
    for vcpu in 0..vcpus as usize {
        hw(&machine, vcpu, |hw| hw.take_accesses());
    }
    machine
}

/// Takes and ends the next interrupt of a vCPU: its INTID and sender.
fn handle(machine: &Machine, vcpu: usize) -> Option<(u32, u8)> {
    machine.service();
    let taken = hw(machine, vcpu, HardwareModel::acknowledge_with_source)?;
    hw(machine, vcpu, |hw| hw.end_of_interrupt(taken.0));
    Some(taken)
}

/// Returns what a word reads for vCPU 1 of three after ones were written to it, on its own, in the reset state.
fn after_ones(offset: u32) -> u32 {
    let exists = |first: u32, per_register: u32| first + per_register <= LINES;
    let n = (offset & 0x7f) / 4;
    match offset {
        0x000 => 0b11,
        0x004 => 2 | 2 << 5,
        0x008 => 0x5400_0000,
        0xfe8 => 0x20,
        0x080..0x100 if exists(32 * n, 32) => !0,
        0x100..0x180 if exists(32 * n, 32) => !0,
        // SGIs come enabled; the ones disable them.
        0x180..0x200 => 0,
        // The pending states of SGIs are read-only here.
        0x200 => 0xffff_0000,
        0x200..0x280 if exists(32 * n, 32) => !0,
        0x300..0x380 if exists(32 * n, 32) => !0,
        0x400..0x800 if exists(offset - 0x400, 4) => 0xf8f8_f8f8,
        0x800..0x820 => 0x0202_0202,
        0x820..0xc00 if exists(offset - 0x800, 4) => 0x0707_0707,
        0xc00..0xd00 if exists((offset - 0xc00) * 4, 16) => 0xaaaa_aaaa,
        0xf20..0xf30 => 0x0707_0707,
        _ => 0,
    }
}

/// Returns the same for a byte, where bytes may be accessed.
fn byte_after_ones(offset: u32) -> u32 {
    match offset {
        0x400..0x460 => 0xf8,
        0x800..0x820 => 0x02,
        0x820..0x860 => 0x07,
        0xf20..0xf30 => 0x07,
        _ => 0,
    }
}

#[test]
fn the_distributor_at_every_offset_and_size() {
    let machine = Machine::gicv2(3, 4);
    for offset in 0..0x1_0000u32 {
        for size in [1u8, 2, 4, 8] {
            write(&machine, 1, offset, size, !0);
            let value = read(&machine, 1, offset, size);
            let expected = match size {
                1 => byte_after_ones(offset),
                4 if offset % 4 == 0 => after_ones(offset),
                _ => 0,
            };
            assert_eq!(value, expected.into(), "offset {offset:#x}, {size} bytes");
            if let Some(light) = machine.vgic.dist_read_shared(offset, size) {
                assert_eq!(light, value, "light, offset {offset:#x}, {size} bytes");
            }
            if offset < 0x1000 {
                machine.vgic.reset();
                for vcpu in 0..3 {
                    machine.inboxes[vcpu].take();
                    machine.with(vcpu, |gic, cx| gic.power_on(cx));
                }
            }
        }
    }
}

#[test]
fn private_registers_are_each_vcpus_own() {
    let machine = Machine::gicv2(2, 4);
    for (offset, value) in [(0x400, 0x1020_3040), (0x80, 0x5555_0000), (0x100, 0x00f0_ffff), (0xc04, 0xa0a0)]
    {
        write(&machine, 0, offset, 4, value);
        assert_eq!(read(&machine, 0, offset, 4), value);
        assert_ne!(read(&machine, 1, offset, 4), value, "offset {offset:#x}");
    }
    assert_eq!(read(&machine, 0, 0x800, 1), 1);
    assert_eq!(read(&machine, 1, 0x800, 1), 2);
}

#[test]
fn one_vcpu_has_no_targets_to_choose() {
    let machine = machine(1, 4);
    for offset in [0x800, 0x820] {
        write(&machine, 0, offset, 4, 0);
        assert_eq!(read(&machine, 0, offset, 4), 0);
    }
    machine.vgic.pulse_spi(&machine, 33);
    assert_eq!(handle(&machine, 0), Some((33, 0)));
}

#[test]
fn noise_at_every_offset_does_no_harm() {
    let machine = Machine::gicv2(3, 2);
    let mut noise = 0x1234_5678_9abc_def1u64;
    let mut next = || {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise
    };
    for round in 0..60_000u32 {
        let vcpu = (next() % 3) as usize;
        let size = [1, 2, 4, 4, 4, 8, 3, 0, 255][(next() % 9) as usize];
        let offset = (next() as u32) & [0xfff, 0xfff, 0xf7f, 0xffff, !0][(next() % 5) as usize];
        let value = [0, !0, next()][(next() % 3) as usize];
        machine.with(vcpu, |gic, cx| {
            gic.dist_write(cx, offset, size, value);
            gic.dist_read(cx, offset, size);
            gic.redist_write(cx, vcpu, offset, size, value);
            gic.dir(cx, value as u32);
            gic.deliver(cx, value as u32 % 2048);
            let _ = gic.inject_sgi(cx.vif, value as u32);
            let _ = gic.inject_sgi_from(cx.vif, value as u32, value as usize >> 4);
            let (intid, targets) = cx.vgic.sgir_targets(value as u32, vcpu);
            for target in targets {
                cx.vgic.post_sgi(cx.host, target, intid, vcpu);
            }
            cx.vgic.post_sgi(cx.host, value as usize % 3, offset, value as usize);
        });
        if round % 16 == 0 {
            machine.service();
            let mut cpu = machine.cpus[vcpu].borrow_mut();
            if let Some(intid) = cpu.hw.acknowledge() {
                cpu.hw.end_of_interrupt(intid);
            }
        }
    }
}

#[test]
fn a_filter_names_the_targets() {
    let vgic = |vcpus: u64| {
        let mpidrs: Vec<u64> = (0..vcpus).collect();
        let model = Model::Gicv2;
        let config =
            VgicConfig { model, mpidrs: &mpidrs, spis: 32, priority_bits: 5, group1_at_reset: false };
        Vgic::new(&config)
    };
    let targets = |vcpus, value, sender| {
        let (intid, targets) = vgic(vcpus).unwrap().sgir_targets(value, sender);
        assert_eq!(intid, value & 15);
        targets.collect::<Vec<usize>>()
    };
    assert_eq!(targets(8, 0xa5 << 16 | 3, 1), [0, 2, 5, 7]);
    assert_eq!(targets(3, 0xff << 16 | 1 << 15, 1), [0, 1, 2], "those that exist, whatever NSATT says");
    assert_eq!(targets(4, 1 << 24 | 0xff << 16, 2), [0, 1, 3]);
    assert_eq!(targets(1, 1 << 24, 0), []);
    assert_eq!(targets(4, 2 << 24, 2), [2]);
    assert_eq!(targets(8, 3 << 24 | 0xff << 16, 2), [], "reserved");
    assert_eq!(vgic(0).err(), Some(ConfigError::Vcpus));
    assert!(vgic(MAX_GICV2_VCPUS as u64).is_ok());
    assert_eq!(vgic(MAX_GICV2_VCPUS as u64 + 1).err(), Some(ConfigError::Vcpus));
}

/// Eight senders of one SGI: eight interrupts, in turn, whichever comes back meanwhile.
#[test]
fn senders_take_turns() {
    let machine = machine(8, 2);
    for sender in 1..8 {
        machine.vgic.post_sgi(&machine, 0, 5, sender);
        machine.vgic.post_sgi(&machine, 0, 5, sender);
    }
    let mut order = Vec::new();
    for _ in 0..14 {
        let (intid, sender) = handle(&machine, 0).unwrap();
        assert_eq!(intid, 5);
        order.push(sender);
        if order.len() < 8 {
            machine.vgic.post_sgi(&machine, 0, 5, sender.into());
        }
    }
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(handle(&machine, 0), None);
}

#[test]
fn an_sgi_costs_one_write_while_a_list_register_is_free() {
    let machine = machine(2, 4);
    let cost = || hw(&machine, 0, |hw| hw.take_accesses());
    let inject = |sender| machine.with(0, |gic, cx| gic.inject_sgi_from(cx.vif, 4, sender));
    assert_eq!(inject(0), Outcome::Done);
    assert_eq!(cost(), ONE_WRITE);
    // Again, from the same sender and from another one, when the guest has handled the last.
    for sender in [0, 0, 1, 1, 0] {
        assert!(handle(&machine, 0).is_some());
        assert_eq!(inject(sender), Outcome::Done);
        assert_eq!(cost(), Accesses { reads: 1, writes: 1, ..NOTHING });
        let lr = hw(&machine, 0, |hw| hw.highest_pending()).unwrap();
        assert_eq!((lr.intid, lr.source, lr.state), (4, sender as u8, LrState::Pending));
        assert_eq!(lr.backing, Backing::Software { eoi_maintenance: false });
    }
    // From another vCPU: the same, on the receiver's side.
    assert!(handle(&machine, 0).is_some());
    machine.vgic.post_sgi(&machine, 0, 6, 1);
    machine.drain();
    assert_eq!(cost(), ONE_WRITE);
    // Nothing was ever armed, and nothing is when the vCPU leaves.
    assert_eq!(handle(&machine, 0), Some((6, 1)));
    assert_eq!(hw(&machine, 0, |hw| hw.armed), Maintenance::NONE);
}

#[test]
fn a_deactivation_elsewhere_is_exact() {
    let machine = machine(2, 1);
    hw(&machine, 0, |hw| hw.interface.eoi_mode = true);
    for intid in [32, 33] {
        machine.vgic.pulse_spi(&machine, intid);
    }
    // Both acknowledged and dropped: one of them has no list register now.
    for intid in [32, 33] {
        assert_eq!(handle(&machine, 0), Some((intid, 0)));
    }
    machine.service();
    for intid in [33, 32] {
        assert!(machine.read(1, intid, 0x300), "active");
        machine.vgic.pulse_spi(&machine, intid);
        machine.service();
        assert!(!hw(&machine, 1, |hw| hw.deactivate_interrupt(intid)), "GICV_DIR traps always");
        machine.with(1, |gic, cx| gic.dir(cx, intid));
        machine.service();
        assert!(!machine.read(1, intid, 0x300), "inactive");
        assert_eq!(handle(&machine, 0), Some((intid, 0)), "what came meanwhile");
        machine.with(0, |gic, cx| gic.dir(cx, intid));
    }
    assert_eq!(handle(&machine, 0), None);
}

#[test]
fn an_spi_goes_to_the_first_target_that_is_on() {
    let machine = machine(3, 2);
    let power = |vcpu: usize, on: bool| {
        machine.with(vcpu, |gic, cx| if on { gic.power_on(cx) } else { gic.power_off(cx) });
        hw(&machine, vcpu, |hw| hw.active_priorities.clear());
        write(&machine, vcpu, 0, 4, 3);
    };
    let taken_by = || (0..3).find(|vcpu| handle(&machine, *vcpu).is_some());
    write(&machine, 0, 0x820, 1, 0b110);
    machine.vgic.pulse_spi(&machine, 32);
    assert_eq!(taken_by(), Some(1));
    // Pending in the list register of one that goes off, it moves on; and back when that one is on again.
    machine.vgic.pulse_spi(&machine, 32);
    machine.service();
    power(1, false);
    machine.service();
    assert!(hw(&machine, 2, |hw| hw.highest_pending().is_some()), "not moved on");
    power(1, true);
    assert_eq!(taken_by(), Some(1));
    power(1, false);
    power(2, false);
    machine.vgic.pulse_spi(&machine, 32);
    assert_eq!(taken_by(), None);
    assert!(machine.read(0, 32, 0x200), "pending");
    power(2, true);
    assert_eq!(taken_by(), Some(2));
}

/// What is sent to a vCPU that is off is there when it comes on, once.
#[test]
fn an_sgi_waits_for_a_vcpu_that_is_off() {
    let machine = machine(2, 2);
    machine.with(1, |gic, cx| gic.power_off(cx));
    machine.vgic.post_sgi(&machine, 1, 7, 0);
    machine.with(1, |gic, cx| gic.power_on(cx));
    assert_eq!(handle(&machine, 1), Some((7, 0)));
    assert_eq!(handle(&machine, 1), None);
    // A reset of the VM takes it away.
    machine.vgic.post_sgi(&machine, 1, 7, 0);
    machine.vgic.reset();
    machine.with(1, |gic, cx| gic.power_on(cx));
    write(&machine, 0, 0, 4, 3);
    assert_eq!(handle(&machine, 1), None);
}

#[test]
fn list_registers_are_left_empty_by_put() {
    let machine = machine(2, 2);
    for sender in 0..2 {
        machine.vgic.post_sgi(&machine, 0, 1, sender);
        machine.vgic.post_sgi(&machine, 0, 2, sender);
    }
    machine.drain();
    machine.with(0, |gic, cx| gic.put(cx.vif));
    assert!(hw(&machine, 0, |hw| hw.is_empty()));
    machine.vgic.post_sgi(&machine, 0, 3, 1);
    machine.drain();
    machine.with(0, |gic, cx| gic.load(cx));
    let mut seen: Vec<(u32, u8)> = std::iter::from_fn(|| handle(&machine, 0)).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(1, 0), (1, 1), (2, 0), (2, 1), (3, 1)]);
}

#[test]
fn an_sgi_that_was_handled_before_put_is_its_senders_last_turn() {
    let machine = machine(2, 2);
    let send = |sender| {
        machine.vgic.post_sgi(&machine, 0, 1, sender);
        machine.drain();
    };
    send(1);
    assert_eq!(handle(&machine, 0), Some((1, 1)));
    machine.with(0, |gic, cx| gic.put(cx.vif));
    assert!(hw(&machine, 0, |hw| hw.is_empty()));
    send(1);
    send(0);
    machine.with(0, |gic, cx| gic.load(cx));
    let seen: Vec<(u32, u8)> = std::iter::from_fn(|| handle(&machine, 0)).collect();
    assert_eq!(seen, [(1, 0), (1, 1)]);
}
