// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every register at every offset and size, written with ones, zeros and noise: what reads back is what
//! the architecture says (Arm IHI 0069, chapter 12), and nothing else has any effect.

mod common;

use common::hardware::HardwareModel;
use common::machine::Machine;
use turnstile_vgic::{
    Context, GROUPS_CHANGED, Host, Model, RemoteOp, VcpuGic, Vgic, VgicConfig, VirtualInterface,
};

const LINES: u32 = 96;

fn machine() -> Machine {
    Machine::new(&[0x0, 0x1, 0x1_0002_0300], 4)
}

/// Returns what a distributor word reads after ones were written to it, on its own, in the reset state.
/// INTIDs 0 to 31 are not the distributor's (affinity routing), and there are 64 SPIs.
fn dist_after_ones(offset: u32) -> u32 {
    let spis = |first: u32, per_register: u32| first >= 32 && first + per_register <= LINES;
    let n = (offset & 0x7f) / 4;
    match offset {
        // In progress: the others have not looked.
        0x0000 => 1 << 31 | 0b101_0011,
        0x0004 => 2 | 1 << 16 | 9 << 19 | 1 << 24,
        0x0008 => 0x5400_0000,
        0xffe8 => 0x30,
        0x0080..0x0180 if spis(32 * n, 32) => !0,
        // Enabled is cleared again by the ones; nothing else sets it.
        0x0180..0x0200 => 0,
        0x0200..0x0280 if spis(32 * n, 32) => !0,
        0x0300..0x0380 if spis(32 * n, 32) => !0,
        0x0400..0x0800 if spis(offset - 0x400, 4) => 0xf8f8_f8f8,
        0x0c00..0x0d00 if spis((offset - 0xc00) * 4, 16) => 0xaaaa_aaaa,
        0x6000..0x8000 if spis((offset - 0x6000) / 8, 1) => {
            if offset & 4 == 0 {
                0x80ff_ffff
            } else {
                0xff
            }
        }
        _ => 0,
    }
}

/// Returns what the same register reads as a byte, if bytes may be accessed.
fn dist_byte_after_ones(offset: u32) -> u32 {
    if (0x420..0x400 + LINES).contains(&offset) { 0xf8 } else { 0 }
}

/// The same for a redistributor: the RD frame and the SGI frame of vCPU 0.
fn redist_after_ones(offset: u32) -> u32 {
    match offset {
        0x0004 => 0x5400_0000,
        0x0008 => 0,
        0x000c => 0,
        0x0014 => 0b110,
        0xffe8 => 0x30,
        0x1_0080 | 0x1_0100 | 0x1_0200 | 0x1_0300 => !0,
        0x1_0400..0x1_0420 => 0xf8f8_f8f8,
        0x1_0c00 | 0x1_0c04 => 0xaaaa_aaaa,
        _ => 0,
    }
}

fn reset(machine: &Machine) {
    machine.vgic.reset();
    for vcpu in 0..3 {
        machine.with(vcpu, |gic, cx| gic.reset(cx.vgic, cx.vif));
        machine.inboxes[vcpu].take();
    }
}

#[test]
fn the_distributor_at_every_offset_and_size() {
    let machine = machine();
    for offset in 0..0x1_0000u32 {
        for size in [1u8, 2, 4, 8] {
            let value = machine.with(0, |gic, cx| {
                gic.dist_write(cx, offset, size, !0);
                gic.dist_read(cx, offset, size)
            });
            let aligned = offset % u32::from(size) == 0;
            let router = (0x6100..0x6000 + 8 * LINES).contains(&offset);
            let expected = match size {
                1 => dist_byte_after_ones(offset).into(),
                4 if aligned => dist_after_ones(offset).into(),
                8 if aligned && router => 0xff_80ff_ffff,
                _ => 0,
            };
            assert_eq!(value, expected, "offset {offset:#x}, {size} bytes");
            if value != 0 || offset < 0x80 {
                reset(&machine);
            }
        }
    }
}

#[test]
fn a_redistributor_at_every_offset_and_size_by_its_vcpu_and_by_another() {
    let machine = machine();
    for offset in 0..0x2_0000u32 {
        for size in [1u8, 2, 4, 8] {
            let aligned = offset % u32::from(size) == 0;
            let expected = match size {
                1 if (0x1_0400..0x1_0420).contains(&offset) => 0xf8,
                4 if aligned => redist_after_ones(offset).into(),
                _ => 0,
            };
            for vcpu in [0, 1] {
                let value = machine.with(vcpu, |gic, cx| {
                    gic.redist_write(cx, 0, offset, size, !0);
                    gic.redist_read(cx, 0, offset, size)
                });
                assert_eq!(value, expected, "offset {offset:#x}, {size} bytes, from vCPU {vcpu}");
            }
            if expected != 0 {
                reset(&machine);
            }
        }
    }
}

