// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An edge that the owner's own CPU brings, which changes nothing that others see, beside their changes.

use super::*;

/// GICD_ICFGR2.
const CONFIGURATION: u32 = 0xc08;

/// vCPU 1 has handled the interrupt, which has edges.
fn handled() -> Arc<Machine> {
    let machine = Machine::new();
    machine.write(CONFIGURATION, 2);
    machine.pulse();
    machine.run(1);
    machine
}

/// The CPU of vCPU 1 brings an edge, and enters the guest.
fn own_edge(machine: &Machine) {
    machine.with(1, |gic, cx| {
        if !gic.present_edge(cx, SPI) {
            cx.vgic.edge_spi(cx.host, SPI);
        }
    });
    machine.run(1);
}

/// The next edge is the own CPU's, beside what `other` does: it is acknowledged once more, now or when it may be again.
fn beside_own_edge(other: impl Fn(&Machine) + Copy + Send + Sync + 'static) {
    let judge = |machine: &Machine| {
        machine.finish(1);
        assert_eq!(machine.acknowledged.load(Ordering::SeqCst), 2, "more than edges");
    };
    first_and_second(handled, other, own_edge, move |machine, (), ()| judge(machine));
    first_and_second(handled, own_edge, other, move |machine, (), ()| judge(machine));
}

#[test]
fn an_own_edge_beside_disable_and_enable() {
    beside_own_edge(|machine| {
        machine.write(0x184, 1);
        assert!(machine.cpus[1].lock().unwrap().1.0.is_none(), "nothing is pending while it is disabled");
        machine.write(0x104, 1);
    });
}

#[test]
fn an_own_edge_beside_a_change_of_route() {
    beside_own_edge(|machine| {
        machine.write(ROUTER, 0);
        machine.run(0);
    });
}

#[test]
fn an_own_edge_beside_a_group_switched_off_and_on() {
    beside_own_edge(|machine| {
        machine.write(0, 0);
        machine.write(0, 2);
    });
}

#[test]
fn an_own_edge_beside_one_of_another() {
    let others = |machine: &Machine| machine.vgic.edge_spi(machine, SPI);
    first_and_second(handled, own_edge, others, |machine, (), ()| {
        machine.finish(1);
        assert!(machine.acknowledged.load(Ordering::SeqCst) <= 3, "more than edges");
    });
}