#[test]
fn noise_at_every_offset_does_no_harm() {
    let machine = machine();
    let mut noise = 0x1234_5678_9abc_def1u64;
    let mut next = || {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise
    };
    for round in 0..60_000u32 {
        let (vcpu, of) = ((next() % 3) as usize, (next() % 5) as usize);
        let size = [1, 2, 4, 4, 4, 8, 3, 0, 255][(next() % 9) as usize];
        // Mostly where registers are.
        let offset = (next() as u32) & [0xfff, 0xfff, 0x1_0fff, 0x7fff, !0][(next() % 5) as usize];
        let value = [0, !0, next()][(next() % 3) as usize];
        machine.with(vcpu, |gic, cx| {
            gic.dist_write(cx, offset, size, value);
            gic.dist_read(cx, offset, size);
            gic.redist_write(cx, of, offset, size, value);
            gic.redist_read(cx, of, offset, size);
            gic.dir(cx, value as u32);
            gic.deliver(cx, value as u32 % 2048);
            let _ = gic.inject_sgi(cx.vif, value as u32);
            let _ = gic.set_private_line(cx.vif, offset, value & 1 != 0);
        });
        machine.vgic.set_spi_line(&machine, offset, value & 1 != 0);
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
fn the_identification_of_redistributors() {
    let machine = machine();
    let typer = |of| machine.with(0, |gic, cx| gic.redist_read(cx, of, 8, 8));
    assert_eq!(typer(0), 0);
    assert_eq!(typer(1), 1 << 32 | 1 << 8);
    assert_eq!(typer(2), 0x0102_0300 << 32 | 2 << 8 | 1 << 4, "the last one");
    assert_eq!(typer(3), 0, "no such vCPU");
    // Nobody else is asked: a vCPU finds its redistributor among many without disturbing them.
    let busy = machine.cpus[1].borrow_mut();
    assert_eq!(typer(1), 1 << 32 | 1 << 8);
    drop(busy);
    let halves = machine.with(2, |gic, cx| [gic.redist_read(cx, 2, 8, 4), gic.redist_read(cx, 2, 12, 4)]);
    assert_eq!(halves, [2 << 8 | 1 << 4, 0x0102_0300]);
}

#[test]
fn light_reads_answer_what_full_reads_do_or_leave_it_to_them() {
    let machine = machine();
    let mut left = 0;
    for offset in (0..0x1_0000u32).step_by(4) {
        machine.with(0, |gic, cx| {
            gic.dist_write(cx, offset, 4, 0x5a5a_5a5a);
            let full = gic.dist_read(cx, offset, 4);
            match cx.vgic.dist_read_shared(offset, 4) {
                Some(light) => assert_eq!(light, full),
                None => left += 1,
            }
            for offset in [offset, offset + 0x1_0000] {
                let full = gic.redist_read(cx, 0, offset, 4);
                if let Some(light) = gic.redist_read_light(cx.vgic, offset, 4) {
                    assert_eq!(light, full);
                }
            }
        });
    }
    assert_eq!(left, 4 * 32 + 1, "the pending and active registers, and GICD_CTLR");
}

/// However many vCPUs there are: none is waited for, and `RWP` says which have not looked.
#[test]
fn a_change_of_the_groups_waits_for_nobody_and_is_in_progress_until_all_have_looked() {
    let machine = machine();
    let write = |vcpu, value| machine.with(vcpu, |gic, cx| gic.dist_write(cx, 0, 4, value));
    let read = || machine.with(0, |gic, cx| gic.dist_read(cx, 0, 4));
    let is_told = |vcpu: usize| machine.inboxes[vcpu].take().contains(&GROUPS_CHANGED);
    let look = |vcpu| machine.with(vcpu, |gic, cx| gic.deliver(cx, GROUPS_CHANGED));
    const RWP: u64 = 1 << 31;

    let busy = [1, 2].map(|vcpu| machine.cpus[vcpu].borrow_mut());
    write(0, 2);
    drop(busy);
    assert_eq!([0, 1, 2].map(is_told), [false, true, true]);
    assert_eq!((read(), machine.vgic.read_control_light(0, 4)), (RWP | 0b101_0010, None));
    look(1);
    assert_eq!(read(), RWP | 0b101_0010);
    // One that is in no CPU is in no guest, and looks before it is.
    machine.resident.borrow_mut().remove(&2);
    assert_eq!(read(), 0b101_0010);
    machine.resident.borrow_mut().insert(2);
    look(2);
    assert_eq!((read(), machine.vgic.read_control_light(0, 4)), (0b101_0010, Some(0b101_0010)));

    write(0, 2);
    assert_eq!([0, 1, 2].map(is_told), [false; 3], "nothing has changed");
    assert_eq!(read(), 0b101_0010);
    // Who is turned on has looked.
    write(1, 3);
    machine.with(2, |gic, cx| gic.power_on(cx));
    look(0);
    assert_eq!(read(), 0b101_0011);
    // A new life has nothing in progress.
    write(1, 0);
    reset(&machine);
    assert_eq!(machine.vgic.read_control_light(0, 4), Some(0b101_0000));
}

/// The others, each of which looks as soon as it is told, beside one that reads GICD_CTLR all the time.
struct Quick<'a>(&'a Machine);

impl Host for Quick<'_> {
    fn post(&self, vcpu: usize, intid: u32) {
        self.0.with(vcpu, |gic, cx| gic.deliver(cx, intid));
        assert_eq!(self.0.vgic.read_control_light(0, 4), None, "not all have been told");
    }
    fn is_resident(&self, _: usize) -> bool {
        true
    }
    fn remote<V: VirtualInterface>(&self, _: &mut VcpuGic, _: &mut V, _: usize, _: RemoteOp) -> u64 {
        unreachable!("nobody is asked")
    }
}

#[test]
fn a_change_of_the_groups_is_in_progress_until_all_have_been_told() {
    let machine = machine();
    machine.with(0, |gic, cx| {
        let cx = &mut Context { vgic: cx.vgic, vif: &mut *cx.vif, host: &Quick(&machine) };
        gic.dist_write(cx, 0, 4, 2);
    });
    assert_eq!(machine.vgic.read_control_light(0, 4), Some(0b101_0010));
}

#[test]
fn the_waker_sleeps_and_wakes() {
    let machine = machine();
    machine.with(1, |gic, cx| {
        assert_eq!(gic.redist_read(cx, 1, 0x14, 4), 0b110, "asleep after reset");
        gic.redist_write(cx, 1, 0x14, 4, 0);
        assert_eq!(gic.redist_read(cx, 1, 0x14, 4), 0);
        gic.redist_write(cx, 1, 0x14, 4, !0);
        assert_eq!(gic.redist_read(cx, 1, 0x14, 4), 0b110);
    });
}

#[test]
fn messages_make_spis_pending() {
    let machine = machine();
    let pending = |intid: u32| machine.read(0, intid, 0x200);
    let write = |offset, size, value| machine.with(0, |gic, cx| gic.dist_write(cx, offset, size, value));
    write(0xc08, 4, 0b10);
    for size in [2, 4] {
        // INTID 32 is edge-triggered, 33 is level-sensitive.
        for intid in [32, 33] {
            write(0x40, size, intid.into());
            assert!(pending(intid));
            write(0x48, size, intid.into());
            assert!(!pending(intid));
        }
    }
    for intid in [0, 31, 96, 1020, !0] {
        write(0x40, 4, intid);
        write(0x48, 4, intid);
    }
    assert!((0..96).all(|intid| !pending(intid)));
    // Without Security states there are no Secure messages.
    write(0x50, 4, 32);
    assert!(!pending(32));
}

#[test]
fn the_identification_follows_the_configuration() {
    let typer = |mpidrs: &[u64], spis| {
        let model = Model::Gicv3;
        let config = VgicConfig { model, mpidrs, spis, priority_bits: 5, group1_at_reset: false };
        let vgic = Vgic::new(&config).unwrap();
        let gic = VcpuGic::new(&vgic, 0, 4, HardwareModel::encode);
        assert_eq!(gic.redist_read_light(&vgic, 0x1_0080, 4), Some(0), "Group 0 after reset");
        assert_eq!(vgic.dist_read_shared(0x84, 4), Some(0));
        vgic.dist_read_light(4, 4).unwrap()
    };
    assert_eq!(typer(&[0], 0) & 0x1f, 0);
    assert_eq!(typer(&[0], 960) & 0x1f, 30);
    assert_eq!(typer(&[0], 32) >> 26 & 1, 0, "no range selector");
    assert_eq!(typer(&[16], 32) >> 26 & 1, 1);
}

#[test]
fn the_last_redistributor_of_each_region_says_so() {
    let mpidrs: Vec<u64> = (0..5).collect();
    let config = VgicConfig {
        model: Model::Gicv3,
        mpidrs: &mpidrs,
        spis: 32,
        priority_bits: 5,
        group1_at_reset: true,
    };
    let mut vgic = Vgic::new(&config).unwrap();
    let last = |vgic: &Vgic| {
        let typer =
            |vcpu| VcpuGic::new(vgic, vcpu, 4, HardwareModel::encode).redist_read_light(vgic, 8, 8).unwrap();
        (0..5).filter(|&vcpu| typer(vcpu) >> 4 & 1 == 1).collect::<Vec<_>>()
    };
    assert_eq!(last(&vgic), [4]);
    vgic.split_redistributors(3);
    assert_eq!(last(&vgic), [2, 4]);
}
